"""PostgreSQL stores for tests, and a proxy that can cut connections to the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import asyncpg

from greendot.store.postgres import PostgresStore
from greendot.store.postgres.pool import PoolLimits
from postgres_server import fresh_schema

QUICK = PoolLimits(connect_s=1, acquire_s=1, statement_s=1, lock_s=0.5, patience_s=1.5)


@asynccontextmanager
async def started(url: str, limits: PoolLimits | None = None, pool: int = 8) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url, migrate=True, limits=limits, pool=pool)
    await store.start()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def opened(url: str, limits: PoolLimits | None = None, pool: int = 8) -> AsyncIterator[PostgresStore]:
    """Open an empty store."""
    async with fresh_schema(url) as place, started(place, limits, pool) as store:
        yield store


@asynccontextmanager
async def linked(url: str) -> AsyncIterator[asyncpg.Connection]:
    link = await asyncpg.connect(url)
    try:
        yield link
    finally:
        await link.close()


class Wire:
    """Proxy between a store and PostgreSQL. For `cut_commits` commits it drops the link after the commit, before the
    answer."""

    def __init__(self) -> None:
        self.cut_commits = 0
        self.cut = 0  # number of commits that were cut


@asynccontextmanager
async def wired(url: str) -> AsyncIterator[tuple[str, Wire]]:
    """Yield the URL of a proxy to the server, and the proxy."""
    place, wire = urlsplit(url), Wire()
    writers: set[asyncio.StreamWriter] = set()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(place.hostname, place.port)
        writers.update((writer, back))
        last = b""

        async def forth() -> None:
            nonlocal last
            while last := await reader.read(65536):
                back.write(last)
            back.close()

        async def home() -> None:
            while answer := await there.read(65536):
                if wire.cut_commits and b"COMMIT\0" in last:
                    wire.cut_commits, wire.cut = wire.cut_commits - 1, wire.cut + 1
                    break
                writer.write(answer)
            writer.transport.abort()
            back.transport.abort()

        with suppress(OSError):
            await asyncio.gather(forth(), home())

    server = await asyncio.start_server(carry, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield place._replace(netloc=place.netloc.rpartition("@")[0] + f"@127.0.0.1:{port}").geturl(), wire
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()


async def blocked_by(link: asyncpg.Connection, watcher: asyncpg.Connection, statement: str) -> None:
    """Wait until a backend waits for a lock that `link` holds, in a statement that contains `statement`."""
    sql = "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)) AND query LIKE $2"
    async with asyncio.timeout(10):
        while not await watcher.fetchval(sql, link.get_server_pid(), f"%{statement}%"):  # noqa: ASYNC110  (no event)
            await asyncio.sleep(0.005)
