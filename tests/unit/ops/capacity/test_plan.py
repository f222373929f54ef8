"""Capacity plan of a workload: some figures calculated by hand, and none that falls when the workload grows."""

from __future__ import annotations

from typing import Any

import pytest

from greendot.ops.capacity.constants import of
from greendot.ops.capacity.limits import limits
from greendot.ops.capacity.plan import BUSY, CapacityPlan, Placement, per_user, plan
from greendot.ops.capacity.workload import Workload


def planned(**given: Any) -> CapacityPlan:
    return plan(Workload(**{"users": 1_000_000} | given))


def said(**given: Any) -> str:
    return "\n".join(limits(planned(**given)))


def test_rates_are_those_of_the_busiest_time() -> None:
    work = Workload(users=864_000, messages=10, peak=2, online=0.1, devices=1.5, room_size=11, watched=40, connects=1)
    assert work.messages_s == pytest.approx(200)
    assert work.messages_day == pytest.approx(8_640_000)
    assert work.connections == pytest.approx(129_600)
    assert work.others == pytest.approx(1.5)  # ten others, one of them online on one and a half devices
    assert work.listeners == pytest.approx(3.0)
    assert work.watchers == pytest.approx(6.0)
    assert work.changes_s == pytest.approx(2 * 86_400 / 3_600 * 2)
    given = Workload(users=864_000, messages_per_s=500, peak=2)
    assert (given.messages_s, given.messages_day) == (500, 250 * 86_400)


def test_deliveries_are_the_sum_of_what_all_users_receive() -> None:
    work = Workload(
        users=864_000, messages=10, peak=1, online=0.1, devices=1, room_size=11, typing=2, watched=40, connects=1,
        notifications=10,
    )  # fmt: skip
    messages, typing, changes, notifications = 100 * 2, 200 * 1, 48 * 4, 100 * 0.1
    assert work.deliveries_s == pytest.approx(messages + typing + changes + notifications)


def test_nodes_are_as_many_as_connections_and_work_need() -> None:
    assert planned(online=0.1, devices=1).spread.nodes == 7  # 100,000 ÷ 15,000
    busy = planned(users=100_000, messages_per_s=20_000, room_size=2_000)
    assert busy.spread.nodes > busy.spread.work.connections / 15_000
    assert busy.spread.cpu <= BUSY * busy.spread.nodes
    # One node less would be overloaded.
    assert Placement(busy.spread.work, busy.spread.nodes - 1).cpu > BUSY * (busy.spread.nodes - 2)


def test_a_message_reaches_nodes_with_a_listener_and_at_most_all_nodes() -> None:
    spread = planned().spread
    assert spread.hearing(0) == 0
    assert spread.hearing(1) == pytest.approx(1)
    assert 1.8 < spread.hearing(2) < 2
    assert spread.hearing(1e6) == pytest.approx(spread.nodes)


def test_channels_are_at_most_one_for_each_and_pairs_one_for_each_node() -> None:
    spread = planned().spread
    channels, pairs = spread.followed(1_000, 50)
    assert channels == pytest.approx(1_000)
    assert pairs == pytest.approx(1_000 * spread.nodes)
    few, same = spread.followed(1e12, 50)
    assert few == pytest.approx(same, rel=1e-3)
    assert few == pytest.approx(spread.work.connections * 50, rel=1e-3)


def test_redis_memory_meets_both_figures_that_were_measured() -> None:
    fixed, each = per_user()
    assert fixed / 10_000 + each == pytest.approx(of("redis_small"))
    assert fixed / 100_000 + each == pytest.approx(of("redis_large"))


@pytest.mark.parametrize(
    ("more", "spared"),
    [
        ({"users": 2_000_000}, set()),
        ({"online": 0.2}, {"memory: offline users"}),
        ({"devices": 2.4}, set()),
        ({"messages": 20}, set()),
        (
            {"room_size": 40},
            {"stream heads read", "memory: channels", "memory in total", "cores in use"},
        ),  # fewer rooms
        ({"watched": 100}, set()),
        ({"connects": 4}, set()),
        ({"notifications": 10}, set()),
    ],
)
def test_more_of_anything_never_needs_less(more: dict[str, float], spared: set[str]) -> None:
    few, many = planned(), planned(**more)
    each = {"connections per node", "reconnect time after an outage", "memory per node"}  # fall with more nodes
    figures = [(one, many.value(one.part, one.what)) for one in few.figures]
    assert {one.what for one, value in figures if value < one.value * 0.999} <= spared | each
    assert any(value > one.value for one, value in figures)


def test_small_ones_need_neither_redis_nor_postgres() -> None:
    small = planned(users=10_000)
    assert (small.spread.nodes, small.shards) == (1, 0)
    assert {one.part for one in small.figures} == {"nodes", "PostgreSQL", "network"}
    assert "the memory engine and SQLite is enough" in said(users=10_000)
    assert all(one.measured for one in small.figures)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"users": 100_000_000}, "One PostgreSQL must store"),
        ({"users": 100_000_000}, "a cluster of"),
        ({"users": 100_000_000}, "several installations, each with its own Redis"),
        ({"users": 10_000_000}, "too long to be packed"),
        ({"users": 10_000_000}, "Let clients watch only the users they display"),
        ({"notifications": 1_000_000}, "notifications/s, but"),
        ({"room_size": 2_000}, "only the number of typing users"),
        ({"users": 100_000_000, "per_node": 5_000}, "More shards do not help"),
        ({"per_node": 50_000}, "is the highest number that was measured"),
        ({"watched": 10_000, "online": 1.0, "users": 11_000, "per_node": 10_000}, "watchers of one user on a node"),
        ({}, "Figures marked * are extrapolated"),
    ],
)
def test_the_plan_names_the_limiting_factor(given: dict[str, float], words: str) -> None:
    assert words in said(**given)


def test_what_was_never_measured_is_marked() -> None:
    large = planned(users=100_000_000)
    assert not any(one.measured for one in large.figures if one.part == "Redis")
    assert not large.figures[0].measured


NOTHING = {"messages": 0, "watched": 0, "rooms": 0, "room_size": 1, "connects": 0, "notifications": 0}


@pytest.mark.parametrize("given", [{"users": 1}, {"users": 1} | NOTHING, {"users": 10_000_000_000, "online": 1.0}])
def test_the_smallest_and_the_largest_are_counted_too(given: dict[str, float]) -> None:
    made = planned(**given)
    assert all(one.value >= 0 for one in made.figures)
    assert list(limits(made))
