"""Real servers that keep their records in a real PostgreSQL."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import asyncpg

from e2e.processes import ask, greendot, running
from e2e.test_workers import hears, on_two_workers
from postgres_server import fresh_schema
from redis_servers import redis_server


async def test_a_server_waits_for_its_tables_unless_it_may_make_them(tmp_path: Path, postgres: str) -> None:
    async with fresh_schema(postgres) as place:
        ended = await greendot(tmp_path, "serve", "--port", "0", "--store", place)
        assert ended.code == 2
        assert "Run `greendot migrate`" in ended.err
        async with running(tmp_path, "--store", place, GREENDOT_STORE_MIGRATE="true") as server:
            assert (await server.ask("PUT", "/v1/rooms/club", {"open": True})).status == 200
    async with fresh_schema(postgres) as place, running(tmp_path, "--dev", "--store", place) as server:
        assert (await server.ask("GET", "/v1/rooms/lobby")).json()["open"]


async def test_workers_share_their_records_in_postgres(tmp_path: Path, postgres: str) -> None:
    async with fresh_schema(postgres) as place, AsyncExitStack() as stack:
        redis = stack.enter_context(redis_server("redis", tmp_path / "redis"))
        migrated = await greendot(tmp_path, "migrate", "--store", place)
        assert migrated.code == 0, migrated.err
        flags = ("--host", "127.0.0.1", "--workers", "2", "--engine", f"redis://127.0.0.1:{redis}", "--store", place)
        server = await stack.enter_async_context(running(tmp_path, *flags, GREENDOT_STORE_POOL="2"))
        assert "Store: postgresql://127.0.0.1" in server.announced
        assert "postgres@" not in server.announced
        await server.ask("PUT", "/v1/rooms/club", {"open": True})
        clients = await on_two_workers(server, stack, "alice", "bob")
        for client in clients:
            await client.request(type="room.join", room="club")
        for number in range(10):
            await clients[number % 2].request(type="room.send", room="club", body=number)
        for client in clients:
            assert sorted([(await hears(client, "room.message"))["seq"] for _ in range(10)]) == [*range(1, 11)]
        history = (await server.ask("GET", "/v1/rooms/club/messages")).json()["messages"]
        assert [(message["seq"], message["body"]) for message in history] == [(n + 1, n) for n in range(10)]


async def test_a_server_goes_on_when_its_connections_are_killed(tmp_path: Path, postgres: str) -> None:
    async with (
        fresh_schema(postgres) as place,
        running(tmp_path, "--store", f"{place}&application_name=to-be-killed", GREENDOT_STORE_MIGRATE="true") as server,
    ):
        await server.ask("PUT", "/v1/rooms/club", {"open": True})
        link = await asyncpg.connect(postgres)
        try:
            for number in range(1, 6):
                await link.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'to-be-killed'"
                )
                body = {"user": "app", "body": number, "key": f"k{number}"}
                answers = await asyncio.gather(*(server.ask("POST", "/v1/rooms/club/messages", body) for _ in range(3)))
                assert {(answer.status, answer.json()["seq"]) for answer in answers} == {(201, number)}
        finally:
            await link.close()
        assert (await ask(server.port, "GET", "/readyz")).status == 200


async def test_text_no_database_holds_is_a_bad_field(tmp_path: Path, postgres: str) -> None:
    async with (
        fresh_schema(postgres) as place,
        running(tmp_path, "--store", place, GREENDOT_STORE_MIGRATE="true") as server,
    ):
        await server.ask("PUT", "/v1/rooms/club", {"open": True})
        body = {"user": "app", "name": "nul\0", "body": 1}
        refused = await server.ask("POST", "/v1/rooms/club/messages", body)
        assert (refused.status, refused.json()["code"]) == (400, "bad_field")
        async with await server.client("alice") as alice:
            alice.send(type="status.set", status="busy", text="\0")
            assert (await alice.receive("error"))["code"] == "bad_field"
        assert (await server.ask("GET", "/v1/rooms/club/messages")).json()["messages"] == []
