"""Time as a dependency, so that tests move it by hand (`greendot.testing.ManualClock`)."""

from __future__ import annotations

import time
from functools import partial
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


class SystemClock:
    """Clock of the machine."""

    # A call without a Python frame: a connect reads the clock a dozen times.
    monotonic = staticmethod(partial(time.clock_gettime, time.CLOCK_BOOTTIME))

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


_: type[Clock] = SystemClock
