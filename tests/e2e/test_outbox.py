"""Real servers that relay an app outbox and are killed meanwhile."""

from __future__ import annotations

import asyncio
import re
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import asyncpg

from e2e.processes import Process, ask, greendot, running, until
from greendot.store.postgres import PostgresOutbox, PostgresStore
from postgres_server import fresh_schema

SAY = "INSERT INTO greendot_outbox (target, room, user_id, name, body) VALUES ('message', $1, 'shop', 'The shop', $2)"
TELL = "INSERT INTO greendot_outbox (target, user_id, kind, body) VALUES ('notification', $1, 'order', $2)"
STREAMS = 12


async def metric(server: Process, name: str) -> int:
    found = re.search(rf"^{name}{{.*}} (\S+)$", (await server.ask("GET", "/metrics")).body.decode(), re.MULTILINE)
    assert found, name
    return int(float(found[1]))


async def test_committed_rows_of_an_app_arrive_in_the_room_and_in_the_inbox_at_once(
    tmp_path: Path, postgres: str
) -> None:
    settings = {"GREENDOT_STORE_MIGRATE": "true", "GREENDOT_OUTBOX_URL": "store", "GREENDOT_OUTBOX_POLL_S": "30"}
    async with AsyncExitStack() as stack:
        place = await stack.enter_async_context(fresh_schema(postgres))
        server = await stack.enter_async_context(running(tmp_path, "--store", place, **settings))
        app = await asyncpg.connect(place)
        stack.push_async_callback(app.close)
        await server.ask("PUT", "/v1/rooms/club", {"open": True})
        alice = await stack.enter_async_context(await server.client("alice"))
        await alice.request(type="room.join", room="club")
        async with app.transaction():
            for number in range(3):
                await app.execute(SAY, "club", f'{{"n": {number}}}')
            await app.execute(SAY, "nowhere", "1")
            await app.execute(TELL, "alice", '{"order": 17}')
        frames: dict[str, list[Any]] = {"room.message": [], "notification.created": [], "inbox.badge": []}
        while [len(of) for of in frames.values()] != [3, 1, 1]:  # the inbox and the room have no common order
            frame = await alice.receive()
            if frame["type"] in frames:
                frames[frame["type"]].append(frame["data"])
        heard, (told,), (badge,) = frames.values()
        assert [(message["seq"], message["body"]) for message in heard] == [(n + 1, {"n": n}) for n in range(3)]
        assert (heard[0]["user"], heard[0]["name"]) == ("shop", "The shop")
        assert badge == {"unread": 1, "unseen": 1}
        assert (told["seq"], told["kind"], told["body"]) == (1, "order", {"order": 17})
        assert await metric(server, "outbox_relay_up") == 1
        async with asyncio.timeout(10):
            while await metric(server, "outbox_set_aside_total") != 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        server.signal(signal.SIGTERM)
        ended = await server.ended()
        assert (ended.code, "there is no room 'nowhere'" in ended.err) == (0, True)


async def test_a_server_killed_while_it_relays_leaves_its_shards_to_the_others(tmp_path: Path, postgres: str) -> None:
    settings = {"GREENDOT_OUTBOX_URL": "store", "GREENDOT_OUTBOX_POLL_S": "0.3"}
    async with AsyncExitStack() as stack:
        place = await stack.enter_async_context(fresh_schema(postgres))
        store = PostgresStore(place, migrate=True)
        await store.start()
        stack.push_async_callback(store.close)
        app = await asyncpg.connect(place)
        stack.push_async_callback(app.close)
        await store.put_room("default", "club", open=True)
        servers = [await stack.enter_async_context(running(tmp_path, "--store", place, **settings)) for _ in range(2)]
        for server in servers:
            async with asyncio.timeout(10):
                while await metric(server, "outbox_shards") != 8:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

        told = 0

        async def orders() -> None:
            nonlocal told
            for number in range(400):
                async with app.transaction():
                    await app.execute(TELL, f"u{number % STREAMS}", str(number))
                    await app.execute(SAY, "club", str(number))
                told = number

        writing = asyncio.ensure_future(orders())
        try:
            await until(lambda: told > 100)
            await servers[0].kill()
            await writing
            async with asyncio.timeout(15):
                while (await PostgresOutbox(place).status(0)).waiting:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        finally:
            writing.cancel()
        said = await store.messages("default", "club", after=0, limit=1_000)
        assert [record.body for record in said] == [b"%d" % number for number in range(400)]
        for user in range(STREAMS):
            found = await store.notifications("default", f"u{user}", after=0, limit=1_000)
            assert [entry.body for entry in found] == [b"%d" % number for number in range(user, 400, STREAMS)]
        assert await metric(servers[1], "outbox_shards") == 16


