"""Run of a coroutine on its own event loop, with a time limit.

The signal of pytest-timeout does not reach a uvloop that waits. One cancellation is not enough either: a coroutine may
swallow it. `asyncio.wait_for` of Python 3.11 does so if its result arrives in the same loop turn.
"""

from __future__ import annotations

import asyncio
import io
import threading
import warnings
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

AGAIN_S = 3.0  # between two cancellations
TIMES = 5
CLOSED_S = 30.0  # for tasks and threads that remain after the coroutine has ended


def run(coroutine: Callable[[], Coroutine[Any, Any, None]], limit_s: float, give_up: Callable[[str], object]) -> None:
    """Run the coroutine; raise TimeoutError after `limit_s`.

    Call `give_up` with a report if the coroutine or its loop cannot be ended.
    """
    runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    loop = runner.get_loop()
    try:
        runner.run(_bounded(coroutine(), limit_s, give_up))
    finally:
        # The runner ends remaining tasks and threads, then the loop closes its handles. Loop timers do not run
        # meanwhile, so the deadline needs a thread.
        closing = threading.Timer(CLOSED_S, lambda: give_up(f"The event loop does not close. Tasks:\n{_stacks(loop)}"))
        closing.start()
        try:
            with warnings.catch_warnings(record=True) as warned:
                # If this warning were an error, uvloop would not close the handle it warns of and would wait for ever.
                warnings.simplefilter("always", ResourceWarning)
                runner.close()
        finally:
            closing.cancel()
    assert not warned, f"resources left open: {[str(warning.message) for warning in warned]}"


async def _bounded(coroutine: Coroutine[Any, Any, None], limit_s: float, give_up: Callable[[str], object]) -> None:
    loop = asyncio.get_running_loop()
    task = loop.create_task(coroutine)
    await asyncio.wait([task], timeout=limit_s)
    if task.done():
        task.result()
        return
    where = _stacks(loop)
    for _ in range(TIMES):
        task.cancel()
        await asyncio.wait([task], timeout=AGAIN_S)
        if task.done():
            raise TimeoutError(f"not done after {limit_s:g} s\n{where}")
    give_up(f"The coroutine swallows each cancellation:\n{where}")


def _stacks(loop: asyncio.AbstractEventLoop) -> str:
    text = io.StringIO()
    for task in asyncio.all_tasks(loop):
        try:
            task.print_stack(file=text)
        except (AttributeError, TypeError):  # coroutines of uvloop have no frame
            print(task, file=text)
    return text.getvalue()
