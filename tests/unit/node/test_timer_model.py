from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from greendot.node.timer_model import Timer, Wheel, has_come

WIDTH_S = 0.05
# Times near the slot borders, on both sides of zero, and far away.
milliseconds = st.one_of(
    st.integers(-200, 200),
    st.integers(0, 20).map(lambda slot: slot * 50),
    st.integers(0, 10**9),
)


def ignore(argument: Any) -> None:
    pass


def names(timers: list[Timer]) -> list[Any]:
    return [timer.argument for timer in timers]


def test_a_timer_fires_with_what_it_was_given() -> None:
    wheel, heard = Wheel(), []
    wheel.set(1.0, heard.append, "ann")
    for timer in wheel.advance(1.0):
        timer.fire()
    assert heard == ["ann"]


def test_a_timer_is_due_at_its_moment_and_not_a_millisecond_before() -> None:
    wheel = Wheel(WIDTH_S)
    wheel.set(75.001, ignore, "dead")
    assert wheel.advance(75.000) == []
    assert names(wheel.advance(75.001)) == ["dead"]


def test_a_slot_that_is_partly_over_gives_up_only_what_is_due() -> None:
    wheel = Wheel(WIDTH_S)
    for due in (0.049, 0.011, 0.030):
        wheel.set(due, ignore, due)
    assert names(wheel.advance(0.030)) == [0.011, 0.030]
    assert names(wheel.advance(0.050)) == [0.049]


def test_timers_of_the_same_moment_fire_in_the_order_they_were_set() -> None:
    wheel = Wheel()
    for name in "abc":
        wheel.set(5.0, ignore, name)
    assert names(wheel.advance(9.0)) == ["a", "b", "c"]


def test_a_timer_that_was_due_before_it_was_set_fires_at_once() -> None:
    wheel = Wheel()
    assert wheel.advance(100.0) == []
    wheel.set(99.0, ignore, "late")
    wheel.set(100.0, ignore, "now")
    assert wheel.next_due() == 99.0
    assert names(wheel.advance(100.0)) == ["late", "now"]


def test_a_timer_before_the_beginning_of_time_fires_too() -> None:
    wheel = Wheel()
    wheel.set(-3.0, ignore, "before")
    wheel.set(0.0, ignore, "zero")
    assert wheel.next_due() == -3.0
    assert names(wheel.advance(0.0)) == ["before", "zero"]


def test_an_ended_timer_does_not_fire() -> None:
    wheel = Wheel()
    wheel.cancel(wheel.set(1.0, ignore))
    assert len(wheel) == 0
    assert wheel.next_due() is None
    assert wheel.advance(2.0) == []


def test_ending_a_timer_twice_or_after_it_fired_or_none_is_harmless() -> None:
    wheel = Wheel()
    fired, ended, kept = (wheel.set(due, ignore, due) for due in (1.0, 1.01, 1.02))
    assert wheel.advance(1.0) == [fired]
    wheel.cancel(ended)
    for timer in (fired, ended, None):
        wheel.cancel(timer)
    assert wheel.advance(2.0) == [kept]


def test_a_timer_ended_by_one_that_fires_with_it_does_nothing() -> None:
    wheel, heard = Wheel(), []
    wheel.set(1.0, lambda _: wheel.cancel(second))
    second = wheel.set(1.0, heard.append, "too late")
    for timer in wheel.advance(1.0):
        timer.fire()
    assert heard == []


def test_a_timer_may_set_the_next_one_while_it_fires() -> None:
    wheel, heard = Wheel(), []

    def again(due: float) -> None:
        heard.append(due)
        wheel.set(due + 1.0, again, due + 1.0)

    wheel.set(1.0, again, 1.0)
    for now in (1.0, 2.0, 3.0):
        for timer in wheel.advance(now):
            timer.fire()
    assert heard == [1.0, 2.0, 3.0]
    assert wheel.next_due() == 4.0


@settings(deadline=None)
@given(st.lists(milliseconds, max_size=50), milliseconds)
def test_what_is_due_comes_out_in_order_and_the_rest_stays(dues: list[int], now: int) -> None:
    wheel = Wheel(WIDTH_S)
    for number, due in enumerate(dues):
        wheel.set(due / 1000, ignore, (due, number))
    fired = names(wheel.advance(now / 1000))
    assert fired == sorted((due, number) for number, due in enumerate(dues) if due <= now)
    assert len(wheel) == len(dues) - len(fired)


