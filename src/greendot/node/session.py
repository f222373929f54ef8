"""Sessions and their connections, as this node needs them. What others may know of a session is in the engine.

A session is one device of one user, from hello until it no longer counts. It outlives its connection by the linger.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from greendot.auth.model import Grants
from greendot.limits.model import NO_RULES
from greendot.node.timer_model import Timer
from greendot.node.usage import TenantUsage
from greendot.presence.grace_model import EndCause
from greendot.presence.model import SessionEpoch
from greendot.protocol.commands import ClientInfo
from greendot.transport.connection import Owner, SocketConnection, Violation


class Disconnection(NamedTuple):
    """How a session's connection went."""

    at: float  # monotonic seconds
    grace_ms: int
    silent_ms: int  # how long the client had been silent by then

    def since(self, now: float) -> tuple[int, int]:
        """What is left of the grace, and how long the client has been silent."""
        passed = round((now - self.at) * 1000)
        return max(0, self.grace_ms - passed), self.silent_ms + passed

    def with_least(self, now: float, least_ms: int) -> Disconnection:
        """Return a grace that lasts `least_ms` from now, or as long as it lasted at first if that was less."""
        left_ms, silent_ms = self.since(now)
        least_ms = min(least_ms, self.grace_ms)
        return self if left_ms >= least_ms else Disconnection(now, least_ms, silent_ms)


class Session:
    """Who is on a connection."""

    __slots__ = (
        "active_at",
        "client",
        "confirmed",
        "connected_at",
        "connection",
        "device",
        "grants",
        "id",
        "idle",
        "ip_hash",
        "key",
        "last_heard",
        "leave_timer",
        "leaving",
        "moved",
        "ref",
        "removals",
        "revoked",
        "rooms",
        "rules",
        "state_at",
    )

    def __init__(self, session_id: str, grants: Grants, device: str, client: ClientInfo) -> None:
        self.id = session_id
        self.grants = grants
        self.key = (grants.tenant, grants.user)
        self.device = device
        self.client = client
        self.connection: Connection | None = None  # None while it lingers
        self.ref = SessionEpoch(session_id, "", 0)  # the session's current life
        self.confirmed = False  # whether the engine has answered that it knows this life
        self.idle = False
        self.active_at = 0.0  # monotonic seconds of the last activity
        self.connected_at = 0  # milliseconds UTC of the latest connection
        self.last_heard = 0  # milliseconds UTC, once the connection is gone
        self.ip_hash: str | None = None
        self.leave_timer: Timer | None = None  # set while it lingers
        self.leaving: Disconnection | None = None  # the same
        self.moved = False  # it went on on another node
        self.removals = 0  # how often its user was removed from a room, or it lost one
        self.revoked = False  # for good: nothing more is done for it
        self.rooms: set[str] | None = None  # it is in, also while it lingers; made on first use
        self.rules = NO_RULES  # how much it may do; those of its tenant, from the greeting on
        self.state_at = 0.0  # monotonic seconds, since when it is idle, or not

    @property
    def tenant(self) -> str:
        return self.grants.tenant

    @property
    def user(self) -> str:
        return self.grants.user


class Connection(SocketConnection):
    """A client's connection, with what the services of the node keep of it."""

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
        "typed",
        "waiting",
        "watches",
    )

    def __init__(self, owner: Owner[Connection], number: str, token: str = "") -> None:
        super().__init__(owner)
        self.id = number
        self.agent_hash: str | None = None
        self.ip_hash: str | None = None
        self.counted: str | None = None  # the tenant whose connections it is one of, where these are limited
        self.token = token  # that came with the request for a WebSocket, until hello
        self.session: Session | None = None  # set by hello, for good
        self.tally: TenantUsage | None = None  # of its tenant, from welcome to the end of the socket
        self.bad_frames: tuple[float, ...] = ()  # when the last ones came
        self.waiting: deque[str | Violation] | None = None  # behind a command under way; None while there is none
        # Interest lasts as long as the connection. Sets are made on first use: most stay without one of them.
        self.rooms: set[str] | None = None
        self.watches: set[str] | None = None
        self.typed: set[str] | None = None  # rooms in which it typed since it joined them
        self.gets_inbox = False  # whether it is sent what is new in its user's inbox
        self.ended_by: tuple[EndCause, int] | None = None  # kept while a command is still under way


def log_fields(session: Session | None) -> dict[str, str | None]:
    """Whose it is, as fields of a line in the log."""
    if session is None:
        return {"session": None}
    tenant, user = session.key
    return {"session": session.id, "user": user, "tenant": tenant}
