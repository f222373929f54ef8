from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greendot.limits.frame_limit_model import CommandLimit

RATE, BURST = 4, 8  # powers of two, like the times below: floats hold them exactly
FLOOD = 10 * RATE  # frames per second in a flood
FLOOD_SECONDS = 10  # consecutive seconds of such a rate until a client counts as flooding


def limit(now: float = 0.0) -> CommandLimit:
    return CommandLimit(RATE, BURST, now)


def send(to: CommandLimit, second: int, frames: int) -> None:
    """Send `frames` frames, evenly over one second."""
    for number in range(frames):
        to.admit(second + number / frames)


def test_a_burst_is_let_through_and_not_one_frame_more() -> None:
    bucket = limit()
    assert [bucket.admit(0.0) for _ in range(BURST)] == [0.0] * BURST
    assert bucket.admit(0.0) > 0.0


def test_other_numbers_leave_used_what_was_used() -> None:
    bucket = limit()
    for _ in range(3):
        bucket.admit(0.0)
    bucket.change(2 * RATE, 2 * BURST)
    assert bucket.rate == 2 * RATE
    assert [bucket.admit(0.0) == 0.0 for _ in range(2 * BURST)] == [True] * (2 * BURST - 3) + [False] * 3
    assert bucket.admit(0.0) == 1 / (2 * RATE)
    bucket.change(RATE, BURST)
    assert bucket.admit(BURST / RATE) > 0.0  # more than the smaller burst is already used


def test_a_client_that_keeps_to_the_rate_never_waits() -> None:
    bucket = limit()
    for _ in range(BURST):
        bucket.admit(0.0)
    assert [bucket.admit(number / RATE) for number in range(1, 1_000)] == [0.0] * 999


def test_the_wait_is_exactly_what_is_missing() -> None:
    bucket = limit()
    for _ in range(BURST):
        bucket.admit(0.0)
    assert bucket.admit(0.0) == 0.25
    assert bucket.admit(0.125) == 0.125
    assert bucket.admit(0.25) == 0.0
    assert bucket.admit(0.25) == 0.25


def test_a_refused_frame_costs_nothing() -> None:
    bucket = limit()
    for _ in range(BURST + 1_000):
        bucket.admit(0.0)
    assert bucket.admit(0.25) == 0.0


def test_a_long_silence_earns_one_burst_and_no_more() -> None:
    bucket = limit()
    assert [bucket.admit(86_400.0) for _ in range(BURST)] == [0.0] * BURST
    assert bucket.admit(86_400.0) == 0.25


@settings(deadline=None)
@given(st.lists(st.integers(0, 2_048), max_size=100))
def test_the_bucket_agrees_with_exact_arithmetic(steps: list[int]) -> None:
    bucket, now, level = limit(), Fraction(0), Fraction(BURST)
    for step in steps:
        passed = Fraction(step, 1_024)
        now, level = now + passed, min(Fraction(BURST), level + passed * RATE)
        expected = Fraction(0) if level >= 1 else (1 - level) / RATE
        assert bucket.admit(float(now)) == expected
        level -= expected == 0


