"""Turns of the event loop, measured in processor time of the loop's own thread."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator

import pytest

from greendot.testing import Aside, turns

LONG_S = 0.05


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    """Disable garbage collection, because a full collection would count as a long turn."""
    gc.disable()
    yield
    gc.enable()


def work(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


async def work_later(seconds: float) -> str:
    work(seconds)
    return "done"


async def test_a_long_turn_is_seen() -> None:
    async with turns() as measured:
        await asyncio.sleep(0)
        work(LONG_S)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert LONG_S <= measured.longest_s < 10 * LONG_S
        measured.restart()
        await asyncio.sleep(0)
        assert measured.longest_s < LONG_S
        assert measured.count >= 1


async def test_waiting_is_not_counted() -> None:
    async with turns() as measured:
        time.sleep(LONG_S)  # noqa: ASYNC251  (as if another process used the processor)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert measured.longest_s < LONG_S


async def test_work_aside_is_not_counted() -> None:
    async with Aside() as aside, turns() as measured:
        assert await aside.run(work_later(LONG_S)) == "done"
        assert measured.longest_s < LONG_S
