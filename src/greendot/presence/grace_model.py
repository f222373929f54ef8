"""Grace: how long a session continues after its connection has ended, by cause. Periods of a session."""

from __future__ import annotations

from enum import Enum, auto

from msgspec import Struct

from greendot.node.timer_model import has_come
from greendot.protocol.codes import Close, invites_return

PING_AFTER = 0.6  # share of `dead_after` after which a silent client of a foreign protocol gets a ping


class EndCause(Enum):
    """Cause of a connection's end."""

    BYE = auto()  # the client sent `bye`
    CLIENT_CLOSE = auto()  # the client sent a close frame
    SERVER_CLOSE = auto()  # the server sent a close frame
    LOST = auto()  # the socket ended without a close frame


class Graces(Struct, frozen=True):
    """Graces in seconds, from the settings."""

    lost: float
    clean: float
    silent: float


class SessionPeriods(Struct, frozen=True):
    """Periods in seconds, from the settings."""

    dead_after: float  # silence after which a connection counts as dead
    idle: float  # time without activity after which a session is idle
    graces: Graces
    leeway: float = 0.0  # time for which an expired token is still accepted
    accept_when_away: bool = False  # whether clients may connect while the engine is away

    def ping_at(self, received_at: float) -> float:
        """Return when a client of a foreign protocol gets a ping. `received_at` is the time of its last frame."""
        return received_at + self.dead_after * PING_AFTER

    def ping_or_close_in(self, received_at: float, now: float) -> float:
        """Return the seconds until a silent client of a foreign protocol gets a ping or, after a ping, is closed."""
        ping_at = self.ping_at(received_at)
        due_at = received_at + self.dead_after if has_come(ping_at, now) else ping_at
        return max(0.0, due_at - now)


def grace_s(cause: EndCause, code: int, graces: Graces) -> float:
    """Return the seconds of grace after a connection ended by `cause` with close code `code` (0: no code)."""
    match cause:
        case EndCause.BYE:
            return 0.0
        case EndCause.CLIENT_CLOSE:
            # Browsers send a close frame without a code (0) if the page names none.
            return graces.clean if code in (0, Close.NORMAL, Close.GOING_AWAY) else graces.lost
        case EndCause.SERVER_CLOSE if code == Close.HEARTBEAT_LOST:
            return graces.silent
        case EndCause.SERVER_CLOSE:
            return graces.lost if invites_return(code) else 0.0
        case EndCause.LOST:
            return graces.lost


def shown_code(cause: EndCause, code: int) -> int:
    """Return the close code under which the end of a connection is counted.

    Clients may send any code: only 1000 and 1001 are counted as sent, and all others as 1005.
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
