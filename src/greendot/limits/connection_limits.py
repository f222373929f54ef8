"""Limits of connections of a user, and of a tenant, on this node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from greendot.auth.model import Grants
from greendot.limits.rate_limits import RateLimits
from greendot.node.registry import Registry
from greendot.node.session import Connection
from greendot.protocol.commands import Hello


class TooManyConnections(Exception):
    """Refusal of a connection beyond a limit. The text names whose limit it is."""


class ConnectionLimits:
    """Counts of connections after hello. Tenants without a limit are not counted."""

    def __init__(self, registry: Registry, rate_limits: RateLimits) -> None:
        self._registry = registry
        self._rate_limits = rate_limits
        self._tenants: dict[str, int] = {}  # connections by tenant
        self._coming: dict[tuple[str, str], list[Connection]] = {}  # users' connections that are getting a session

    @property
    def tenants(self) -> int:
        """Return the number of tenants that are counted now."""
        return len(self._tenants)

    @contextmanager
    def entering(self, connection: Connection, grants: Grants, hello: Hello) -> Iterator[None]:
        """Count the connection while it gets its session. Raise TooManyConnections if it is one too many."""
        key = grants.tenant, grants.user
        per_user, per_tenant = self._rate_limits.most_connections(grants.tenant)
        if per_user and self._of_user(key, hello) >= per_user:
            raise TooManyConnections(
                "this user has reached the connection limit; close a connection or reconnect later"
            )
        if per_tenant:
            self._enter_tenant(connection, key, hello, per_tenant)
        coming = self._coming.setdefault(key, [])
        coming.append(connection)
        try:
            yield
        finally:
            coming.remove(connection)
            if not coming:
                del self._coming[key]

    def gone(self, connection: Connection) -> None:
        """Stop counting a connection whose socket is closed."""
        tenant, connection.counted = connection.counted, None
        if tenant is not None:
            self._tenants[tenant] -= 1
            if not self._tenants[tenant]:
                del self._tenants[tenant]

    def _of_user(self, key: tuple[str, str], hello: Hello) -> int:
        """Return the number of the user's connections, without the one that this hello replaces.

        A connection that comes from another node may have no session for a while.
        """
        resumed = hello.resume.session if hello.resume else None
        here = [s for s in self._registry.sessions_of(*key) if s.connection is not None and s.id != resumed]
        return len(here) + sum(connection.session is None for connection in self._coming.get(key, ()))

    def _enter_tenant(self, connection: Connection, key: tuple[str, str], hello: Hello, most: int) -> None:
        tenant, _ = key
        count = self._tenants.get(tenant, 0)
        if count - self._replaces_counted(key, hello) >= most:
            raise TooManyConnections("this tenant has reached the connection limit; reconnect later")
        if connection.id in self._registry.connections:  # the socket may be closed already
            self._tenants[tenant] = count + 1
            connection.counted = tenant

    def _replaces_counted(self, key: tuple[str, str], hello: Hello) -> bool:
        """Return whether the hello resumes a session of the same user whose connection is counted."""
        session = self._registry.sessions.get(hello.resume.session or "") if hello.resume else None
        if session is None or session.key != key or session.connection is None:
            return False
        return session.connection.counted is not None
