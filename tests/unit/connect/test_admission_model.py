from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greendot.connect.admission_model import SHARE, HelloQueue

RATE, AT_ONCE, WAITING = 100.0, 10, 20


def queue(rate: float | None = RATE, at_once: int = AT_ONCE, waiting: int = WAITING) -> HelloQueue[int]:
    return HelloQueue(rate, at_once, waiting)


def test_all_clients_are_admitted_at_once_while_there_are_few() -> None:
    admission = queue()
    for number in range(1_000):
        now = number / 50
        assert admission.ask(number, now, returning=False) == 0.0
        assert admission.admit(now) == [number]
        admission.ended()


def test_hellos_under_way_are_limited_and_the_next_is_admitted_when_one_has_ended() -> None:
    admission = queue()
    for number in range(AT_ONCE + 2):
        assert admission.ask(number, 0.0, returning=False) == 0.0
    assert admission.admit(0.0) == [*range(AT_ONCE)]
    assert admission.admit(10.0) == []
    assert admission.next_in() is None  # time alone admits no one: a hello must end first
    admission.ended()
    assert admission.admit(10.0) == [AT_ONCE]


def test_no_more_than_the_rate_come_in_however_soon_they_end() -> None:
    admission, came = queue(waiting=10_000), 0
    for number in range(10_000):
        admission.ask(number, 0.0, returning=False)
    for millisecond in range(2_001):
        for _ in admission.admit(millisecond / 1_000):
            came += 1
            admission.ended()
    assert came <= RATE + 2 * RATE + 1  # the burst of one second, then the rate
    assert came >= 2.9 * RATE
    assert 0 < (admission.next_in() or 0) <= 1 / RATE


def test_returning_clients_are_admitted_before_new_ones() -> None:
    admission = queue(at_once=1)
    admission.ask(0, 0.0, returning=False)
    admission.admit(0.0)
    for number in (1, 2):
        admission.ask(number, 0.0, returning=False)
    for number in (3, 4):
        admission.ask(number, 0.0, returning=True)
    order = []
    for _ in range(4):
        admission.ended()
        order += admission.admit(5.0)
    assert order == [3, 4, 1, 2]


def test_hellos_beyond_the_queue_are_refused_and_a_full_queue_of_new_clients_admits_returning_ones() -> None:
    admission = queue(at_once=1)
    for number in range(WAITING):
        assert admission.ask(number, 0.0, returning=False) == 0.0
    assert admission.ask(100, 0.0, returning=False) > 0.0
    assert admission.ask(101, 0.0, returning=True) == 0.0


def test_a_crowd_that_is_sent_away_is_given_turns_at_the_rate_behind_those_who_wait() -> None:
    admission = queue()
    for number in range(WAITING):
        admission.ask(number, 0.0, returning=True)
    turns = [admission.ask(1_000 + number, 0.0, returning=True) for number in range(5_000)]
    assert turns[0] >= WAITING / RATE
    assert all(abs(later - earlier - 1 / (RATE * SHARE)) < 1e-9 for earlier, later in pairwise(turns))
    # Returning clients get earlier turns than new ones.
    assert admission.turn(0.0, returning=False) > turns[-1]


def test_a_crowd_that_obeys_is_in_by_the_rate_and_few_are_sent_away_twice() -> None:
    """Ten thousand clients arrive at once and obey the retry times. Each hello takes 20 ms."""
    admission = HelloQueue[int](2_000.0, 256, 500)
    due = [(0.0, number) for number in range(10_000)]
    ends: list[float] = []
    sent_away = back = 0
    now = 0.0
    while back < 10_000:
        now += 0.001
        assert now < 8.0
        for end in [end for end in ends if end <= now]:
            ends.remove(end)
            admission.ended()
            back += 1
        here = [number for at, number in due if at <= now]
        due = [(at, number) for at, number in due if at > now]
        for number in here:
            wait_s = admission.ask(number, now, returning=True)
            if wait_s:
                sent_away += 1
                due.append((now + wait_s, number))
        ends += [now + 0.02 for _ in admission.admit(now)]
    assert sent_away < 12_000


