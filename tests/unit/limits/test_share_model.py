"""Shares of nodes in a tenant's rate limit: their sum, how they follow demand, and lost reports."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from greendot.limits.model import Buckets, SharedRate, ask
from greendot.limits.share_model import (
    CUT_OFF_S,
    HOLD_S,
    LEARNING_S,
    MOST,
    PERIOD_S,
    SPARE,
    DemandShares,
    LimitKey,
)

KEY: LimitKey = ("sends", "acme")
LIMIT = 1_000.0
BURST_S = 4.0
STEP_S = 0.02  # of the simulation
DELAY_S = 0.02  # of a report on the bus
TENANT = 0  # index of the tenant among the keys of a request

Demand = Callable[[int, float], float]  # tokens per second by node and time


@dataclass
class SimulatedNode:
    """Node with the real buckets and shares of one limit."""

    name: str
    turn_at: float
    buckets: Buckets = field(default_factory=Buckets)
    shares: DemandShares = field(default_factory=DemandShares)
    alive: bool = True
    pending: float = 0.0  # requests that are due, with their fraction
    permitted: int = 0

    def __post_init__(self) -> None:
        self.shared = SharedRate(self.buckets, LIMIT, BURST_S)
        self.rule = (TENANT, self.buckets, 1 / LIMIT, BURST_S, self.shared)


class Cluster:
    """Nodes, a bus that loses reports, and time."""

    def __init__(self, nodes: int, demand: Demand, loss: float = 0.0, seed: int = 1) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.demand = demand
        self.loss = loss
        self.nodes = [SimulatedNode(f"n{number}", self.random.uniform(0, PERIOD_S)) for number in range(nodes)]
        self.bus: list[tuple[float, SimulatedNode, str, list[tuple[LimitKey, float]]]] = []
        self.published = 0
        for node in self.nodes:
            node.shared.divide(nodes)

    def run(self, seconds: float) -> float:
        """Let time pass; return the permitted tokens per second of all nodes together."""
        before = sum(node.permitted for node in self.nodes)
        for _ in range(round(seconds / STEP_S)):
            self.now += STEP_S
            self._deliver()
            for number, node in enumerate(self.nodes):
                if node.alive:
                    self._request(node, self.demand(number, self.now))
                    if self.now >= node.turn_at:
                        self._turn(node)
        return (sum(node.permitted for node in self.nodes) - before) / seconds

    def _request(self, node: SimulatedNode, rate: float) -> None:
        node.pending += rate * STEP_S
        for _ in range(int(node.pending)):
            node.pending -= 1
            node.permitted += ask([node.rule], ["acme"], 1, self.now) is None

    def _turn(self, node: SimulatedNode) -> None:
        node.turn_at += PERIOD_S
        peers = {other.name for other in self.nodes if other.alive} - {node.name}
        node.shared.divide(len(peers) + 1)
        requested = {KEY: node.shared.take_demand().get("acme", 0) / PERIOD_S}
        report, shares = node.shares.turn(requested, lambda key: LIMIT, peers, self.now)
        for share in shares.values():
            node.shared.set_share("acme", share, self.now)
        if report:
            self.published += 1
            node.shares.published(self.now)
            for other in self.nodes:
                if self.random.random() >= self.loss:
                    self.bus.append((self.now + DELAY_S, other, node.name, report))

    def _deliver(self) -> None:
        due = [entry for entry in self.bus if entry[0] <= self.now]
        self.bus = [entry for entry in self.bus if entry[0] > self.now]
        for _, node, sender, report in due:
            if node.name == sender:
                node.shares.returned()
            else:
                node.shares.receive(sender, report, self.now)


def even(total: float, nodes: int) -> Demand:
    return lambda node, now: total / nodes


def within_ten_percent(permitted: float) -> bool:
    return 0.9 * LIMIT <= permitted <= 1.1 * LIMIT


# --- the sum over the cluster ---

SIZES = pytest.mark.parametrize("nodes", [2, 3, 6, 16])


@SIZES
@pytest.mark.parametrize("loss", [0.0, 0.2])
@pytest.mark.parametrize(
    "weights",
    [lambda node: 1.0, lambda node: float(node == 0), lambda node: 0.5**node, lambda node: 8.0 if node == 1 else 0.2],
    ids=["even", "one node", "halving", "a flood and little demand"],
)
def test_the_sum_over_the_cluster_is_within_ten_percent(
    nodes: int, loss: float, weights: Callable[[int], float]
) -> None:
    total = sum(weights(node) for node in range(nodes))
    cluster = Cluster(nodes, lambda node, now: 3 * LIMIT * weights(node) / total, loss)
    cluster.run(5 + BURST_S)
    assert [second for second in range(20) if not within_ten_percent(cluster.run(1))] == []


@SIZES
def test_demand_just_below_the_limit_is_served_wherever_it_is(nodes: int) -> None:
    for weights in (lambda node: 1.0, lambda node: float(node == 0), lambda node: 1.0 / (node + 1)):
        total = sum(weights(node) for node in range(nodes))
        cluster = Cluster(nodes, lambda node, now, w=weights, t=total: 0.9 * LIMIT * w(node) / t)
        cluster.run(3)
        assert cluster.run(20) == pytest.approx(0.9 * LIMIT, rel=0.01)


@SIZES
@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_demand_that_moves_from_node_to_node_keeps_to_the_limit_and_is_followed(nodes: int, loss: float) -> None:
    moves_s = 10.0
    cluster = Cluster(nodes, lambda node, now: 3 * LIMIT * (node == now // moves_s % nodes), loss)
    cluster.run(2 * moves_s)
    long_run = [cluster.run(moves_s) for _ in range(6)]
    assert max(long_run) <= 1.1 * LIMIT
    assert min(long_run) >= 0.8 * LIMIT  # a move costs less than two seconds
    cluster.run(4)
    assert within_ten_percent(cluster.run(moves_s - 4))


@SIZES
def test_random_demand_keeps_to_the_limit(nodes: int) -> None:
    chance = random.Random(7)
    levels = [[chance.choice([0.0, 0.1, 0.5, 2.0]) * LIMIT for _ in range(20)] for _ in range(nodes)]
    levels[0] = [2 * LIMIT] * 20  # there is always more demand than the limit
    cluster = Cluster(nodes, lambda node, now: levels[node][int(now / 7) % 20], loss=0.1)
    cluster.run(10)
    assert cluster.run(140) == pytest.approx(LIMIT, rel=0.1)


@SIZES
def test_a_dead_node_gives_its_share_back(nodes: int) -> None:
    cluster = Cluster(nodes, even(3 * LIMIT, nodes))
    cluster.run(10)
    cluster.nodes[0].alive = False
    cluster.run(1)
    assert within_ten_percent(cluster.run(5))


@SIZES
def test_a_silent_node_that_is_not_known_to_be_dead_gives_its_share_back(nodes: int) -> None:
    cluster = Cluster(nodes, lambda node, now: 0.0 if node == 0 and now > 10 else 3 * LIMIT)
    cluster.run(10)
    silent = cluster.nodes[0]
    silent.turn_at = float("inf")
    cluster.run(HOLD_S + PERIOD_S)
    assert within_ten_percent(cluster.run(5))


@SIZES
def test_without_a_bus_all_nodes_return_to_an_equal_part(nodes: int) -> None:
    cluster = Cluster(nodes, lambda node, now: 3 * LIMIT * 0.6**node)
    cluster.run(10)
    cluster.loss = 1.0
    # The nodes with little demand get an equal part when the reports of the others expire, and these retreat before.
    assert max(cluster.run(1) for _ in range(20)) <= 1.1 * LIMIT


@SIZES
def test_a_burst_of_the_cluster_is_that_of_one_node(nodes: int) -> None:
    cluster = Cluster(nodes, even(100 * LIMIT, nodes))
    assert cluster.run(1) <= (BURST_S + 1) * LIMIT * 1.1


def test_little_demand_is_neither_reported_nor_refused() -> None:
    cluster = Cluster(4, even(0.4 * LIMIT, 4))
    assert cluster.run(20) == pytest.approx(0.4 * LIMIT, rel=0.01)
    assert cluster.published == 0


def test_reports_end_with_the_demand() -> None:
    cluster = Cluster(4, lambda node, now: LIMIT if now < 5 else 10.0)
    cluster.run(20)
    published = cluster.published
    cluster.run(20)
    assert cluster.published == published
    assert [len(node.shares) for node in cluster.nodes] == [0] * 4
    assert {node.shared.pace("acme")[0] for node in cluster.nodes} == {4 / LIMIT}


# --- one node ---


def turned(
    shares: DemandShares, demand: float, now: float, peers: str = "bc"
) -> tuple[list[tuple[LimitKey, float]], dict[LimitKey, float | None]]:
    return shares.turn({KEY: demand} if demand else {}, lambda key: 900.0, {*peers}, now)


def test_shares_of_nodes_that_know_the_same_add_up_to_the_limit() -> None:
    demands = {"a": 10.0, "b": 400.0, "c": 800.0}
    found = []
    for name, demand in demands.items():
        shares = DemandShares()
        for other in demands.keys() - {name}:
            shares.receive(other, [(KEY, demands[other])], 0.0)
        share = turned(shares, demand, 1.0, "".join(demands.keys() - {name}))[1][KEY]
        assert share == pytest.approx(SPARE / 3 + (1 - SPARE) * demand / 1210)
        found.append(share or 0)
    assert sum(found) == pytest.approx(1)


def test_a_node_alone_shares_with_no_node() -> None:
    shares = DemandShares()
    assert turned(shares, 5_000.0, 1.0, "") == ([], {})
    turned(shares, 800.0, 2.0)
    assert turned(shares, 800.0, 3.0, "") == ([], {KEY: None})
    assert len(shares) == 0


def test_demand_is_reported_above_half_of_an_equal_part() -> None:
    assert turned(DemandShares(), 150.0, 1.0) == ([], {})
    assert turned(DemandShares(), 151.0, 1.0) == ([(KEY, 151.0)], {KEY: None})


def test_in_the_first_period_of_a_contest_a_node_keeps_its_equal_part() -> None:
    shares = DemandShares()
    assert turned(shares, 500.0, 1.0)[1] == {KEY: None}
    assert turned(shares, 500.0, 1.0 + LEARNING_S - 0.01)[1] == {KEY: None}
    assert turned(shares, 500.0, 1.01 + LEARNING_S)[1] == {KEY: pytest.approx(SPARE / 3 + 1 - SPARE)}
    exactly = DemandShares()
    turned(exactly, 500.0, 0.0)
    assert turned(exactly, 500.0, LEARNING_S)[1] != {KEY: None}
    told = DemandShares()
    told.receive("b", [(KEY, 500.0)], 1.0)
    assert turned(told, 500.0, 1.0 + LEARNING_S - 0.01)[1] == {KEY: None}
    assert turned(told, 500.0, 1.01 + LEARNING_S)[1] == {KEY: pytest.approx(SPARE / 3 + (1 - SPARE) / 2)}


def test_once_contested_small_demand_is_reported_and_none_is_not() -> None:
    shares = DemandShares()
    shares.receive("b", [(KEY, 500.0)], 0.5)
    assert turned(shares, 7.5, 1.0) == ([], {KEY: pytest.approx(SPARE / 3 + (1 - SPARE) * 7.5 / 507.5)})
    report, _ = turned(shares, 8.0, 2.0)
    assert report == [(KEY, 8.0)]
    assert turned(shares, 0.0, 3.0)[0] == [(KEY, 4.0)]  # the others must know that the demand has ended
    assert turned(shares, 0.0, 4.0)[0] == []


def test_without_demand_a_node_has_the_spare_part_and_without_a_contest_an_equal_one() -> None:
    shares = DemandShares()
    shares.receive("b", [(KEY, 500.0)], 0.0)
    assert turned(shares, 0.0, 1.0) == ([], {KEY: pytest.approx(SPARE / 3)})
    shares.receive("b", [(KEY, 150.0)], 1.0)
    assert turned(shares, 0.0, 2.0) == ([], {KEY: None})
    assert len(shares) == 0


def test_demand_counts_up_to_the_limit_rises_at_once_and_falls_by_half() -> None:
    shares = DemandShares()
    assert turned(shares, 9_000.0, 1.0)[0] == [(KEY, 900.0)]
    assert turned(shares, 300.0, 2.0)[0] == [(KEY, 600.0)]
    assert turned(shares, 700.0, 3.0)[0] == [(KEY, 700.0)]


def test_a_report_counts_until_it_expires_or_its_node_is_dead() -> None:
    shares = DemandShares()
    shares.receive("b", [(KEY, 500.0)], 0.0)
    assert turned(shares, 500.0, HOLD_S)[1][KEY] == pytest.approx(SPARE / 3 + (1 - SPARE) / 2)
    assert turned(shares, 500.0, HOLD_S + 0.01)[1][KEY] == pytest.approx(SPARE / 3 + 1 - SPARE)
    shares.receive("b", [(KEY, 500.0)], 10.0)
    assert turned(shares, 500.0, 10.5, "c")[1][KEY] == pytest.approx(SPARE / 2 + 1 - SPARE)


def test_a_node_whose_reports_do_not_come_back_has_an_equal_part_until_they_do() -> None:
    shares = DemandShares()
    turned(shares, 500.0, 1.0)
    shares.published(1.0)
    shares.published(2.0)
    assert turned(shares, 500.0, 1.0 + CUT_OFF_S)[1][KEY] is not None
    report, found = turned(shares, 500.0, 1.01 + CUT_OFF_S)
    assert (report, found) == ([(KEY, 500.0)], {KEY: None})
    shares.returned()
    assert turned(shares, 500.0, 20.0)[1][KEY] is not None


def test_a_limit_that_this_node_does_not_have_is_forgotten() -> None:
    shares = DemandShares()
    shares.receive("b", [(KEY, 500.0)], 0.0)
    assert shares.turn({}, lambda key: 0.0, {"b"}, 1.0) == ([], {KEY: None})
    assert len(shares) == 0


def test_a_long_report_has_the_largest_demands_and_the_rest_gets_an_equal_part_at_most() -> None:
    shares = DemandShares()
    limits = {("sends", f"t{number}"): 900.0 - number / 10 for number in range(MOST + 2)}
    requested = dict.fromkeys(limits, 600.0)
    assert [key for key, _ in DemandShares().turn(requested, limits.__getitem__, {"b"}, 1.0).report][-1] == (
        "sends",
        "t2",
    )
    shares.turn(requested, limits.__getitem__, {"b"}, 1.0)
    report, found = shares.turn(requested, limits.__getitem__, {"b"}, 2.0)
    assert len(report) == MOST
    left = {key for key in requested if key not in dict(report)}
    assert left == {("sends", "t0"), ("sends", "t1")}
    assert {found[key] for key in left} == {0.5}
    assert all(share is not None and share > 0.9 for key, share in found.items() if key not in left)
    fitting = dict([*requested.items()][:MOST])
    assert [key for key, _ in DemandShares().turn(fitting, limits.__getitem__, {"b"}, 1.0).report] == [*fitting]
