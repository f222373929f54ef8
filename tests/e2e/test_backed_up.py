"""Backup of a server under load: records acknowledged before the backup are there after the restore."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import count, takewhile
from pathlib import Path

import pytest

from e2e.processes import Process, greendot, running, until
from greendot.store.inbox import Notice
from greendot.store.postgres import PostgresStore
from greendot.store.rooms import Draft
from greendot.store.sqlite import SqliteStore
from postgres_server import execute, fresh_schema, programs

WRITERS = 6
FILLED = 8_000  # existing messages, so that the copy takes some time
FILL = """
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
    INSERT INTO messages (tenant, room, seq, id, user, body, key, at)
    SELECT 'default', 'old', i, i || '-a', 'ann', hex(zeroblob(700)), 'k' || i, 0 FROM n
"""

HEADS = """
    SELECT room, head, (SELECT count(*) FROM messages m WHERE m.room = r.room) FROM rooms r WHERE room LIKE 'of-%'
"""


class Writers:
    """Clients that send messages one after the other, an app that notifies, and the times of acknowledgements."""

    def __init__(self, server: Process) -> None:
        self._server = server
        self.acknowledged: list[tuple[float, str, int]] = []  # time, user, number
        self.notified: list[tuple[float, str]] = []  # time, key
        self.told_to_stop = False

    def _counted(self) -> Iterator[int]:
        """Count until `told_to_stop`. A cancellation could lose a result that arrives at the same moment."""
        return takewhile(lambda _: not self.told_to_stop, count())

    async def send(self, user: str) -> None:
        client = await self._server.client(user)
        try:
            await client.request(type="room.join", room=f"of-{user}")
            for number in self._counted():
                reply = await client.request(type="room.send", room=f"of-{user}", body={}, key=f"k{number}")
                self.acknowledged.append((time.monotonic(), user, reply["seq"]))
                await client.receive("room.message")
        finally:
            await client.end()

    async def notify(self) -> None:
        for number in self._counted():
            notices = [{"user": f"u{n}", "kind": "k", "body": {}, "key": f"{number}-{n}"} for n in range(20)]
            answer = await self._server.ask("POST", "/v1/notifications", {"notifications": notices})
            assert answer.status < 300, answer.body
            self.notified += [(time.monotonic(), f"{number}-{n}") for n in range(20)]


@pytest.mark.timeout(120)
async def test_a_backup_under_load_has_all_that_was_acknowledged_before_it_and_its_counters_are_right(
    tmp_path: Path,
) -> None:
    data, file = tmp_path / "data", tmp_path / "backup.db"
    data.mkdir()
    async with running(data, GREENDOT_LIMITS_ENABLED="false") as server:
        with closing(sqlite3.connect(data / "greendot.db", timeout=10)) as db:
            db.execute(FILL, (FILLED,))
            db.commit()
        for number in range(WRITERS):
            assert (await server.ask("PUT", f"/v1/rooms/of-w{number}", {"open": True})).status < 300
        writers = Writers(server)
        async with asyncio.TaskGroup() as group:
            for number in range(WRITERS):
                group.create_task(writers.send(f"w{number}"))
            group.create_task(writers.notify())
            await until(lambda: len(writers.acknowledged) > 100 and len(writers.notified) > 100)
            began = time.monotonic()
            made = await greendot(data, "backup", str(file), "--json")
            ended = time.monotonic()
            assert made.code == 0, made.err
            refused = await greendot(data, "restore", str(file), "--force")
            assert (refused.code, "Stop all of them first" in refused.err) == (2, True)
            writers.told_to_stop = True
        meanwhile = [at for at, _, _ in writers.acknowledged if began < at < ended]
        assert len(meanwhile) > WRITERS, "the backup blocked the writers"
        server.signal(signal.SIGTERM)
        await server.ended()
    put_back = await greendot(data, "restore", str(file), "--force", "--json")
    assert put_back.code == 0, put_back.err
    said = json.loads(put_back.out)
    assert said["records"] == json.loads(made.out)["records"]
    assert "greendot.db.before-" in said["kept"]
    with closing(sqlite3.connect(data / "greendot.db")) as db:
        kept = {*db.execute("SELECT user, seq FROM messages WHERE room <> 'old'")}
        keys = {row[0] for row in db.execute("SELECT key FROM notifications")}
        heads = db.execute(HEADS).fetchall()
    assert {(user, seq) for at, user, seq in writers.acknowledged if at < began} <= kept
    assert {key for at, key in writers.notified if at < began} <= keys
    assert [room for room, head, there in heads if head != there] == []
    store = SqliteStore(str(data / "greendot.db"))
    await store.start()
    assert await store.recount(fix=False) == []
    await store.close()
    # A server continues from the restored data.
    async with running(data) as server, await server.client("w0") as client:
        await client.request(type="room.join", room="of-w0")
        reply = await client.request(type="room.send", room="of-w0", body={}, key="after")
        assert reply["seq"] == max(seq for user, seq in kept if user == "w0") + 1


@pytest.mark.timeout(120)
async def test_a_server_goes_on_from_a_backup_restored_where_a_killed_one_left_its_log(tmp_path: Path) -> None:
    """Restore after the database was moved away by hand without its -wal and -shm files."""
    data, file = tmp_path / "data", tmp_path / "backup.db"
    data.mkdir()

    async def say(server: Process, text: str) -> int:
        async with await server.client("ann") as client:
            await client.request(type="room.join", room="lobby")
            seq: int = (await client.request(type="room.send", room="lobby", body=text))["seq"]
            return seq

    async with running(data) as server:
        await server.ask("PUT", "/v1/rooms/lobby", {"open": True})
        assert await say(server, "before") == 1
        assert (await greendot(data, "backup", str(file))).code == 0
        assert [await say(server, "after"), await say(server, "x" * 20_000)] == [2, 3]
        server.signal(signal.SIGKILL)
        await server.ended()
    os.rename(data / "greendot.db", tmp_path / "moved.db")
    done = await greendot(data, "restore", str(file))
    assert done.code == 0, done.err
    assert "1 message," in done.out
    assert "logs of a database that was moved" in done.out
    async with running(data) as server:
        assert await say(server, "on") == 2
    way_out = shlex.split(done.out.partition("until now, run: ")[2].splitlines()[0])
    assert (await greendot(data, *way_out[1:])).out.startswith("Revoked all tokens of all tenants."), way_out
    with closing(sqlite3.connect(data / "greendot.db")) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.timeout(120)
async def test_the_commands_printed_for_postgresql_back_up_and_restore(tmp_path: Path, postgres: str) -> None:
    """Run the commands that `greendot backup` prints for PostgreSQL."""
    environment = os.environ | {"PATH": f"{programs()}:{os.environ['PATH']}"}
    async with fresh_schema(postgres) as url:
        store = PostgresStore(url, migrate=True)
        await store.start()
        try:
            await store.put_room("default", "lobby", open=True)
            await store.append("default", "lobby", Draft("ann", None, b"{}", "k", 0))
            await store.notify([Notice("default", "ann", "k", b"{}", "k", 0)])
        finally:
            await store.close()
        for command in ("backup", "restore"):
            told = await greendot(tmp_path, command, "a dump", "--store", url)
            assert told.code == 2
            words = told.err.partition(". Run: ")[2].partition("\n")[0]
            process = await asyncio.create_subprocess_exec(*shlex.split(words), cwd=tmp_path, env=environment)
            assert await asyncio.wait_for(process.wait(), 30) == 0, words
            if command == "backup":
                await execute(url, "DELETE FROM greendot_messages; DROP TABLE greendot_notifications")
        store = PostgresStore(url)
        await store.start()
        try:
            assert await store.recount(fix=False) == []
            assert len(await store.notifications("default", "ann", limit=5)) == 1
            assert await store.message("default", "lobby", 1) is not None
        finally:
            await store.close()
