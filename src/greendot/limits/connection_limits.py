"""Limits of connections of a user on this node, and of a tenant on all nodes.

`limits.cluster_limits` exchanges the claims of nodes to a tenant's connections.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

from greendot.auth.model import Grants
from greendot.limits.claim_model import ConnectionClaims
from greendot.limits.rate_limits import RateLimits
from greendot.node.registry import Registry
from greendot.node.session import Connection
from greendot.protocol.commands import Hello


class TooManyConnections(Exception):
    """Refusal of a connection beyond a limit. The text names whose limit it is."""

    def __init__(self, text: str, *, soon: bool = False) -> None:
        super().__init__(text)
        self.soon = soon  # the node may accept the connection in a few seconds


class Entering:
    """Context of a connection that gets its session."""

    __slots__ = ("_connection", "_key", "_limits", "_replaced")

    def __init__(
        self, limits: ConnectionLimits, connection: Connection, key: tuple[str, str], replaced: Connection | None
    ) -> None:
        self._limits = limits
        self._connection = connection
        self._key = key
        self._replaced = replaced

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._limits.entered(self._connection, self._key, self._replaced)


class ConnectionLimits:
    """Counts of connections after hello. Tenants without a limit are not counted."""

    def __init__(self, registry: Registry, rate_limits: RateLimits) -> None:
        self._registry = registry
        self._rate_limits = rate_limits
        self.claims = ConnectionClaims()
        self._tenants: dict[str, int] = {}  # connections by tenant
        self._coming: dict[tuple[str, str], list[Connection]] = {}  # users' connections that are getting a session

    @property
    def counts(self) -> Mapping[str, int]:
        """Return the connections of each tenant that is counted now."""
        return self._tenants

    @property
    def tenants(self) -> int:
        """Return the number of tenants that are counted now."""
        return len(self._tenants)

    def entering(self, connection: Connection, grants: Grants, hello: Hello) -> Entering:
        """Count the connection until it has its session. Raise TooManyConnections if it is one too many.

        The connection is counted from this call to the end of the returned context.
        """
        key = grants.tenant, grants.user
        per_user, per_tenant = self._rate_limits.most_connections(grants.tenant)
        if per_user and self._of_user(key, hello) >= per_user:
            raise TooManyConnections(
                "this user has reached the connection limit; close a connection or reconnect later"
            )
        replaced = self._enter_tenant(connection, key, hello, per_tenant) if per_tenant else None
        self._coming.setdefault(key, []).append(connection)
        return Entering(self, connection, key, replaced)

    def entered(self, connection: Connection, key: tuple[str, str], replaced: Connection | None) -> None:
        """Note that a connection has its session, or gets none."""
        if replaced is not None and replaced.session is not None and replaced.session.connection is replaced:
            self._count(replaced, key[0])  # it was not replaced
        coming = self._coming[key]
        coming.remove(connection)
        if not coming:
            del self._coming[key]

    def enter(self, connection: Connection, tenant: str) -> None:
        """Count a connection of a foreign protocol, which may stay without a user. Raise TooManyConnections."""
        _, most = self._rate_limits.most_connections(tenant)
        if most:
            self._check_tenant(tenant, most)
            self._count(connection, tenant)

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

    def _enter_tenant(self, connection: Connection, key: tuple[str, str], hello: Hello, most: int) -> Connection | None:
        """Count a connection of the tenant. Return the connection that it replaces, which is counted no longer."""
        tenant, _ = key
        if connection.counted == tenant:
            return None
        replaced = self._replaced(key, hello)
        if replaced is not None:
            self.gone(replaced)
        else:
            self._check_tenant(tenant, most)
        self._count(connection, tenant)
        return replaced

    def _check_tenant(self, tenant: str, most: int) -> None:
        if not self.claims.admits(tenant, self._tenants.get(tenant, 0), most):
            text = "this tenant has reached the connection limit; reconnect later"
            raise TooManyConnections(text, soon=self.claims.may_grow(tenant))

    def _count(self, connection: Connection, tenant: str) -> None:
        if connection.id in self._registry.connections:  # the socket may be closed already
            self._tenants[tenant] = self._tenants.get(tenant, 0) + 1
            connection.counted = tenant

    def _replaced(self, key: tuple[str, str], hello: Hello) -> Connection | None:
        """Return the counted connection of this user whose session the hello resumes, if any."""
        session = self._registry.sessions.get(hello.resume.session or "") if hello.resume else None
        if session is None or session.key != key or session.connection is None:
            return None
        return None if session.connection.counted is None else session.connection
