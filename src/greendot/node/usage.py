"""What is counted for each tenant: plain integers, as in `metrics`."""

from __future__ import annotations

from collections.abc import Iterator

MOST = 10_000  # tenants that are counted by themselves; tokens name them, so nothing else bounds their number


class TenantUsage:
    """One tenant on this node."""

    __slots__ = ("closes", "connections", "refused", "resumed", "sends", "users")

    def __init__(self) -> None:
        self.connections = 0  # now, from welcome to the end of the socket
        self.users = 0  # with a session, now
        self.sends = 0  # messages, notifications and signals that were let through, of clients and of the app
        self.refused = 0  # commands of clients, and what the app sent too much
        self.resumed = 0  # sessions that were gone on with on another connection
        self.closes: dict[int, int] = {}  # sockets that ended, by close code


class UsageByTenant:
    """Tenants that were here since the start."""

    def __init__(self) -> None:
        self._usage: dict[str, TenantUsage] = {}
        self._others = TenantUsage()  # those beyond `MOST` together: shown to none of them

    def of(self, tenant: str) -> TenantUsage:
        """To count with."""
        tally = self._usage.get(tenant)
        if tally is None:
            if len(self._usage) >= MOST:
                return self._others
            tally = self._usage[tenant] = TenantUsage()
        return tally

    def shown(self, tenant: str) -> TenantUsage:
        """To look at; nothing is made by looking."""
        return self._usage.get(tenant) or TenantUsage()

    def __iter__(self) -> Iterator[str]:
        return iter([*self._usage])
