from __future__ import annotations

import pytest

from greendot.core.breaker import LONGEST, RISE_S, Bounds, Breaker, Level, Load

EVERY_S = 0.05
BOUNDS = Bounds(Load(0.1, 1_000, 1.0), 4.0)
HOLD_S = 1.0
NORMAL, SHEDDING, REFUSING = Level.NORMAL, Level.SHEDDING, Level.REFUSING
LATE, VERY_LATE = Load(lag_s=0.15), Load(lag_s=0.5)


class Node:
    """Measured every 50 ms."""

    def __init__(self) -> None:
        self.breaker = Breaker(BOUNDS, HOLD_S)
        self.now = 100.0

    def run(self, load: Load, seconds: float) -> list[Level]:
        """The levels it had meanwhile, each change once."""
        levels = [self.breaker.level]
        for _ in range(round(seconds / EVERY_S)):
            self.now += EVERY_S
            level = self.breaker.look(load, self.now)
            if level is not levels[-1]:
                levels.append(level)
        return levels


def test_a_node_with_little_to_do_is_normal() -> None:
    assert Node().run(Load(0.01, 100, 0.1), 60) == [NORMAL]


@pytest.mark.parametrize("load", [Load(lag_s=0.1), Load(backlog=1_000), Load(bus_lag_s=1.0)])
def test_any_of_the_measurements_is_enough_and_says_what_it_was(load: Load) -> None:
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
    assert node.breaker.look(Load(lag_s=30, worked_s=0.01), node.now) is NORMAL
    assert node.run(Load(), 1) == [NORMAL]


def test_a_loop_that_is_late_because_the_machine_does_other_things_is_not_flooded() -> None:
    assert Node().run(Load(lag_s=0.3, worked_s=0.02), 60) == [NORMAL]


def test_a_turn_of_the_loop_that_took_a_second_of_work_is_enough() -> None:
    node = Node()
    node.run(Load(), 1)
    node.now += 1
    assert node.breaker.look(Load(lag_s=1, worked_s=0.98), node.now) is SHEDDING


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
    """While signals are shed all is well; when they are not, it is too much."""
    node, changes = Node(), []
    for _ in range(round(30 / EVERY_S)):
        node.now += EVERY_S
        before = node.breaker.level
        load = Load() if before else LATE
        if node.breaker.look(load, node.now) is not before:
            changes.append(node.now)
    assert len(changes) / 2 <= 30 / (LONGEST * HOLD_S) + 2  # and not one a second
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
