"""Limits of tenants that hold for the whole cluster: reports between nodes, and the parts of this node.

Commands and connections cost no message: each node counts for itself. Once per period a node publishes one report with
the limits that are contested, if there are any.
"""

from __future__ import annotations

from collections.abc import Callable

from greendot.engine.messages import ALL_NODES, LimitReport, Topic
from greendot.engine.port import Engine
from greendot.errors import EngineUnavailable
from greendot.limits.claim_model import Claim
from greendot.limits.connection_limits import ConnectionLimits
from greendot.limits.rate_limits import RateLimits
from greendot.limits.share_model import PERIOD_S, DemandShares
from greendot.node.bus import BusTable
from greendot.node.timers import Timers


class ClusterLimits:
    """Exchange of one node, whose name is `name()`. Without `start`, the node has the limits alone."""

    def __init__(
        self,
        engine: Engine,
        rate_limits: RateLimits,
        connection_limits: ConnectionLimits,
        timers: Timers,
        name: Callable[[], str],
    ) -> None:
        self._engine = engine
        self._rate_limits = rate_limits
        self._connection_limits = connection_limits
        self._claims = connection_limits.claims
        self._timers = timers
        self._name = name
        self._shares = DemandShares()
        self._nodes = 1
        self._turned_at = 0.0
        self._publishing = False
        self.bus: BusTable = {LimitReport: self._received}

    async def start(self) -> None:
        try:
            await self._engine.subscribe([ALL_NODES])
        except EngineUnavailable:
            pass  # the engine subscribes when it can be reached again
        self._turned_at = self._timers.now()
        self._divide(self._peers())
        self._timers.set(PERIOD_S, self._on_timer)

    def _on_timer(self, _: object) -> None:
        try:
            self._turn(self._timers.now())
        finally:
            self._timers.set(PERIOD_S, self._on_timer)

    def _peers(self) -> set[str]:
        return {*self._engine.live_nodes()} - {self._name()}

    def _turn(self, now: float) -> None:
        peers, elapsed_s = self._peers(), now - self._turned_at
        self._turned_at = now
        self._divide(peers)
        requested = {key: amount / elapsed_s for key, amount in self._rate_limits.take_demand().items()}
        report, shares = self._shares.turn(requested, self._rate_limits.tenant_limit, peers, now)
        for key, share in shares.items():
            self._rate_limits.set_share(key, share)
        cut_off = self._shares.is_cut_off(now)
        claims = self._claims.turn(self._connection_limits.counts, self._most, now, cut_off=cut_off)
        if report or claims:
            rates = [(*key, demand) for key, demand in report]
            self._publish(LimitReport(self._name(), rates, [(tenant, *claim) for tenant, claim in claims]), now)

    def _most(self, tenant: str) -> int:
        """Return the largest number of connections of a tenant; 0 without a limit."""
        return self._rate_limits.most_connections(tenant)[1]

    def _divide(self, peers: set[str]) -> None:
        self._claims.meet(self._name(), peers, self._turned_at)
        nodes = len(peers) + 1
        if nodes != self._nodes:
            self._nodes = nodes
            self._rate_limits.divide(nodes)

    def _publish(self, report: LimitReport, now: float) -> None:
        self._shares.published(now)
        self._publishing = True
        try:
            self._engine.publish(ALL_NODES, report)
        finally:
            self._publishing = False

    def _received(self, topic: Topic, message: LimitReport) -> None:
        if message.node != self._name():
            report = (((activity, tenant), demand) for activity, tenant, demand in message.rates)
            self._shares.receive(message.node, report, self._timers.now())
            claims = ((tenant, Claim(used, claim, wants)) for tenant, used, claim, wants in message.connections)
            self._claims.receive(message.node, claims, self._most, self._timers.now())
        elif not self._publishing:  # a report that comes back at once has not left this process
            self._shares.returned()
