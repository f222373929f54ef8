"""Time slices: large work gets one slice per turn of the loop, shared by all workers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from greendot.node import time_slices as module
from greendot.node.time_slices import SLICE_S, STEP, TimeSlices


class Stopwatch:
    """Time that passes only when a test changes it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(module, "perf_counter", lambda: self.now)


async def test_however_many_work_a_turn_is_a_slice_long(monkeypatch: pytest.MonkeyPatch) -> None:
    time, slices = Stopwatch(monkeypatch), TimeSlices()
    steps: list[int] = []

    async def work(number: int) -> None:
        async for _ in slices.cut([*range(10)], 1):
            time.now += SLICE_S / 2
            steps.append(number)

    works = [asyncio.ensure_future(work(number)) for number in range(10)]
    while not all(done.done() for done in works):
        before = time.now
        await asyncio.sleep(0)
        assert time.now - before <= SLICE_S + SLICE_S / 2
    assert sorted(steps) == sorted([*range(10)] * 10)
    assert {*steps[:40]} == {*range(10)}  # all workers progress together


async def test_a_few_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    time, slices = Stopwatch(monkeypatch), TimeSlices()
    await slices.turn()
    time.now += 2 * SLICE_S
    waiting = asyncio.ensure_future(slices.turn())
    assert [some async for some in slices.cut([1, 2, 3], 3)] == [[1, 2, 3]]
    assert not waiting.done()
    await waiting


async def test_a_cancelled_waiter_delays_no_other_waiter(monkeypatch: pytest.MonkeyPatch) -> None:
    time, slices = Stopwatch(monkeypatch), TimeSlices()
    await slices.turn()
    time.now += 2 * SLICE_S
    first, second, third = (asyncio.ensure_future(slices.turn()) for _ in range(3))
    first.cancel()
    await asyncio.sleep(0)  # the first is cancelled, the others wait
    second.cancel()
    async with asyncio.timeout(1):
        await third


async def test_time_is_counted_anew_in_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    time, slices = Stopwatch(monkeypatch), TimeSlices()
    await slices.turn()
    time.now += 2 * SLICE_S
    await asyncio.sleep(0)
    turn = asyncio.ensure_future(slices.turn())
    await asyncio.sleep(0)
    assert turn.done()


async def test_lists_are_cut_into_steps_and_taken_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    time, slices = Stopwatch(monkeypatch), TimeSlices()
    taken: list[int] = []

    def lists() -> Iterator[list[int]]:
        for number in range(3):
            taken.append(number)
            yield [number] * (STEP + 1)

    found, seen = list[int](), list[int]()
    async for some in slices.over(lists()):
        found.append(len(some))
        seen.append(len(taken))
        time.now += 2 * SLICE_S  # each step waits for another turn
    assert found == [STEP, 1] * 3
    assert seen == [1, 1, 2, 2, 3, 3]
