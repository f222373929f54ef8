"""Cache of store reads with a time to live."""

from __future__ import annotations

import asyncio

import pytest

from greendot.errors import StoreUnavailable
from greendot.store import read_cache
from greendot.store.read_cache import AT_ONCE, BELIEVED_S, ReadCache
from greendot.testing import ManualClock


class Source:
    """Source of the cached values. `gate` delays its answers."""

    def __init__(self) -> None:
        self.value: str | None = "first"
        self.asked: list[str] = []
        self.running = self.most_running = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def read(self, key: str) -> str | None:
        self.asked.append(key)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        value = self.value
        await self.gate.wait()
        self.running -= 1
        return value


async def test_an_answer_is_believed_for_its_time_and_no_longer() -> None:
    clock, source = ManualClock(), Source()
    remembered = ReadCache(source.read, clock)
    assert [await remembered.get("a") for _ in range(3)] == ["first"] * 3
    source.value = None
    clock.advance(BELIEVED_S - 0.001)
    assert await remembered.get("a") == "first"
    clock.advance(0.001)
    assert await remembered.get("a") is None
    assert source.asked == ["a", "a"]


async def test_that_there_is_nothing_is_believed_too() -> None:
    clock, source = ManualClock(), Source()
    source.value = None
    remembered = ReadCache(source.read, clock)
    assert [await remembered.get("a") for _ in range(3)] == [None] * 3
    assert source.asked == ["a"]


async def test_an_answer_counts_from_when_it_was_asked_for() -> None:
    clock, source = ManualClock(), Source()
    remembered = ReadCache(source.read, clock)
    source.gate.clear()
    slow = asyncio.ensure_future(remembered.get("a"))
    await asyncio.sleep(0)
    source.value = None  # changed after the read began
    clock.advance(BELIEVED_S)
    source.gate.set()
    assert await slow == "first"
    assert await remembered.get("a") is None


async def test_a_crowd_that_asks_the_same_is_a_few_reads_and_one_that_asks_other_things_takes_turns() -> None:
    clock, source = ManualClock(), Source()
    remembered = ReadCache(source.read, clock)
    source.gate.clear()
    same = [asyncio.ensure_future(remembered.get("a")) for _ in range(100)]
    await asyncio.sleep(0)
    source.gate.set()
    assert await asyncio.gather(*same) == ["first"] * 100
    assert len(source.asked) <= AT_ONCE
    source.gate.clear()
    others = [asyncio.ensure_future(remembered.get(f"other{n}")) for n in range(100)]
    await asyncio.sleep(0)
    source.gate.set()
    await asyncio.gather(*others)
    assert source.most_running <= AT_ONCE


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_cache, "MOST", 50)
    clock, source = ManualClock(), Source()
    remembered = ReadCache(source.read, clock)
    for number in range(1_000):
        await remembered.get(f"stranger{number}")
    assert len(remembered) == 50
    await remembered.get("stranger999")
    assert len(source.asked) == 1_000
    await remembered.get("stranger0")
    assert len(source.asked) == 1_001


async def test_a_failure_is_no_answer() -> None:
    clock, failing = ManualClock(), True

    async def read(key: str) -> str:
        if failing:
            raise StoreUnavailable("away")
        return "there"

    remembered = ReadCache(read, clock)
    for _ in range(AT_ONCE + 1):
        with pytest.raises(StoreUnavailable):
            await remembered.get("a")
    failing = False
    assert await remembered.get("a") == "there"


async def test_a_better_answer_lasts_no_longer_than_the_one_it_replaces() -> None:
    clock, source = ManualClock(), Source()
    remembered = ReadCache(source.read, clock)
    remembered.put("a", "made up")
    assert len(remembered) == 0
    await remembered.get("a")
    clock.advance(BELIEVED_S / 2)
    remembered.put("a", "better")
    assert await remembered.get("a") == "better"
    clock.advance(BELIEVED_S / 2)
    assert await remembered.get("a") == "first"
    remembered.forget("a")
    source.value = "second"
    assert await remembered.get("a") == "second"


async def test_an_answer_that_is_believed_waits_for_no_turn() -> None:
    clock, source = ManualClock(), Source()
    remembered = ReadCache(source.read, clock)
    await remembered.get("a")
    source.gate.clear()
    others = [asyncio.ensure_future(remembered.get(f"other{n}")) for n in range(AT_ONCE)]
    await asyncio.sleep(0)
    assert source.running == AT_ONCE
    believed = asyncio.ensure_future(remembered.get("a"))
    await asyncio.sleep(0)
    assert believed.done()
    source.gate.set()
    await asyncio.gather(believed, *others)


async def test_an_answer_that_was_asked_for_again_is_no_longer_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_cache, "MOST", 2)
    clock, source = ManualClock(), Source()
    remembered = ReadCache(source.read, clock)
    for key in ("a", "b"):
        await remembered.get(key)
    clock.advance(BELIEVED_S)
    for key in ("a", "c", "a"):
        await remembered.get(key)
    assert source.asked == ["a", "b", "a", "c"]
    assert len(remembered) == 2
