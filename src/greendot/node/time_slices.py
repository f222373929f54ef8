"""Loop time for large work: one slice in each turn of the loop, shared by all who have such work.

A command may name 10,000 users. Work on so many is cut into steps, and before each step `turn` is awaited. It returns
at once while this turn's slice lasts; then the work waits in a queue, and the loop serves sockets in between. However
many clients send such commands together, a turn is not longer than a slice and one step.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from time import perf_counter
from typing import TypeVar

SLICE_S = 0.003  # of each turn of the loop
STEP = 200  # users, or entries of a reply, between two looks at the clock

T = TypeVar("T")


class TimeSlices:
    """One for each node."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._ends: float | None = None  # of this turn's slice; None while nobody has used any of it
        self._next_set = False

    async def turn(self) -> None:
        """Return when there is loop time for another step."""
        if not self._waiting and self._begin():
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._set_next()
        await future
        self._begin()

    async def cut(self, items: Sequence[T], step: int = STEP) -> AsyncIterator[Sequence[T]]:
        """Yield the items, some at a time, each time there is loop time for them. A single step does not wait."""
        for at in range(0, len(items), step):
            if len(items) > step:
                await self.turn()
            yield items[at : at + step]

    def _begin(self) -> bool:
        """Whether some of this turn's slice is left; it begins with the first who asks."""
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
        """Let the first who waits go on in the turn that begins."""
        self._next_set, self._ends = False, None
        while self._waiting:
            first = self._waiting.popleft()
            if not first.done():  # else it was cancelled
                first.set_result(None)
                break
        if self._waiting:
            self._set_next()
