"""Owner of every task that a node starts."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine, Generator
from functools import cached_property
from types import coroutine
from typing import Any, TypeVar

from greendot.telemetry import log_events
from greendot.telemetry.log import log
from greendot.telemetry.traceparent import enter

T = TypeVar("T")


class Tasks:
    """Running tasks. Failures are logged; `cancel` ends the remaining tasks."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()
        self._soon: list[Coroutine[Any, Any, None]] = []  # work that has not begun

    @cached_property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Event loop of the node, kept because Python 3.11 calls the kernel (getpid) in `asyncio.get_running_loop`."""
        return asyncio.get_running_loop()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._done)

    def spawn_brief(self, work: Coroutine[Any, Any, None]) -> None:
        """Like `spawn`, for work that seldom waits: it becomes a task only when it waits.

        A task costs as much as the write of a session to the memory engine, which never waits. Until its first wait,
        the work has no current task, and so must not use `asyncio.timeout`. It belongs to no trace.
        """
        if not self._soon:
            self.loop.call_soon(self._begin_brief)
        self._soon.append(work)

    def _begin_brief(self) -> None:
        enter(None)
        begun, self._soon = self._soon, []
        for work in begun:
            try:
                waited = work.send(None)
            except StopIteration:
                pass
            except asyncio.CancelledError:
                pass  # of a future that it awaited first; the other work still has to begin
            except Exception as error:
                log(log_events.WORK_FAILED, error, work="background task")
            else:
                self.begin(_rest(work, waited))

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Like `spawn`, but return the task."""
        task = self.loop.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._done)
        return task

    def __len__(self) -> int:
        return len(self._running) + len(self._soon)

    async def finish(self) -> None:
        """Wait until no task runs."""
        while len(self):
            await (asyncio.wait(self._running) if self._running else asyncio.sleep(0))

    async def cancel(self) -> None:
        dropped, self._soon = self._soon, []
        for work in dropped:
            work.close()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log(log_events.WORK_FAILED, error, work="background task")


async def _rest(work: Coroutine[Any, Any, None], waited: Any) -> None:
    """Continue work that waits for `waited`, which the work has yielded already."""
    await _steps(work, waited)


@coroutine
def _steps(work: Coroutine[Any, Any, None], waited: Any) -> Generator[Any, Any, None]:
    try:
        while True:
            try:
                value = yield waited
            except BaseException as error:
                waited = work.throw(error)
            else:
                waited = work.send(value)
    except StopIteration:
        return


LOG_S = 1.0  # time for writing the log line


async def all_ended(*endings: Coroutine[Any, Any, None]) -> None:
    """Run all coroutines concurrently. An exception is logged, and does not stop the others."""
    for failure in await asyncio.gather(*endings, return_exceptions=True):
        if isinstance(failure, Exception):
            log(log_events.WORK_FAILED, failure, work="shutdown step")
        elif failure is not None:
            raise failure


def end_by(within_s: float) -> None:
    """End this process with code 1 and a log line after `within_s` seconds, even if its loop is stuck."""

    def end() -> None:
        # The reader of the log may be the reason that the process is stuck. The process then ends without the line.
        threading.Timer(LOG_S, os._exit, (1,)).start()
        log(log_events.NODE_STUCK, after_s=within_s)
        os._exit(1)

    timer = threading.Timer(within_s, end)
    timer.daemon = True  # a process that ends by itself does not wait for the timer
    timer.start()
