"""Error and close codes of the Centrifuge protocol, and the native codes that become them.

A Centrifuge client reconnects after close codes 3000–3499 and 4000–4499, and stops after 3500–3999 and 4500–4999.
"""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct

from greendot.errors import Refused
from greendot.protocol.codes import Close, Err


class CfErr(IntEnum):
    """Error code of a reply."""

    INTERNAL = 100
    UNAUTHORIZED = 101
    UNKNOWN_CHANNEL = 102
    PERMISSION_DENIED = 103
    METHOD_NOT_FOUND = 104
    ALREADY_SUBSCRIBED = 105
    LIMIT_EXCEEDED = 106
    BAD_REQUEST = 107
    NOT_AVAILABLE = 108
    TOKEN_EXPIRED = 109
    EXPIRED = 110
    TOO_MANY_REQUESTS = 111
    UNRECOVERABLE = 112


class CfClose(IntEnum):
    """Close code of a Centrifuge connection."""

    NORMAL = 3000
    SHUTDOWN = 3001
    SERVER_ERROR = 3004
    EXPIRED = 3005
    SLOW = 3008
    INSUFFICIENT_STATE = 3010
    NO_PONG = 3012
    TOO_MANY_REQUESTS = 3013
    INVALID_TOKEN = 3500
    BAD_REQUEST = 3501
    STALE = 3502
    FORCE_DISCONNECT = 3503
    INAPPROPRIATE_PROTOCOL = 3506


OUR_CODES = frozenset(range(4000, 4010)) | frozenset(range(4500, 4510))  # with meanings for clients of all protocols
CODES_OFFSET = 10  # an app's code among them becomes one of the same range, after which clients do the same
UNSUBSCRIBED = 2000  # code of the push to a client that the server has unsubscribed; the client does not return
EXPIRED = 2501  # likewise, because its token has expired; the client gets another token and subscribes again


class CfError(Struct, frozen=True, omit_defaults=True):
    """Error of a reply. A client may repeat the command if the error is temporary."""

    code: int
    message: str
    temporary: bool = False


class CfRefused(Exception):
    """Command that is not carried out."""

    def __init__(self, code: CfErr, message: str, *, temporary: bool = False) -> None:
        super().__init__(message)
        self.error = CfError(int(code), message, temporary)

    @classmethod
    def of(cls, error: CfError) -> CfRefused:
        """Return the refusal with an error that the app has chosen."""
        refused = cls(CfErr.INTERNAL, error.message)
        refused.error = error
        return refused


_ERRORS: dict[str, CfErr] = {
    Err.BAD_FRAME: CfErr.BAD_REQUEST,
    Err.UNKNOWN_TYPE: CfErr.METHOD_NOT_FOUND,
    Err.BAD_FIELD: CfErr.BAD_REQUEST,
    Err.NOT_A_MEMBER: CfErr.PERMISSION_DENIED,
    Err.NO_SUCH_ROOM: CfErr.UNKNOWN_CHANNEL,
    Err.FORBIDDEN: CfErr.PERMISSION_DENIED,
    Err.MUTED: CfErr.PERMISSION_DENIED,
    Err.BANNED: CfErr.PERMISSION_DENIED,
    Err.SLOW_MODE: CfErr.TOO_MANY_REQUESTS,
    Err.REJECTED: CfErr.PERMISSION_DENIED,
    Err.RATE_LIMITED: CfErr.TOO_MANY_REQUESTS,
    Err.TOO_MANY: CfErr.LIMIT_EXCEEDED,
    Err.UNAVAILABLE: CfErr.INTERNAL,
    Err.INTERNAL: CfErr.INTERNAL,
}
_TEMPORARY = frozenset({CfErr.INTERNAL, CfErr.TOO_MANY_REQUESTS})


def error_of(refused: Refused) -> CfError:
    """Return the error of a command that the node has refused."""
    code = _ERRORS.get(refused.code, CfErr.INTERNAL)
    # A room that is being deleted can be created again soon.
    soon = code is CfErr.UNKNOWN_CHANNEL and refused.retry_in_ms is not None
    return CfError(int(code), refused.message, code in _TEMPORARY or soon)


_CLOSES: dict[int, CfClose] = {
    Close.NORMAL: CfClose.NORMAL,
    Close.BINARY: CfClose.BAD_REQUEST,
    Close.BAD_UTF8: CfClose.BAD_REQUEST,
    Close.INTERNAL: CfClose.SERVER_ERROR,
    Close.DRAINING: CfClose.SHUTDOWN,
    Close.TOO_SLOW: CfClose.SLOW,
    Close.HEARTBEAT_LOST: CfClose.NO_PONG,
    Close.OVERLOADED: CfClose.TOO_MANY_REQUESTS,
    Close.RESYNC: CfClose.INSUFFICIENT_STATE,
    Close.TOKEN_EXPIRED: CfClose.EXPIRED,
    Close.BAD_TOKEN: CfClose.INVALID_TOKEN,
    Close.REVOKED: CfClose.FORCE_DISCONNECT,
    Close.PROTOCOL_ERROR: CfClose.BAD_REQUEST,
    Close.DISCONNECTED: CfClose.FORCE_DISCONNECT,
    Close.VERSION: CfClose.INAPPROPRIATE_PROTOCOL,
    Close.REPLACED: CfClose.FORCE_DISCONNECT,
}


def close_of(code: int, reason: str, *, is_greeted: bool) -> tuple[int, str]:
    """Return close code and reason for a Centrifuge client.

    1002 and 1009 stay: the client knows them. The reason is never empty: centrifuge-js takes a close without a reason
    for a lost connection and returns, even after a code that ends the connection for good.
    """
    if code == Close.OVERLOADED and not is_greeted:
        return int(CfClose.SERVER_ERROR), reason or "server error"
    if code == Close.REVOKED and not is_greeted:
        return int(CfClose.INVALID_TOKEN), reason or "invalid token"
    found = _CLOSES.get(code)
    if found is None:
        return code, reason or "closed"
    return int(found), reason or found.name.replace("_", " ").lower()


def close_of_app(code: int) -> int:
    """Return the native close code for a code that the app has chosen."""
    return code + CODES_OFFSET if code in OUR_CODES else code
