"""Constants of `greendot plan`: memory and CPU time of a watch, a room, a change and a record.

    python bench/sizing.py

Memory is in bytes. Work is the CPU time of the process, which other programs of the machine hardly change. Copy the
rows to bench/RESULTS.md, and the values to src/greendot/ops/capacity/constants.py. A test compares the two.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from datetime import date
from itertools import pairwise
from pathlib import Path

import asyncpg
import redis

from greendot.auth.tokens import Tokens
from greendot.clock import SystemClock
from greendot.store.inbox import Notice
from greendot.store.postgres import PostgresStore
from greendot.store.rooms import Draft
from greendot.testing import WireClient
from postgresd import Postgres, running_postgres
from redisd import Redis, running_redis
from serverd import Access, Server, greendot

CLIENTS, WATCHED, ROOMS = 1_000, 50, 10
CYCLES, STARTS, PUBLISHED, CHANNELS, RECORDS, HEADS = 2_000, 4_000, 40_000, 100_000, 20_000, 10_000
AT_ONCE = 50
CROWD, RECORD = 1_000, "o1a1dee9b8f4||User 7027|a||hrgT-fd5W2dllZ"
IDLE_S = 20
BODY = b'{"text":"' + b"x" * 117 + b'"}'  # 128 bytes
BUS_MESSAGE = b"x" * 330  # a body of 128 bytes, an envelope and a MAC
ROOM = "r{:04}"
Row = tuple[str, str]


def main() -> None:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="greendot-sizing-") as folder:
        os.chmod(folder, 0o755)  # noqa: S103  (PostgreSQL runs as another user)
        rows += asyncio.run(of_a_node(Path(folder)))
        rows += asyncio.run(of_redis(Path(folder)))
        rows += asyncio.run(of_postgres(Path(folder)))
    width = max(len(what) for what, _ in rows)
    print(f"{date.today()}.\n")
    print(f"| {'figure'.ljust(width)} | value |\n|{'-' * (width + 2)}|-------|")
    for what, value in rows:
        print(f"| {what.ljust(width)} | {value} |")


async def each(work: Callable[[int], Awaitable[None]], numbers: Iterable[int]) -> None:
    """Run the calls in batches."""
    waiting = iter(numbers)

    async def some() -> None:
        for number in waiting:
            await work(number)

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))


# --- node ---


async def of_a_node(folder: Path) -> list[Row]:
    access = Access()
    with greendot(_command(), access, folder / "node", None) as server:
        clients = [await _client(server, number) for number in range(CLIENTS)]
        await _settled()
        before = server.rss_bytes()

        async def watch(number: int) -> None:
            users = [f"watched{number * WATCHED + n}" for n in range(WATCHED)]  # each has one watcher
            await clients[number].request(type="watch", users=users)

        await each(watch, range(CLIENTS))
        await _settled()
        watched = server.rss_bytes()
        for number in range(CLIENTS * ROOMS // 20):
            server.request("PUT", f"/v1/rooms/{ROOM.format(number)}", {"open": True})

        async def join(number: int) -> None:
            for n in range(ROOMS):
                room = ROOM.format((number + n * 37) % (CLIENTS * ROOMS // 20))
                await clients[number].request(type="room.join", room=room)

        await each(join, range(CLIENTS))
        await _settled()
        joined = server.rss_bytes()
        await asyncio.gather(*(client.end() for client in clients))
    return [
        (
            "memory of a node per user watched by nobody else here",
            f"{(watched - before) / CLIENTS / WATCHED:.0f} bytes",
        ),
        ("memory of a node per room joined, rooms of 20", f"{(joined - watched) / CLIENTS / ROOMS:.0f} bytes"),
    ]


def _command() -> list[str]:
    return [sys.executable, "-m", "greendot", "serve"]


async def _client(server: Server, number: int, user: str = "") -> WireClient:
    client = await WireClient.connect(server.port)
    tokens = Tokens(server.access.auth_secret)
    await client.hello(tokens.make(user or f"u{number}", SystemClock().now_ms(), 3600, name=f"User {number}"))
    return client


async def _settled() -> None:
    await asyncio.sleep(2)


# --- Redis ---


async def of_redis(folder: Path) -> list[Row]:
    with running_redis(folder / "redis", None) as server:
        idle = _spent(server, IDLE_S)
        rows = [_crowded(server), *_subscriptions(server)]
        rows += _publishing(server)
    with running_redis(folder / "verbs", None) as server:
        with greendot(_command(), Access(), folder / "idle-node", None, server.url):
            await _settled()
            share = _spent(server, IDLE_S) - idle
        rows.append(("CPU of Redis per node that has nothing to do, a second", f"{share * 1e6:.0f} µs"))
        rows += await _verbs(folder, server)
    return rows


def _spent(server: Redis, seconds: float) -> float:
    """Return the CPU seconds per second."""
    began, since = server.cpu_s(), time.monotonic()
    time.sleep(seconds)
    return (server.cpu_s() - began) / (time.monotonic() - since)


def _crowded(server: Redis) -> Row:
    """Measure records in hashes that are too long for the listpack encoding (hash-max-listpack-entries)."""
    before, count = server.memory(), 200_000
    for bucket in range(count // CROWD):
        users = {f"default/user{bucket * CROWD + n:07}": RECORD for n in range(CROWD)}
        server.client.hset(f"presence:{{5n3}}:{bucket:04}", mapping=users)
    each = (server.memory() - before) / count
    server.client.flushall()
    return f"memory of Redis per user, {CROWD} of them in one hash", f"{each:.0f} bytes"


def _subscriptions(server: Redis) -> list[Row]:
    names = [f"watch:{{5n3}}:default/user{number:06}" for number in range(CHANNELS)]
    found = [server.memory()]
    links = []
    for _ in range(2):
        link = redis.Redis(port=server.port).pubsub()
        links.append(link)
        for first in range(0, CHANNELS, 1_000):
            link.subscribe(*names[first : first + 1_000])
            for _ in range(1_000):
                link.get_message(timeout=5)
        time.sleep(3)  # until Redis has freed its buffers
        found.append(server.memory())
    for link in links:
        link.close()
    first, second = ((after - before) / CHANNELS for before, after in pairwise(found))
    return [
        ("memory of Redis per channel with one node on it", f"{first:.0f} bytes"),
        ("memory of Redis per further node on a channel", f"{second:.0f} bytes"),
    ]


def _publishing(server: Redis) -> list[Row]:
    spent = {}
    for listeners in (1, 9):
        links = []
        for _ in range(listeners):
            link = redis.Redis(port=server.port).pubsub()
            link.subscribe("room:{5n3}:default/lobby")
            links.append(link)
        began = server.cpu_s()
        for _ in range(PUBLISHED // 16):
            pipe = server.client.pipeline(transaction=False)
            for _ in range(16):  # the number that a busy node sends at once
                pipe.publish("room:{5n3}:default/lobby", BUS_MESSAGE)
            pipe.execute()
            for link in links:
                link.connection._sock.recv(1 << 20)  # type: ignore[union-attr]  # read and discarded
        spent[listeners] = (server.cpu_s() - began) / PUBLISHED * 1e6
        for link in links:
            with suppress(redis.RedisError):
                link.close()
    further = (spent[9] - spent[1]) / 8
    return [
        ("CPU of Redis per message published to one node", f"{spent[1]:.1f} µs"),
        ("CPU of Redis per further node that hears it", f"{further:.1f} µs"),
    ]


async def _verbs(folder: Path, server: Redis) -> list[Row]:
    at_once = {"GREENDOT_PRESENCE_CLEAN_GRACE_S": "0"}
    with greendot(_command(), Access(), folder / "verbs-node", None, server.url, **at_once) as node:
        watcher = await _client(node, -1, "watcher")
        await watcher.request(type="watch", users=[f"u{n}" for n in range(CYCLES)])
        watcher.deaf_to = frozenset({"presence"})

        async def come_and_go(number: int) -> None:
            client = await _client(node, number)
            client.send(type="bye")
            await client.closed()

        began = server.cpu_s()
        await each(come_and_go, range(CYCLES))
        await asyncio.sleep(1)
        cycle = (server.cpu_s() - began) / CYCLES * 1e6
        typists = [await _client(node, number, f"typist{number}") for number in range(STARTS // ROOMS)]
        for number in range(ROOMS):
            node.request("PUT", f"/v1/rooms/{ROOM.format(number)}", {"open": True})
            for client in typists:
                await client.request(type="room.join", room=ROOM.format(number))
        began = server.cpu_s()
        await each(lambda n: _type(typists[n]), range(len(typists)))
        await asyncio.sleep(0.5)
        start = (server.cpu_s() - began) / STARTS * 1e6
        await asyncio.gather(*(client.end() for client in [watcher, *typists]))
    return [
        ("CPU of Redis per user who comes and leaves, each told to one node", f"{cycle:.0f} µs"),
        ("CPU of Redis per start of typing, told to one node", f"{start:.0f} µs"),
    ]


async def _type(client: WireClient) -> None:
    for number in range(ROOMS):
        client.send(type="typing.start", room=ROOM.format(number))
    await client.quiet()


# --- PostgreSQL ---


async def of_postgres(folder: Path) -> list[Row]:
    with running_postgres(folder / "postgres", None) as server:
        store = PostgresStore(server.url, migrate=True)
        await store.start()
        link = await asyncpg.connect(server.url)
        try:
            return await _records(server, store, link)
        finally:
            await link.close()
            await store.close()


async def _records(server: Postgres, store: PostgresStore, link: asyncpg.Connection) -> list[Row]:
    for number in range(HEADS):
        await store.put_room("default", ROOM.format(number), open=True)
    users = random.Random(7)

    async def say(number: int) -> None:
        draft = Draft(f"u{users.randrange(10_000)}", "User 1234", BODY, f"{number:016x}", number)
        await store.append("default", ROOM.format(number % 500), draft)

    async def tell(number: int) -> None:
        await store.notify(
            [Notice("default", f"u{users.randrange(10_000)}", "order.shipped", BODY, f"{number:x}", number)]
        )

    rows: list[Row] = []
    for what, work in (("message", say), ("notification", tell)):
        size, wal, spent = await _taken(server, link)
        await each(work, range(RECORDS))
        size, wal, spent = (
            after - before for after, before in zip(await _taken(server, link), (size, wal, spent), strict=True)
        )
        rows += [
            (f"PostgreSQL per {what} of 128 bytes: on disk, indexes included", f"{size / RECORDS:.0f} bytes"),
            (f"PostgreSQL per {what} of 128 bytes: write-ahead log", f"{wal / RECORDS:.0f} bytes"),
            (f"PostgreSQL per {what} of 128 bytes: CPU, {AT_ONCE} writers", f"{spent / RECORDS * 1e6:.0f} µs"),
        ]
    keys = [("default", ROOM.format(number)) for number in range(HEADS)]
    _, _, spent = await _taken(server, link)
    for _ in range(20):
        await store.heads(keys)
    _, _, after = await _taken(server, link)
    rows.append(
        (
            "PostgreSQL per head of a room that is looked up, 10,000 at once: CPU",
            f"{(after - spent) / 20 / HEADS * 1e6:.1f} µs",
        )
    )
    return rows


async def _taken(server: Postgres, link: asyncpg.Connection) -> tuple[float, float, float]:
    """Return the bytes of the tables, the bytes of the log, and the CPU seconds of all processes so far."""
    size = await link.fetchval(
        "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c WHERE relkind = 'r' AND relname LIKE 'greendot_%'"
    )
    wal = await link.fetchval("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn")
    folder = await link.fetchval("SHOW data_directory")
    postmaster = int((Path(folder) / "postmaster.pid").read_text().split()[0])
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    ticks = 0
    for pid in (postmaster, *map(int, children)):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15])) if pid == postmaster else sum(map(int, fields[11:13]))
    return float(size), float(wal), ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
