"""Reads that are asked for one by one and made together.

While a read is under way those who come wait for the next one. A single one does not wait for anybody. Of a crowd, as
after a node has ended, each is held up by those before and they ask in a trickle: then the next read waits, twice as
long each time, so that a crowd of any size is a few reads and nobody waits longer than the crowd has been there. Where
nobody comes any more, because all of them wait already, it waits no longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

from greendot.node.context import NodeContext

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
MOST = 1_000  # keys in one read; so many do not wait for more
FIRST_S, LONGEST_S = 0.1, 0.8  # from the beginning of one read to the next, in a crowd
PAUSE_S = 0.004  # nobody asked for so long: those who wait are all there are


class BatchedReads(Generic[K, V]):
    """`read` answers many keys at once; one that it leaves out is `absent`."""

    def __init__(
        self, context: NodeContext, read: Callable[[Sequence[K]], Awaitable[Mapping[K, V]]], absent: V
    ) -> None:
        self._tasks = context.tasks
        self._surge = context.surge
        self._read = read
        self._absent = absent
        self._asked: dict[K, asyncio.Future[V]] = {}  # for the next read
        self._running = False
        self._began = float("-inf")  # the last read, by the time of the event loop
        self._apart_s = 0.0  # from there to the next

    def ask(self, key: K) -> asyncio.Future[V]:
        """The answer to come, which others may wait for too: to be awaited behind a shield, or not at all."""
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
        """In a crowd, let those come who are on their way."""
        if self._surge.are_many:
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
                    future.exception()  # each asker raises it; none of them may have stayed
            else:
                for key, future in asked.items():
                    future.set_result(found.get(key, self._absent))
        self._running = False
