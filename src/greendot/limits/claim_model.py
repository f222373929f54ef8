"""Claims of a node to connections of a tenant, whose limit holds for the whole cluster.

A claim is the number of connections that a node may have. A node changes its claim only when it reports the claim to
the other nodes. While a tenant has few connections, each node has an equal part, and nodes exchange nothing. A limit is
contested when a node uses more than half of its part, or has refused a connection.

A node takes a part of the connections that no node claims. Half of them are for the nodes whose need was reported
before, the other half for all nodes. So nodes that take at the same moment do not take more than there is. A contest
ends with claims that are equal parts.

A claim that was reported counts until its node is dead. So lost reports and unreachable nodes free nothing: connections
cannot be taken back. A node that no longer reports has at least an equal part. A node claims no more than before while
its own reports do not come back, and when it has just started: it may not know the claims of other nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice
from typing import NamedTuple

from greendot.limits.share_model import CONTESTED, HOLD_S, PERIOD_S

WANT_S = 32.0  # refused clients return within this time
AHEAD = 4  # periods of growth that a claim must last for
BEGINNING_S = 4 * PERIOD_S  # other nodes see a new node within a second, and report in the next period
BEGINNING = 10  # a node that has just started has this fraction of an equal part
AT_ONCE = 250  # claims in one report, and tenants examined in one period


class Claim(NamedTuple):
    """Connections of a node, the number that it may have, and whether it needs more."""

    used: int
    claim: int
    wants: bool


class _Contested:
    """Claims to the connections of one tenant."""

    __slots__ = ("claim", "count", "heard_at", "is_full", "others", "refused", "refused_at", "wanted")

    def __init__(self, claim: int) -> None:
        self.claim = claim
        self.count: int | None = None  # at the last turn
        self.is_full = False  # nodes claimed all connections at the last turn
        self.wanted = False  # this node has reported that it needs more
        self.refused = 0  # connections refused in the last period with refusals, for WANT_S
        self.refused_at = 0.0
        self.others: dict[str, Claim] = {}
        self.heard_at: dict[str, float] = {}  # by other node, time of its last report

    def expire(self, part_of: Mapping[str, int], now: float) -> None:
        """Remove claims of dead nodes. A node that reports no more has ended the contest, or cannot be reached."""
        self.heard_at = {node: at for node, at in self.heard_at.items() if node in part_of}
        self.others = {
            node: claim if now - self.heard_at[node] <= HOLD_S else Claim(0, max(claim.claim, part_of[node]), False)
            for node, claim in self.others.items()
            if node in part_of
        }


class ConnectionClaims:
    """Claims of one node."""

    def __init__(self) -> None:
        self._contested: dict[str, _Contested] = {}  # the tenant that was reported last comes last
        self._refused: dict[str, int] = {}  # connections refused since the last turn
        self._unchecked: dict[str, None] = {}  # tenants whose connections may be more than half of a part
        self._nodes: list[str] = [""]  # names of all live nodes, sorted
        self._name = ""
        self._started_at = 0.0
        self._is_beginning = False
        self._nodes_changed = False  # since the last turn

    def __len__(self) -> int:
        return len(self._contested)

    def allowed(self, tenant: str, most: int) -> int:
        """Return the number of connections of the tenant that this node may have."""
        contested = self._contested.get(tenant)
        if contested is not None:
            return contested.claim
        part = self._part(self._name, most)
        return part // BEGINNING if self._is_beginning else part

    def admits(self, tenant: str, count: int, most: int) -> bool:
        """Return whether the tenant may have one more than `count` connections on this node. Record a refusal."""
        if len(self._nodes) == 1:
            return count < most
        if count >= self.allowed(tenant, most):
            self._refused[tenant] = self._refused.get(tenant, 0) + 1
            return False
        if tenant not in self._contested and self._is_near(self._name, count + 1, most):
            self._unchecked[tenant] = None
        return True

    def may_grow(self, tenant: str) -> bool:
        """Return whether this node may soon have more connections of the tenant, as far as it knows."""
        contested = self._contested.get(tenant)
        return len(self._nodes) > 1 and (contested is None or not contested.is_full)

    def receive(
        self, node: str, claims: Iterable[tuple[str, Claim]], most_of: Callable[[str], int], now: float
    ) -> None:
        """Record the report of another node."""
        for tenant, claim in claims:
            contested = self._contested.get(tenant)
            if contested is None:
                most = most_of(tenant)
                if not most or (claim.claim == self._part(node, most) and not self._needs_more(node, claim, most)):
                    continue  # the contest is over
                contested = self._contested[tenant] = _Contested(self.allowed(tenant, most))
            contested.others[node], contested.heard_at[node] = claim, now

    def meet(self, name: str, peers: Collection[str], now: float) -> None:
        """Set this node's name and the other live nodes. A node with a new name has been dead for the others."""
        if name != self._name:
            self._name, self._started_at = name, now
            self._contested.clear()
        nodes = sorted({name, *peers})
        if nodes != self._nodes:
            self._nodes, self._nodes_changed = nodes, True
        if not peers:
            self._contested.clear()
        self._is_beginning = bool(peers) and now - self._started_at < BEGINNING_S

    def turn(
        self, counts: Mapping[str, int], most_of: Callable[[str], int], now: float, *, cut_off: bool
    ) -> list[tuple[str, Claim]]:
        """End a period with these connections by tenant. Return the claims to report.

        At most AT_ONCE claims are changed and reported in a period, those that were reported longest ago.
        """
        if len(self._nodes) == 1:
            return []
        self._contest(counts, most_of, now)
        report: list[tuple[str, Claim]] = []
        for tenant in [*islice(self._contested, AT_ONCE)]:
            contested, most, count = self._contested.pop(tenant), most_of(tenant), counts.get(tenant, 0)
            contested.expire({node: self._part(node, most) for node in self._nodes}, now)
            if now - contested.refused_at > WANT_S:
                contested.refused = 0
            if not self._is_over(contested, count, most):
                self._contested[tenant] = contested
                frozen = cut_off or self._is_beginning
                report.append((tenant, self._claim(contested, count, most, frozen=frozen)))
        return report

    def _contest(self, counts: Mapping[str, int], most_of: Callable[[str], int], now: float) -> None:
        """Begin to exchange claims for tenants that need it."""
        if self._nodes_changed:  # parts may be smaller
            self._unchecked |= dict.fromkeys(counts)
            self._nodes_changed = False
        for tenant in [*islice(self._unchecked, AT_ONCE)]:
            del self._unchecked[tenant]
            if tenant not in self._contested and self._is_near(self._name, counts.get(tenant, 0), most_of(tenant)):
                self._contested[tenant] = _Contested(self.allowed(tenant, most_of(tenant)))
        refused, self._refused = self._refused, {}
        for tenant, number in refused.items():
            contested = self._contested.get(tenant)
            if contested is None:
                contested = self._contested[tenant] = _Contested(self.allowed(tenant, most_of(tenant)))
            contested.refused, contested.refused_at = number, now

    def _claim(self, contested: _Contested, count: int, most: int, *, frozen: bool) -> Claim:
        """Change this node's claim to a contested limit."""
        known, spare = contested.others, max(0, contested.claim - count)
        others = [node for node in self._nodes if node != self._name]
        free = most - count - sum(known[node].claim if node in known else self._part(node, most) for node in others)
        growth = 0 if contested.count is None else count - contested.count
        wants = spare < max(contested.refused, AHEAD * growth)
        wanting = sorted(node for node, claim in known.items() if claim.wants)
        unclaimed = free - spare
        if wants and contested.wanted:
            wanting = sorted([*wanting, self._name])
            more = spare + max(unclaimed // (2 * len(wanting)), wanting[0] == self._name)
        elif wants:  # other nodes may need more, too, and do not know of this node's need yet
            more = spare + unclaimed // (2 * len(self._nodes))
        elif self._is_quiet(contested, count, most):
            part = self._part(self._name, most) - count
            more = part if self._others_have_parts(contested, most) else min(spare, part)
        else:  # connections that are not used are for nodes that need more
            more = max(free // (2 * len(self._nodes)), min(spare, contested.refused) if wanting else spare)
        claim = count + max(0, min(free, more))
        contested.claim = max(count, min(claim, contested.claim) if frozen else claim)
        contested.count, contested.wanted, contested.is_full = count, wants, unclaimed <= 0
        return Claim(count, contested.claim, wants)

    def _is_over(self, contested: _Contested, count: int, most: int) -> bool:
        """Return whether each node has an equal part and needs no more."""
        return (
            contested.claim == self._part(self._name, most)
            and contested.count is not None  # this claim was reported
            and self._is_quiet(contested, count, most)
            and self._others_have_parts(contested, most)
        )

    def _is_quiet(self, contested: _Contested, count: int, most: int) -> bool:
        """Return whether no node uses more than half of its part or needs more."""
        if contested.refused or self._is_near(self._name, count, most):
            return False
        return not any(self._needs_more(node, claim, most) for node, claim in contested.others.items())

    def _needs_more(self, node: str, claim: Claim, most: int) -> bool:
        return claim.wants or self._is_near(node, claim.used, most)

    def _others_have_parts(self, contested: _Contested, most: int) -> bool:
        """Return whether no other node claims more than an equal part."""
        return all(claim.claim <= self._part(node, most) for node, claim in contested.others.items())

    def _is_near(self, node: str, count: int, most: int) -> bool:
        return count > CONTESTED * self._part(node, most)

    def _part(self, node: str, most: int) -> int:
        """Return a node's equal part. The parts of all nodes add up to the limit."""
        part, rest = divmod(most, len(self._nodes))
        return part + (node in self._nodes[:rest])
