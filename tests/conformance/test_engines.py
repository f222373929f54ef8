"""Every engine passes the suite that ships with the package."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from greendot.engine.base import Disconnect, Engine, Message, Topic
from greendot.engine.memory import MemoryEngine
from greendot.engine.redis.engine import RedisEngine
from greendot.engine.redis.keys import channel
from greendot.ids import new_incarnation
from greendot.testing import EngineSuite, ManualClock
from redis_servers import KINDS, redis_server


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
        try:
            yield harness
        finally:
            await harness.engine.close()


class RedisHarness:
    """Each test has its own prefix in a server shared by all."""

    def __init__(self, port: int, prefix: str) -> None:
        self.incarnation = new_incarnation()
        self.redis = RedisEngine(("127.0.0.1", port), key=b"a key for tests", prefix=prefix)
        self.engine: Engine = self.redis
        self.heard: list[tuple[Topic, Message]] = []
        self._mark = asyncio.Event()

    def receive(self, topic: Topic, message: Message) -> None:
        if isinstance(message, Disconnect):
            self._mark.set()
        else:
            self.heard.append((topic, message))

    async def advance(self, seconds: float) -> None:
        self.redis.shift_ms += round(seconds * 1000)

    async def settle(self) -> None:
        """What was published before the mark has been received when the mark is."""
        await asyncio.gather(*self.redis._tasks)
        self._mark.clear()
        self.engine.publish(Topic("node", "", self.incarnation), Disconnect("mark", 0, ""))
        await asyncio.wait_for(self._mark.wait(), 10)


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with redis_server(request.param, tmp_path_factory.mktemp(request.param)) as port:
        yield port


class TestRedis(EngineSuite):
    @pytest.fixture(autouse=True)
    def _server(self, server: int, request: pytest.FixtureRequest) -> None:
        self.port, self.prefix = server, f"{request.node.name}:"

    @asynccontextmanager
    async def harness(self) -> AsyncIterator[RedisHarness]:
        harness = RedisHarness(self.port, self.prefix)
        await harness.engine.start(harness.incarnation, harness.receive)
        try:
            yield harness
        finally:
            await harness.engine.close()

    async def test_what_a_stranger_publishes_is_dropped_and_counted(self) -> None:
        async with self.harness() as h:
            topic = Topic("room", "t1", "r1")
            await h.engine.subscribe([topic])
            for forged in (b"", b"m", b"mxxxxxxxxxxxxxxxxxxxx", b"c" + b"0" * 40 + b"o1|o1|A||1|1", b"\xff\xfe", b"t1"):
                await h.redis._commands.call("PUBLISH", channel(self.prefix, topic), forged)
            await h.settle()
            assert h.heard == []
            assert h.redis.invalid == 6
