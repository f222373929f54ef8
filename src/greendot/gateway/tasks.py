"""The owner of every task a node starts."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from greendot.logs import events
from greendot.logs.telling import tell


class Tasks:
    """Starts tasks, keeps them, logs those that fail, ends those that are left."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._done)

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

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            tell(events.WORK_FAILED, error, work="a task")
