"""Longest turn of an event loop, in processor time of its thread.

async with turns() as measured:
    ...                      # clients in another thread: see `Aside`
assert measured.longest_s < 0.02

A turn is the work of the loop between two polls of its sockets: during a turn, no other client is served. Processor
time is measured instead of wall-clock time, so that other processes on the machine do not lengthen a turn.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")


class Turns:
    """Turns measured so far."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.count = 0
        self._began = 0.0
        self._stopped = False

    def restart(self) -> None:
        """Forget the turns measured so far, the current one included."""
        self.longest_s, self.count = 0.0, 0
        self._began = time.thread_time()

    def stop(self) -> None:
        self._stopped = True

    def measure(self) -> None:
        """Measure one turn, and schedule the next measurement until stopped."""
        now = time.thread_time()
        self.longest_s = max(self.longest_s, now - self._began)
        self.count += 1
        self._began = now
        if not self._stopped:
            asyncio.get_running_loop().call_soon(self.measure)


@asynccontextmanager
async def turns() -> AsyncIterator[Turns]:
    """Measure the turns of the running loop, which does not sleep meanwhile."""
    measured = Turns()
    measured.restart()
    measured.measure()
    measured.restart()
    try:
        yield measured
    finally:
        measured.stop()
        await asyncio.sleep(0)


class Aside:
    """Thread with its own loop, for clients whose work must not count as the server's."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aside", daemon=True)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the other loop and return its result."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def __aenter__(self) -> Self:
        self._thread.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)
        self._loop.close()
