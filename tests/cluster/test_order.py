"""Two nodes write to one room and their bus messages arrive out of order: clients soon receive the right order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import pytest

from cluster.nodes import Listener, redis_url
from e2e.processes import until
from greendot.app.server import Greendot
from greendot.config import Settings
from greendot.engine.messages import Deliver, Message, Topic
from greendot.testing import WireClient
from greendot.testing.server import SECRET
from redis_servers import RedisProcess

ROUNDS = 9
SOON_S = 0.1
GAP_S = 0.05  # of that time, the wait for a missing record
SLOWER = 2  # allowed ratio to the duration of GAP_S and a read alone, on a busy machine


class Held:
    """Bus messages with records that are held until `let_through`, or dropped."""

    def __init__(self, node: Greendot) -> None:
        self._publish: Callable[[Topic, Message], None] = node.node.engine.publish
        self.waiting: list[tuple[Topic, Message]] = []
        node.node.engine.publish = self._hold  # type: ignore[method-assign]

    def _hold(self, topic: Topic, message: Message) -> None:
        if isinstance(message, Deliver) and message.seq is not None:
            self.waiting.append((topic, message))
        else:
            self._publish(topic, message)

    def let_through(self) -> None:
        waiting, self.waiting = self.waiting, []
        for topic, message in waiting:
            self._publish(topic, message)


@asynccontextmanager
async def running(folder: Path, redis: RedisProcess) -> AsyncIterator[Greendot]:
    """Run a node in this process, on a shared store."""
    given: dict[str, Any] = {
        "server": {"host": "127.0.0.1", "port": 0, "drain_s": 0.2},
        "auth": {"secret": SECRET},
        "limits": {"enabled": False},
        "engine": {"url": redis_url(redis.port)},
        "store": {"url": f"sqlite:///{folder}/records.db"},
    }
    greendot = Greendot(msgspec.convert(given, Settings))
    await greendot.start()
    try:
        yield greendot
    finally:
        await greendot.stop()


async def joined(node: Greendot, user: str) -> Listener:
    client = await WireClient.connect(node.server.port)
    await client.hello(node.node.tokens.make(user, node.node.clock.now_ms(), 3600))
    await client.request(type="room.join", room="club")
    return Listener(client)


async def hear(listeners: tuple[Listener, ...], number: int) -> None:
    """Wait until all listeners have received `number` messages."""
    await until(lambda: all(len(listener.of("room.message")) >= number for listener in listeners))


async def gap_and_read(client: Listener) -> float:
    """Return the current duration of a wait of GAP_S and a read of the room."""
    start = time.monotonic()
    await asyncio.sleep(GAP_S)
    await client.request(type="room.history", room="club", limit=2)
    return time.monotonic() - start


@pytest.mark.timing
@pytest.mark.parametrize("comes", [True, False], ids=["late", "never"])
async def test_what_another_node_wrote_first_is_seen_first_and_within_100_ms(
    comes: bool, tmp_path: Path, redis: RedisProcess
) -> None:
    async with running(tmp_path, redis) as slow, running(tmp_path, redis) as quick:
        await slow.node.store.put_room("default", "club", open=True)
        async with await joined(slow, "ann") as ann, await joined(quick, "bob") as bob:
            held, took, by_itself = Held(slow), list[float](), list[float]()
            for number in range(1, 2 * ROUNDS, 2):
                first = await ann.request(type="room.send", room="club", body="first")
                second = await bob.request(type="room.send", room="club", body="second")
                assert (first["seq"], second["seq"]) == (number, number + 1)
                start = time.monotonic()
                if comes:
                    asyncio.get_running_loop().call_later(0.02, held.let_through)
                control = asyncio.create_task(gap_and_read(bob))
                await hear((ann, bob), number + 1)
                took.append(time.monotonic() - start)
                by_itself.append(await control)
            held.let_through()  # late bus messages of records that were read long ago
            await ann.request(type="room.send", room="club", body="last")
            held.let_through()
            for listener in (ann, bob):
                await listener.hears("room.message", body="last")
                assert [m["seq"] for m in listener.of("room.message")] == [*range(1, 2 * ROUNDS + 2)]
            assert median(took) < max(SOON_S, SLOWER * median(by_itself)), (took, by_itself)
