"""Engine host that records calls, and a Redis engine with a clock that tests advance."""

from __future__ import annotations

import asyncio
from typing import Any

from greendot.engine.messages import Message, Part, Topic
from greendot.engine.redis import keys
from greendot.engine.redis.engine import Options, RedisEngine
from greendot.testing import ShiftedClock

ADVANCE = "for _, key in ipairs(KEYS) do redis.call('HINCRBY', key, '~clock', ARGV[1]) end"


class RecordingHost:
    """Engine host that records the calls and messages it receives."""

    def __init__(self) -> None:
        self.messages: list[tuple[Topic, Message]] = []
        self.told: list[tuple[str, Any]] = []
        self.ends: list[str] = []  # nodes whose sessions stopped counting

    def receive(self, topic: Topic, message: Message) -> None:
        self.messages.append((topic, message))

    def lost(self, part: Part) -> None:
        self.told.append(("lost", part))

    def found(self, part: Part, *, intact: bool) -> None:
        self.told.append(("found", intact))

    def reborn(self, incarnation: str) -> None:
        self.told.append(("reborn", incarnation))

    def died(self, incarnation: str) -> None:
        self.ends.append(incarnation)


class RedisNode:
    """Redis engine with its own host. Time passes and timers run only by `advance` and `tick`."""

    def __init__(self, url: str, prefix: str, *, driven: bool = False, **options: Any) -> None:
        self.clock = ShiftedClock()
        self.host = RecordingHost()
        self.prefix = prefix
        options.setdefault("key", b"a key for tests")
        self.engine = RedisEngine(url, Options(prefix=prefix, **options), self.clock, driven=driven)
        self.incarnation = ""

    @property
    def heard(self) -> list[tuple[Topic, Message]]:
        return self.host.messages

    async def start(self) -> None:
        self.incarnation = await self.engine.start(self.host)

    async def advance(self, seconds: float, *others: RedisNode) -> None:
        """Advance the engine's clock for this node and the given nodes, which share its keys."""
        for node in (self, *others):
            node.clock.advance(seconds)
        ms, servers = round(seconds * 1000), self.engine.servers
        names = [keys.nodes_key(self.prefix, partition) for partition in range(keys.PARTITIONS)]
        if len(servers.all) == 1:  # one script call: a call for each key would take most of the test's time
            server = servers.of(0)
            script = await server.call("SCRIPT", "LOAD", ADVANCE)
            await server.call("EVALSHA", script, len(names), *names, ms)
            return
        await asyncio.gather(
            *(servers.of(at).call("HINCRBY", name, "~clock", ms) for at, name in enumerate(names)),
        )

    async def settle(self) -> None:
        """Wait until all messages published so far on any server have been received."""
        await self.engine.bus.drained()
        for server in self.engine.servers.all.values():
            # Redis passes a message to its subscribers before it replies to the publisher.
            assert server.pushes is not None
            await server.call("PING")
            await server.pushes.call("PING")

    async def tick(self) -> None:
        await self.engine.tick()
        await self.engine.settled()

    async def close(self) -> None:
        await self.engine.close()
