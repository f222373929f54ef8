from __future__ import annotations

import pytest

from greendot.limits.overload_model import CALM, LONGEST, RELAPSE_S, RISE_S, Level, Load, OverloadBounds, OverloadLevels

EVERY_S = 0.05
BOUNDS = OverloadBounds(Load(0.1, 1_000, 2.0), 4.0)
HOLD_S = 1.0
NORMAL, SHEDDING, REFUSING = Level.NORMAL, Level.SHEDDING, Level.REFUSING
LATE, VERY_LATE = Load(lag_s=0.15), Load(lag_s=0.5)


class Node:
    """Overload levels of a node that is measured every 50 ms."""

    def __init__(self) -> None:
        self.breaker = OverloadLevels(BOUNDS, HOLD_S)
        self.now = 100.0

    def run(self, load: Load, seconds: float) -> list[Level]:
        """Apply a load for some seconds. Return the levels in order, without repetitions."""
        levels = [self.breaker.level]
        for _ in range(round(seconds / EVERY_S)):
            self.now += EVERY_S
            level = self.breaker.update(load, self.now)
            if level is not levels[-1]:
                levels.append(level)
        return levels


def test_a_node_with_little_to_do_is_normal() -> None:
    assert Node().run(Load(0.01, 100, 0.1), 60) == [NORMAL]


@pytest.mark.parametrize("load", [Load(lag_s=0.1), Load(backlog=1_000), Load(bus_lag_s=2.0)])
def test_each_measurement_alone_triggers_shedding_and_gives_its_reason(load: Load) -> None:
    node = Node()
    assert node.run(load, 60) == [NORMAL, SHEDDING]
    assert node.breaker.reason


def test_shedding_comes_before_refusing_however_much_it_is() -> None:
    node = Node()
    assert node.run(VERY_LATE, 2 * RISE_S + 0.2) == [NORMAL, SHEDDING, REFUSING]


def test_a_moment_of_it_changes_nothing() -> None:
    node = Node()
    for _ in range(100):
        assert node.run(VERY_LATE, RISE_S / 2) == [NORMAL]
        assert node.run(Load(), 1) == [NORMAL]


def test_a_process_that_was_stopped_is_not_flooded() -> None:
    node = Node()
    node.run(Load(), 1)
    node.now += 30
    assert node.breaker.update(Load(lag_s=30, worked_s=0.01), node.now) is NORMAL
    assert node.run(Load(), 1) == [NORMAL]


def test_a_loop_that_is_late_because_the_machine_does_other_things_is_not_flooded() -> None:
    assert Node().run(Load(lag_s=0.3, worked_s=0.02), 60) == [NORMAL]


def test_a_turn_of_the_loop_that_took_a_second_of_work_is_enough() -> None:
    node = Node()
    node.run(Load(), 1)
    node.now += 1
    assert node.breaker.update(Load(lag_s=1, worked_s=0.98), node.now) is SHEDDING


def test_it_is_normal_again_soon_after_all_is_well() -> None:
    node = Node()
    node.run(VERY_LATE, 30)
    assert node.run(Load(), 2 * HOLD_S + 0.2) == [REFUSING, SHEDDING, NORMAL]
    assert node.breaker.reason == ""


def test_what_is_between_well_and_too_much_keeps_the_level() -> None:
    node = Node()
    node.run(LATE, 1)
    assert node.run(Load(lag_s=0.07), 600) == [SHEDDING]


def test_a_single_late_moment_does_not_begin_the_calm_anew_if_it_is_not_too_much() -> None:
    node = Node()
    node.run(LATE, 1)
    for _ in range(4):
        node.run(Load(), 0.4)
        node.run(Load(lag_s=0.07), 0.05)
    assert node.breaker.level is NORMAL


def test_a_load_that_comes_back_with_every_recovery_is_held_for_longer_but_never_for_long() -> None:
    """The load is low while signals are shed, and too high when they are not."""
    node, changes = Node(), []
    for _ in range(round(30 / EVERY_S)):
        node.now += EVERY_S
        before = node.breaker.level
        load = Load() if before else LATE
        if node.breaker.update(load, node.now) is not before:
            changes.append(node.now)
    assert len(changes) / 2 <= 30 / (LONGEST * HOLD_S) + 2  # and not one change per second
    assert node.run(Load(), LONGEST * HOLD_S + 0.2)[-1] is NORMAL


