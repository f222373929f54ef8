"""Time of the engine: small differences are followed, and jumps are corrected where they happened."""

from __future__ import annotations

import pytest

from greendot.engine.redis.engine_time import JUMP_MS, EngineTime
from greendot.testing import ManualClock

HOUR_MS = 3_600_000
TOLD = 1_700_000_000_000


def told(clock: ManualClock, ms: int = TOLD) -> EngineTime:
    time = EngineTime(clock)
    assert time.observe(ms) == 0
    return time


def test_the_engine_time_is_unknown_until_a_server_has_sent_it() -> None:
    time = EngineTime(ManualClock())
    time.shift(5_000)
    assert (time.known, time.now(), time.text()) == (False, 0, "")


def test_the_time_is_carried_on_by_the_nodes_own_clock() -> None:
    clock = ManualClock()
    time = told(clock)
    clock.advance(12.345)
    assert (time.known, time.now(), time.text()) == (True, TOLD + 12_345, str(TOLD + 12_345))


@pytest.mark.parametrize("jump_s", [-3_600.0, 3_600.0])
def test_the_nodes_wall_clock_does_not_matter(jump_s: float) -> None:
    clock = ManualClock()
    time = told(clock)
    clock.jump_wall(jump_s)
    clock.advance(1.0)
    assert time.now() == TOLD + 1_000


@pytest.mark.parametrize("off", [-JUMP_MS, -3, 0, 3, JUMP_MS])
def test_a_small_difference_is_followed(off: int) -> None:
    clock = ManualClock()
    time = told(clock)
    clock.advance(10.0)
    assert time.observe(TOLD + 10_000 + off) == 0
    assert time.now() == TOLD + 10_000 + off


@pytest.mark.parametrize("off", [-HOUR_MS, -JUMP_MS - 1, JUMP_MS + 1, HOUR_MS])
def test_a_jump_is_answered_with_what_makes_up_for_it_and_not_followed(off: int) -> None:
    clock = ManualClock()
    time = told(clock)
    clock.advance(10.0)
    assert time.observe(TOLD + 10_000 + off) == -off
    assert time.now() == TOLD + 10_000
    time.mended(0, str(-off))
    assert time.observe(TOLD + 10_000, 0, str(-off)) == 0


def test_a_node_whose_correction_is_soon_replaced_by_anothers_was_wrong_itself() -> None:
    clock = ManualClock()
    time = told(clock)
    assert time.observe(TOLD + HOUR_MS) == -HOUR_MS
    time.mended(0, str(-HOUR_MS))
    clock.advance(30.0)
    assert time.observe(TOLD + HOUR_MS, 0, "5") == 0
    assert time.now() == TOLD + HOUR_MS


@pytest.mark.parametrize("correction", [str(-HOUR_MS), "0"])
def test_a_clock_that_jumps_again_or_a_correction_that_is_lost_is_made_up_for_again(correction: str) -> None:
    time = told(ManualClock())
    time.mended(0, str(-HOUR_MS))
    assert time.observe(TOLD + HOUR_MS, 0, correction) == -HOUR_MS
    assert time.now() == TOLD


def test_a_correction_of_the_time_in_one_partition_does_not_apply_to_another() -> None:
    time = told(ManualClock())
    time.mended(0, str(-HOUR_MS))
    assert time.observe(TOLD + HOUR_MS, 1, "7") == -HOUR_MS


def test_long_after_a_mend_a_jump_is_a_jump_again() -> None:
    clock = ManualClock()
    time = told(clock)
    time.mended(0, "7")
    clock.advance(60.0)
    assert time.observe(TOLD + 60_000 - HOUR_MS, 0, "8") == HOUR_MS
    assert time.now() == TOLD + 60_000


def test_a_correction_made_on_purpose_is_followed() -> None:
    time = told(ManualClock())
    time.shift(-5_000)
    assert time.now() == TOLD - 5_000


def test_a_starting_node_accepts_the_time_of_the_engine() -> None:
    time = told(ManualClock())
    time.learning = True
    assert time.observe(TOLD + HOUR_MS) == 0
    assert time.now() == TOLD + HOUR_MS


def test_a_young_node_leaves_corrections_to_those_who_were_there_before() -> None:
    clock = ManualClock()
    time = told(clock)
    time.learnt(alone=False)
    assert time.observe(TOLD + HOUR_MS) == 0
    assert time.now() == TOLD
    clock.advance(1.0)
    assert time.observe(TOLD + 1_000) == 0  # the older nodes have corrected it
    clock.advance(5.0)
    assert time.observe(TOLD + 6_000 + HOUR_MS) == -HOUR_MS  # the node corrects the next jump itself


def test_a_young_node_whose_time_is_not_the_others_gives_it_up() -> None:
    clock = ManualClock()
    time = told(clock)
    time.learnt(alone=False)
    assert time.observe(TOLD - HOUR_MS) == 0
    clock.advance(2.0)
    assert time.observe(TOLD + 2_000 - HOUR_MS) == 0
    assert time.now() == TOLD + 2_000 - HOUR_MS


def test_a_jump_after_one_that_another_node_has_mended_is_made_up_for() -> None:
    """Another node's correction in place of ours is agreement, as long as its time equals ours."""
    clock = ManualClock()
    time = told(clock)
    assert time.observe(TOLD + HOUR_MS) == -HOUR_MS
    time.mended(0, str(-HOUR_MS))
    # The clock jumps again, and another node corrects it first.
    assert time.observe(TOLD, 0, str(-2 * HOUR_MS)) == 0
    # The clock jumps back to its value of an hour ago.
    assert time.observe(TOLD - HOUR_MS, 0, str(-2 * HOUR_MS)) == HOUR_MS
    assert time.now() == TOLD


@pytest.mark.parametrize("mended_by_us", [0, 1])
def test_agreement_in_one_partition_counts_for_all(mended_by_us: int) -> None:
    """Only one partition is observed continuously. Jumps of the others are found when a verb is refused there."""
    clock = ManualClock()
    time = told(clock)
    time.mended(mended_by_us, str(-HOUR_MS))  # corrects the first jump, in this partition by us
    assert time.observe(TOLD, 0, str(-HOUR_MS)) == 0
    assert time.observe(TOLD, 0, str(-2 * HOUR_MS)) == 0  # another node corrects the second jump in both
    assert time.observe(TOLD - HOUR_MS, 1, str(-2 * HOUR_MS)) == HOUR_MS
    assert time.now() == TOLD


def test_a_node_whose_correction_is_replaced_by_one_it_does_not_agree_with_was_wrong() -> None:
    clock = ManualClock()
    time = told(clock)
    assert time.observe(TOLD + HOUR_MS) == -HOUR_MS
    time.mended(0, str(-HOUR_MS))
    assert time.observe(TOLD, 0, str(-HOUR_MS)) == 0  # our own correction
    assert time.observe(TOLD + HOUR_MS, 0, "7") == 0
    assert time.now() == TOLD + HOUR_MS


def test_two_nodes_that_repair_a_jump_together_do_not_contradict_each_other() -> None:
    """Each node wins some partitions, and their corrections differ by milliseconds."""
    time = told(ManualClock())
    for partition in (0, 5):
        time.mended(partition, str(-HOUR_MS))  # the first jump
    time.mended(0, str(-2 * HOUR_MS))  # the second jump: this node wins partition 0, another node wins partition 5
    assert time.observe(TOLD - HOUR_MS, 5, str(-2 * HOUR_MS + 3)) == HOUR_MS  # the third jump
    assert time.now() == TOLD