@settings(deadline=None)
@given(
    st.integers(1, 1_000),
    st.integers(0, 1_000),
    st.lists(st.floats(0, 0.5, allow_nan=False), min_size=1, max_size=100),
)
def test_no_stretch_of_time_lets_through_more_than_a_burst_and_its_rate(
    rate: int, more: int, steps: list[float]
) -> None:
    bucket, now, admitted = CommandLimit(rate, rate + more, 0.0), 0.0, 0
    for step in steps:
        now += step
        for _ in range(rate // 4 + 1):
            admitted += bucket.admit(now) == 0.0
        assert admitted <= rate + more + now * rate + 1e-6


def test_ten_times_the_rate_for_ten_seconds_on_end_is_a_flood() -> None:
    bucket = limit()
    for second in range(FLOOD_SECONDS):
        send(bucket, second, FLOOD)
        assert not bucket.flooding
    bucket.admit(float(FLOOD_SECONDS))
    assert bucket.flooding


def test_one_frame_less_in_one_of_the_ten_seconds_is_not_a_flood() -> None:
    for slow in range(FLOOD_SECONDS):
        bucket = limit()
        for second in range(FLOOD_SECONDS):
            send(bucket, second, FLOOD - (second == slow))
        bucket.admit(float(FLOOD_SECONDS))
        assert not bucket.flooding


def test_a_flood_that_begins_within_a_second_needs_ten_whole_ones_after_it() -> None:
    bucket = limit(0.75)
    for number in range(FLOOD * FLOOD_SECONDS + FLOOD // 4 + 1):
        assert not bucket.flooding
        bucket.admit(0.75 + number / FLOOD)
    assert bucket.flooding


def test_a_pause_begins_the_count_anew() -> None:
    bucket = limit()
    for second in range(FLOOD_SECONDS - 1):
        send(bucket, second, FLOOD)
    resumed = FLOOD_SECONDS  # one whole second without a frame
    for second in range(resumed, resumed + FLOOD_SECONDS):
        send(bucket, second, FLOOD)
        assert not bucket.flooding
    bucket.admit(float(resumed + FLOOD_SECONDS))
    assert bucket.flooding


def test_who_stops_flooding_is_forgiven() -> None:
    bucket = limit()
    for second in range(FLOOD_SECONDS + 1):
        send(bucket, second, FLOOD)
    assert bucket.flooding
    bucket.admit(FLOOD_SECONDS + 60.0)
    assert not bucket.flooding


@settings(deadline=None)
@given(st.lists(st.sampled_from([0, 1, FLOOD - 1, FLOOD, FLOOD, FLOOD, FLOOD, FLOOD + 1]), min_size=11, max_size=40))
def test_a_flood_is_ten_full_seconds_in_a_row_before_this_one(seconds: list[int]) -> None:
    bucket, sent = limit(), Counter[int]()
    for second, frames in enumerate(seconds):
        send(bucket, second, frames)
        sent[second] = frames
        if frames:
            before = range(second - FLOOD_SECONDS, second)
            assert bucket.flooding == all(sent[each] >= FLOOD for each in before)


# --- delayed event loop ---


@pytest.mark.parametrize("late_s", [2, 3, 5, 9])
def test_a_flood_is_seen_by_a_loop_that_reads_only_now_and_then(late_s: int) -> None:
    bucket = limit()
    for second in range(0, FLOOD_SECONDS + 3 * late_s, late_s):
        for _ in range(FLOOD * late_s):  # all frames since the previous read
            bucket.admit(float(second))
    assert bucket.flooding


def test_a_flood_is_seen_though_the_loop_was_late_once() -> None:
    bucket = limit()
    for second in (0, 1, 2, 3):
        send(bucket, second, FLOOD)
    send(bucket, 8, 5 * FLOOD)  # frames of the seconds 4 to 8
    assert not bucket.flooding
    send(bucket, 9, FLOOD)
    assert not bucket.flooding
    bucket.admit(float(FLOOD_SECONDS))
    assert bucket.flooding


def test_a_gap_that_is_not_made_up_for_begins_the_count_anew() -> None:
    bucket = limit()
    for second in (0, 1, 2, 3):
        send(bucket, second, FLOOD)
    send(bucket, 8, 5 * FLOOD - 1)
    for second in range(9, 18):
        assert not bucket.flooding
        send(bucket, second, FLOOD)
    assert not bucket.flooding
    bucket.admit(18.0)
    assert bucket.flooding


def test_a_few_frames_between_long_gaps_are_never_a_flood() -> None:
    bucket = limit()
    for number in range(100):
        bucket.admit(number * 25.0)
        assert not bucket.flooding


# --- pauses ---


def test_a_client_within_its_limit_is_not_paused() -> None:
    bucket = limit()
    for _ in range(BURST):
        bucket.admit(0.0)
    assert bucket.pause_s() == 0.0


def test_frames_over_the_limit_are_read_at_twenty_times_the_rate() -> None:
    bucket = limit()
    for _ in range(BURST + 2 * RATE):
        bucket.admit(0.0)
    assert bucket.pause_s() == 0.1
    assert bucket.pause_s() == 0.0


def test_no_pause_is_longer_than_a_second() -> None:
    bucket = limit()
    for _ in range(100_000):
        bucket.admit(0.0)
    assert bucket.pause_s() == 1.0


@pytest.mark.parametrize("late_s", [0.0, 0.5, 4.0])
@pytest.mark.parametrize("read", [64, 700])
def test_a_flood_that_is_read_in_pauses_is_one_though_each_pause_ends_late(late_s: float, read: int) -> None:
    bucket, now = limit(), 0.0
    while now < FLOOD_SECONDS + 2 * (1 + late_s):
        for _ in range(read):
            bucket.admit(now)
        pause_s = bucket.pause_s() + late_s
        now += pause_s
        bucket.paused(pause_s)
    bucket.admit(now)
    assert bucket.flooding


def test_a_pause_alone_makes_no_flood() -> None:
    bucket, now = limit(), 0.0
    for _ in range(30):
        for _ in range(BURST + 1):
            bucket.admit(now)
        bucket.paused(bucket.pause_s())
        now += 1.0
        assert not bucket.flooding


def flooded(bucket: CommandLimit, *seconds: int) -> None:
    for second in seconds:
        send(bucket, second, FLOOD)


def test_a_second_counts_once_however_many_frames_are_in_it() -> None:
    bucket = limit()
    send(bucket, 0, 3 * FLOOD)
    flooded(bucket, *range(1, FLOOD_SECONDS - 1))
    bucket.admit(FLOOD_SECONDS - 1)
    assert not bucket.flooding


def test_a_second_in_which_all_was_read_is_not_made_up_for_by_the_next() -> None:
    bucket = limit()
    flooded(bucket, *range(FLOOD_SECONDS - 2))
    send(bucket, FLOOD_SECONDS - 2, FLOOD - 1)
    send(bucket, FLOOD_SECONDS - 1, FLOOD + 1)
    bucket.admit(FLOOD_SECONDS)
    assert not bucket.flooding


def test_one_second_in_which_nothing_was_read_is_made_up_for_by_the_next() -> None:
    bucket = limit()
    flooded(bucket, *range(5))
    send(bucket, 6, 2 * FLOOD)
    flooded(bucket, 7, 8, 9)
    bucket.admit(FLOOD_SECONDS)
    assert bucket.flooding


def test_a_gap_behind_a_gap_has_to_be_made_up_for_as_well() -> None:
    bucket = limit()
    flooded(bucket, *range(6))
    send(bucket, 8, 3 * FLOOD)  # as many frames as were missing, but no flood in this second and the next
    bucket.admit(10.0)
    assert not bucket.flooding


def test_what_was_over_the_limit_in_another_second_makes_no_pause() -> None:
    bucket = limit()
    for _ in range(BURST + 5):
        bucket.admit(0.5)
    bucket.admit(1.5)
    assert bucket.pause_s() == 0.0
