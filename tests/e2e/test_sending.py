"""Acknowledged messages survive and others can be sent again, while servers are killed and databases restarted."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from e2e.processes import Process, running, until
from greendot.testing import Closed, WireClient
from postgres_server import PostgresProcess, fresh_schema, postgres_server

SENDERS = 6
UNLIMITED = {"GREENDOT_LIMITS_ENABLED": "false"}
KILL = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'greendot-under-test'"


class Sender:
    """Client that sends messages one after the other, each again with its key until it is acknowledged."""

    def __init__(self, user: str) -> None:
        self.user = user
        self.keys: list[str] = []  # keys of all attempts; only the last can be unacknowledged
        self.acknowledged: dict[str, int] = {}
        self.errors: list[dict[str, Any]] = []
        self.told: set[tuple[int, str]] = set()
        self.enough = False

    async def send(self, server: Process) -> None:
        """Send until the server ends or `enough` is set."""
        try:
            async with await server.client(self.user) as client:
                await client.request(type="room.join", room="club")
                while not self.enough:
                    await self._send_one(client)
        except (Closed, ConnectionError):
            pass

    async def _send_one(self, client: WireClient) -> None:
        if not self.keys or self.keys[-1] in self.acknowledged:
            self.keys.append(f"{self.user}-{len(self.keys)}")
        key = self.keys[-1]
        client.send(type="room.send", room="club", body=key, key=key, id=key)
        while True:
            frame = await client.receive()
            if frame["type"] == "room.message":
                self.told.add((frame["data"]["seq"], frame["data"]["body"]))
            elif frame.get("id") == key:
                break
        if frame["type"] == "reply":
            self.acknowledged[key] = frame["data"]["seq"]
        else:
            self.errors.append(frame)
            await asyncio.sleep(0.05)


async def said(server: Process) -> list[tuple[int, str]]:
    """Return all messages of the room."""
    found: list[tuple[int, str]] = []
    while True:
        page = (await server.ask("GET", f"/v1/rooms/club/messages?after={len(found)}&limit=200")).json()["messages"]
        if not page:
            return found
        found += [(message["seq"], message["body"]) for message in page]


def check(senders: list[Sender], found: list[tuple[int, str]]) -> None:
    """Check that numbers have no gaps, acknowledged messages have their number, and no message is there twice."""
    assert [seq for seq, _ in found] == [*range(1, len(found) + 1)]
    bodies = [body for _, body in found]
    assert len({*bodies}) == len(bodies)
    by_body = {body: seq for seq, body in found}
    for sender in senders:
        assert {key: by_body.get(key) for key in sender.acknowledged} == sender.acknowledged
        assert sender.told <= {*found}
        assert {*by_body} & {*sender.keys} >= {*sender.keys[:-1]}
    assert {*by_body} <= {key for sender in senders for key in sender.keys}


@asynccontextmanager
async def sending(senders: list[Sender], server: Process) -> AsyncIterator[None]:
    """Let the senders send during the block, or until the server ends."""
    for sender in senders:
        sender.enough = False
    tasks = [asyncio.create_task(sender.send(server)) for sender in senders]
    try:
        yield
    finally:
        for sender in senders:
            sender.enough = True
        await asyncio.gather(*tasks)


def count(senders: list[Sender]) -> int:
    return sum(len(sender.acknowledged) for sender in senders)


async def more(senders: list[Sender], number: int) -> None:
    """Wait for `number` more acknowledgements."""
    wanted = count(senders) + number
    await until(lambda: count(senders) >= wanted)


async def settled(senders: list[Sender]) -> None:
    """Wait until all earlier attempts are acknowledged."""
    tried = [(sender, len(sender.keys)) for sender in senders]
    await until(lambda: all(len(sender.acknowledged) >= number for sender, number in tried))


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_server_killed_at_any_point_of_a_send_loses_and_repeats_nothing(
    kind: str, tmp_path: Path, postgres: str
) -> None:
    moments = random.Random(f"{kind} 4")
    senders = [Sender(f"s{number}") for number in range(SENDERS)]
    async with fresh_schema(postgres) as schema:
        place = schema if kind == "postgres" else f"sqlite:///{tmp_path}/records.db"
        environment = UNLIMITED | {"GREENDOT_STORE_MIGRATE": "true"}
        for _ in range(4):
            async with running(tmp_path, "--store", place, **environment) as server:
                await server.ask("PUT", "/v1/rooms/club", {"open": True})
                async with sending(senders, server):
                    await more(senders, moments.randint(1, 120))
                    await asyncio.sleep(moments.uniform(0, 0.005))  # at a random point within a send
                    await server.kill()
        async with running(tmp_path, "--store", place, **environment) as server:
            check(senders, await said(server))
            async with sending(senders, server):  # unacknowledged messages are sent again
                await settled(senders)
            check(senders, await said(server))


@asynccontextmanager
async def on_a_server_of_its_own(folder: Path) -> AsyncIterator[tuple[PostgresProcess, Process]]:
    with postgres_server() as database:
        place = f"{database.url}?application_name=greendot-under-test"
        flags = ("--store", place)
        async with running(folder, *flags, GREENDOT_STORE_MIGRATE="true", **UNLIMITED) as server:
            await server.ask("PUT", "/v1/rooms/club", {"open": True})
            yield database, server


async def crashed(database: PostgresProcess) -> None:
    database.end(signal.SIGQUIT)
    database.start()


async def restarted(database: PostgresProcess) -> None:
    database.end(signal.SIGINT)
    database.start()


async def away_for_a_while(database: PostgresProcess) -> None:
    database.end(signal.SIGQUIT)
    await asyncio.sleep(3)
    database.start()


async def disconnected(database: PostgresProcess) -> None:
    link = await asyncpg.connect(database.url)
    try:
        for _ in range(5):
            await link.execute(KILL)
            await asyncio.sleep(0.05)
    finally:
        await link.close()


@pytest.mark.parametrize("happens", [crashed, restarted, away_for_a_while, disconnected])
async def test_under_load_a_database_that_goes_away_loses_nothing_and_the_server_heals(
    happens: Callable[[PostgresProcess], Awaitable[None]], tmp_path: Path
) -> None:
    senders = [Sender(f"s{number}") for number in range(SENDERS)]
    async with on_a_server_of_its_own(tmp_path) as (database, server):
        async with sending(senders, server):
            for _ in range(2):
                await more(senders, 50)
                await happens(database)
            await more(senders, 50)  # the same sockets recover by themselves
        for sender in senders:
            assert all(error["code"] == "unavailable" and error["retry"] for error in sender.errors)
        async with sending(senders, server):
            await settled(senders)
        check(senders, await said(server))
        assert (await server.ask("GET", "/readyz")).status == 200
