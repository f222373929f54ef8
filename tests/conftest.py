"""Tests are coroutines where they need to be: each runs on a loop of its own, uvloop as in production."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest
import uvloop
from hypothesis import settings

LIMIT_S = 50.0

# These machines are busy at times: how long one example takes proves nothing.
settings.register_profile("greendot", deadline=None)
settings.load_profile("greendot")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in wanted if name in pyfuncitem.funcargs}

    async def bounded() -> None:
        # pytest-timeout's signal does not get through to a loop that waits for ever.
        async with asyncio.timeout(LIMIT_S):
            await pyfuncitem.obj(**arguments)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(bounded())
    return True
