"""The owner of every task a node starts."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from greendot.telemetry import log_events
from greendot.telemetry.log import tell

T = TypeVar("T")


class Tasks:
    """Starts tasks, keeps them, logs those that fail, ends those that are left."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.begin(work)

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """The same, for who wants to know what comes of it."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._done)
        return task

    def __len__(self) -> int:
        return len(self._running)

    async def finish(self) -> None:
        """Wait until nothing runs any more."""
        while self._running:
            await asyncio.wait(self._running)

    async def cancel(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            tell(log_events.WORK_FAILED, error, work="a task")
