"""Answers of the store that are believed for some seconds, because they are asked for with every request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from greendot.clock import Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
BELIEVED_S = 10.0
MOST = 10_000  # answers; beyond it the oldest is forgotten
AT_ONCE = 4  # reads: whoever asks for ever other things must not take all connections to the store


class ReadCache(Generic[K, V]):
    """`read` is asked, at most so often for one key. That there is nothing is an answer too.

    What was changed before a read began is in its answer, so a change is known everywhere after `believed_s`.
    """

    def __init__(self, read: Callable[[K], Awaitable[V]], clock: Clock, believed_s: float = BELIEVED_S) -> None:
        self._read = read
        self._clock = clock
        self._believed_s = believed_s
        self._answers: dict[K, tuple[float, V]] = {}  # until when (monotonic seconds), and what
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def get(self, key: K) -> V:
        answer = self._fresh(key)
        if answer is None:
            async with self._turns:
                # Somebody may have asked meanwhile.
                answer = self._fresh(key) or await self._ask(key)
        return answer[1]

    def put(self, key: K, value: V) -> None:
        """A better answer, for as long as the one it replaces."""
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
