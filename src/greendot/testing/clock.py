"""Clocks that tests move by hand."""

from __future__ import annotations

from greendot.clock import Clock, SystemClock

START_MS = 1_800_000_000_000


class ManualClock:
    """Clock of a test. `advance` moves both readings; `jump_wall` moves only the wall clock, as an operator would."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self._start_ms = now_ms
        # Whole milliseconds, so that many small steps add up exactly.
        self._elapsed_ms = 0
        self._jumped_ms = 0

    def monotonic(self) -> float:
        return self._elapsed_ms / 1000

    def now_ms(self) -> int:
        return self._start_ms + self._elapsed_ms + self._jumped_ms

    def advance(self, seconds: float) -> None:
        self._elapsed_ms += round(seconds * 1000)

    def jump_wall(self, seconds: float) -> None:
        self._jumped_ms += round(seconds * 1000)


class ShiftedClock(SystemClock):
    """System clock that can be moved ahead, for code that must keep step with another process."""

    def __init__(self) -> None:
        self.shift_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.shift_s

    def now_ms(self) -> int:
        return super().now_ms() + round(self.shift_s * 1000)

    def advance(self, seconds: float) -> None:
        self.shift_s += seconds


_: type[Clock] = ManualClock
