"""Who is connected to this node: by connection, session and user. Rooms and watch topics are in the hub."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from greendot.gateway.connection import Connection
    from greendot.gateway.session import Session


class Registry:
    """Sockets live only here; nothing of it is shared with other nodes."""

    def __init__(self) -> None:
        self.connections: dict[str, Connection] = {}  # by connection id, from upgrade to the end of the socket
        self.sessions: dict[str, Session] = {}  # by session id, lingering ones included
        self._users: dict[tuple[str, str], list[Session]] = {}

    def add(self, session: Session) -> None:
        self.sessions[session.id] = session
        self._users.setdefault(session.key, []).append(session)

    def remove(self, session: Session) -> None:
        if self.sessions.get(session.id) is not session:
            return
        del self.sessions[session.id]
        theirs = self._users[session.key]
        theirs.remove(session)
        if not theirs:
            del self._users[session.key]

    def sessions_of(self, tenant: str, user: str) -> list[Session]:
        return self._users.get((tenant, user), [])

    def connections_of(self, tenant: str, user: str) -> Iterator[Connection]:
        """The open sockets of a user's devices."""
        for session in self._users.get((tenant, user), ()):
            if session.connection is not None:
                yield session.connection

    @property
    def users(self) -> int:
        return len(self._users)
