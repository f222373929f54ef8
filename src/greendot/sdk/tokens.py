"""Tokens for an app's users, signed with the secret that app and server share. No request to the server is made."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypedDict

from greendot.errors import TokenError
from greendot.protocol.tokens import MOST_CHARACTERS, claims_in, sign_hs256
from greendot.sdk.http import Hidden, checked, seconds

SHORTEST = 32  # characters; a server accepts no shorter secret


class Claims(TypedDict, total=False):
    """Optional claims of a token, as in docs/protocol.md."""

    name: str | None  # shown to other users
    info: dict[str, Any] | None  # shown to other users, such as avatar and colour: at most 1,024 bytes as JSON
    rooms: Sequence[str] | None  # rooms that may be joined without membership; * matches
    watch: Sequence[str] | None  # users who may be watched; * matches; all users if left out
    send: bool | None  # False: read-only
    tenant: str | None
    jti: str | None  # id for revocation; generated if left out
    aud: str | None
    iss: str | None


def mint(secret: Hidden, user: str, ttl: float | timedelta, claims: Claims) -> str:
    """Return a signed token. If an argument is wrong, raise ValueError, which names it."""
    if len(secret.text) < SHORTEST:
        raise ValueError(
            f"give Server the secret the server signs with (auth.secret), of {SHORTEST} characters or more"
        )
    ttl_s = seconds(ttl)
    if ttl_s is None or not 0 < ttl_s < float("inf"):
        raise ValueError("ttl is how long the token holds: seconds or a timedelta, more than nothing")
    now_s = time.time()
    body = {"sub": checked("user", user), "iat": round(now_s, 3), "exp": round(now_s + max(ttl_s, 1.0))}
    body |= {"jti": secrets.token_hex(8)} | {name: _plain(value) for name, value in claims.items()}
    body = {name: value for name, value in body.items() if value is not None}
    try:
        claims_in(body)  # claims that every server would refuse fail here, not later for a user
    except TokenError as error:
        raise ValueError(str(error)) from None
    token = sign_hs256(secret.text, body)
    if len(token) > MOST_CHARACTERS:
        raise ValueError(f"the token is longer than {MOST_CHARACTERS} characters")
    return token


def _plain(value: object) -> object:
    if isinstance(value, str) or not isinstance(value, Sequence):
        return value
    return list(value)
