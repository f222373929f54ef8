"""Reads that are asked for one by one and made together.

While a read is under way those who come wait for the next one, so that a thousand clients returning at once are a few
reads, and a single one does not wait for anybody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

from greendot.gateway.tasks import Tasks

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
MOST = 1_000  # keys in one read


class Batched(Generic[K, V]):
    """`read` answers many keys at once; one that it leaves out is `absent`."""

    def __init__(self, tasks: Tasks, read: Callable[[Sequence[K]], Awaitable[Mapping[K, V]]], absent: V) -> None:
        self._tasks = tasks
        self._read = read
        self._absent = absent
        self._asked: dict[K, asyncio.Future[V]] = {}  # for the next read
        self._running = False

    async def get(self, key: K) -> V:
        future = self._asked.get(key)
        if future is None:
            future = self._asked[key] = asyncio.get_running_loop().create_future()
            if not self._running:
                self._running = True
                asyncio.get_running_loop().call_soon(lambda: self._tasks.spawn(self._run()))
        return await asyncio.shield(future)

    async def _run(self) -> None:
        while self._asked:
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
