"""Timing wheel of the node, driven by one timer of the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Any

from greendot.clock import Clock
from greendot.node.timer_model import Timer, Wheel
from greendot.telemetry import log_events
from greendot.telemetry.log import log
from greendot.telemetry.traceparent import enter

SLICE_S = 0.005  # time for firing timers in each turn of the event loop
_SHORTEST_S = 0.01  # timers due within this time of each other share one wake-up
# A wake-up later than _STALL_S shows that the process was stopped. Pending input is then read for _CATCH_UP_S first.
_STALL_S, _CATCH_UP_S = 2.0, 0.5


def _end(over: asyncio.Future[None]) -> None:
    if not over.done():
        over.set_result(None)


class Timers:
    """Timers of the node. With `driven` False nothing fires by itself: a test moves the clock and calls `tick`."""

    def __init__(self, clock: Clock, *, driven: bool = True) -> None:
        self._clock = clock
        self._driven = driven
        self._wheel = Wheel()
        self._wake: asyncio.Handle | None = None
        self._wake_at = float("inf")
        self._due: deque[Timer] = deque()  # taken out of the wheel and not fired yet
        self.now = clock.monotonic
        self.cancel = self._wheel.cancel

    def set(self, delay_s: float, call: Callable[[Any], None], argument: Any = None) -> Timer:
        timer = self._wheel.set(self.now() + delay_s, call, argument)
        if self._driven and timer.due < self._wake_at:
            self._sleep_until(timer.due)
        return timer

    def set_next(self, every_s: float, call: Callable[[Any], None]) -> Timer:
        """Set a timer for the next whole multiple of `every_s`.

        Work for all tenants together must happen at times that do not depend on the tenant that asked first. Otherwise
        a tenant could learn of the activity of another tenant from the time.
        """
        return self.set(every_s - self.now() % every_s, call)

    async def sleep(self, delay_s: float) -> None:
        """Wait until the time has passed on the node's clock."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.set(delay_s, _end, over)
        try:
            await over
        finally:
            self.cancel(timer)

    def next_due(self) -> float | None:
        return self._wheel.next_due()

    def tick(self) -> None:
        """Fire due timers, outside of any trace.

        The event loop calls this method in the context of the code that set the first timer.
        """
        enter(None)
        late = self.now() - self._wake_at
        self._wake_at = float("inf")
        if self._driven and late > _STALL_S:
            # Clients seemed silent because the process read nothing. Their frames must be read before a client is taken
            # for dead.
            self._sleep_until(self.now() + _CATCH_UP_S)
            return
        self._due.extend(self._wheel.advance(self.now()))
        self._fire()

    def _fire(self) -> None:
        """Fire due timers. After SLICE_S, continue in the next turn of the loop, unless a test moves the clock."""
        ends = perf_counter() + SLICE_S if self._driven else float("inf")
        while self._due:
            try:
                self._due.popleft().fire()
            except Exception as error:  # one failing timer must not stop the others
                log(log_events.WORK_FAILED, error, work="timer callback")
            if perf_counter() > ends:
                break
        if self._due and self._driven:
            if self._wake is not None:
                self._wake.cancel()
            self._wake_at = self.now()
            self._wake = asyncio.get_running_loop().call_soon(self.tick)
        elif self._driven and (due := self._wheel.next_due()) is not None:
            self._sleep_until(due)

    def close(self) -> None:
        self._driven = False
        if self._wake is not None:
            self._wake.cancel()

    def __len__(self) -> int:
        return len(self._wheel) + len(self._due)

    def _sleep_until(self, due: float) -> None:
        if self._wake is not None:
            self._wake.cancel()
        self._wake_at = due
        delay = max(due - self.now(), _SHORTEST_S)
        self._wake = asyncio.get_running_loop().call_later(delay, self.tick)
