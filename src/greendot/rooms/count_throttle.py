"""Throttle for the counts that large rooms are sent in place of names."""

from __future__ import annotations

from collections.abc import Callable

from greendot.node.timer_model import Timer
from greendot.node.timers import Timers

COUNT_EVERY_S = 1.0  # a large room is told a count at most so often


class CountThrottle:
    """Sends a count now, if the last one is old enough; otherwise once, when it is."""

    __slots__ = ("_tell", "_timer", "_timers", "told_at")

    def __init__(self, timers: Timers, tell: Callable[[], None]) -> None:
        self._timers = timers
        self._tell = tell
        self._timer: Timer | None = None  # set while a count waits for its turn
        self.told_at = float("-inf")  # monotonic seconds

    def soon(self) -> None:
        wait_s = self.told_at + COUNT_EVERY_S - self._timers.now()
        if wait_s <= 0:
            self._now()
        elif self._timer is None:
            self._timer = self._timers.set(wait_s, self._now)

    def _now(self, _: None = None) -> None:
        self.close()
        self.told_at = self._timers.now()
        self._tell()

    def close(self) -> None:
        self._timers.cancel(self._timer)
        self._timer = None
