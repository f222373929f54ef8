"""Sessions and their connections, as this node needs them. State that other nodes read is in the engine.

A session is one device's time online, from hello until the session has ended. After the end of its connection, a
session lingers for the grace.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable
from typing import Any, Protocol

from msgspec import Struct

from greendot.auth.model import Grants
from greendot.errors import Refused
from greendot.limits.model import NO_RULES
from greendot.node.timer_model import Timer
from greendot.node.usage import TenantUsage
from greendot.presence.grace_model import EndCause
from greendot.presence.model import ManualStatus, SessionEpoch
from greendot.protocol.commands import ClientInfo
from greendot.transport.connection import Owner, SocketConnection, Violation


class Disconnection(Struct, frozen=True, gc=False):
    """End of a session's connection."""

    at: float  # monotonic seconds
    grace_ms: int
    silent_ms: int  # silence of the client before the end

    @property
    def heard_at(self) -> float:
        """Return the time of the client's last frame, in monotonic seconds."""
        return self.at - self.silent_ms / 1000

    def since(self, now: float) -> tuple[int, int]:
        """Return the rest of the grace and the client's silence until `now`, in milliseconds."""
        passed = round((now - self.at) * 1000)
        return max(0, self.grace_ms - passed), self.silent_ms + passed

    def with_least(self, now: float, least_ms: int) -> Disconnection:
        """Return a disconnection whose grace lasts at least `least_ms` from now, or its original length if shorter."""
        left_ms, silent_ms = self.since(now)
        least_ms = min(least_ms, self.grace_ms)
        return self if left_ms >= least_ms else Disconnection(now, least_ms, silent_ms)


_NO_EPOCH = SessionEpoch("", "", 0)


class Session:
    """Session of a user's device on this node."""

    __slots__ = (
        "active_at",
        "client",
        "confirmed",
        "connected_at",
        "connection",
        "device",
        "grants",
        "held_until",
        "id",
        "idle",
        "ip_hash",
        "key",
        "last_heard",
        "leave_timer",
        "leaving",
        "manual",
        "moved",
        "ref",
        "removals",
        "revoked",
        "rooms",
        "rules",
        "state_at",
        "status_as_of",
        "tenant",
        "typed",
        "unstored",
        "user",
    )

    def __init__(self, session_id: str, grants: Grants, device: str, client: ClientInfo) -> None:
        self.id = session_id
        self.grants = grants
        # Never other ones: a session is resumed, and its token is refreshed, by the same user only.
        self.key = self.tenant, self.user = grants.tenant, grants.user
        self.device = device
        self.client = client
        self.connection: Connection | None = None  # None while the session lingers
        self.ref = _NO_EPOCH  # current epoch of the session; set with its first connection
        self.confirmed = False  # whether the engine has confirmed this epoch; False again if it may have lost the end
        self.idle = False
        self.active_at = 0.0  # monotonic seconds of the last activity
        self.connected_at = 0  # milliseconds UTC of the latest connection
        self.last_heard = 0  # milliseconds UTC of the last frame, once the connection is gone
        self.ip_hash: str | None = None
        self.leave_timer: Timer | None = None  # set while the session lingers
        self.leaving: Disconnection | None = None  # set while the session lingers
        self.held_until = 0.0  # monotonic seconds; a refused hello made its client wait, and no loss was noticed yet
        self.manual: ManualStatus | None = None  # status of the user, as this node knows it; None: unknown
        self.moved = False  # the session continued on another node
        self.removals = 0  # removals of its user from rooms, and rooms that the session lost
        self.revoked = False  # set for ever: no more work is done for the session
        self.rooms: set[str] | None = None  # rooms of the session, also while it lingers; made on first use
        self.rules = NO_RULES  # rate limits of its tenant, set by hello
        self.state_at = 0.0  # monotonic seconds of the last change between idle and active
        self.typed: set[str] | None = None  # rooms in which the client typed since it joined them, on any connection
        self.unstored: set[str] | None = None  # rooms of a foreign protocol, which need not exist in the store
        self.status_as_of = -1  # `VisibilityFreshness.doubts` when `manual` was last read; -1: not certain

    def is_over(self, now: float) -> bool:
        """Return whether the grace is over, although the end may not be written yet. `now` in monotonic seconds."""
        return self.connection is None and self.leaving is not None and not self.leaving.since(now)[0]

    def set_grace(self, now: float, seconds: float) -> None:
        """Let the grace end `seconds` after `now` (monotonic seconds)."""
        _, silent_ms = (self.leaving or Disconnection(now, 0, 0)).since(now)
        self.leaving = Disconnection(now, round(seconds * 1000), silent_ms)


