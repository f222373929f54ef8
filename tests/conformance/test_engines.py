"""Every engine passes the suite that ships with the package."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from greendot.engine.base import Engine, Message, Topic
from greendot.engine.memory import MemoryEngine
from greendot.testing import EngineSuite, ManualClock


class MemoryHarness:
    incarnation = "node"

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.engine: Engine = MemoryEngine(self.clock)
        self.heard: list[tuple[Topic, Message]] = []

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    async def settle(self) -> None:
        pass


class TestMemory(EngineSuite):
    @asynccontextmanager
    async def harness(self) -> AsyncIterator[MemoryHarness]:
        harness = MemoryHarness()
        await harness.engine.start(harness.incarnation, lambda topic, message: harness.heard.append((topic, message)))
        yield harness
        await harness.engine.close()
