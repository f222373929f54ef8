"""Hold of one call of a store or an engine at a named point, so that a test decides the order of a race.

async with hold(store, "notifications", at="after") as held:
    client.send(type="inbox.list")
    await held.reached()      # the page is read, the caller does not have it yet
    await store.notify(...)   # concurrent change
...                           # the caller continues when the block ends, or after `held.release()`
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

Point = Literal["before", "after"]


class Held:
    """Calls of one method that wait until the test releases them."""

    def __init__(self) -> None:
        self.calls = 0  # calls that have reached the point
        self._reached = asyncio.Event()
        self._released = asyncio.Event()

    async def reached(self, timeout_s: float = 20.0) -> None:
        """Return when a call waits at the point. Raise TimeoutError if none comes."""
        async with asyncio.timeout(timeout_s):
            await self._reached.wait()

    def release(self) -> None:
        """Let the held calls continue; later calls are not held."""
        self._released.set()

    async def wait(self) -> None:
        """Wait at the point until `release`; the held call awaits it."""
        self.calls += 1
        self._reached.set()
        await self._released.wait()


@asynccontextmanager
async def hold(
    target: object, method: str, *, at: Point = "before", when: Callable[..., bool] = lambda *args, **kwargs: True
) -> AsyncIterator[Held]:
    """Hold the calls of `target.method` that `when` accepts, until released or until the block ends.

    `before`: the call is made and has done nothing. `after`: the call is done and has not returned its result. Only
    coroutine methods can be held.
    """
    held = Held()
    original: Callable[..., Awaitable[Any]] = getattr(target, method)
    own = method in vars(target)  # an instance that was patched before keeps its patch afterwards

    async def waiting(*args: Any, **kwargs: Any) -> Any:
        chosen = when(*args, **kwargs)
        if chosen and at == "before":
            await held.wait()
        result = await original(*args, **kwargs)
        if chosen and at == "after":
            await held.wait()
        return result

    setattr(target, method, waiting)
    try:
        yield held
    finally:
        held.release()
        if own:
            setattr(target, method, original)
        else:
            delattr(target, method)
