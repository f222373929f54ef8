"""Claims of nodes to a tenant's connections: their sum, how they follow the clients, and lost reports."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from greendot.limits.claim_model import AT_ONCE, BEGINNING, BEGINNING_S, WANT_S, Claim, ConnectionClaims
from greendot.limits.share_model import HOLD_S, PERIOD_S

STEP_S = 0.1


class SimulatedNode:
    """Node with connections of one tenant."""

    def __init__(self, name: str, turn_at: float) -> None:
        self.name = name
        self.turn_at = turn_at
        self.claims = ConnectionClaims()
        self.count = 0
        self.hears = True


class Cluster:
    """Nodes, a bus that delays and loses reports, and time."""

    def __init__(
        self, nodes: int, most: int, loss: float = 0.0, delay_s: float = 0.0, *, in_step: bool = False
    ) -> None:
        self.random = random.Random(1)
        self.now, self.most, self.loss, self.delay_s = 0.0, most, loss, delay_s
        self.nodes = [
            SimulatedNode(f"n{number:02}", 0.0 if in_step else self.random.uniform(0, PERIOD_S))
            for number in range(nodes)
        ]
        self.under_way: list[tuple[float, SimulatedNode, SimulatedNode, list[tuple[str, Claim]]]] = []
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
        """Connect clients and return the number that is accepted."""
        for number in range(clients):
            if not node.claims.admits("acme", node.count, self.most):
                return number
            node.count += 1
        return clients

    def run(self, seconds: float, arrivals: Callable[[int], float] = lambda node: 0.0) -> None:
        """Let time pass, with so many clients per second on each node. Refused clients do not return."""
        for _ in range(round(seconds / STEP_S)):
            self.now += STEP_S
            for number, node in enumerate(self.nodes):
                due = arrivals(number) * STEP_S
                self.connect(node, int(due) + (self.random.random() < due % 1))
            turning = [node for node in self.nodes if self.now >= node.turn_at]
            for node in turning:  # reports that are published in the same step reach the others later
                self.turn(node)
            self.deliver()
            self.highest = max(self.highest, self.total)

    def turn(self, node: SimulatedNode) -> None:
        node.turn_at += PERIOD_S
        self.meet(node)
        counts = {"acme": node.count} if node.count else {}
        report = node.claims.turn(counts, lambda tenant: self.most, self.now, cut_off=False)
        self.published += bool(report)
        for other in self.nodes:
            if other is not node and self.random.random() >= self.loss:
                self.under_way.append((self.now + self.random.uniform(0, self.delay_s), node, other, report))

    def deliver(self) -> None:
        due = [report for report in self.under_way if report[0] <= self.now]
        self.under_way = [report for report in self.under_way if report[0] > self.now]
        for _, node, other, report in due:
            other.claims.receive(node.name, report, lambda tenant: self.most, self.now)


SIZES = pytest.mark.parametrize("nodes", [2, 3, 6, 16])
PLACES = pytest.mark.parametrize(
    "weight",
    [lambda node: 1.0, lambda node: float(node == 1), lambda node: 0.5**node],
    ids=["even", "one node", "halving"],
)
BUSES = pytest.mark.parametrize(
    "bus",
    [{}, {"loss": 0.2}, {"delay_s": 0.4}, {"in_step": True}, {"delay_s": 0.4, "in_step": True}],
    ids=["prompt", "loses", "late", "in step", "late in step"],
)


@SIZES
@PLACES
@BUSES
@pytest.mark.parametrize("most", [10, 100, 5_000])
def test_connections_reach_the_limit_and_keep_to_it(
    nodes: int, weight: Callable[[int], float], most: int, bus: dict[str, float]
) -> None:
    cluster = Cluster(nodes, most, **bus)  # type: ignore[arg-type]
    total = sum(weight(node) for node in range(nodes))
    cluster.run(90, lambda node: most / 10 * weight(node) / total)
    assert cluster.total >= 0.9 * most
    assert cluster.highest <= (1.1 if bus else 1.0) * most


@SIZES
@BUSES
def test_a_storm_of_clients_at_the_same_moment_keeps_to_the_limit(nodes: int, bus: dict[str, float]) -> None:
    cluster = Cluster(nodes, 1_000, **bus)  # type: ignore[arg-type]
    for _ in range(40):
        for node in cluster.nodes:
            cluster.connect(node, 10_000)
        cluster.run(PERIOD_S)
    assert 900 <= cluster.total <= cluster.highest <= 1_100


@SIZES
@BUSES
def test_connections_that_close_are_free_for_other_nodes(nodes: int, bus: dict[str, float]) -> None:
    cluster = Cluster(nodes, 1_000, **bus)  # type: ignore[arg-type]
    cluster.run(30, lambda node: 200.0 * (node == 0))
    assert cluster.nodes[0].count >= 900
    cluster.nodes[0].count = 100
    cluster.run(20, lambda node: 200.0 * (node == 1))
    assert 900 <= cluster.total <= cluster.highest <= 1_100


@BUSES
def test_a_node_that_joins_a_full_tenant_keeps_to_the_limit(bus: dict[str, float]) -> None:
    cluster = Cluster(1, 1_000, **bus)  # type: ignore[arg-type]
    assert cluster.connect(cluster.nodes[0], 2_000) == 1_000
    joins = SimulatedNode("new", cluster.now)
    first, cluster.nodes = cluster.nodes[0], [*cluster.nodes, joins]
    first.claims.meet = lambda *_: None  # type: ignore[method-assign]  # reads the leases once per second
    cluster.run(1.0, lambda node: 500.0)
    del first.claims.meet  # type: ignore[method-assign]
    cluster.run(30, lambda node: 500.0)
    assert 1_000 <= cluster.total <= 1_100
    first.count -= 400
    cluster.run(20, lambda node: 500.0 * node)
    assert joins.count >= 300


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


@BUSES
def test_few_connections_are_not_reported_and_reports_end(bus: dict[str, float]) -> None:
    cluster = Cluster(4, 1_000, **bus)  # type: ignore[arg-type]
    cluster.run(2, lambda node: 60.0)
    assert (cluster.published, cluster.total) == (0, cluster.highest)
    cluster.run(3, lambda node: 60.0)
    assert cluster.published
    for node in cluster.nodes:
        node.count = 1
    cluster.run(WANT_S + 15)
    published = cluster.published
    cluster.run(5)
    assert (cluster.published, [len(node.claims) for node in cluster.nodes]) == (published, [0] * 4)
    assert [node.claims.allowed("acme", 1_000) for node in cluster.nodes] == [250] * 4


# --- one node ---


def claims(*peers: str, started_s: float = BEGINNING_S) -> ConnectionClaims:
    made = ConnectionClaims()
    made.meet("b", peers, 1.0)
    made.meet("b", peers, 1.0 + started_s)
    return made


def refuse(made: ConnectionClaims, times: int = 1, most: int = 100) -> None:
    for _ in range(times):
        assert not made.admits("acme", most, most)


def turned(made: ConnectionClaims, count: int, now: float = 10.0, most: int = 100, *, cut_off: bool = False) -> Claim:
    ((tenant, claim),) = made.turn({"acme": count}, lambda tenant: most, now, cut_off=cut_off)
    assert tenant == "acme"
    assert made.allowed("acme", most) == claim.claim
    return claim


def is_silent(made: ConnectionClaims, count: int, now: float = 10.0, most: int = 100) -> bool:
    return made.turn({"acme": count}, lambda tenant: most, now, cut_off=False) == []


def received(made: ConnectionClaims, node: str, *claim: int, now: float = 10.0) -> None:
    count, claimed, wants = claim
    made.receive(node, [("acme", Claim(count, claimed, bool(wants)))], lambda tenant: 100, now)


def test_a_node_alone_has_the_whole_limit_and_reports_nothing() -> None:
    for alone in (ConnectionClaims(), claims(), claims(started_s=0.0)):
        assert alone.admits("acme", 99, 100)
        refuse(alone)
        assert is_silent(alone, 100)
        assert (alone.allowed("acme", 100), alone.may_grow("acme"), len(alone)) == (100, False, 0)
    refuse(alone)
    alone.meet("b", ["a"], 20.0)
    assert is_silent(alone, 10)  # what it refused alone is no reason for a contest


def test_equal_parts_add_up_to_the_limit() -> None:
    parts = []
    for name in "abcd":
        made = ConnectionClaims()
        for now in (0.0, BEGINNING_S):
            made.meet(name, {*"abcd"} - {name}, now)
        parts.append(made.allowed("acme", 10))
    assert parts == [3, 3, 2, 2]


def test_a_node_that_has_just_started_has_less_and_claims_no_more() -> None:
    made = claims("a", started_s=BEGINNING_S - 0.01)
    assert made.allowed("acme", 100) == 50 // BEGINNING == 5
    refuse(made)
    received(made, "a", 0, 0, 0)
    assert turned(made, 5) == Claim(5, 5, wants=True)
    made.meet("b", ["a"], 1.0 + BEGINNING_S)
    assert turned(made, 5) == Claim(5, 5 + 95 // 2, wants=True)
    assert claims("a").allowed("acme", 100) == 50


def test_a_node_that_was_dead_for_the_others_starts_again() -> None:
    made = claims("a")
    refuse(made)
    received(made, "a", 10, 10, 0)
    assert turned(made, 60) == Claim(60, 60 + 30 // 4, wants=True)
    made.meet("bb", ["a"], 20.0)
    assert (made.allowed("acme", 100), len(made)) == (5, 0)
    assert turned(made, 60, 20.0) == Claim(60, 60, wants=False)
    made.meet("bb", ["a"], 20.0 + BEGINNING_S)
    assert made.allowed("other", 100) == 50


def test_a_node_is_admitted_up_to_its_part_and_then_refuses() -> None:
    made = claims("a")
    assert [made.admits("acme", count, 100) for count in (0, 49, 50, 51)] == [True, True, False, False]
    assert made.turn({"acme": 50}, lambda tenant: 100, 10.0, cut_off=False) == [("acme", Claim(50, 50, True))]


def test_more_than_half_of_a_part_is_reported() -> None:
    quiet = claims("a")
    assert quiet.admits("acme", 24, 100)
    assert is_silent(quiet, 25)
    assert quiet.admits("acme", 25, 100)
    assert turned(quiet, 26) == Claim(26, 50, wants=False)
    closed = claims("a")
    assert closed.admits("acme", 25, 100)
    assert is_silent(closed, 25)  # it was closed before the turn
    assert closed.admits("acme", 0, 2)
    assert closed.turn({}, lambda tenant: 2, 10.0, cut_off=False) == []


def test_a_smaller_part_is_reported_when_a_node_joins() -> None:
    made = claims("a")
    assert is_silent(made, 25)
    made.meet("b", ["a"], 20.0)
    made.meet("b", ["a", "c"], 20.0)
    assert made.turn({"few": 16, "acme": 25}, lambda tenant: 100, 20.0, cut_off=False) == [
        ("acme", Claim(25, 33, wants=False))
    ]
    assert is_silent(claims("a"), 25)


class Unread(dict[str, int]):
    """Connections by tenant that must not be examined one by one."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError


