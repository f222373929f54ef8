"""Usage counters of each tenant: plain integers, as in `metrics`."""

from __future__ import annotations

from collections.abc import Iterator

MOST = 10_000  # tenants counted separately; tokens name tenants, so nothing else bounds their number


class TenantUsage:
    """Usage of one tenant on this node."""

    __slots__ = ("closes", "connections", "refused", "resumed", "sends", "users")

    def __init__(self) -> None:
        self.connections = 0  # now, from welcome to the end of the socket
        self.users = 0  # users with a session, now
        self.sends = 0  # accepted messages, notifications and signals, of clients and of the app
        self.refused = 0  # refused commands of clients, and refused sends of the app
        self.resumed = 0  # sessions that continued on another connection
        self.closes: dict[int, int] = {}  # ended sockets, by close code


class UsageByTenant:
    """Usage of all tenants since the start."""

    def __init__(self) -> None:
        self._usage: dict[str, TenantUsage] = {}
        self._others = TenantUsage()  # counters of all further tenants together; shown to none of them

    def of(self, tenant: str) -> TenantUsage:
        """Return the tenant's counters, creating them on first use."""
        tally = self._usage.get(tenant)
        if tally is None:
            if len(self._usage) >= MOST:
                return self._others
            tally = self._usage[tenant] = TenantUsage()
        return tally

    def shown(self, tenant: str) -> TenantUsage:
        """Return the tenant's counters for reading; nothing is created."""
        return self._usage.get(tenant) or TenantUsage()

    def __iter__(self) -> Iterator[str]:
        return iter([*self._usage])
