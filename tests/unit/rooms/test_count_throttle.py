from __future__ import annotations

from greendot.node.timers import Timers
from greendot.rooms.count_throttle import COUNT_EVERY_S, CountThrottle
from greendot.testing import ManualClock


class Counted:
    """A throttle on a clock that is moved by hand, and when it sent."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timers = Timers(self.clock, driven=False)
        self.sent: list[float] = []
        self.throttle = CountThrottle(self.timers, lambda: self.sent.append(self.timers.now()))
        self.begun = self.timers.now()

    def pass_s(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.timers.tick()

    @property
    def after_s(self) -> list[float]:
        return [round(at - self.begun, 3) for at in self.sent]


def test_the_first_count_is_sent_at_once() -> None:
    counted = Counted()
    counted.throttle.soon()
    assert counted.after_s == [0.0]


def test_many_within_a_period_are_one_at_its_end() -> None:
    counted = Counted()
    for _ in range(5):
        counted.throttle.soon()
    assert counted.after_s == [0.0]
    counted.pass_s(COUNT_EVERY_S + 0.1)
    assert len(counted.sent) == 2
    assert counted.after_s[1] >= COUNT_EVERY_S
    counted.pass_s(10)
    assert len(counted.sent) == 2


def test_after_a_period_of_silence_the_next_is_sent_at_once() -> None:
    counted = Counted()
    counted.throttle.soon()
    counted.pass_s(COUNT_EVERY_S)
    counted.throttle.soon()
    assert len(counted.sent) == 2


def test_a_closed_throttle_sends_nothing_more() -> None:
    counted = Counted()
    counted.throttle.soon()
    counted.throttle.soon()
    counted.throttle.close()
    counted.pass_s(10)
    assert len(counted.sent) == 1