class WheelMachine(RuleBasedStateMachine):
    """The timing wheel, compared with a list that is searched from end to end."""

    def __init__(self) -> None:
        super().__init__()
        self.wheel = Wheel(WIDTH_S)
        self.waiting: list[tuple[int, int]] = []  # due in milliseconds, number
        self.timers: list[Timer] = []
        self.now = 0

    @rule(due=milliseconds)
    def set_at(self, due: int) -> None:
        self.waiting.append((due, len(self.timers)))
        self.timers.append(self.wheel.set(due / 1000, ignore, (due, len(self.timers))))

    @rule(delay=st.integers(-5, 120))
    def set_in(self, delay: int) -> None:
        self.set_at(self.now + delay)

    @precondition(lambda self: self.timers)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, len(self.timers) - 1))
        self.wheel.cancel(self.timers[number])
        self.waiting = [entry for entry in self.waiting if entry[1] != number]

    @rule(step=st.one_of(st.integers(0, 130), st.integers(0, 10**6)))
    def advance(self, step: int) -> None:
        self.now += step
        due = sorted(entry for entry in self.waiting if entry[0] <= self.now)
        assert names(self.wheel.advance(self.now / 1000)) == due
        self.waiting = [entry for entry in self.waiting if entry not in due]

    @invariant()
    def nothing_is_lost(self) -> None:
        assert len(self.wheel) == len(self.waiting)

    @invariant()
    def the_next_is_known(self) -> None:
        expected = min((due for due, _ in self.waiting), default=None)
        assert self.wheel.next_due() == (None if expected is None else expected / 1000)


TestAgainstAList = WheelMachine.TestCase
TestAgainstAList.settings = settings(deadline=None, max_examples=60, stateful_step_count=40)


def test_dates_set_and_cancelled_for_ever_cost_nothing() -> None:
    wheel = Wheel()
    kept = wheel.set(5.0, lambda argument: None)
    for number in range(10_000):
        wheel.cancel(wheel.set(1_000.0 + number, lambda argument: None))
    assert len(wheel) == 1
    assert len(wheel._numbers) < 200
    assert wheel.next_due() == 5.0
    assert wheel.advance(20_000.0) == [kept]


def test_what_a_timer_was_set_for_has_come_when_it_fires() -> None:
    for ms in range(1, 200_000, 7):
        now, date = ms / 1000, ms / 1000 + 60.0
        wheel = Wheel()
        timer = wheel.set(now + (date - now), lambda argument: None)
        assert wheel.advance((ms + 60_000) / 1000) == [timer]
        assert has_come(date, (ms + 60_000) / 1000)
        assert not has_come(date, (ms + 59_999) / 1000)


def test_a_date_has_come_within_the_slack_of_the_timer_and_of_who_set_it() -> None:
    assert [has_come(date, 0.0) for date in (1.5e-6, 2e-6, 2.5e-6)] == [True, True, False]


def test_what_is_left_after_many_were_ended_still_comes_out_in_order() -> None:
    wheel = Wheel(WIDTH_S)
    kept = [wheel.set(float(second), ignore, second) for second in (9, 5, 1, 7, 3)]
    for timer in [wheel.set(float(second), ignore) for second in range(10, 200)]:
        wheel.cancel(timer)
    assert wheel.next_due() == 1.0
    assert [names(wheel.advance(float(now))) for now in (1, 4, 9)] == [[1], [3], [5, 7, 9]]
    assert len(kept) == 5


@pytest.mark.parametrize("is_fired", [False, True])
def test_a_timer_that_is_over_keeps_nothing_alive(is_fired: bool) -> None:
    class Owner:
        timer: Timer

    owner, wheel = Owner(), Wheel()
    owner.timer = wheel.set(1.0, lambda argument: None, owner)
    alive = weakref.ref(owner)
    if is_fired:
        for timer in wheel.advance(1.0):
            timer.fire()
        del timer
    else:
        wheel.cancel(owner.timer)
    gc.disable()
    try:
        del owner
        assert alive() is None, "the timer must not keep its owner alive in a reference cycle"
    finally:
        gc.enable()
