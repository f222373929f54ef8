"""A sender that is killed at any point of a send: acknowledged records exist, and the rest can be sent again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Self

import pytest

from greendot.store.inbox import Inbox
from greendot.store.port import Store
from greendot.store.postgres import PostgresStore
from greendot.store.sqlite import SqliteStore
from greendot.testing.store_harness import T, draft, notice, numbers, recounted
from postgres_server import fresh_schema

# The process forks for each line it reads, because loading a store takes longer than the life of a sender.
SENDER = """
import asyncio, os, sys
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

for life in sys.stdin:
    if (child := os.fork()) == 0:
        print("life", os.getpid(), flush=True)
        asyncio.run(main(sys.argv[1], life.strip()))
    _, status = os.waitpid(child, 0)
    print("", "ended", os.waitstatus_to_exitcode(status), sep="\\n", flush=True)
"""


@asynccontextmanager
async def opened(kind: str, folder: Path, server: str) -> AsyncIterator[tuple[Store, str]]:
    """Open a store and yield it with its URL."""
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


class Senders:
    """Processes that send, one after the other."""

    def __init__(self, place: str) -> None:
        command = [sys.executable, "-c", SENDER, place]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._lives, self._said = self._process.stdin, self._process.stdout

    def killed_while_sending(self, life: str, lines: int) -> list[list[str]]:
        """Kill a sender after `lines` lines of output. Return all its complete lines, split into words."""
        print(life, file=self._lives, flush=True)
        _, pid = self._said.readline().split()
        said = [self._said.readline() for _ in range(lines)]
        os.kill(int(pid), signal.SIGKILL)
        while (line := self._said.readline()) != "ended\n":
            said.append(line)
        assert int(self._said.readline()) == -signal.SIGKILL
        return [line.split() for line in said[:-1]]  # the last line may be incomplete

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        with self._process:
            self._lives.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_sender_killed_at_any_point_loses_nothing_and_repeats_nothing(
    kind: str, tmp_path: Path, postgres: str
) -> None:
    moments = random.Random(f"{kind} 4")
    async with AsyncExitStack() as stack:
        store, place = await stack.enter_async_context(opened(kind, tmp_path, postgres))
        senders = stack.enter_context(Senders(place))
        await store.put_room(T, "r1", open=True)
        keys: list[str] = []
        for life in range(5):
            said = senders.killed_while_sending(str(life), moments.randint(1, 150))
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