async def test_a_server_upgrades_an_older_outbox_if_it_may_and_relays_it_in_any_case(
    tmp_path: Path, postgres: str
) -> None:
    async with fresh_schema(postgres) as place, AsyncExitStack() as stack:
        await PostgresOutbox(place).install()
        app = await asyncpg.connect(place)
        stack.push_async_callback(app.close)
        older = "ALTER TABLE greendot_outbox DROP COLUMN importance, DROP COLUMN collapse_key, DROP COLUMN push"
        await app.execute(older)
        async with running(tmp_path, GREENDOT_OUTBOX_URL=place) as server:
            await app.execute(TELL, "alice", "1")
            async with asyncio.timeout(10):
                while await metric(server, "outbox_relayed_total") != 1:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            server.signal(signal.SIGTERM)
            assert "has no columns for importance" in (await server.ended()).err
        assert not await PostgresOutbox(place).check()
        role = "outbox_server"  # may read and change rows, not the table
        await app.execute(f"DROP ROLE IF EXISTS {role}; CREATE ROLE {role} LOGIN")
        schema = place.rpartition("=")[2]
        await app.execute(
            f"GRANT USAGE ON SCHEMA {schema} TO {role}; GRANT SELECT, UPDATE, DELETE ON greendot_outbox TO {role}"
        )
        try:
            url = place.replace("postgres@", f"{role}@")
            async with running(tmp_path, "--dev", GREENDOT_OUTBOX_URL=url) as server:
                server.signal(signal.SIGTERM)
                said = (await server.ended()).err
                assert "outbox.old" in said
                assert "permission denied" in said
        finally:
            await app.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
        async with app.transaction():  # the table cannot be changed while a transaction of the app uses it
            await app.execute(TELL, "alice", "2")
            async with running(tmp_path, "--dev", GREENDOT_OUTBOX_URL=place) as server:
                server.signal(signal.SIGTERM)
                assert "lock timeout" in (await server.ended()).err
        async with running(tmp_path, "--dev", GREENDOT_OUTBOX_URL=place):
            assert await PostgresOutbox(place).check()


async def test_a_server_waits_for_an_outbox_that_is_away_and_refuses_one_that_was_never_made(
    tmp_path: Path, postgres: str
) -> None:
    async with fresh_schema(postgres) as place:
        ended = await greendot(tmp_path, "serve", "--port", "0", GREENDOT_OUTBOX_URL=place)
        assert ended.code == 2
        assert "run `greendot outbox install --url URL` once" in ended.err
        async with running(tmp_path, "--dev", GREENDOT_OUTBOX_URL=place):
            await PostgresOutbox(place).check()
    nowhere = "postgresql://app:hush@127.0.0.1:1/app"
    async with running(tmp_path, GREENDOT_OUTBOX_URL=nowhere) as server:
        assert (await ask(server.port, "GET", "/readyz")).status == 200
        assert await metric(server, "outbox_relay_up") == 0
        server.signal(signal.SIGTERM)
        assert "hush" not in (await server.ended()).err
