"""Reads that are asked for one by one and made together.

While a read is under way those who come wait for the next one. A single one does not wait for anybody; while many keep
coming, as after a node has ended, the next read waits for those behind, so that a thousand who return are a few reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

from greendot.gateway.tasks import Tasks

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
MOST = 1_000  # keys in one read
MANY = 16  # who waited for a read: from here on the next one waits as long as more come
PAUSE_S, LONGEST_S = 0.005, 0.3  # nobody came for so long, and it was waited for so long: it is read


class Batched(Generic[K, V]):
    """`read` answers many keys at once; one that it leaves out is `absent`."""

    def __init__(self, tasks: Tasks, read: Callable[[Sequence[K]], Awaitable[Mapping[K, V]]], absent: V) -> None:
        self._tasks = tasks
        self._read = read
        self._absent = absent
        self._asked: dict[K, asyncio.Future[V]] = {}  # for the next read
        self._running = False
        self._waiting = 0  # for the next read

    async def get(self, key: K) -> V:
        self._waiting += 1
        future = self._asked.get(key)
        if future is None:
            future = self._asked[key] = asyncio.get_running_loop().create_future()
            if not self._running:
                self._running = True
                asyncio.get_running_loop().call_soon(lambda: self._tasks.spawn(self._run()))
        return await asyncio.shield(future)

    async def _gather(self, longest_s: float) -> None:
        """Wait as long as more come."""
        end = asyncio.get_running_loop().time() + longest_s
        before = -1
        while self._waiting > before and asyncio.get_running_loop().time() < end:
            before = self._waiting
            await asyncio.sleep(PAUSE_S)

    async def _run(self) -> None:
        waited = 0
        while self._asked:
            if waited > 1:
                await self._gather(LONGEST_S if waited >= MANY else PAUSE_S)
            waited, self._waiting = self._waiting, 0
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
