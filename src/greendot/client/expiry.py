"""Expiry of tokens, and when to refresh them. Pure: the time is an argument."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from binascii import Error

import msgspec

from greendot.protocol.decoding import decode

EARLY_S = 60.0  # seconds before expiry at which a token is replaced
EARLY_SHARE = 0.2  # share of the remaining time, if less than EARLY_S
SOONEST_S = 1.0  # minimum delay: a token that expires at once must not cause a loop of requests to the app


class _Claims(msgspec.Struct):
    exp: float


def expires_at(token: str) -> float | None:
    """Return the token's expiry in ms UTC from its claims; None if it is no JWT or has no expiry.

    The token is not verified: verification is up to the server. A wrong expiry only means that the server closes first.
    """
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = decode(urlsafe_b64decode(parts[1] + "=="), _Claims)
    except (msgspec.DecodeError, Error, ValueError):
        return None
    return claims.exp * 1000 if 0 < claims.exp < 1e11 else None


def refresh_in(left_s: float, jitter: float) -> float:
    """Return the seconds until a token with `left_s` seconds left is replaced.

    `jitter` in [0, 1): clients whose tokens were made together must not all request new ones together.
    """
    early = min(EARLY_S, left_s * EARLY_SHARE) * (1 + jitter / 2)
    return max(left_s - early, SOONEST_S)
