"""Work that an engine does beside answering calls."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from greendot.errors import EngineUnavailable
from greendot.telemetry import log_events
from greendot.telemetry.log import tell


class Background:
    """Tasks by name, each at most once at a time. Failures are logged."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def spawn(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        """Start the work, unless work of that name is under way."""
        if name in self._tasks:
            work.close()
        else:
            self._tasks[name] = asyncio.get_running_loop().create_task(self._run(name, work))

    async def _run(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        try:
            await work
        except EngineUnavailable as error:
            tell(log_events.WORK_LATER, work=name, reason=error)
        except Exception as error:
            tell(log_events.WORK_FAILED, error, work=name)
        finally:
            self._tasks.pop(name, None)

    async def settled(self) -> None:
        """Wait until nothing is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks.values())

    async def cancel(self) -> None:
        """End everything that is under way."""
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()  # also of tasks that were cancelled before they began
