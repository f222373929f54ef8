"""Token claims on the wire, and signing with a shared secret by an app's backend."""

from __future__ import annotations

import hmac
import json
from base64 import urlsafe_b64encode
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from greendot.errors import TokenError
from greendot.ids import ID_PATTERN, TEXT_PATTERN

MOST_CHARACTERS = 64 * 1024  # maximum length of a frame; a longer token is refused unread
Id = Annotated[str, Meta(pattern=ID_PATTERN)]
Pattern = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.@=+*-]{1,128}\Z")]
Patterns = Annotated[tuple[Pattern, ...], Meta(max_length=100)]
Text = Annotated[str, Meta(max_length=200, pattern=TEXT_PATTERN)]
Seconds = Annotated[float, Meta(ge=0, le=1e11)]  # since 1970; bounded because Python's JSON decoder accepts Infinity


class Claims(Struct):
    """Claims that the server reads from a token. All other claims belong to the app."""

    sub: Id
    exp: Seconds
    tenant: Id | UnsetType = UNSET
    name: Text | None = None
    rooms: Patterns = ()
    watch: Patterns | None = None
    send: bool = True
    iat: Seconds | None = None
    nbf: Seconds | None = None
    jti: Text | None = None
    aud: Any = None  # `aud` and `iss` belong to the app too, unless the settings require them
    iss: Any = None


def claims_in(payload: Any) -> Claims:
    """Return the claims of a decoded token.

    Raise TokenError if a claim is wrong; the message names the claim and does not repeat its value.
    """
    try:
        return msgspec.convert(payload, Claims)
    except msgspec.ValidationError as error:
        raise TokenError(f"invalid claim in the token: {error}".replace("`$.", "`")) from None


def sign_hs256(secret: str, claims: dict[str, Any]) -> str:
    """Return the claims as a token signed with HMAC-SHA256."""
    signed = b".".join(_part(part) for part in ({"alg": "HS256", "typ": "JWT"}, claims))
    return b".".join((signed, _encoded(hmac.digest(secret.encode(), signed, "sha256")))).decode()


def _part(value: dict[str, Any]) -> bytes:
    return _encoded(json.dumps(value, separators=(",", ":")).encode())


def _encoded(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")
