"""The engine suite of the package, for every engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from greendot.engine.memory import MemoryEngine
from greendot.engine.messages import Message, Topic
from greendot.engine.port import Engine
from greendot.engine.redis.keys import channel, partition_of
from greendot.testing import EngineSuite, ManualClock
from hosts import RecordingHost, RedisNode
from redis_servers import KINDS, RedisProcess, limited, redis_cluster


class MemoryHarness:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.engine: Engine = MemoryEngine(self.clock)
        self.host = RecordingHost()
        self.incarnation = ""

    @property
    def heard(self) -> list[tuple[Topic, Message]]:
        return self.host.messages

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    async def settle(self) -> None:
        pass


class TestMemory(EngineSuite):
    @asynccontextmanager
    async def harness(self) -> AsyncIterator[MemoryHarness]:
        harness = MemoryHarness()
        harness.incarnation = await harness.engine.start(harness.host)
        try:
            yield harness
        finally:
            await harness.engine.close()


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp(request.param)
    with RedisProcess(request.param, folder, **limited("gd:")) as process:
        yield f"redis://127.0.0.1:{process.port}"
        assert process.command("ACL", "LOG") == []


class TestRedis(EngineSuite):
    """Redis, with a prefix per test in one shared server and the documented permissions."""

    @pytest.fixture(autouse=True)
    def _server(self, server: str, request: pytest.FixtureRequest) -> None:
        self.url, self.prefix = server, f"gd:{request.node.name}:"

    @asynccontextmanager
    async def harness(self) -> AsyncIterator[RedisNode]:
        node = RedisNode(self.url, self.prefix)
        await node.start()
        try:
            yield node
        finally:
            await node.close()

    async def test_what_a_stranger_publishes_is_dropped_and_counted(self) -> None:
        async with self.harness() as h:
            topic = Topic("room", "t1", "r1")
            await h.engine.subscribe([topic])
            server = h.engine.servers.of(partition_of(topic.tenant, topic.name))
            for forged in (b"", b"m", b"mxxxxxxxxxxxxxxxxxxxx", b"c" + b"0" * 40 + b"o1|o1|A||1|1", b"\xff\xfe", b"t1"):
                await server.call(h.engine.bus.publish_command, channel(self.prefix, topic), forged)
            await h.settle()
            assert h.heard == []
            assert h.engine.counts()["realtime_pubsub_invalid_total"] == 6


@pytest.fixture(scope="module", params=KINDS)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    given = limited("gd:", cluster=True)
    with redis_cluster(request.param, tmp_path_factory.mktemp(f"{request.param}-cluster"), **given) as cluster:
        yield cluster.url
        assert [process.command("ACL", "LOG") for process in cluster.processes] == [[]] * 3


class TestCluster(TestRedis):
    """A cluster of three primaries: every verb must stay in one slot, and every channel must be received from its
    server."""

    @pytest.fixture(autouse=True)
    def _server(self, cluster: str, request: pytest.FixtureRequest) -> None:
        self.url, self.prefix = cluster, f"gd:{request.node.name}:"
