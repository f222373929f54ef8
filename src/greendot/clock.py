"""Time as a dependency, so that tests move it by hand (`greendot.testing.ManualClock`)."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Monotonic and wall-clock time. Durations use `monotonic`; timestamps shown to people use `now_ms`."""

    def monotonic(self) -> float:
        """Return seconds that never go back.

        They ignore changes of the wall clock and continue while the machine sleeps.
        """
        ...

    def now_ms(self) -> int:
        """Return milliseconds since 1970 UTC from the wall clock. They may jump when an operator sets the clock."""
        ...


def _since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SystemClock:
    """Clock of the machine."""

    def monotonic(self) -> float:
        return _since_boot()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


_: type[Clock] = SystemClock