def test_tenants_are_examined_only_after_nodes_have_changed() -> None:
    made = claims("a")
    with pytest.raises(AssertionError):
        made.turn(Unread(acme=1), lambda tenant: 100, 10.0, cut_off=False)
    assert is_silent(made, 1)
    made.meet("b", ["a"], 11.0)
    assert made.turn(Unread(acme=1), lambda tenant: 100, 11.0, cut_off=False) == []


def test_many_tenants_are_examined_and_reported_in_turn() -> None:
    made = claims("a")
    counts = {f"t{number}": 30 + number % 9 for number in range(2 * AT_ONCE + 5)}
    reports = [made.turn(counts, lambda tenant: 100, 10.0 + turn, cut_off=False) for turn in range(6)]
    assert [len(report) for report in reports] == [AT_ONCE] * 6
    assert len(made) == len(counts)
    for some in (reports[2:5], reports[3:6]):
        assert {tenant for report in some for tenant, _ in report} == counts.keys()


def test_a_report_of_another_node_begins_a_contest() -> None:
    for claim, is_contested in {
        (25, 50, 0): False,  # the other node has ended the contest
        (26, 50, 0): True,
        (25, 50, 1): True,
        (25, 49, 0): True,
        (25, 51, 0): True,
    }.items():
        made = claims("a")
        received(made, "a", *claim)
        assert bool(made) == is_contested


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
    assert turned(made, 34) == Claim(34, 50, wants=False)  # 16 are left, for four periods
    assert turned(made, 38) == Claim(38, 50 + 30 // 4, wants=True)
    assert turned(made, 38) == Claim(38, 57, wants=False)
    assert turned(made, 37) == Claim(37, 57, wants=False)
    assert turned(made, 57) == Claim(57, 57 + 23 // 4, wants=True)
    assert turned(made, 57) == Claim(57, 62, wants=False)


def test_a_refusal_is_a_reason_to_report() -> None:
    made = claims("a", "c", "d")
    refuse(made, most=1)
    assert turned(made, 0, most=1) == Claim(0, 0, wants=True)


def test_the_number_of_refused_clients_is_wanted() -> None:
    for refused, wants in ((20, False), (21, True)):
        made = claims("a")
        refuse(made, refused)
        assert turned(made, 30) == Claim(30, 50, wants=wants)


def test_a_node_whose_need_is_not_known_takes_a_small_part_of_what_no_node_claims() -> None:
    made = claims("a", "c")
    received(made, "a", 10, 20, 0)
    received(made, "c", 10, 20, 0)
    refuse(made)
    assert turned(made, 33) == Claim(33, 33 + 27 // 6, wants=True)


def test_a_node_whose_need_is_known_takes_half_and_shares_with_others_who_need_more() -> None:
    made = claims("a", "c")
    received(made, "a", 10, 20, 0)
    received(made, "c", 10, 20, 0)
    refuse(made, 99)
    assert turned(made, 33) == Claim(33, 37, wants=True)
    assert turned(made, 37) == Claim(37, 37 + 23 // 2, wants=True)
    assert turned(made, 40) == Claim(40, 48 + 12 // 2, wants=True)
    received(made, "a", 20, 20, 1)
    assert turned(made, 54) == Claim(54, 54 + 6 // 4, wants=True)


def test_the_last_connection_is_for_the_first_of_those_who_want_it() -> None:
    for other, last in (("a", 80), ("c", 81)):
        made = claims(other)
        received(made, other, 19, 19, 1)
        for _ in range(2):
            refuse(made)
            claim = turned(made, 80)
        assert claim == Claim(80, last, wants=True)
        received(made, other, 20, 20, 1)
        refuse(made)
        assert turned(made, 80).claim == 80


def test_what_was_refused_is_kept_until_the_clients_have_returned() -> None:
    made = claims("a")
    received(made, "a", 50, 90, 1)
    refuse(made, 3)
    assert turned(made, 4, 10.0) == Claim(4, 7, wants=False)
    for now, kept in ((10.0 + WANT_S, 3), (10.1 + WANT_S, 0)):
        received(made, "a", 50, 94, 1, now=now)
        assert turned(made, 4, now) == Claim(4, 4 + max(2 // 4, min(kept, 2)), wants=False)


def test_refused_clients_may_return_soon_unless_nodes_claim_all_connections() -> None:
    made = claims("a")
    assert made.may_grow("acme")
    received(made, "a", 50, 50, 1)
    refuse(made)
    assert made.may_grow("acme")
    turned(made, 50)
    assert not made.may_grow("acme")
    received(made, "a", 20, 49, 0)
    turned(made, 50)
    assert made.may_grow("acme")
    received(made, "a", 20, 50, 0)
    turned(made, 50)
    assert not made.may_grow("acme")


def test_a_node_beyond_its_claim_reports_its_connections() -> None:
    made = claims("a")
    received(made, "a", 80, 80, 0)
    assert turned(made, 40) == Claim(40, 40, wants=False)
    assert turned(made, 20) == Claim(20, 20, wants=False)


def test_a_contest_ends_with_equal_parts() -> None:
    made = claims("a", "c")
    received(made, "a", 5, 60, 1)
    assert turned(made, 16) == Claim(16, 16, wants=False)
    received(made, "a", 5, 60, 0)
    received(made, "c", 5, 20, 0)
    assert turned(made, 16) == Claim(16, 16, wants=False)  # node a still has more than its part
    received(made, "a", 5, 34, 0)
    assert turned(made, 16) == Claim(16, 33, wants=False)
    assert is_silent(made, 16)
    assert (len(made), made.allowed("acme", 100)) == (0, 33)


def test_a_claim_beyond_an_equal_part_is_given_back_when_nobody_needs_it() -> None:
    made = claims("a")
    received(made, "a", 0, 0, 0)
    refuse(made)
    assert turned(made, 50).claim > 50
    assert turned(made, 10, 50.0) == Claim(10, 50, wants=False)
    assert is_silent(made, 10, 51.0)


def test_a_contest_goes_on_while_a_node_needs_more() -> None:
    for claim in ((26, 50, 0), (25, 50, 1), (25, 51, 0)):
        made = claims("a")
        received(made, "a", *claim)
        turned(made, 1)
        assert not is_silent(made, 1)
    refused = claims("a")
    refuse(refused)
    turned(refused, 1)
    assert not is_silent(refused, 1)
    near = claims("a")
    turned(near, 26)
    assert not is_silent(near, 26)
    assert is_silent(near, 25)


def test_a_node_that_reports_no_more_has_an_equal_part_at_least() -> None:
    made = claims("a")
    received(made, "a", 26, 30, 1, now=10.0)
    refuse(made, 99)
    assert turned(made, 50, 10.0 + HOLD_S) == Claim(50, 50 + 20 // 4, wants=True)
    assert turned(made, 50, 10.1 + HOLD_S) == Claim(50, 50, wants=True)
    few = claims("a")
    few.receive("a", [("acme", Claim(1, 1, wants=True))], lambda tenant: 2, 10.0)
    assert few.turn({}, lambda tenant: 2, 10.1 + HOLD_S, cut_off=False) == [("acme", Claim(0, 1, wants=False))]
    assert few.turn({}, lambda tenant: 2, 10.2 + HOLD_S, cut_off=False) == []
    more = claims("a")
    received(more, "a", 26, 90, 1, now=10.0)
    refuse(more, 99)
    assert turned(more, 5, 11.0 + HOLD_S) == Claim(5, 10, wants=True)


def test_a_dead_node_has_no_claim() -> None:
    made = claims("a", "c")
    received(made, "a", 90, 90, 1)
    refuse(made)
    assert turned(made, 1).claim < 10
    made.meet("b", ["c"], 10.0)
    assert turned(made, 1) == Claim(1, 1 + 49 // 4, wants=True)
    made.meet("b", ["a", "c"], 10.0)
    assert turned(made, 1) == Claim(1, 13, wants=False)  # its old claim is forgotten


def test_the_last_node_has_the_whole_limit() -> None:
    made = claims("a")
    received(made, "a", 90, 90, 1)
    made.meet("b", [], 10.0)
    assert (made.allowed("acme", 100), len(made)) == (100, 0)


def test_a_node_that_is_cut_off_claims_no_more_than_before() -> None:
    made = claims("a")
    received(made, "a", 0, 0, 0)
    refuse(made)
    assert turned(made, 50, cut_off=True) == Claim(50, 50, wants=True)
    assert turned(made, 50, cut_off=True) == Claim(50, 50, wants=True)
    assert turned(made, 50) == Claim(50, 75, wants=True)
    assert turned(made, 40, cut_off=True).claim <= 75
    assert turned(claims("a"), 60, cut_off=True) == Claim(60, 60, wants=False)


def test_tenants_without_a_limit_are_not_kept() -> None:
    made = claims("a")
    made.receive("a", [("acme", Claim(1, 2, wants=True))], lambda tenant: 0, 10.0)
    assert len(made) == 0
