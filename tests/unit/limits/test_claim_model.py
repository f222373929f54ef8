"""Claims of nodes to a tenant's connections: their sum, how they follow the clients, and lost reports."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from greendot.limits.claim_model import BEGINNING_S, WANT_S, Claim, ConnectionClaims
from greendot.limits.share_model import MOST, PERIOD_S

STEP_S = 0.1


class SimulatedNode:
    """Node with connections of one tenant."""

    def __init__(self, name: str, turn_at: float) -> None:
        self.name = name
        self.turn_at = turn_at
        self.claims = ConnectionClaims()
        self.count = 0


class Cluster:
    """Nodes, a bus that loses reports, and time."""

    def __init__(self, nodes: int, most: int, loss: float = 0.0, seed: int = 1) -> None:
        self.random = random.Random(seed)
        self.now, self.most, self.loss = 0.0, most, loss
        self.nodes = [SimulatedNode(f"n{number:02}", self.random.uniform(0, PERIOD_S)) for number in range(nodes)]
        self.published = 0
        self.highest = 0
        for node in self.nodes:
            self.meet(node)
        self.now = BEGINNING_S
        for node in self.nodes:
            self.meet(node)

    @property
    def total(self) -> int:
        return sum(node.count for node in self.nodes)

    def meet(self, node: SimulatedNode) -> None:
        node.claims.meet(node.name, {other.name for other in self.nodes} - {node.name}, self.now)

    def connect(self, node: SimulatedNode, clients: int) -> int:
        """Connect clients and return the number that is refused."""
        for number in range(clients):
            if node.count >= node.claims.allowed("acme", self.most):
                node.claims.refuse("acme")
                return clients - number
            node.count += 1
        return 0

    def run(self, seconds: float, arrivals: Callable[[int], float] = lambda node: 0.0) -> None:
        """Let time pass, with so many clients per second on each node. Refused clients do not return."""
        for _ in range(round(seconds / STEP_S)):
            self.now += STEP_S
            for number, node in enumerate(self.nodes):
                due = arrivals(number) * STEP_S
                self.connect(node, int(due) + (self.random.random() < due % 1))
                if self.now >= node.turn_at:
                    self.turn(node)
            self.highest = max(self.highest, self.total)

    def turn(self, node: SimulatedNode) -> None:
        node.turn_at += PERIOD_S
        self.meet(node)
        counts = {"acme": node.count} if node.count else {}
        report = node.claims.turn(counts, lambda tenant: self.most, self.now, cut_off=False)
        self.published += bool(report)
        for other in self.nodes:
            if other is not node and self.random.random() >= self.loss:
                other.claims.receive(node.name, report, lambda tenant: self.most)


SIZES = pytest.mark.parametrize("nodes", [2, 3, 6, 16])
PLACES = pytest.mark.parametrize(
    "weight",
    [lambda node: 1.0, lambda node: float(node == 1), lambda node: 0.5**node],
    ids=["even", "one node", "halving"],
)


@SIZES
@PLACES
@pytest.mark.parametrize("most", [10, 100, 5_000])
@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_connections_reach_the_limit_and_keep_to_it(
    nodes: int, weight: Callable[[int], float], most: int, loss: float
) -> None:
    cluster = Cluster(nodes, most, loss)
    total = sum(weight(node) for node in range(nodes))
    cluster.run(60, lambda node: most / 10 * weight(node) / total)
    assert cluster.total >= 0.9 * most
    assert cluster.highest <= 1.1 * most


@SIZES
def test_a_storm_of_clients_at_the_same_moment_keeps_to_the_limit(nodes: int) -> None:
    cluster = Cluster(nodes, 1_000)
    for _ in range(40):
        for node in cluster.nodes:
            cluster.connect(node, 10_000)
        cluster.run(PERIOD_S)
    assert 900 <= cluster.total <= cluster.highest <= 1_100


@SIZES
def test_connections_that_close_are_free_for_other_nodes(nodes: int) -> None:
    cluster = Cluster(nodes, 1_000)
    cluster.run(30, lambda node: 200.0 * (node == 0))
    assert cluster.nodes[0].count >= 900
    cluster.nodes[0].count = 100
    cluster.run(20, lambda node: 200.0 * (node == 1))
    assert cluster.total >= 900
    assert cluster.highest <= 1_000


def test_an_unreachable_node_keeps_its_claim_and_a_dead_one_loses_it() -> None:
    cluster = Cluster(3, 1_000)
    cluster.run(30, lambda node: 50.0)
    gone = cluster.nodes[0]
    held = gone.count
    gone.turn_at = float("inf")
    cluster.run(60, lambda node: 50.0 * (node > 0))
    assert cluster.highest <= 1_000
    cluster.nodes.remove(gone)
    cluster.run(20, lambda node: 50.0)
    assert 950 <= cluster.total <= 1_000
    assert held > 250


def test_few_connections_are_not_reported_and_reports_end() -> None:
    cluster = Cluster(4, 1_000)
    cluster.run(2, lambda node: 60.0)
    assert (cluster.published, cluster.total) == (0, cluster.highest)
    cluster.run(3, lambda node: 60.0)
    assert cluster.published
    for node in cluster.nodes:
        node.count = 1
    cluster.run(WANT_S + 5)
    published = cluster.published
    cluster.run(5)
    assert (cluster.published, [len(node.claims) for node in cluster.nodes]) == (published, [0] * 4)


# --- one node ---


def claims(*peers: str, started_s: float = BEGINNING_S) -> ConnectionClaims:
    made = ConnectionClaims()
    made.meet("b", peers, 0.0)
    made.meet("b", peers, started_s)
    return made


def turned(made: ConnectionClaims, count: int, now: float = 10.0, most: int = 100, *, cut_off: bool = False) -> Claim:
    ((tenant, claim),) = made.turn({"acme": count}, lambda tenant: most, now, cut_off=cut_off)
    assert tenant == "acme"
    return claim


def received(made: ConnectionClaims, node: str, *claim: int) -> None:
    count, claimed, wants = claim
    made.receive(node, [("acme", Claim(count, claimed, bool(wants)))], lambda tenant: 100)


def test_a_node_alone_has_the_whole_limit_and_reports_nothing() -> None:
    alone = claims()
    alone.refuse("acme")
    assert alone.turn({"acme": 100}, lambda tenant: 100, 1.0, cut_off=False) == []
    assert alone.allowed("acme", 100) == 100
    assert claims(started_s=0.0).allowed("acme", 100) == 100


def test_equal_parts_add_up_to_the_limit() -> None:
    parts = []
    for name in "abcd":
        made = ConnectionClaims()
        for now in (0.0, BEGINNING_S):
            made.meet(name, {*"abcd"} - {name}, now)
        parts.append(made.allowed("acme", 10))
    assert parts == [3, 3, 2, 2]


def test_a_node_that_has_just_started_has_less() -> None:
    assert claims("a", started_s=BEGINNING_S - 0.01).allowed("acme", 100) == 12
    assert claims("a").allowed("acme", 100) == 50


def test_more_than_half_of_a_part_is_reported() -> None:
    quiet = claims("a")
    assert quiet.turn({"acme": 25}, lambda tenant: 100, 1.0, cut_off=False) == []
    assert turned(claims("a"), 26) == Claim(26, 50, wants=False)


def test_connections_that_are_not_used_are_free_for_a_node_that_wants_more() -> None:
    made = claims("a")
    turned(made, 26)
    received(made, "a", 50, 50, 0)
    assert turned(made, 26) == Claim(26, 50, wants=False)
    received(made, "a", 50, 50, 1)
    assert turned(made, 26) == Claim(26, 26 + 24 // 4, wants=False)


def test_a_growing_node_wants_more_before_it_has_to_refuse() -> None:
    made = claims("a")
    turned(made, 26)
    received(made, "a", 10, 20, 0)
    assert turned(made, 30) == Claim(30, 50, wants=False)
    assert turned(made, 35) == Claim(35, 35 + 45 // 2, wants=True)
    assert turned(made, 35) == Claim(35, 57, wants=False)


def test_a_refusal_is_a_reason_to_report() -> None:
    made = claims("a", "c", "d")
    made.refuse("acme")
    assert turned(made, 0, most=1) == Claim(0, 0, wants=True)


def test_a_node_that_needs_more_takes_a_part_of_what_no_node_claims() -> None:
    made = claims("a", "c")
    received(made, "a", 10, 20, 0)
    received(made, "c", 10, 20, 0)
    made.refuse("acme")
    assert turned(made, 33) == Claim(33, 33 + 27 // 3, wants=True)


def test_a_node_whose_need_is_known_takes_half_and_shares_with_others_who_need_more() -> None:
    made = claims("a", "c")
    received(made, "a", 10, 20, 0)
    received(made, "c", 10, 20, 0)
    for _ in range(9):
        made.refuse("acme")
    assert turned(made, 33) == Claim(33, 42, wants=True)
    assert turned(made, 42) == Claim(42, 42 + 18 // 2, wants=True)
    received(made, "a", 20, 20, 1)
    assert turned(made, 50) == Claim(50, 50 + 10 // 3, wants=True)


def test_the_last_connection_is_for_the_first_of_those_who_want_it() -> None:
    for other, last in (("a", 80), ("c", 81)):
        made = claims(other)
        received(made, other, 19, 19, 1)
        for _ in range(2):
            made.refuse("acme")
            claim = turned(made, 80)
        assert claim == Claim(80, last, wants=True)


def test_what_was_refused_is_kept_until_the_clients_have_returned() -> None:
    made = claims("a")
    received(made, "a", 50, 90, 1)
    for _ in range(3):
        made.refuse("acme")
    assert turned(made, 4, 10.0) == Claim(4, 7, wants=False)
    assert turned(made, 4, 10.0 + WANT_S) == Claim(4, 7, wants=False)
    assert turned(made, 4, 10.1 + WANT_S) == Claim(4, 4 + 6 // 4, wants=False)


def test_a_node_beyond_its_claim_reports_its_connections() -> None:
    made = claims("a")
    received(made, "a", 80, 80, 0)
    assert turned(made, 40) == Claim(40, 40, wants=False)
    assert made.allowed("acme", 100) == 40


def test_a_node_that_is_cut_off_claims_no_more_than_before() -> None:
    made = claims("a")
    received(made, "a", 0, 0, 0)
    made.refuse("acme")
    assert turned(made, 50, cut_off=True) == Claim(50, 50, wants=True)
    assert turned(made, 50, cut_off=True) == Claim(50, 50, wants=True)
    assert turned(made, 50) == Claim(50, 75, wants=True)
    assert turned(made, 40, cut_off=True).claim <= 75


def test_tenants_without_a_limit_are_not_kept() -> None:
    made = claims("a")
    made.receive("a", [("acme", Claim(1, 2, wants=True))], lambda tenant: 0)
    assert len(made) == 0
    received(made, "a", 50, 50, 0)
    made.refuse("free")
    assert made.turn({}, lambda tenant: 0, 1.0, cut_off=False) == []
    assert len(made) == 0


def test_a_report_is_bounded() -> None:
    made = claims("a")
    counts = {f"t{number}": 90 for number in range(MOST + 5)}
    assert len(made.turn(counts, lambda tenant: 100, 1.0, cut_off=False)) == MOST
