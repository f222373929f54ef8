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
    """Code of an error frame."""

    BAD_FRAME = "bad_frame"
    UNKNOWN_TYPE = "unknown_type"
    BAD_FIELD = "bad_field"
    NOT_A_MEMBER = "not_a_member"
    NO_SUCH_ROOM = "no_such_room"
    FORBIDDEN = "forbidden"
    MUTED = "muted"
    BANNED = "banned"
    SLOW_MODE = "slow_mode"
    REJECTED = "rejected"
    RATE_LIMITED = "rate_limited"
    TOO_MANY = "too_many"
    UNAVAILABLE = "unavailable"
    INTERNAL = "internal"


CLOSED: dict[Close, str] = {
    Close.NORMAL: "The client sent `bye` or closed the connection.",
    Close.GOING_AWAY: "The client is going away, for example because its page was closed.",
    Close.PROTOCOL_VIOLATION: "The client violated RFC 6455.",
    Close.BINARY: "The client sent a binary frame. Send text frames.",
    Close.BAD_UTF8: "The client sent a text frame that is not valid UTF-8.",
    Close.TOO_BIG: "The client sent a message above the size limit.",
    Close.INTERNAL: "An internal error occurred; see the server log.",
    Close.DRAINING: "The server is stopping. Reconnect: another server takes the session.",
    Close.TOO_SLOW: "The client reads too slowly and its send buffer is full. Reconnect and recover.",
    Close.HEARTBEAT_LOST: "The server received no frame from the client for too long. Reconnect.",
    Close.OVERLOADED: "The server is overloaded, or the client exceeds the limit of frames or connections. "
    "Reconnect later.",
    Close.RESYNC: "The client may have missed events. Reconnect and read all data again.",
    Close.TOKEN_EXPIRED: "The token has expired. Reconnect with a new token.",
    Close.BAD_TOKEN: "The token is not valid.",
    Close.REVOKED: "The token, the session or the user was revoked.",
    Close.PROTOCOL_ERROR: "The first frame was not `hello` or came too late, `hello` was sent twice, "
    "or too many frames were invalid.",
    Close.DISCONNECTED: "An operator disconnected the session.",
    Close.VERSION: "The client reads no version of a required event; the close reason names the event. "
    "Update the client.",
    Close.REPLACED: "The session was resumed on another connection.",
}

REFUSED: dict[Err, str] = {
    Err.BAD_FRAME: "The frame is not JSON, not an object, or has no `type`.",
    Err.UNKNOWN_TYPE: "The server has no command of this type.",
    Err.BAD_FIELD: "A field is missing or invalid; the message names the field.",
    Err.NOT_A_MEMBER: "The user may not join this room, or the room does not exist.",
    Err.NO_SUCH_ROOM: "The room does not exist. A user gets this error only if the token grants the room.",
    Err.FORBIDDEN: "The token, or the role in the room, does not allow the command.",
    Err.MUTED: "The app has muted the user, in the room or everywhere: the user can only read. `retry_in_ms` is the "
    "time until the end, if there is one.",
    Err.BANNED: "The app has banned the user from the room, or from the tenant. `retry_in_ms` is the time until the "
    "end, if there is one.",
    Err.SLOW_MODE: "The room is in slow mode, and the user sent a message a moment ago. Retry after `retry_in_ms`.",
    Err.REJECTED: "The app refused the message before it was published; the message has its reason.",
    Err.RATE_LIMITED: "A rate limit is exceeded; the message names the connection, user, room or tenant. Retry later.",
    Err.TOO_MANY: "A limit is reached: watches or rooms of the connection, contacts of the user, different "
    "reactions to a message, or receipts in a list. The message names the limit.",
    Err.UNAVAILABLE: "The server cannot execute the command now. Retry later.",
    Err.INTERNAL: "An internal error occurred; see the server log.",
}

# Errors after which a client may retry the same command later.
RETRYABLE = frozenset({Err.RATE_LIMITED, Err.UNAVAILABLE, Err.INTERNAL})


def invites_return(code: int) -> bool:
    """Return whether a client closed with `code` should reconnect."""
    return 4000 <= code < 4500
