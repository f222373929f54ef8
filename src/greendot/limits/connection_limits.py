"""How many connections a user, and a tenant, may have on this node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from greendot.auth.model import Grants
from greendot.limits.rate_limits import RateLimits
from greendot.node.registry import Registry
from greendot.node.session import Connection
from greendot.protocol.commands import Hello


class TooManyConnections(Exception):
    """There are as many as there may be. The text says of whom."""


class ConnectionLimits:
    """Those are counted that have said hello. Tenants without a limit are not counted at all."""

    def __init__(self, registry: Registry, rate_limits: RateLimits) -> None:
        self._registry = registry
        self._rate_limits = rate_limits
        self._tenants: dict[str, int] = {}  # with connections
        self._coming: dict[tuple[str, str], list[Connection]] = {}  # users' connections that get a session

    @property
    def tenants(self) -> int:
        """How many are counted now."""
        return len(self._tenants)

    @contextmanager
    def entering(self, connection: Connection, grants: Grants, hello: Hello) -> Iterator[None]:
        """While the connection gets its session. Crowded if it is one too many."""
        key = grants.tenant, grants.user
        per_user, per_tenant = self._rate_limits.most_connections(grants.tenant)
        if per_user and self._of_user(key, hello) >= per_user:
            raise TooManyConnections("this user has too many connections")
        if per_tenant:
            self._enter_tenant(connection, grants.tenant, per_tenant)
        coming = self._coming.setdefault(key, [])
        coming.append(connection)
        try:
            yield
        finally:
            coming.remove(connection)
            if not coming:
                del self._coming[key]

    def gone(self, connection: Connection) -> None:
        """Its socket is closed."""
        tenant, connection.counted = connection.counted, None
        if tenant is not None:
            self._tenants[tenant] -= 1
            if not self._tenants[tenant]:
                del self._tenants[tenant]

    def _of_user(self, key: tuple[str, str], hello: Hello) -> int:
        """Beside the one that this hello replaces. One that comes from another node may have no session for a while."""
        resumed = hello.resume.session if hello.resume else None
        here = [s for s in self._registry.sessions_of(*key) if s.connection is not None and s.id != resumed]
        return len(here) + sum(connection.session is None for connection in self._coming.get(key, ()))

    def _enter_tenant(self, connection: Connection, tenant: str, most: int) -> None:
        count = self._tenants.get(tenant, 0)
        if count >= most:
            raise TooManyConnections("this app has too many connections")
        if connection.id in self._registry.connections:  # its socket may be closed already
            self._tenants[tenant] = count + 1
            connection.counted = tenant
