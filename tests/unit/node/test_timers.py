"""Timers that are due together: fired in order, one slice of loop time per turn."""

from __future__ import annotations

import asyncio

import pytest

from greendot.node import timers as module
from greendot.node.timers import SLICE_S, Timers
from greendot.testing import ManualClock


async def test_what_takes_longer_than_a_slice_goes_on_in_the_next_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, spent, fired = ManualClock(), [0.0], list[int]()
    monkeypatch.setattr(module, "perf_counter", lambda: spent[0])
    timers = Timers(clock)

    def fire(number: int) -> None:
        spent[0] += SLICE_S / 2
        fired.append(number)

    ended = [timers.set(1 + number / 1000, fire, number) for number in range(20)][19]
    clock.advance(1.5)
    timers.tick()
    assert 1 <= len(fired) <= 3
    assert len(timers) == 20 - len(fired)
    timers.cancel(ended)
    timers.set(0, fire, 100)
    for _ in range(30):
        before = spent[0]
        await asyncio.sleep(0)
        assert spent[0] - before <= 2 * SLICE_S
    assert fired == [*range(19), 100]
    timers.close()


async def test_what_a_test_moves_fires_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, spent, fired = ManualClock(), [0.0], list[int]()
    monkeypatch.setattr(module, "perf_counter", lambda: spent[0])
    timers = Timers(clock, driven=False)

    def fire(number: int) -> None:
        spent[0] += SLICE_S
        fired.append(number)

    for number in range(10):
        timers.set(1, fire, number)
    clock.advance(1)
    timers.tick()
    assert fired == [*range(10)]
