"""Taking leave of connections, a few milliseconds at a time.

When a cable is pulled, thousands of sockets end in one turn of the loop. Each is cheap to forget and all together are
not: those who are still there must not wait for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter

from greendot.transport.connection import Connection

SLICE_S = 0.005  # of each turn of the loop


class DisconnectCleanup:
    """Calls `leave` for each connection once: at once while there are few, else in its turn."""

    def __init__(self, leave: Callable[[Connection], None]) -> None:
        self._leave = leave
        self._waiting: deque[Connection] = deque()
        self._spent = 0.0  # in this turn
        self._turn_set = self._working = False

    def add(self, connection: Connection) -> None:
        self._waiting.append(connection)
        if not self._working:
            self._work()

    def _work(self) -> None:
        self._working = True
        while self._waiting and self._spent < SLICE_S:
            began = perf_counter()
            self._leave(self._waiting.popleft())
            self._spent += perf_counter() - began
        self._working = False
        if not self._turn_set:
            self._turn_set = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn_set, self._spent = False, 0.0
        if self._waiting:
            self._work()
