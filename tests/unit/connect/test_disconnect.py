"""Cleanup after many disconnections: one slice of loop time per turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Any

from greendot.connect.disconnect import SLICE_S, DisconnectCleanup


class Cleanup(DisconnectCleanup):
    """Cleanup that calls `leave` for each connection."""

    def __init__(self, leave: Callable[[Any], None]) -> None:
        super().__init__(None, None, None, None)  # type: ignore[arg-type]
        self.leave = leave  # type: ignore[method-assign]


def busy(seconds: float) -> None:
    end = perf_counter() + seconds
    while perf_counter() < end:
        pass


async def test_one_is_taken_leave_of_at_once() -> None:
    left: list[Any] = []
    cleanup = Cleanup(left.append)
    for number in range(3):
        cleanup.add(number)  # type: ignore[arg-type]  # any value: it is only passed on
        assert left == [*range(number + 1)]
        await asyncio.sleep(0)


async def test_many_are_taken_leave_of_in_slices_in_their_order_and_each_once() -> None:
    left: list[int] = []

    def leave(number: Any) -> None:
        left.append(number)
        busy(SLICE_S / 2)

    cleanup = Cleanup(leave)
    for number in range(20):
        cleanup.add(number)  # type: ignore[arg-type]
    assert 1 <= len(left) <= 3
    turns = 0
    while len(left) < 20:
        before = len(left)
        await asyncio.sleep(0)
        assert len(left) - before <= 3
        turns += 1
    assert left == [*range(20)]
    assert turns >= 6


async def test_who_leaves_because_another_does_is_taken_leave_of_after_it() -> None:
    left: list[Any] = []

    def leave(number: Any) -> None:
        if number == 0:
            cleanup.add(1)  # type: ignore[arg-type]
        left.append(number)

    cleanup = Cleanup(leave)
    cleanup.add(0)  # type: ignore[arg-type]
    assert left == [0, 1]
