"""Subscription tokens, and claims of connection tokens that only Centrifuge clients use."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct, structs

from greendot.auth.model import Grants
from greendot.auth.revocation import RevocationService
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


class SubscriptionGrant(NamedTuple):
    """Verified subscription token."""

    grants: Grants  # for the revocations that may cover the token
    ends_at: int | None  # end of the subscription, milliseconds UTC; None without an end


async def read_subscription(
    tokens: Tokens, revocation_service: RevocationService, token: str, session: Session, channel: str, now_ms: int
) -> SubscriptionGrant:
    """Return what a subscription token grants.

    Raise CfRefused unless the token is for this channel and for the user of the session, and is not revoked.
    """
    try:
        grants, claims = await tokens.verify_claims(token, now_ms, exp=NO_END_S)
        has_end = grants.expires_at < NO_END_S * 1000
        if not has_end:
            grants = _limited(grants, revocation_service.longest_ms, now_ms)
        await revocation_service.admit(grants)
    except KeysUnavailable as error:
        raise CfRefused(CfErr.INTERNAL, str(error), temporary=True) from None
    except TokenError as error:
        code = CfErr.TOKEN_EXPIRED if error.expired else CfErr.PERMISSION_DENIED
        raise CfRefused(code, f"subscription token: {error}") from None
    if claims.get("channel") != channel:
        raise CfRefused(CfErr.PERMISSION_DENIED, "the subscription token is for another channel; get a token for it")
    if (grants.tenant, grants.user) != session.key:
        raise CfRefused(CfErr.PERMISSION_DENIED, "the subscription token is for another user; get a token for the user")
    return SubscriptionGrant(grants, grants.expires_at if has_end else None)


def _limited(grants: Grants, longest_ms: int, now_ms: int) -> Grants:
    """Return the grants of a token without `exp`. It is accepted no longer than a revocation of it is kept."""
    if grants.issued_at is None:
        raise TokenError("the token has neither `exp` nor `iat`, so it could not be revoked; issue tokens with one")
    if grants.issued_at + longest_ms <= now_ms:
        raise TokenError("the token is older than auth.longest_token_s; get a new token", expired=True)
    return structs.replace(grants, expires_at=grants.issued_at + longest_ms)


def granted_channels(token: str) -> list[str]:
    """Return the channels that a verified connection token subscribes its client to (claims `channels`, `subs`)."""
    body = token.split(".")[1]
    try:
        found = _read_channels(urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (ValueError, msgspec.DecodeError):
        return []
    return [*dict.fromkeys([*found.channels, *found.subs])][:MOST_CHANNELS]
