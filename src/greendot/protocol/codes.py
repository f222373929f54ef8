"""Close codes and error codes: the public numbers and words of the protocol.

A client reconnects after close codes 4000–4499 and stops after 4500–4999.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum


class Close(IntEnum):
    """Close code of a WebSocket."""

    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL_VIOLATION = 1002  # violation of RFC 6455
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


CLOSED: dict[Close, str] = {
    Close.NORMAL: "After `bye`, or closed by the client.",
    Close.GOING_AWAY: "The client is going away.",
    Close.PROTOCOL_VIOLATION: "RFC 6455 was broken.",
    Close.BINARY: "A binary frame: frames are text.",
    Close.BAD_UTF8: "Text that is not UTF-8.",
    Close.TOO_BIG: "A message larger than it may be.",
    Close.INTERNAL: "It failed on the server, where it was logged.",
    Close.DRAINING: "The server is stopping: another one takes the session.",
    Close.TOO_SLOW: "More waited for the client than is kept: come back and recover.",
    Close.HEARTBEAT_LOST: "Nothing was heard of the client for too long.",
    Close.OVERLOADED: "Too much to do, far too many commands, or more connections than may be.",
    Close.RESYNC: "Come back and read everything again.",
    Close.TOKEN_EXPIRED: "The token has ended: come back with a new one.",
    Close.BAD_TOKEN: "The token is not valid.",
    Close.REVOKED: "The token, the session or the user was revoked.",
    Close.PROTOCOL_ERROR: "No hello in time, something before it, a second one, or too many bad frames.",
    Close.DISCONNECTED: "Disconnected by the operator.",
    Close.VERSION: "The client does not read an event it cannot do without; the reason names it.",
    Close.REPLACED: "The session was resumed on another connection.",
}

REFUSED: dict[Err, str] = {
    Err.BAD_FRAME: "Not JSON, not an object, or no `type`.",
    Err.UNKNOWN_TYPE: "There is no such command.",
    Err.BAD_FIELD: "A field is missing or wrong; the message names it.",
    Err.NOT_A_MEMBER: "The user may not be in this room, or it does not exist.",
    Err.FORBIDDEN: "The token, or the role in the room, does not allow this.",
    Err.RATE_LIMITED: "Too much for this connection, user, room or tenant; the message says for which.",
    Err.TOO_MANY: "More watches or rooms than a connection may have.",
    Err.UNAVAILABLE: "The server cannot do it now.",
    Err.INTERNAL: "It failed on the server, where it was logged.",
}

# Errors after which a client may retry the same command later.
RETRYABLE = frozenset({Err.RATE_LIMITED, Err.UNAVAILABLE, Err.INTERNAL})


def invites_return(code: int) -> bool:
    """Return whether a client closed with `code` should reconnect."""
    return 4000 <= code < 4500
