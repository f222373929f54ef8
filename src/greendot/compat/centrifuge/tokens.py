"""Subscription tokens, and claims of connection tokens that only Centrifuge clients use."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from typing import Any

import msgspec
from msgspec import Struct

from greendot.auth.tokens import Tokens
from greendot.compat.centrifuge.codes_model import CfErr, CfRefused
from greendot.errors import KeysUnavailable, TokenError
from greendot.node.session import Session
from greendot.protocol.decoding import decoder

NO_END_S = 4_102_444_800  # `exp` of a subscription token without an end: 2100
MOST_CHANNELS = 100  # server-side subscriptions in one token


class _Channels(Struct):
    """Server-side subscriptions of a connection token."""

    channels: list[str] = []
    subs: dict[str, Any] = {}


_read_channels = decoder(_Channels)


async def subscription_end(tokens: Tokens, token: str, session: Session, channel: str, now_ms: int) -> int | None:
    """Return when a subscription token ends, in milliseconds UTC; None without an end.

    Raise CfRefused unless the token is for this channel and for the user of the session.
    """
    try:
        grants, claims = await tokens.verify_claims(token, now_ms, exp=NO_END_S)
    except KeysUnavailable as error:
        raise CfRefused(CfErr.INTERNAL, str(error), temporary=True) from None
    except TokenError as error:
        code = CfErr.TOKEN_EXPIRED if error.expired else CfErr.PERMISSION_DENIED
        raise CfRefused(code, f"subscription token: {error}") from None
    if claims.get("channel") != channel:
        raise CfRefused(CfErr.PERMISSION_DENIED, "the subscription token is for another channel; get a token for it")
    if (grants.tenant, grants.user) != session.key:
        raise CfRefused(CfErr.PERMISSION_DENIED, "the subscription token is for another user; get a token for the user")
    return None if grants.expires_at >= NO_END_S * 1000 else grants.expires_at


def granted_channels(token: str) -> list[str]:
    """Return the channels that a verified connection token subscribes its client to (claims `channels`, `subs`)."""
    body = token.split(".")[1]
    try:
        found = _read_channels(urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (ValueError, msgspec.DecodeError):
        return []
    return [*dict.fromkeys([*found.channels, *found.subs])][:MOST_CHANNELS]
