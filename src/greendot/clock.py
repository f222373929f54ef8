"""Time as a dependency, so that tests move it by hand (`greendot.testing.ManualClock`)."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two readings of one time. Durations use `monotonic`; stamps shown to people use `now_ms`."""

    def monotonic(self) -> float:
        """Seconds; never goes back, unaffected by changes of the wall clock; goes on while the machine sleeps."""
        ...

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC, from the wall clock; may jump when an operator sets it."""
        ...


def _since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SystemClock:
    """The machine's clock."""

    def monotonic(self) -> float:
        return _since_boot()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


_: type[Clock] = SystemClock
