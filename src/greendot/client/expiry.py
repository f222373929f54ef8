"""When a token ends, and when to have another. Pure: the time is an argument."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from binascii import Error

import msgspec

from greendot.protocol.decoding import decode

EARLY_S = 60.0  # before its end a token is replaced, if it holds that long
EARLY_SHARE = 0.2  # of its life, if it does not
SOONEST_S = 1.0  # a token that ends at once must not have the app asked for another in a loop


class _Claims(msgspec.Struct):
    exp: float


def expires_at(token: str) -> float | None:
    """The token's end in ms UTC, as it says itself; None for what is no JWT, or does not say.

    Nothing is verified: that is for the server, and a wrong end only means that the server closes first.
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
    """Seconds until a token that holds for `left_s` more is replaced.

    `jitter` in [0, 1): those whose tokens were made together must not all ask for new ones together.
    """
    early = min(EARLY_S, left_s * EARLY_SHARE) * (1 + jitter / 2)
    return max(left_s - early, SOONEST_S)
