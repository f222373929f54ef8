"""Run a coroutine on a loop of its own, for a limited time.

pytest-timeout sends a signal, which does not get through to a uvloop that waits. A cancellation alone does not do
either: a coroutine may swallow one (`asyncio.wait_for` of Python 3.11 does when its result comes in the same turn).
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
CLOSED_S = 30.0  # for the tasks and threads that are left when the coroutine has ended


def run(coroutine: Callable[[], Coroutine[Any, Any, None]], limit_s: float, give_up: Callable[[str], object]) -> None:
    """Raise TimeoutError when it takes longer. Call `give_up` with a report when it cannot be ended."""
    runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    loop = runner.get_loop()
    try:
        runner.run(_bounded(coroutine(), limit_s, give_up))
    finally:
        # The runner ends the tasks and threads that are left, then the loop ends its handles: no timer of it runs.
        closing = threading.Timer(CLOSED_S, lambda: give_up(f"Its loop does not close. Left:\n{_stacks(loop)}"))
        closing.start()
        try:
            with warnings.catch_warnings(record=True) as warned:
                # As an error, this warning keeps uvloop from closing what it warns of: then it waits for ever.
                warnings.simplefilter("always", ResourceWarning)
                runner.close()
        finally:
            closing.cancel()
    assert not warned, f"left open: {[str(warning.message) for warning in warned]}"


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
    give_up(f"It swallows each cancellation:\n{where}")


def _stacks(loop: asyncio.AbstractEventLoop) -> str:
    text = io.StringIO()
    for task in asyncio.all_tasks(loop):
        try:
            task.print_stack(file=text)
        except (AttributeError, TypeError):  # a coroutine of uvloop has no frame of its own
            print(task, file=text)
    return text.getvalue()
