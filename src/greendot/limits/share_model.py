"""Shares of a node in the rate limits of tenants, which hold for the whole cluster.

While a tenant's demand is far below its limit, each node has an equal part, and nodes exchange nothing. A limit is
contested when the demand on a node exceeds half of an equal part. Then all nodes with demand report it every period,
and each node computes its own share from the same numbers: a small part for each node, and the rest by demand. So the
shares add up to the limit. In the first period of a contest the reports of other nodes may be missing, and a node keeps
its equal part.

A report that is not renewed expires: the node is dead, cut off, or has no demand. A node whose own reports do not come
back through the bus must assume that other nodes do not receive them. It returns to an equal part before its reports
expire on the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

LimitKey = tuple[str, str]  # activity and tenant

PERIOD_S = 0.5  # between two reports of a node
LEARNING_S = 0.9 * PERIOD_S  # time in which all nodes report their demand for a limit that became contested
HOLD_S = 5.5  # a report counts for so long
CUT_OFF_S = 3.5  # a node whose reports have not come back for so long is cut off
FALL = 0.5  # part of a decrease of demand that is reported in each period
SPARE = 0.05  # part of the limit that is divided equally, so that a node without demand can serve its first requests
CONTESTED = 0.5  # part of an equal share above which demand is reported
MOST = 1_000  # limits in one report


class Turn(NamedTuple):
    """Result of a period."""

    report: list[tuple[LimitKey, float]]  # demand of this node, in tokens per second
    shares: dict[LimitKey, float | None]  # new shares of this node; None: an equal part


class _Contested:
    """Demand for one contested limit, in tokens per second."""

    __slots__ = ("others", "own", "reported", "since")

    def __init__(self, now: float) -> None:
        self.since = now
        self.own = 0.0
        self.reported = False  # the last report of this node had demand
        self.others: dict[str, tuple[float, float]] = {}  # demand and time of the last report, by node

    def observe(self, demand: float) -> None:
        """Update this node's demand. The value rises at once and falls gradually."""
        self.own = max(demand, self.own + (demand - self.own) * FALL)

    def expire(self, peers: Collection[str], now: float) -> None:
        """Remove reports of dead nodes, and reports that were not renewed."""
        self.others = {
            node: report for node, report in self.others.items() if node in peers and now - report[1] <= HOLD_S
        }

    def share(self, nodes: int) -> float:
        """Return this node's part of the limit."""
        total = self.own + sum(demand for demand, _ in self.others.values())
        return SPARE / nodes + (1 - SPARE) * self.own / total

    def largest(self) -> float:
        return max([self.own, *(demand for demand, _ in self.others.values())])


class DemandShares:
    """Demand for contested limits, as one node knows it."""

    def __init__(self) -> None:
        self._contested: dict[LimitKey, _Contested] = {}
        self._unreturned_since: float | None = None  # time of the first report that has not come back

    def __len__(self) -> int:
        return len(self._contested)

    def receive(self, node: str, report: Iterable[tuple[LimitKey, float]], now: float) -> None:
        """Record the report of another node."""
        for key, demand in report:
            self._contested.setdefault(key, _Contested(now)).others[node] = demand, now

    def published(self, now: float) -> None:
        """Record that this node's report was published."""
        if self._unreturned_since is None:
            self._unreturned_since = now

    def returned(self) -> None:
        """Record that a report of this node came back through the bus."""
        self._unreturned_since = None

    def is_cut_off(self, now: float) -> bool:
        """Return whether other nodes may not receive the reports of this node."""
        return self._unreturned_since is not None and now - self._unreturned_since > CUT_OFF_S

    def turn(
        self,
        requested: Mapping[LimitKey, float],
        limit_of: Callable[[LimitKey], float],
        peers: Collection[str],
        now: float,
    ) -> Turn:
        """End a period in which these tokens per second were requested. `peers` are the other live nodes."""
        nodes = len(peers) + 1
        report: list[tuple[LimitKey, float]] = []
        shares: dict[LimitKey, float | None] = {}
        cut_off = self.is_cut_off(now)
        for key in [*self._contested, *(key for key in requested if key not in self._contested)]:
            limit = limit_of(key) if peers else 0.0
            even = limit / nodes
            demand = min(requested.get(key, 0.0), limit)  # a flood of one node counts as the whole limit at most
            contested = self._contested.get(key)
            if contested is None:
                if demand <= CONTESTED * even:
                    continue
                contested = self._contested[key] = _Contested(now)
            contested.observe(demand)
            contested.expire(peers, now)
            if not limit or contested.largest() <= CONTESTED * even:
                del self._contested[key]
                shares[key] = None
                continue
            much = contested.own > SPARE * even / 2
            if much or contested.reported:
                report.append((key, contested.own))
            contested.reported = much
            begins = now - contested.since < LEARNING_S
            shares[key] = None if cut_off or begins else contested.share(nodes)
        return self._bounded(report, shares, limit_of, nodes)

    def _bounded(
        self,
        report: list[tuple[LimitKey, float]],
        shares: dict[LimitKey, float | None],
        limit_of: Callable[[LimitKey], float],
        nodes: int,
    ) -> Turn:
        """Leave the smallest demands out of a long report. Their shares are an equal part at most."""
        if len(report) > MOST:
            report.sort(key=lambda entry: entry[1] / limit_of(entry[0]), reverse=True)
            for key, _ in report[MOST:]:
                share = shares[key]
                shares[key] = None if share is None else min(share, 1 / nodes)
        return Turn(report[:MOST], shares)
