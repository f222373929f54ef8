"""Garbage collection of a server: survivors are frozen, and cycles among them are collected when memory grows."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import Iterator

import pytest

from greendot.app import collector as module
from greendot.app.collector import Collector
from greendot.app.collector_model import NodeLoad
from greendot.telemetry import log_events
from greendot.telemetry.log import event_of

MB = 1_000_000


class Thing:
    """Object that may be part of a cycle."""

    def __init__(self) -> None:
        self.other: object = None


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    thresholds, callbacks = gc.get_threshold(), [*gc.callbacks]
    yield
    gc.callbacks[:] = callbacks
    gc.set_threshold(*thresholds)
    gc.unfreeze()


class Memory:
    def __init__(self) -> None:
        self.size: int | None = 100 * MB

    def __call__(self) -> int | None:
        return self.size


def started(memory: Memory) -> Collector:
    collector = Collector(lambda: NodeLoad(0, 0), memory)
    collector.start()
    return collector


async def test_young_cycles_are_collected_and_survivors_are_frozen() -> None:
    collector = started(Memory())
    kept, gone = Thing(), Thing()
    gone.other = gone
    watched = weakref.ref(gone)
    del gone
    collector._second = module.SECOND
    await asyncio.sleep(3 * module.YOUNG_S)
    assert watched() is None
    assert not any(it is kept for it in gc.get_objects())  # frozen objects are not listed


async def test_frozen_objects_are_freed_without_the_collector() -> None:
    started(Memory())
    thing = Thing()
    watched = weakref.ref(thing)
    gc.collect(1)
    del thing
    assert watched() is None


async def test_few_survivors_are_not_frozen_yet() -> None:
    started(Memory())
    kept = Thing()
    await asyncio.sleep(3 * module.YOUNG_S)
    assert any(it is kept for it in gc.get_objects())


async def test_survivors_of_many_young_collections_are_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECOND", 2_000)
    started(Memory())
    kept = [Thing() for _ in range(2_000)]
    await asyncio.sleep(4 * module.YOUNG_S)
    assert not any(it is kept[0] for it in gc.get_objects())


async def test_a_cycle_that_was_frozen_is_collected_when_memory_grows(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "greendot")
    memory = Memory()
    collector = started(memory)
    thing = Thing()
    thing.other = thing
    watched = weakref.ref(thing)
    gc.collect(1)
    del thing
    gc.collect()
    collector.check()
    assert watched() is not None
    memory.size = 400 * MB
    collector.check()
    assert watched() is None
    assert [event_of(record) for record in caplog.records] == [log_events.NODE_COLLECTED]
    collector.check()  # the comparison starts again from the present memory
    assert len(caplog.records) == 1


async def test_memory_is_compared_with_the_load_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMPARED", 2)
    memory = Memory()
    collector, compared = started(memory), list[int]()
    monkeypatch.setattr(collector, "check", lambda: compared.append(collector._collections))
    await asyncio.sleep(5.5 * module.YOUNG_S)
    assert compared[:2] == [2, 4]


async def test_nothing_is_frozen_where_the_memory_of_a_process_is_not_known() -> None:
    memory = Memory()
    memory.size = None
    collector = started(memory)
    kept = Thing()
    gc.collect(1)
    assert any(it is kept for it in gc.get_objects())
    collector.check()
