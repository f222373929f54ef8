"""Trials of test_streams_trials on real nodes with a real Redis and a real PostgreSQL, many at once.

Nodes are killed and restarted, connections to Redis are cut, connections to PostgreSQL are killed. Published messages
are lost (30 %), duplicated and delayed (faults.py).
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from e2e.processes import SECRET, Process, greendot, running
from greendot.auth.tokens import Tokens
from greendot.clock import SystemClock
from model.listeners import Client
from postgres_server import execute, fresh_schema
from redis_servers import Proxy, redis_server

RUNS = int(os.environ.get("SERVER_RUNS", "1"))  # `make trials` runs more
STORIES = 20  # at once
ROUNDS = 1 if RUNS == 1 else 3  # rounds of faults; each has all kinds of faults
COMPARE_S, HEALED_S = 3.0, 30.0
KILL = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'greendot-on-trial'"
UPGRADE = (
    b"GET /v1/connect HTTP/1.1\r\nHost: world\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
LEASES = {
    "GREENDOT_NODE_LEASE_S": "3",
    "GREENDOT_NODE_RENEW_S": "1",
    "GREENDOT_PRESENCE_GRACE_S": "2",
    "GREENDOT_PRESENCE_CLEAN_GRACE_S": "1",
    "GREENDOT_LIMITS_ENABLED": "false",
}


class Place:
    """Replacement of the simulated world for clients of real servers."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.loop = asyncio.get_running_loop()
        self.clock = SystemClock()
        self.sockets: list[socket.socket] = []

    def lag(self) -> float:
        return 0.0


