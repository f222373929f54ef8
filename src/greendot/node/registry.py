"""Connections and sessions of this node, by id and by user. Rooms and watch topics are in the hub."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from greendot.node.usage import UsageByTenant

if TYPE_CHECKING:
    from greendot.node.channel import Channel
    from greendot.node.session import Connection, Session

MOST_ENDED = 5_000  # ended sessions whose last frames are remembered, for an engine that returns with older data


class Registry:
    """Registry of local connections and sessions. It is not shared with other nodes."""

    def __init__(self) -> None:
        self.connections: dict[str, Connection] = {}  # by connection id, from upgrade to the end of the socket
        self.sessions: dict[str, Session] = {}  # by session id, lingering ones included
        self.usage = UsageByTenant()
        self.resumed = 0  # sessions that continued on another connection
        self.closes: dict[int, int] = {}  # sockets that ended, by close code
        self.sizes: dict[int, int] = {}  # number of users who have a given number of sessions
        self._users: dict[tuple[str, str], tuple[Session, ...]] = {}  # tuples: most users have one session
        self._tenants: dict[str, int] = {}  # number of users with sessions, by tenant
        self._heard_at = OrderedDict[str, float]()  # last frames of ended sessions, in monotonic seconds; latest last

    def greeted(self, connection: Connection, session: Session, resumed: bool) -> None:
        """Count a connection for its tenant after hello. The socket may be closed already."""
        self.resumed += resumed
        self.counted(connection, session.tenant)
        if connection.tally is not None:
            connection.tally.resumed += resumed

    def counted(self, connection: Connection, tenant: str) -> None:
        """Count a connection for its tenant. A client of a foreign protocol is counted before it has a user."""
        if connection.id in self.connections and connection.tally is None:
            connection.tally = self.usage.of(tenant)
            connection.tally.connections += 1

    def ended(self, connection: Connection, code: int) -> None:
        """Count the close code of a connection on which nothing more is sent."""
        self.closes[code] = self.closes.get(code, 0) + 1
        if connection.tally is not None:
            closes = connection.tally.closes
            closes[code] = closes.get(code, 0) + 1

    def gone(self, connection: Connection) -> None:
        """Remove a connection whose socket is closed."""
        self.connections.pop(connection.id, None)
        if connection.tally is not None:
            connection.tally.connections -= 1
            connection.tally = None

    def add(self, session: Session) -> None:
        self.sessions[session.id] = session
        theirs = self._users.get(session.key, ())
        if not theirs:
            self.usage.of(session.tenant).users += 1
            self._tenants[session.tenant] = self._tenants.get(session.tenant, 0) + 1
        self._users[session.key] = (*theirs, session)
        self._resize(len(theirs), len(theirs) + 1)

    def remove(self, session: Session) -> None:
        if self.sessions.get(session.id) is not session:
            return
        del self.sessions[session.id]
        if session.leaving is not None:
            self._heard_at[session.id] = session.leaving.heard_at
            if len(self._heard_at) > MOST_ENDED:
                self._heard_at.popitem(last=False)
        theirs = self._users[session.key]
        theirs = () if len(theirs) == 1 else tuple(its for its in theirs if its is not session)
        self._resize(len(theirs) + 1, len(theirs))
        if theirs:
            self._users[session.key] = theirs
        else:
            del self._users[session.key]
            self.usage.of(session.tenant).users -= 1
            self._tenants[session.tenant] -= 1
            if not self._tenants[session.tenant]:
                del self._tenants[session.tenant]

    def silent_ms(self, session_id: str, now: float) -> int:
        """Return the milliseconds since the last frame of an ended session. Return 0 if it is not remembered."""
        return max(0, round((now - self._heard_at.get(session_id, now)) * 1000))

    def _resize(self, before: int, after: int) -> None:
        """Count a user's change from `before` to `after` sessions."""
        sizes = self.sizes
        if before:
            sizes[before] -= 1
        if after:
            sizes[after] = sizes.get(after, 0) + 1

    def sessions_of(self, tenant: str, user: str) -> tuple[Session, ...]:
        return self._users.get((tenant, user), ())

    @property
    def tenants(self) -> set[str]:
        """Return the tenants with sessions on this node."""
        return {*self._tenants}

    def keys(self) -> list[tuple[str, str]]:
        """Return tenant and id of all users with sessions on this node."""
        return [*self._users]

    def users_of(self, tenant: str) -> list[str]:
        """Return the tenant's users with sessions on this node."""
        return [user for its, user in self._users if its == tenant]

    def connections_of(self, tenant: str, user: str) -> Iterator[Connection]:
        """Yield the open connections of a user's sessions."""
        for session in self._users.get((tenant, user), ()):
            if session.connection is not None:
                yield session.connection

    def connections_in(self, channel: Channel, user: str) -> list[Connection]:
        """Return the user's connections among the channel's listeners."""
        connections = self.connections_of(channel.topic.tenant, user)
        return [connection for connection in connections if connection in channel.listeners]

    @property
    def users(self) -> int:
        return len(self._users)
