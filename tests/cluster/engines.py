"""Engines without a node, on servers and connections that a test breaks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from e2e.processes import Patience
from greendot.engine.messages import Deliver, Topic
from greendot.engine.redis.keys import PARTITIONS, partition_of
from greendot.engine.redis.nodes import LeasePeriods
from greendot.presence.model import ManualStatus, SessionEpoch
from hosts import RedisNode

LEASE_S, RENEW_S, GRACE_S = 3.0, 1.0, 2.0
PERIODS = LeasePeriods(LEASE_S, RENEW_S, GRACE_S)
TENANT = "default"
PREFIX = "gd:"
FOUND_S = 5.0  # time to detect a broken connection
PATIENCE_S = 15.0


@asynccontextmanager
async def engines(*urls: str, **options: Any) -> AsyncIterator[list[RedisNode]]:
    """Run one engine for each URL, all on the same keys."""
    options.setdefault("periods", PERIODS)
    async with AsyncExitStack() as stack:
        made = []
        for url in urls:
            node = RedisNode(url, PREFIX, driven=True, **options)
            await node.start()
            stack.push_async_callback(node.close)
            made.append(node)
        yield made


async def until(condition: Callable[[], Any], what: str, within_s: float = PATIENCE_S) -> float:
    """Poll until the condition is true and return the seconds it took. For states without an event."""
    begin, patience = time.monotonic(), Patience(within_s)
    while not condition():
        assert await patience.pause() or condition(), f"not within {within_s} s: {what}"
    return time.monotonic() - begin


def names_everywhere(kind: str) -> list[str]:
    """Return a name in each partition."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < PARTITIONS:
        name, number = f"{kind}{number}", number + 1
        found.setdefault(partition_of(TENANT, name), name)
    return [found[partition] for partition in range(PARTITIONS)]


def gaps(node: RedisNode) -> int:
    return node.engine.counts()["realtime_pubsub_gaps_total"]


def was_lost(node: RedisNode) -> bool:
    """Return whether the engine has reported to its host that Redis is away."""
    return any(what == "lost" for what, _ in node.host.told)


def findings(node: RedisNode) -> list[bool]:
    """Return for each time Redis was found again whether its data was intact."""
    return [how for what, how in node.host.told if what == "found"]


async def all_hear(listener: RedisNode, speaker: RedisNode, topics: Iterable[Topic]) -> float:
    """Publish to each of these topics until all messages are received; return the seconds it took."""
    begin, deaf, word = time.monotonic(), {*topics}, 0
    while deaf:
        assert time.monotonic() - begin < PATIENCE_S, f"no message on {len(deaf)} topics: {sorted(deaf)[:5]}"
        word += 1
        since = len(listener.heard)
        for topic in deaf:
            speaker.engine.publish(topic, Deliver(b"%d" % word))
        await asyncio.sleep(0.05)
        deaf -= {topic for topic, message in listener.heard[since:] if isinstance(message, Deliver)}
    return time.monotonic() - begin


def ref(node: RedisNode, name: str, conn: int = 1) -> SessionEpoch:
    return SessionEpoch(f"{node.incarnation}-{name}", node.incarnation, conn)


async def come(node: RedisNode, user: str, conn: int = 1) -> SessionEpoch:
    """Register the user as online on this node."""
    here = ref(node, user, conn)
    await node.engine.touch(TENANT, user, here, "default", False, user)
    await node.engine.set_status(TENANT, user, ManualStatus())
    return here


async def state(node: RedisNode, user: str) -> str:
    return str((await node.engine.read(TENANT, [user]))[0].visible.state)
