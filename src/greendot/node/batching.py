"""Batched reads: callers ask for single keys, and many keys are read together.

While a read is under way, new keys wait for the next read. A single key does not wait.

In a surge, such as after the end of a node, keys arrive one by one, because each caller is delayed by the callers
before it. The next read is then delayed, and each further delay is twice as long. A surge of any size takes a few
reads, and no caller waits longer than the surge has lasted. The delay ends early when no further key arrives, because
all callers wait already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

from greendot.node.context import NodeContext

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
MOST = 1_000  # keys in one read; with this number of keys, a read is not delayed
FIRST_S, LONGEST_S = 0.1, 0.8  # shortest and longest time between the starts of two reads in a surge
PAUSE_S = 0.004  # the delay ends if no new key arrives in this time


class BatchedReads(Generic[K, V]):
    """Batches of reads. `read` returns values of many keys; a key that is missing in its result gets `absent`.

    Without `gathers`, no read is delayed, for callers that ask for many keys at a time and wait for each batch.
    """

    def __init__(
        self,
        context: NodeContext,
        read: Callable[[Sequence[K]], Awaitable[Mapping[K, V]]],
        absent: V,
        *,
        gathers: bool = True,
    ) -> None:
        self._tasks = context.tasks
        self._surge = context.surge
        self._read = read
        self._absent = absent
        self._gathers = gathers
        self._asked: dict[K, asyncio.Future[V]] = {}  # keys of the next read
        self._running = False
        self._began = float("-inf")  # start of the last read, in loop time
        self._apart_s = 0.0  # seconds from the start of the last read to that of the next

    def ask(self, key: K) -> asyncio.Future[V]:
        """Return the future of the key's value. Callers share the future, so a caller must await it behind a shield."""
        future = self._asked.get(key)
        if future is None:
            future = self._asked[key] = asyncio.get_running_loop().create_future()
            if not self._running:
                self._running = True
                asyncio.get_running_loop().call_soon(lambda: self._tasks.spawn(self._run()))
        return future

    async def get(self, key: K) -> V:
        return await asyncio.shield(self.ask(key))

    async def _gather(self) -> None:
        """Delay the next read in a surge, so that further keys can join the read."""
        if self._gathers and self._surge.are_many:
            self._apart_s = min(max(FIRST_S, 2 * self._apart_s), LONGEST_S)
            end, before = self._began + self._apart_s, 0
            while before < len(self._asked) < MOST and asyncio.get_running_loop().time() < end:
                before = len(self._asked)
                await asyncio.sleep(PAUSE_S)
        else:
            self._apart_s = 0.0
        self._began = asyncio.get_running_loop().time()

    async def _run(self) -> None:
        while self._asked:
            await self._gather()
            keys = [*self._asked][:MOST]
            asked = {key: self._asked.pop(key) for key in keys}
            try:
                found = await self._read(keys)
            except Exception as error:
                for future in asked.values():
                    future.set_exception(error)
                    future.exception()  # marks the exception as retrieved, because possibly no caller waits
            else:
                for key, future in asked.items():
                    future.set_result(found.get(key, self._absent))
        self._running = False
