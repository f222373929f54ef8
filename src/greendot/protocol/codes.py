"""Close codes and error codes, the numbers and words other programs are written against.

Close codes say what to do in their first digits: 4000–4499 come back, 4500–4999 do not.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum


class Close(IntEnum):
    """Why a socket was closed."""

    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL_VIOLATION = 1002  # RFC 6455 was broken
    BINARY = 1003
    BAD_UTF8 = 1007
    TOO_BIG = 1009
    INTERNAL = 1011

    DRAINING = 4000
    TOO_SLOW = 4001
    HEARTBEAT_LOST = 4002
    OVERLOADED = 4003
    RESYNC = 4004
    TOKEN_EXPIRED = 4005

    BAD_TOKEN = 4500
    REVOKED = 4501
    PROTOCOL_ERROR = 4502
    DISCONNECTED = 4503
    VERSION = 4504
    REPLACED = 4505


class Err(StrEnum):
    """The `code` of an error frame."""

    BAD_FRAME = "bad_frame"
    UNKNOWN_TYPE = "unknown_type"
    BAD_FIELD = "bad_field"
    NOT_A_MEMBER = "not_a_member"
    FORBIDDEN = "forbidden"
    RATE_LIMITED = "rate_limited"
    TOO_MANY = "too_many"
    UNAVAILABLE = "unavailable"
    INTERNAL = "internal"


# Errors a client may cure by trying the same command again later.
RETRYABLE = frozenset({Err.RATE_LIMITED, Err.UNAVAILABLE, Err.INTERNAL})


def invites_return(code: int) -> bool:
    """Whether a client closed with `code` should reconnect."""
    return 4000 <= code < 4500
