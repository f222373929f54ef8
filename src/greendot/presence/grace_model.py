"""How long a session still counts once its connection is gone, by what ended it."""

from __future__ import annotations

from enum import Enum, auto

from msgspec import Struct

from greendot.protocol.codes import Close, invites_return


class EndCause(Enum):
    """Who ended the connection."""

    BYE = auto()  # the client said so
    CLIENT_CLOSE = auto()  # the client sent a close frame
    SERVER_CLOSE = auto()  # we sent one
    LOST = auto()  # the socket was gone without a word


class Graces(Struct, frozen=True):
    """Seconds, from the settings."""

    lost: float
    clean: float
    silent: float


def grace_s(cause: EndCause, code: int, graces: Graces) -> float:
    """The linger after a connection ended by `cause` with close code `code` (0 where there was none)."""
    match cause:
        case EndCause.BYE:
            return 0.0
        case EndCause.CLIENT_CLOSE:
            # A close frame without a code (0) is how browsers close when the page does not name one.
            return graces.clean if code in (0, Close.NORMAL, Close.GOING_AWAY) else graces.lost
        case EndCause.SERVER_CLOSE if code == Close.HEARTBEAT_LOST:
            return graces.silent
        case EndCause.SERVER_CLOSE:
            return graces.lost if invites_return(code) else 0.0
        case EndCause.LOST:
            return graces.lost


def shown_code(cause: EndCause, code: int) -> int:
    """The close code a connection's end is counted under. Clients may send any: of theirs only the usual ones count.

    1005 and 1006 are the RFC's numbers for "without a code" and "without a close frame"; they are never sent.
    """
    match cause:
        case EndCause.LOST:
            return 1006
        case EndCause.CLIENT_CLOSE if code in (Close.NORMAL, Close.GOING_AWAY):
            return code
        case EndCause.CLIENT_CLOSE:
            return 1005
        case EndCause.BYE | EndCause.SERVER_CLOSE:
            return int(code)
