"""Loop time for HTTP parsing: a limited time in each turn of the event loop, shared by all sockets of a port.

16 KiB of header fields, or chunks of one byte, take milliseconds to parse. Hundreds of sockets can be readable in one
turn. When the time of a turn is used up, the remaining sockets are parsed in later turns, in the order of reading.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter

from greendot.telemetry.traceparent import enter

PARSING_S = 0.003  # parse time in each turn; the parse that exceeds this time is completed


class ParseBudget:
    """Parse budget of one port."""

    def __init__(self, now: Callable[[], float] = perf_counter) -> None:
        self._now = now
        self._spent_s = 0.0  # time used in this turn
        self._waiting: deque[Callable[[], None]] = deque()
        self._scheduled = False

    def run(self, parse: Callable[[], None]) -> bool:
        """Call `parse` now and return True, or call it in a later turn and return False."""
        at_once = not self._waiting and self._spent_s < PARSING_S
        if at_once:
            self._measure(parse)
        else:
            self._waiting.append(parse)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)
        return at_once

    def _measure(self, parse: Callable[[], None]) -> None:
        began = self._now()
        try:
            parse()
        finally:
            self._spent_s += self._now() - began

    def _turn(self) -> None:
        enter(None)  # the trace in which this turn was scheduled ends here
        self._scheduled = False
        self._spent_s = 0.0
        try:
            if self._waiting:
                self._measure(self._waiting.popleft())
            while self._waiting and self._spent_s < PARSING_S:
                self._measure(self._waiting.popleft())
        finally:
            if (self._spent_s or self._waiting) and not self._scheduled:
                self._scheduled = True
                asyncio.get_running_loop().call_soon(self._turn)
