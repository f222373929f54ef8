"""A sender is killed at any point of a send: what it was told is there, and the rest can be sent again."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from greendot.store.base import Inbox, Store
from greendot.store.postgres import PostgresStore
from greendot.store.sqlite import SqliteStore
from greendot.testing.store_harness import T, draft, notice, numbers, recounted
from postgres_server import fresh_schema

SENDER = """
import asyncio, sys
from greendot.store.postgres import PostgresStore
from greendot.store.sqlite import SqliteStore
from greendot.testing.store_harness import T, draft, notice

async def send(store, life, writer):
    for number in range(10**9):
        key = f"{life}-{writer}-{number}"
        print("sends", key, flush=True)
        written = await store.append(T, "r1", draft(key=key))
        (created, _) = await store.notify([notice("ann", key), notice(f"u{writer}", key)])
        print("sent", key, written.record.seq, written.record.id, created.notification.seq, flush=True)

async def main(place, life):
    store = PostgresStore(place) if place.startswith("postgresql:") else SqliteStore(place)
    await store.start()
    await asyncio.gather(*(send(store, life, writer) for writer in range(6)))

asyncio.run(main(*sys.argv[1:]))
"""


@asynccontextmanager
async def opened(kind: str, folder: Path, server: str) -> AsyncIterator[tuple[Store, str]]:
    """A store, and where it is."""
    if kind == "sqlite":
        place = str(folder / "store.db")
        store: Store = SqliteStore(place)
        await store.start()
        try:
            yield store, place
        finally:
            await store.close()
        return
    async with fresh_schema(server) as place:
        store = PostgresStore(place, migrate=True)
        await store.start()
        try:
            yield store, place
        finally:
            await store.close()


def killed_while_sending(place: str, life: str, lines: int) -> list[list[str]]:
    """What the process said before it was killed, word by word."""
    with subprocess.Popen([sys.executable, "-c", SENDER, place, life], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(lines)]
        process.send_signal(signal.SIGKILL)
        said += process.stdout.read().rpartition("\n")[0].splitlines()  # its last words may be cut off in the middle
    assert process.returncode == -signal.SIGKILL
    return [line.split() for line in said]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_sender_killed_at_any_point_loses_nothing_and_repeats_nothing(
    kind: str, tmp_path: Path, postgres: str
) -> None:
    moments = random.Random(f"{kind} 4")
    async with opened(kind, tmp_path, postgres) as (store, place):
        await store.put_room(T, "r1", open=True)
        keys: list[str] = []
        for life in range(5):
            said = killed_while_sending(place, str(life), moments.randint(1, 150))
            tried = [words[1] for words in said if words[0] == "sends"]
            told = {words[1]: words[2:] for words in said if words[0] == "sent"}
            for key in tried:
                written = await store.append(T, "r1", draft(key=key))
                created, _ = await store.notify([notice("ann", key), notice(f"u{key.split('-')[1]}", key)])
                assert written is not None
                if key in told:
                    assert (written.new, created.new) == (False, False)
                    record = written.record
                    assert told[key] == [str(record.seq), record.id, str(created.notification.seq)]
            keys += tried
            assert await numbers(store) == [*range(1, len(keys) + 1)]
            assert await recounted(store) == Inbox(len(keys), len(keys), len(keys))