class Server:
    """Node in its own process for clients, which is restarted after a kill."""

    def __init__(self, place: Place, folder: Path, store: str, redis: int, number: int) -> None:
        self._place = place
        self._folder = folder
        self._store = store
        self._number = number
        self._lives = 0
        self.proxy = Proxy(redis)
        self.tokens = Tokens(SECRET)
        self.process: Process | None = None
        self._stack = AsyncExitStack()

    # Interface of `SimulatedNode` that `Client` uses.

    @property
    def up(self) -> bool:
        return self.process is not None

    @property
    def node(self) -> Server:
        return self

    @property
    def incarnation(self) -> str:
        return f"{self._number}.{self._lives}"

    async def socket(self, small: bool) -> socket.socket:
        end = socket.socket()
        end.setblocking(False)
        self._place.sockets.append(end)
        assert self.process is not None
        try:
            await self._place.loop.sock_connect(end, ("127.0.0.1", self.process.port))
            await self._place.loop.sock_sendall(end, UPGRADE)
        except OSError:
            pass  # the client reads the end at once
        return end

    async def start(self) -> None:
        self._lives += 1
        seed = {
            "FAULTS_SEED": f"{self._place.seed} {self.incarnation}",
            "FAULTS_COMPARE_S": str(COMPARE_S),
            "FORKED_FIRST": str(Path(__file__).parent / "faults.py"),
        }
        flags = ("--host", "127.0.0.1", "--engine", f"redis://127.0.0.1:{self.proxy.port}", "--store", self._store)
        self.process = await self._stack.enter_async_context(running(self._folder, *flags, **LEASES, **seed))

    async def kill(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            await process.kill()

    async def close(self) -> None:
        self.process = None
        await self._stack.aclose()


@asynccontextmanager
async def cluster(folder: Path, postgres: str, place: Place) -> AsyncIterator[tuple[list[Server], str]]:
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(fresh_schema(f"{postgres}?application_name=greendot-on-trial"))
        redis = stack.enter_context(redis_server("redis", folder / "redis"))
        assert (await greendot(folder, "migrate", "--store", store)).code == 0
        servers = [Server(place, folder, store, redis, number) for number in range(2)]
        for server in servers:
            stack.enter_context(server.proxy)
            stack.push_async_callback(server.close)
        await asyncio.gather(*(server.start() for server in servers))
        yield servers, store


class Trouble:
    """Faults of the servers."""

    def __init__(self, servers: list[Server], database: str, chance: random.Random) -> None:
        self._servers = servers
        self._database = database
        self._random = chance

    async def happen(self) -> None:
        kinds = [self._kill, self._cut, self._freeze, self._disconnect]
        for _ in range(ROUNDS):
            for trouble in self._random.sample(kinds, len(kinds)):
                await asyncio.sleep(self._random.uniform(0.5, 1.5))
                await trouble(self._random.choice(self._servers))

    async def _kill(self, server: Server) -> None:
        await server.kill()
        await server.start()

    async def _cut(self, server: Server) -> None:
        server.proxy.cut()
        await asyncio.sleep(self._random.uniform(0, 1))
        server.proxy.heal()

    async def _freeze(self, server: Server) -> None:
        """Silence the subscriptions of a server."""
        server.proxy.freeze(b"SUBSCRIBE")
        await asyncio.sleep(self._random.uniform(0.2, 2.5))
        server.proxy.heal()

    async def _disconnect(self, server: Server) -> None:
        await execute(self._database, KILL)


class Story:
    """Clients in their own room."""

    def __init__(self, place: Place, servers: list[Server], number: int) -> None:
        self.room = f"room{number}"
        self._random = place.random
        self._servers = servers
        self.notices: dict[str, str] = {}  # all keys with their users
        self.unsure: set[str] = set()  # keys without a response to the app
        self.is_over = False
        self.clients = [Client(place, servers, f"u{number}-{n // 2}", f"d{n}", [self.room]) for n in range(3)]  # type: ignore[arg-type]

    async def go_on(self) -> None:
        while not self.is_over:  # asyncio.wait_for may swallow a cancellation
            client, what = self._random.choice(self.clients), self._random.random()
            if what < 0.1:
                await self._notify(f"{self.room}-{len(self.notices)}", client.user)
            elif what < 0.6:
                client.send(self.room)
            elif what < 0.75:
                client.cut()
            elif what < 0.85:
                client.leave(self.room)
            else:
                client.join(self.room)
            await asyncio.sleep(self._random.expovariate(1 / 0.1))

    async def _notify(self, key: str, user: str) -> None:
        self.notices[key] = user
        self.unsure.add(key)
        up = [server.process for server in self._servers if server.process is not None]
        if up:
            body = {"user": user, "kind": "note", "body": key, "key": key}
            try:
                answer = await self._random.choice(up).ask("POST", "/v1/notifications", body)
            except (OSError, IndexError, ValueError):
                return  # killed before or during the response
            assert answer.status in (200, 201, 503), answer
            if answer.status != 503:
                self.unsure.discard(key)

    async def settle(self, end: float) -> None:
        """Wait until all clients are connected and all messages are acknowledged."""
        while self.unsure and asyncio.get_running_loop().time() < end:
            for key in [*self.unsure]:
                await self._notify(key, self.notices[key])
        while not all(c.ready and not c.unacknowledged and c.streams[self.room].joined for c in self.clients):
            if asyncio.get_running_loop().time() > end:
                lines = [line for client in self.clients for line in (*client.log[-15:], str(client))]
                raise AssertionError("clients are not back:\n" + "\n".join(lines))
            for client in self.clients:
                client.join(self.room)
            await asyncio.sleep(0.1)

    async def heal(self, head: int, end: float) -> None:
        while any(client.streams[self.room].cursor < head or self._misses(client) for client in self.clients):
            if asyncio.get_running_loop().time() > end:
                return
            for client in self.clients:
                client.join(self.room)
            await asyncio.sleep(0.05)

    def _misses(self, client: Client) -> bool:
        heard = [key for _, key in client.inbox.seen]
        return sorted(heard) != sorted(key for key, user in self.notices.items() if user == client.user)

    def check(self, rows: list[tuple[int, str, str, str]]) -> None:
        for client in self.clients:
            if client.wrong is not None:
                client.wrong.add_note("\n".join([*client.log[-50:], str(client)]))
                raise client.wrong
        assert [row[0] for row in rows] == [*range(1, len(rows) + 1)]
        keys = {row[3]: (self.room, row[0]) for row in rows}
        assert len(keys) == len(rows)
        for client in self.clients:
            assert client.streams[self.room].seen == [(row[1], row[2].strip('"')) for row in rows], str(client)
            assert {key: keys.get(key) for key in client.acknowledged} == client.acknowledged
            assert not self._misses(client), (client.inbox.seen, self.notices)


async def written(store: str, room: str) -> list[tuple[int, str, str, str]]:
    link = await asyncpg.connect(store)
    try:
        rows = await link.fetch("SELECT seq, id, body, key FROM greendot_messages WHERE room = $1 ORDER BY seq", room)
    finally:
        await link.close()
    return [(row["seq"], row["id"], bytes(row["body"]).decode(), row["key"]) for row in rows]


@pytest.mark.parametrize("seed", range(RUNS))
async def test_on_redis_and_postgres_every_client_ends_with_the_whole_stream(
    seed: int, tmp_path: Path, postgres: str
) -> None:
    place = Place(seed)
    async with cluster(tmp_path, postgres, place) as (servers, store):
        assert servers[0].process is not None
        for number in range(STORIES):
            await servers[0].process.ask("PUT", f"/v1/rooms/room{number}", {"open": True})
        stories = [Story(place, servers, number) for number in range(STORIES)]
        try:
            trouble = Trouble(servers, postgres, place.random)
            going_on = [asyncio.create_task(story.go_on()) for story in stories]
            going_wrong = asyncio.create_task(trouble.happen())
            await asyncio.wait([*going_on, going_wrong], return_when=asyncio.FIRST_COMPLETED)
            ended = [task for task in going_on if task.done()]
            for story in stories:
                story.is_over = True
            for task in (*going_on, going_wrong):
                task.cancel()
            for result in await asyncio.gather(*going_on, return_exceptions=True):
                if ended or not (result is None or isinstance(result, asyncio.CancelledError)):
                    raise AssertionError(f"a task ended early: {result!r}") from result
            await going_wrong
            for server in servers:
                server.proxy.heal()
                if not server.up:
                    await server.start()
            end = place.loop.time() + HEALED_S
            await asyncio.gather(*(story.settle(end) for story in stories))
            rows = [await written(store, story.room) for story in stories]
            end = place.loop.time() + HEALED_S
            await asyncio.gather(*(s.heal(len(r), end) for s, r in zip(stories, rows, strict=True)))
            for story, messages in zip(stories, rows, strict=True):
                story.check(messages)
            assert sum(map(len, rows)) > STORIES * ROUNDS
        finally:
            for story in stories:
                for client in story.clients:
                    await client.end()
            for end_of_socket in place.sockets:
                end_of_socket.close()
