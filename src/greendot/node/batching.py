"""Batched reads: callers ask for single keys, and many keys are read together.

While a read is under way, new keys wait for the next read. A single key does not wait.

In a surge, such as after the end of a node, keys arrive one by one, because each caller is delayed by the callers
before it. The next read is then delayed, and each further delay is twice as long. A surge of any size takes a few
reads, and no caller waits longer than the surge has lasted. The delay ends early when no further caller arrives and the
event loop is idle, because all callers wait already. Callers are counted, not keys: a crowd of one room asks for one
key.
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
PAUSE_S = 0.004  # the delay ends if no new caller arrives in this time, …
PAUSE_INTERVALS = 3  # … or in this multiple of the average interval between two callers, if that is shorter
BUSY_S = 0.001  # a pause that is longer by this shows that the event loop had other work meanwhile
IN_A_TURN = 100  # callers answered in one turn of the event loop: about 5 ms of work for hellos


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
        self._asked: dict[K, list[asyncio.Future[V]]] = {}  # callers of the next read, by key
        self._callers = 0  # calls since the last read began
        self._running = False
        self._began = float("-inf")  # start of the last read, in loop time
        self._apart_s = 0.0  # seconds from the start of the last read to that of the next

    def ask(self, key: K) -> asyncio.Future[V]:
        """Return a future of the key's value. Each caller has its own future, so a caller may be cancelled."""
        loop = self._tasks.loop
        future: asyncio.Future[V] = loop.create_future()
        self._callers += 1
        callers = self._asked.get(key)
        if callers is not None:
            callers.append(future)
            return future
        self._asked[key] = [future]
        if not self._running:
            self._running = True
            loop.call_soon(lambda: self._tasks.spawn(self._run()))
        return future

    async def get(self, key: K) -> V:
        return await self.ask(key)

    async def _gather(self) -> None:
        """Delay the next read in a surge, so that further keys can join the read."""
        loop = asyncio.get_running_loop()
        if self._gathers and self._surge.are_many:
            self._apart_s = min(max(FIRST_S, 2 * self._apart_s), LONGEST_S)
            end, before, was_busy = self._began + self._apart_s, 0, False
            while len(self._asked) < MOST and (before < self._callers or was_busy) and (now := loop.time()) < end:
                before = self._callers
                pause_s = min(PAUSE_S, PAUSE_INTERVALS * (now - self._began) / before)
                await asyncio.sleep(pause_s)
                # A busy loop has not reached all sockets yet: behind its work there may be further callers.
                was_busy = loop.time() - now > pause_s + BUSY_S
        else:
            self._apart_s = 0.0
        self._began = loop.time()

    async def _run(self) -> None:
        while self._asked:
            await self._gather()
            self._callers = 0
            keys = [*self._asked][:MOST]
            asked = {key: self._asked.pop(key) for key in keys}
            try:
                found = await self._read(keys)
            except Exception as error:
                for callers in asked.values():
                    for future in callers:
                        if not future.done():  # else its caller was cancelled
                            future.set_exception(error)
                            future.exception()  # marks the exception as retrieved, because possibly no caller waits
            else:
                await self._answer(asked, found)
        self._running = False

    async def _answer(self, asked: Mapping[K, list[asyncio.Future[V]]], found: Mapping[K, V]) -> None:
        """Answer the callers, some in each turn of the event loop. All at once, the work behind would fill one turn."""
        answered = 0
        for key, callers in asked.items():
            value = found.get(key, self._absent)
            for future in callers:
                if not future.done():
                    future.set_result(value)
                answered += 1
                if answered % IN_A_TURN == 0:
                    await asyncio.sleep(0)
