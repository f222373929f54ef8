"""Tenants that are admitted: any that a token names, or only registered ones."""

from __future__ import annotations

from collections.abc import Collection

from greendot.errors import StoreUnavailable, TokenError
from greendot.node.context import NodeContext
from greendot.protocol.codes import Close
from greendot.store.api_keys import RegisteredTenant, TenantStore
from greendot.store.read_cache import BELIEVED_S, ReadCache
from greendot.telemetry import log_events
from greendot.telemetry.log import log

AT_ONCE = 50  # connections of a tenant that are closed in one step
MOST_LABELS = 1_000  # registered tenants with metrics of their own


class Tenants:
    """Check of tenants. `named` are those of the settings; with `strict`, all others must be registered."""

    def __init__(self, store: TenantStore, context: NodeContext, named: Collection[str], *, strict: bool) -> None:
        self._context = context
        self._named = frozenset(named)
        self._strict = strict
        self._registered: ReadCache[str, RegisteredTenant | None] = ReadCache(store.tenant, context.clock)
        self._page: ReadCache[int, list[RegisteredTenant]] = ReadCache(
            lambda most: store.tenants(None, most), context.clock
        )

    def start(self) -> None:
        """Start closing connections whose tenant is no longer registered."""
        if self._strict:
            self._context.timers.set(BELIEVED_S, self._on_timer)

    @property
    def are_checked(self) -> bool:
        """Return whether `admit` refuses tenants."""
        return self._strict

    async def admit(self, tenant: str) -> None:
        """Raise TokenError unless the tenant is admitted."""
        if self._strict and not await self._is_known(tenant):
            raise TokenError("the token's tenant is not registered; create it with greendot tenants create TENANT")

    async def labels(self) -> frozenset[str]:
        """Return the tenants that metrics may name: those of the settings and registered ones.

        Their number is bounded by what operators have decided on.
        """
        try:
            return self._named | {registered.tenant for registered in await self._page.get(MOST_LABELS)}
        except StoreUnavailable:
            return self._named

    async def _is_known(self, tenant: str) -> bool:
        return not self._strict or tenant in self._named or await self._registered.get(tenant) is not None

    def _on_timer(self, _: None) -> None:
        self._context.timers.set(BELIEVED_S, self._on_timer)
        self._context.tasks.spawn(self._refresh())

    async def _refresh(self) -> None:
        sessions = self._context.registry.sessions.values()
        try:
            for tenant in {session.tenant for session in sessions if session.connection is not None}:
                if not await self._is_known(tenant):
                    await self._close(tenant)
        except StoreUnavailable as error:
            log(log_events.WORK_LATER, work="reading tenants", reason=error)

    async def _close(self, tenant: str) -> None:
        """Close all connections of a tenant, some at a time."""
        async for some in self._context.slices.cut([*self._context.registry.connections.values()], AT_ONCE):
            for connection in some:
                if connection.session is not None and connection.session.tenant == tenant:
                    connection.close(Close.REVOKED, "the tenant is no longer registered")
