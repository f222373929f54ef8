"""Crowd of a server in the process of a test: connections without sockets, their sessions, rooms and watched users."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import Any

from greendot.engine.messages import Topic
from greendot.node.session import Connection
from greendot.testing import Served

TENANT = "default"
AT_ONCE = 500
ROOMS = 1_500


class NoSocket(asyncio.Transport):
    """Socket whose client takes all output at once and never sends anything."""

    def __init__(self) -> None:
        super().__init__()
        self._closing = False

    def write(self, data: Any) -> None:
        pass

    def is_closing(self) -> bool:
        return self._closing

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def close(self) -> None:
        self._closing = True

    abort = close


async def in_groups(work: Iterable[Awaitable[Any]]) -> None:
    waiting = iter(work)
    while some := [*islice(waiting, AT_ONCE)]:
        await asyncio.gather(*some)


class Crowd:
    """Clients of one server, who joined rooms, some of whom watch many users."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._node = served.node
        self.connections: list[Connection] = []

    async def connect(self, count: int) -> None:
        """Connect clients, each in one of `ROOMS` rooms."""
        for number in range(ROOMS):
            await self._node.store.put_room(TENANT, f"room{number}", open=True)
        for at in range(0, count, AT_ONCE):
            self.connections += [self._connect(number) for number in range(at, min(count, at + AT_ONCE))]
            await self._served.settle()
        await in_groups(self._join(number, it) for number, it in enumerate(self.connections))
        await self._served.settle()

    def _connect(self, number: int) -> Connection:
        connection = self._node.connections.connect(None)
        connection.socket = NoSocket()
        self._node.connections.opened(connection)
        connection.on_text(json.dumps({"type": "hello", "token": self._served.token(f"u{number}"), "device": "d"}))
        return connection

    async def _join(self, number: int, connection: Connection) -> None:
        assert connection.session is not None
        await self._node.rooms.join(connection, connection.session, f"room{number % ROOMS}", None)

    async def watch(self, count: int) -> None:
        """Let the first clients watch users, 10,000 each. The command `watch` would take three times as long."""
        watching = self._node.watching
        for at in range(0, count, 1_000):
            connection = self.connections[at // 10_000]
            session = connection.session
            assert session is not None
            topics = [Topic("watch", TENANT, f"u{number}") for number in range(at, at + 1_000)]
            await self._node._visibility.learn(TENANT, [session.user], [topic.name for topic in topics])
            await watching._watched.open(topics)
            connection.watches = (connection.watches or set()).union(topic.name for topic in topics)
            for topic in topics:
                watched = watching.watched(topic)
                assert watched is not None
                watching._attach(watched, connection, session)


Pass = Callable[[Served], Awaitable[Any]]
