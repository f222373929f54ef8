"""Claims of a node to connections of a tenant, whose limit holds for the whole cluster.

A claim is the number of connections that a node may have. A node changes its claim only when it publishes the claim, so
other nodes know it. A node takes a part of the connections that no other node claims. While a tenant has few
connections, each node has an equal part, and nodes exchange nothing. A limit is contested when a node uses more than
half of its part, or has refused a connection.

A claim that was reported counts until its node is dead. So lost reports and unreachable nodes free nothing: connections
cannot be taken back. A node whose own reports do not come back claims no more than before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from greendot.limits.share_model import CONTESTED, MOST, PERIOD_S

WANT_S = 32.0  # refused clients return within this time
AHEAD = 4  # periods of growth that a claim must last for
BEGINNING_S = 2 * PERIOD_S  # a node that has just started may not know the claims of other nodes


class Claim(NamedTuple):
    """Connections of a node, the number that it may have, and whether it needs more."""

    used: int
    claim: int
    wants: bool


class _Contested:
    """Claims to the connections of one tenant."""

    __slots__ = ("claim", "count", "others", "refused", "refused_at", "wanted")

    def __init__(self, claim: int) -> None:
        self.claim = claim
        self.count: int | None = None  # at the last turn
        self.wanted = False  # this node has reported that it needs more
        self.refused = 0  # connections refused in the last period with refusals, for WANT_S
        self.refused_at = 0.0
        self.others: dict[str, Claim] = {}


class ConnectionClaims:
    """Claims of one node."""

    def __init__(self) -> None:
        self._contested: dict[str, _Contested] = {}
        self._refused: dict[str, int] = {}  # connections refused since the last turn
        self._nodes: list[str] = [""]  # names of all live nodes, sorted
        self._name = ""
        self._started_at: float | None = None
        self._is_beginning = False

    def __len__(self) -> int:
        return len(self._contested)

    def allowed(self, tenant: str, most: int) -> int:
        """Return the number of connections of the tenant that this node may have."""
        contested = self._contested.get(tenant)
        if contested is not None:
            return contested.claim
        part = self._part(self._name, most)
        return part // 4 if self._is_beginning else part

    def refuse(self, tenant: str) -> None:
        """Record that a connection was refused, so that this node claims more."""
        if len(self._nodes) > 1:
            self._refused[tenant] = self._refused.get(tenant, 0) + 1

    def receive(self, node: str, claims: Iterable[tuple[str, Claim]], most_of: Callable[[str], int]) -> None:
        """Record the report of another node."""
        for tenant, claim in claims:
            contested = self._contested.get(tenant)
            if contested is None:
                if not most_of(tenant):
                    continue
                contested = self._contested[tenant] = _Contested(self.allowed(tenant, most_of(tenant)))
            contested.others[node] = claim

    def meet(self, name: str, peers: Collection[str], now: float) -> None:
        """Set this node's name and the other live nodes."""
        if self._started_at is None:
            self._started_at = now
        self._name, self._nodes = name, sorted({name, *peers})
        self._is_beginning = bool(peers) and now - self._started_at < BEGINNING_S

    def turn(
        self, counts: Mapping[str, int], most_of: Callable[[str], int], now: float, *, cut_off: bool
    ) -> list[tuple[str, Claim]]:
        """End a period with these connections by tenant. Return the claims to report."""
        refused, self._refused = self._refused, {}
        report: list[tuple[str, Claim]] = []
        for tenant in {**self._contested, **counts, **refused}:
            most, count = most_of(tenant), counts.get(tenant, 0)
            contested = self._contested.get(tenant)
            if contested is None:
                if most and len(self._nodes) > 1 and (tenant in refused or self._is_near(self._name, count, most)):
                    contested = self._contested[tenant] = _Contested(self.allowed(tenant, most))
                else:
                    continue
            contested.others = {node: claim for node, claim in contested.others.items() if node in self._nodes}
            if tenant in refused:
                contested.refused, contested.refused_at = refused[tenant], now
            elif now - contested.refused_at > WANT_S:
                contested.refused = 0
            if not most or len(self._nodes) == 1 or self._is_over(contested, count, most):
                del self._contested[tenant]
                continue
            if len(report) < MOST:
                report.append((tenant, self._claimed(contested, count, most, cut_off=cut_off)))
        return report

    def _claimed(self, contested: _Contested, count: int, most: int, *, cut_off: bool) -> Claim:
        """Change this node's claim to a contested limit."""
        others = [node for node in self._nodes if node != self._name]
        known = contested.others
        free = most - count - sum(known[node].claim if node in known else self._part(node, most) for node in others)
        growth, spare = count - (count if contested.count is None else contested.count), contested.claim - count
        contested.count = count
        wants = spare < contested.refused or (growth > 0 and spare < AHEAD * growth)
        wanting = sorted([node for node, claim in known.items() if claim.wants] + [self._name])
        if not wants:  # connections that are not used are for nodes that want more
            kept = spare if wanting == [self._name] else min(spare, contested.refused)
            more = max(free // (2 * len(self._nodes)), kept)
        elif not contested.wanted:  # other nodes may want more, too, and do not know of this node yet
            more = free // len(self._nodes)
        else:
            more = max(free // (len(wanting) + 1), wanting[0] == self._name)
        contested.wanted = wants
        claim = count + max(0, min(free, more))
        contested.claim = min(claim, contested.claim) if cut_off else claim
        return Claim(count, max(count, contested.claim), wants)

    def _is_over(self, contested: _Contested, count: int, most: int) -> bool:
        """Return whether no node needs more than an equal part."""
        if contested.refused or self._is_near(self._name, count, most):
            return False
        return not any(claim.wants or self._is_near(node, claim.used, most) for node, claim in contested.others.items())

    def _is_near(self, node: str, count: int, most: int) -> bool:
        return count > CONTESTED * self._part(node, most)

    def _part(self, node: str, most: int) -> int:
        """Return a node's equal part. The parts of all nodes add up to the limit."""
        part, rest = divmod(most, len(self._nodes))
        return part + (node in self._nodes[:rest])