def test_after_a_long_calm_the_next_flood_is_a_first_one() -> None:
    node = Node()
    for _ in range(5):
        node.run(LATE, 1)
        node.run(Load(), 4)
    node.run(Load(), 60)
    node.run(LATE, 1)
    assert node.run(Load(), HOLD_S + 0.1)[-1] is NORMAL


def test_from_refusing_all_is_normal_within_five_seconds_even_after_many_floods() -> None:
    node = Node()
    for _ in range(10):
        node.run(VERY_LATE, 2)
        assert node.run(Load(), 4.2)[-1] is NORMAL


def test_a_new_breaker_is_normal_for_no_reason_and_a_load_is_none_unless_measured() -> None:
    assert (Node().breaker.level, Node().breaker.reason) == (NORMAL, "")
    assert Load()[:3] == (0.0, 0, 0.0)


def test_each_level_takes_as_long_to_be_reached() -> None:
    node = Node()
    assert node.run(VERY_LATE, RISE_S + 2 * EVERY_S) == [NORMAL, SHEDDING]
    assert node.run(VERY_LATE, RISE_S - 2 * EVERY_S) == [SHEDDING]
    assert node.run(VERY_LATE, 3 * EVERY_S) == [SHEDDING, REFUSING]


def test_each_level_is_held_before_it_is_left_and_has_its_reason_until_then() -> None:
    node = Node()
    node.run(VERY_LATE, 30)
    assert node.run(Load(), HOLD_S + 2 * EVERY_S) == [REFUSING, SHEDDING]
    assert node.breaker.reason == "the event loop lags by 500 ms"
    assert node.run(Load(), HOLD_S - 4 * EVERY_S) == [SHEDDING]
    assert node.run(Load(), 4 * EVERY_S) == [SHEDDING, NORMAL]


def test_what_is_too_much_but_not_far_too_much_is_shed_and_not_refused() -> None:
    node = Node()
    node.run(VERY_LATE, 30)
    assert node.run(LATE, 60) == [REFUSING, SHEDDING]


@pytest.mark.parametrize("load", [LATE, Load(lag_s=0.1)])
def test_a_moment_that_is_too_much_begins_the_calm_anew(load: Load) -> None:
    node = Node()
    node.run(LATE, 1)
    for _ in range(10):
        node.run(Load(), 0.8 * HOLD_S)
        assert node.run(load, EVERY_S) == [SHEDDING]


def test_all_is_well_below_a_part_of_what_is_too_much() -> None:
    node = Node()
    node.run(LATE, 1)
    assert node.run(Load(backlog=round(1_000 * CALM)), 60) == [SHEDDING]
    assert node.run(Load(backlog=round(1_000 * CALM) - 1), 60) == [SHEDDING, NORMAL]


def test_a_level_is_left_at_the_measurement_that_completes_the_hold() -> None:
    breaker = OverloadLevels(BOUNDS, HOLD_S)
    for now in (0.0, 1.0):
        breaker.update(LATE, now)
    assert [breaker.update(Load(), now) for now in (1.5, 2.0)] == [SHEDDING, NORMAL]


@pytest.mark.parametrize(("calm_s", "held_s"), [(RELAPSE_S - 1, 2 * HOLD_S), (RELAPSE_S, HOLD_S)])
def test_a_flood_soon_after_another_is_held_twice_as_long(calm_s: float, held_s: float) -> None:
    breaker = OverloadLevels(BOUNDS, HOLD_S)
    assert [breaker.update(VERY_LATE, now) for now in (0, 1, 2)] == [NORMAL, SHEDDING, REFUSING]
    assert [breaker.update(Load(), now) for now in (2.5, 3, 3.5, 4)] == [REFUSING, SHEDDING, SHEDDING, NORMAL]
    again = 4 + calm_s
    assert [breaker.update(VERY_LATE, now) for now in (again, again + 1)] == [SHEDDING, REFUSING]
    assert [breaker.update(Load(), now) for now in (again + 1.5, again + 2)] == [REFUSING, SHEDDING]
    levels = [breaker.update(Load(), again + 2 + half / 2) for half in range(1, round(2 * held_s) + 1)]
    assert levels == [SHEDDING] * (len(levels) - 1) + [NORMAL]