def test_without_a_rate_no_hello_is_refused_and_those_under_way_are_limited() -> None:
    admission = queue(rate=None)
    for number in range(5_000):
        assert admission.ask(number, 0.0, returning=False) == 0.0
    assert len(admission.admit(0.0)) == AT_ONCE
    assert admission.next_in() is None


def test_a_client_that_has_gone_is_not_admitted() -> None:
    admission = queue(at_once=1)
    for number in range(3):
        admission.ask(number, 0.0, returning=number == 2)
    assert admission.forget(1)
    assert not admission.forget(1)
    assert admission.forget(2)
    assert admission.waiting == 1
    assert admission.admit(0.0) == [0]


@given(st.lists(st.tuples(st.floats(0, 0.2), st.booleans()), max_size=300))
def test_every_client_is_admitted_once_or_refused_and_concurrent_admissions_are_limited(
    story: list[tuple[float, bool]],
) -> None:
    admission, now, came = queue(waiting=5), 0.0, []
    sent_away = set()
    for number, (wait, returning) in enumerate(story):
        now += wait
        if admission.ask(number, now, returning=returning):
            sent_away.add(number)
        came += admission.admit(now)
        assert admission.under_way <= AT_ONCE
        if number % 3 == 0 and admission.under_way:
            admission.ended()
    while admission.waiting:
        now += 1
        while admission.under_way:
            admission.ended()
        came += admission.admit(now)
    assert sorted(came) == sorted({*range(len(story))} - sent_away)


def test_a_turn_begins_when_those_who_wait_are_in_and_lasts_its_share_of_the_rate() -> None:
    admission = queue()
    assert admission.turn(5.0, returning=True) == pytest.approx(1 / (RATE * SHARE))
    admission.ask(1, 5.0, returning=False)
    admission.ask(2, 5.0, returning=True)
    assert admission.turn(7.0, returning=True) == pytest.approx(2 / RATE + 1 / (RATE * SHARE))


def test_turns_of_the_new_come_behind_all_and_those_of_who_returns_behind_their_own() -> None:
    admission = queue()
    step = 1 / (RATE * SHARE)
    turns = [admission.turn(0.0, returning=returning) for returning in (False, True, True, False, False)]
    assert turns == pytest.approx([step, step, 2 * step, 3 * step, 4 * step])


def test_without_a_rate_as_many_turns_are_given_as_may_be_under_way() -> None:
    assert queue(rate=None).turn(0.0, returning=False) == pytest.approx(1 / (AT_ONCE * SHARE))


def test_a_seconds_worth_may_come_together_and_no_silence_earns_more() -> None:
    admission = HelloQueue[int](4.0, 100, 100)
    for number in range(20):
        admission.ask(number, 0.0, returning=False)
    assert len(admission.admit(0.0)) == 4
    assert admission.next_in() == 0.25
    assert len(admission.admit(0.25)) == 1
    assert len(admission.admit(60.0)) == 4
    assert len(admission.admit(60.5)) == 2


def test_an_empty_admission_queue_has_no_next_time() -> None:
    admission = queue()
    assert admission.next_in() is None
    admission.ask(1, 0.0, returning=False)
    assert admission.next_in() == 0.0


def test_a_new_queue_is_empty() -> None:
    admission = queue()
    assert (admission.under_way, admission.waiting, admission.forget(1)) == (0, 0, False)


def test_a_hello_enters_at_once_only_if_none_waits_and_both_limits_allow_it() -> None:
    admission = queue(rate=2.0, at_once=3)
    assert [admission.enter(0.0) for _ in range(3)] == [True, True, False]  # the rate of one second
    assert [admission.enter(1.0) for _ in range(2)] == [True, False]  # the hellos under way
    admission.ask(7, 1.0, returning=True)
    admission.ended()
    assert not admission.enter(1.0)  # another hello waits
    assert admission.admit(1.0) == [7]
    admission.ended()
    assert not admission.enter(1.0)
    assert admission.enter(1.5)
