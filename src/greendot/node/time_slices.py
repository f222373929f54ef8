"""Loop time for large work: one slice in each turn of the event loop, shared by all large work of the node.

A command may name 10,000 users. Such work is cut into steps, and awaits `turn` before each step. A slice is the time
for such steps in one turn of the loop. `turn` returns at once while this turn's slice lasts. After that the work waits
in a queue, and the loop serves sockets. In one turn, large work never takes longer than a slice and one step, whatever
the number of commands.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from time import perf_counter
from typing import TypeVar

SLICE_S = 0.003  # length of a slice
STEP = 200  # users, or entries of a reply, between two checks of the clock

T = TypeVar("T")


class TimeSlices:
    """Slices of one node's loop time."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._ends: float | None = None  # end of this turn's slice; None while it is unused
        self._next_set = False

    async def turn(self) -> None:
        """Wait until there is loop time for another step."""
        if not self._waiting and self._begin():
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._set_next()
        await future
        self._begin()

    async def cut(self, items: Sequence[T], step: int = STEP) -> AsyncIterator[Sequence[T]]:
        """Yield the items in steps, each when there is loop time for it. A single step does not wait."""
        for at in range(0, len(items), step):
            if len(items) > step:
                await self.turn()
            yield items[at : at + step]

    async def over(self, lists: Iterable[Sequence[T]]) -> AsyncIterator[Sequence[T]]:
        """Yield the items of all lists in steps, each when there is loop time for it."""
        for items in lists:
            for at in range(0, len(items), STEP):
                await self.turn()
                yield items[at : at + STEP]

    def _begin(self) -> bool:
        """Return whether there is time left in this turn's slice. The slice starts with the first call in a turn."""
        if self._ends is None:
            self._ends = perf_counter() + SLICE_S
            self._set_next()
            return True
        return perf_counter() < self._ends

    def _set_next(self) -> None:
        if not self._next_set:
            self._next_set = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        """Wake the first waiting work in the new turn."""
        self._next_set, self._ends = False, None
        while self._waiting:
            first = self._waiting.popleft()
            if not first.done():  # else cancelled
                first.set_result(None)
                break
        if self._waiting:
            self._set_next()
