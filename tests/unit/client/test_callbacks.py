from __future__ import annotations

import asyncio

import pytest

from greendot.client.callbacks import Callbacks
from greendot.protocol.events import Presence

from .wire import a_presence, run


@run
async def test_a_function_is_called_at_once_until_it_is_undone() -> None:
    callbacks, seen = Callbacks(), []
    undo = callbacks.add("presence.changed", seen.append)
    callbacks.deliver(a_presence(version=1))
    undo()
    undo()
    callbacks.deliver(a_presence(version=2))
    assert seen == [a_presence(version=1)]


@run
async def test_an_async_callback_gets_its_events_one_at_a_time_and_in_order() -> None:
    callbacks, seen, running = Callbacks(), [], 0

    async def slow(event: Presence) -> None:
        nonlocal running
        running += 1
        assert running == 1
        await asyncio.sleep(0)
        seen.append(event.version)
        running -= 1

    callbacks.add("presence.changed", slow)
    for version in range(1, 6):
        callbacks.deliver(a_presence(version=version))
    assert seen == []
    await callbacks.finish(5)
    assert seen == [1, 2, 3, 4, 5]


@run
async def test_a_failing_callback_is_logged_and_called_again(caplog: pytest.LogCaptureFixture) -> None:
    callbacks, seen = Callbacks(), []

    def broken(event: Presence) -> None:
        seen.append(event.version)
        raise RuntimeError("my mistake")

    async def broken_too(event: Presence) -> None:
        broken(event)

    callbacks.add("presence.changed", broken)
    callbacks.add("presence.changed", broken_too)
    for version in (1, 2):
        callbacks.deliver(a_presence(version=version))
        await callbacks.finish(5)
    assert seen == [1, 1, 2, 2]
    assert caplog.text.count("RuntimeError: my mistake") == 4


@run
async def test_a_callback_that_undoes_itself_is_called_once() -> None:
    callbacks, seen = Callbacks(), []

    def once(event: Presence) -> None:
        undo()
        seen.append(event.version)

    undo = callbacks.add("presence.changed", once)
    callbacks.deliver(a_presence(version=1))
    callbacks.deliver(a_presence(version=2))
    assert seen == [1]


@run
async def test_a_callback_that_never_ends_is_cancelled_when_its_time_is_over() -> None:
    callbacks, ended = Callbacks(), asyncio.Event()

    async def endless(_: Presence) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    callbacks.add("presence.changed", endless)
    callbacks.deliver(a_presence())
    await callbacks.finish(0.01)
    assert ended.is_set()