class ForeignProtocol(Protocol):
    """Protocol of another server that a client speaks (package `compat`). One object serves all its connections.

    The dispatcher calls `received` and awaits the work, so that frames of a connection are handled one after the other.
    """

    def opened(self, connection: Any) -> None:
        """Greet a client whose socket is open."""

    def received(self, connection: Any, message: str) -> Awaitable[None] | None:
        """Handle a message. Work that awaits something is returned; the messages behind it wait."""

    def refused(self, connection: Any, message: str, refused: Refused) -> None:
        """Report a message that was not handled, because the connection sends too many."""

    def ping(self, connection: Any) -> None:
        """Send a sign of life that the client answers."""

    def room_closed(self, connection: Any, room: str) -> None:
        """End the subscription of a client that only listens to a room that is not open, unless the app allowed it."""

    def ended(self, connection: Any) -> None:
        """Release everything that the protocol keeps for a connection. Nothing more is sent."""


class Connection(SocketConnection):
    """Connection of a client, with the state that the node's services keep for it."""

    foreign: ForeignProtocol | None = None  # of the class: a client that speaks Greendot's own protocol has none
    granted: Grants | None = None  # identity that a foreign protocol has verified; a hello then needs no token
    granted_rooms: tuple[str, ...] = ()  # rooms that a foreign protocol grants, beside those of the token

    __slots__ = (
        "agent_hash",
        "bad_frames",
        "counted",
        "ended_by",
        "gets_inbox",
        "id",
        "ip_hash",
        "rooms",
        "session",
        "tally",
        "token",
        "waiting",
        "watches",
    )

    def __init__(self, owner: Owner[Connection], number: str, token: str = "") -> None:
        super().__init__(owner)
        self.id = number
        self.agent_hash: str | None = None
        self.ip_hash: str | None = None
        self.counted: str | None = None  # tenant whose limit of connections this connection uses; None without a limit
        self.token = token  # token of the handshake, until hello
        self.session: Session | None = None  # set once, by hello
        self.tally: TenantUsage | None = None  # usage of the tenant, from welcome to the end of the socket
        self.bad_frames: tuple[float, ...] = ()  # times of the last bad frames
        self.waiting: deque[str | Violation] | None = None  # frames behind a command under way; None without one
        # Subscriptions last as long as the connection. Sets are made on first use: few connections need all.
        self.rooms: set[str] | None = None
        self.watches: set[str] | None = None
        self.gets_inbox = False  # whether new entries of the user's inbox are sent
        self.ended_by: tuple[EndCause, int] | None = None  # cause and code of the end, kept until the cleanup

    @property
    def tenant(self) -> str | None:
        """Return the tenant of the client; None before hello. Clients of a foreign protocol may have it before."""
        return None if self.session is None else self.session.tenant

    def removed_from(self, room: str, reason: str) -> None:
        """End what a foreign protocol keeps for a room, because its user may not be in the room any more."""

    @property
    def is_known(self) -> bool:
        return self.session is not None

    def missed_messages(self) -> None:
        """Do nothing after messages of a room were left out: a client of our own protocol has got `resync`."""


def log_fields(session: Session | None) -> dict[str, str | None]:
    """Return the session's id, user and tenant as fields of a log line."""
    if session is None:
        return {"session": None}
    tenant, user = session.key
    return {"session": session.id, "user": user, "tenant": tenant}
