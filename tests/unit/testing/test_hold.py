"""`greendot.testing.hold`: a held call waits at its point, and the hold leaves nothing behind."""

from __future__ import annotations

import asyncio

import pytest

from greendot.testing import hold


class Counter:
    """Object with a call to hold."""

    def __init__(self) -> None:
        self.value = 0

    async def add(self, number: int = 1) -> int:
        self.value += number
        return self.value


async def test_a_call_held_before_has_done_nothing_yet() -> None:
    counter = Counter()
    async with hold(counter, "add") as held:
        call = asyncio.ensure_future(counter.add())
        await held.reached()
        assert (counter.value, call.done()) == (0, False)
        held.release()
        assert await call == 1


async def test_a_call_held_after_is_done_and_has_not_returned() -> None:
    counter = Counter()
    async with hold(counter, "add", at="after") as held:
        call = asyncio.ensure_future(counter.add())
        await held.reached()
        assert (counter.value, call.done()) == (1, False)
    assert await call == 1


async def test_only_chosen_calls_are_held() -> None:
    counter = Counter()
    async with hold(counter, "add", when=lambda number: number == 2) as held:
        assert await counter.add(1) == 1
        call = asyncio.ensure_future(counter.add(2))
        await held.reached()
        assert counter.value == 1
    assert (await call, held.calls) == (3, 1)


async def test_nothing_of_it_is_left() -> None:
    counter = Counter()
    async with hold(counter, "add"):
        pass
    assert "add" not in vars(counter)
    assert await counter.add() == 1


async def test_a_call_that_never_comes_is_an_error() -> None:
    async with hold(Counter(), "add") as held:
        with pytest.raises(TimeoutError):
            await held.reached(timeout_s=0.01)
