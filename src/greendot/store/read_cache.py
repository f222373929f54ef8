"""Cache of store reads that every request needs; entries live for seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from greendot.clock import Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
BELIEVED_S = 10.0
MOST = 10_000  # entries; above it the oldest is dropped
AT_ONCE = 4  # concurrent reads: requests for ever new keys must not take all connections to the store


class ReadCache(Generic[K, V]):
    """Cache in front of `read`: one call per key in `believed_s`. A result of None is cached too.

    The lifetime of an entry starts when its read begins. So every cache sees a change `believed_s` later at the latest.
    """

    def __init__(self, read: Callable[[K], Awaitable[V]], clock: Clock, believed_s: float = BELIEVED_S) -> None:
        self._read = read
        self._clock = clock
        self._believed_s = believed_s
        self._answers: dict[K, tuple[float, V]] = {}  # expiry in monotonic seconds, and the value
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def get(self, key: K) -> V:
        answer = self._fresh(key)
        if answer is None:
            async with self._turns:
                # Another caller may have read the key meanwhile.
                answer = self._fresh(key) or await self._ask(key)
        return answer[1]

    def put(self, key: K, value: V) -> None:
        """Replace a cached value and keep its expiry; does nothing if the key is not cached."""
        if (answer := self._answers.get(key)) is not None:
            self._answers[key] = answer[0], value

    def forget(self, key: K) -> None:
        self._answers.pop(key, None)

    def __len__(self) -> int:
        return len(self._answers)

    def _fresh(self, key: K) -> tuple[float, V] | None:
        answer = self._answers.get(key)
        return answer if answer is not None and self._clock.monotonic() < answer[0] else None

    async def _ask(self, key: K) -> tuple[float, V]:
        until = self._clock.monotonic() + self._believed_s
        answer = until, await self._read(key)
        self._answers.pop(key, None)
        self._answers[key] = answer
        if len(self._answers) > MOST:
            del self._answers[next(iter(self._answers))]
        return answer
