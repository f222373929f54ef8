"""App outbox in PostgreSQL: in the app's database, or in the store's.

A session is one connection. It listens for new rows and holds an advisory lock per shard. The locks end with the
connection: at once if the process is killed, and with the server's keepalives if its machine is gone. If the process
stalls, timeouts of the server or other sessions end the connection. Two sessions on one shard do no harm: both send the
same rows in the same order.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeVar

import asyncpg

from greendot.errors import ConfigError
from greendot.store.app_outbox import (
    MOST_BODY,
    SHARDS,
    Outbox,
    OutboxRow,
    OutboxSession,
    OutboxStatus,
    Poison,
    SetAside,
)
from greendot.store.postgres.migrations import LOCK, outbox_sql
from greendot.store.postgres.pool import END_STALLED, Link, place, translated, words

T = TypeVar("T")

CHANNEL = "greendot_outbox"
CONNECT_S = 3.0
CALL_S = 10.0
COUNT_LIMIT_S = 1.0  # limit of a count: no rows are read meanwhile
SILENT_S = 10.0  # idle time, beside two polls, after which the server ends a session and frees its shards
_CLASS = 0x67726E64  # "grnd": keeps the advisory locks apart from locks of the app
_PRESENT = SHARDS  # lock that all relays share: the number of its holders is the number of relays

_SETTINGS = {
    "statement_timeout": f"{CALL_S * 900:.0f}ms",
    "lock_timeout": "2s",
    "default_transaction_isolation": "read committed",
    "enable_seqscan": "off",  # a plan cached while the table was empty is still used when it has a million rows
    "jit": "off",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "3",
    "tcp_keepalives_count": "3",
}
_COLUMNS = """
    SELECT attname::text FROM pg_attribute
    WHERE attrelid = to_regclass('greendot_outbox') AND attnum > 0 AND NOT attisdropped
"""
_THERE = f"SELECT to_regclass('greendot_outbox')::oid::bigint, ARRAY({_COLUMNS})"
_NEWEST = {"importance", "collapse_key", "push"}  # columns that a table of an earlier version does not have
_HELD = """
    SELECT objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = $1 AND objsubid = 2
       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
_END_STALLED = f"""{END_STALLED} AND pid IN (
    SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = $2 AND objsubid = 2
)"""
WAITING = """
    SELECT s FROM unnest($1::int[]) s
    WHERE EXISTS (SELECT FROM greendot_outbox o WHERE o.shard = s AND o.failed_at IS NULL)
"""
OLDEST = """
    SELECT coalesce(extract(epoch FROM clock_timestamp() - min(created_at)), 0)::float8
    FROM unnest($1::int[]) s, LATERAL (
        SELECT created_at FROM greendot_outbox o WHERE o.shard = s AND o.failed_at IS NULL ORDER BY o.id LIMIT 1
    ) first WHERE isfinite(created_at)
"""
# Bitmap scans are off: such a plan reads the whole backlog before it counts the first row.
COUNT_SETTINGS = "SET LOCAL enable_bitmapscan = off; SET LOCAL statement_timeout = '{:.0f}ms'"
COUNT = """
    SELECT count(*) FROM (
        SELECT FROM unnest($1::int[]) s, LATERAL (
            SELECT FROM greendot_outbox o WHERE o.shard = s AND o.failed_at IS NULL ORDER BY o.id LIMIT $2
        ) waiting LIMIT $2
    ) counted
"""
# In a table without one of the newest columns its name means the column of `absent`. If the column is added later, the
# server analyses a prepared statement again, and the name means the new column.
TAKE = f"""
    SELECT o.* FROM (SELECT NULL::text AS importance, NULL::text AS collapse_key, NULL::boolean AS push) AS absent,
    LATERAL (
        SELECT id, tenant, target, user_id, room, kind, name, left(body::text, {MOST_BODY}), key,
               extract(epoch FROM created_at)::float8 AS created_s, extract(epoch FROM expires_at)::float8,
               importance, collapse_key, push
        FROM greendot_outbox WHERE shard = $1 AND failed_at IS NULL ORDER BY id LIMIT $2
    ) o ORDER BY o.id
"""
_DONE = "DELETE FROM greendot_outbox WHERE shard = $1 AND id = ANY($2::bigint[])"
_ASIDE = """
    UPDATE greendot_outbox o SET attempts = attempts + 1, error = a.error, failed_at = clock_timestamp()
    FROM unnest($2::bigint[], $3::text[]) AS a (id, error) WHERE o.shard = $1 AND o.id = a.id
"""
_MADE = f"""
    SELECT c.relkind::text || c.relname FROM pg_class c
    WHERE relnamespace = current_schema()::regnamespace AND relname LIKE 'greendot\\_outbox%' AND relkind IN ('r', 'i')
    UNION ALL SELECT 't' || tgname FROM pg_trigger WHERE tgrelid = to_regclass('greendot_outbox') AND NOT tgisinternal
    UNION ALL SELECT 'c' || attname FROM ({_COLUMNS}) AS named
"""
_NOUNS = {"r": "table", "c": "column", "i": "index", "t": "trigger"}
_WAITING_NOW = """
    SELECT count(*), (extract(epoch FROM min(created_at) FILTER (WHERE isfinite(created_at))) * 1000)::bigint
    FROM greendot_outbox WHERE failed_at IS NULL
"""
_SET_ASIDE = "SELECT count(*) FROM greendot_outbox WHERE failed_at IS NOT NULL"
_POISON = """
    SELECT id, tenant, target, user_id, room, attempts, error, (extract(epoch FROM failed_at) * 1000)::bigint
    FROM greendot_outbox WHERE failed_at IS NOT NULL ORDER BY id LIMIT $1
"""
_RETRY = """
    UPDATE greendot_outbox SET failed_at = NULL
    WHERE failed_at IS NOT NULL AND ($1::bigint[] IS NULL OR id = ANY($1::bigint[])) RETURNING id
"""


class PostgresOutbox:
    """PostgreSQL adapter of `Outbox`. `poll_s`: longest time between two statements of a live session."""

    def __init__(self, url: str, poll_s: float = 1.0) -> None:
        self._url = url
        self._silent_ms = round((2 * poll_s + SILENT_S) * 1000)

    @property
    def place(self) -> str:
        """Return the URL without user, password and options."""
        return place(self._url)

    @asynccontextmanager
    async def session(self, wake: Callable[[], None]) -> AsyncIterator[OutboxSession]:
        silent = str(self._silent_ms)
        link = await self._connect({"idle_session_timeout": silent, "idle_in_transaction_session_timeout": silent})
        try:
            session = _Session(link, self._silent_ms)
            oid, _ = await session.do(self._table)
            await session.open(oid, wake)
            yield session
        finally:
            await _close(link)

    async def check(self) -> bool:
        link = await self._connect({})
        try:
            _, columns = await self._table(link)
            return columns >= _NEWEST
        except asyncpg.PostgresError as error:
            raise translated(error) from None
        finally:
            await _close(link)

    async def install(self, lock_s: float = 0.0) -> list[str]:
        async def work(link: Link) -> list[str]:
            async with link.transaction():
                await link.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
                before = {row[0] for row in await link.fetch(_MADE)}
                if "rgreendot_outbox" in before:
                    await self._table(link)
                await link.execute(outbox_sql())
                made = {row[0] for row in await link.fetch(_MADE)} - before
                if "rgreendot_outbox" in made:
                    made = {name for name in made if name[0] != "c"}  # the columns of a new table are not worth a word
                return [
                    f"{noun} {name[1:]}" for kind, noun in _NOUNS.items() for name in sorted(made) if name[0] == kind
                ]

        return await self._once(work, lock_s)

    async def status(self, most: int) -> OutboxStatus:
        async def work(link: Link) -> OutboxStatus:
            async with link.transaction(isolation="repeatable_read", readonly=True):  # counts and rows of one moment
                await self._table(link)
                waiting, oldest_at = (await link.fetch(_WAITING_NOW))[0]
                poison = [Poison(*row) for row in await link.fetch(_POISON, most)]
                return OutboxStatus(waiting, oldest_at, await link.fetchval(_SET_ASIDE), poison)

        return await self._once(work)

    async def retry(self, ids: Sequence[int] | None) -> list[int]:
        async def work(link: Link) -> list[int]:
            await self._table(link)
            rows = await link.fetch(_RETRY, ids)
            await link.execute(f"NOTIFY {CHANNEL}")
            return sorted(row[0] for row in rows)

        return await self._once(work)

    async def _once(self, work: Callable[[Link], Awaitable[T]], lock_s: float = 0.0) -> T:
        """Run `work` on its own connection, without a statement timeout. For operators: errors become ConfigError."""
        try:
            link = await self._connect({"statement_timeout": "0", "lock_timeout": f"{lock_s * 1000:.0f}ms"})
            try:
                return await work(link)
            finally:
                await _close(link)
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(f"cannot use the outbox at {self.place}: {words(error)}") from None

    async def _connect(self, settings: dict[str, str]) -> Any:
        name = {} if "application_name=" in self._url else {"application_name": "greendot-outbox"}
        try:
            return await asyncpg.connect(self._url, timeout=CONNECT_S, server_settings=_SETTINGS | settings | name)
        except (ValueError, OverflowError) as error:
            raise ConfigError(f"cannot use the outbox at {self.place}: {words(error)}") from None
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
            raise translated(error) from None

    async def _table(self, link: Link) -> tuple[int, set[str]]:
        """Return the oid and the columns of the table. ConfigError if the table is missing or outdated."""
        oid, columns = (await link.fetch(_THERE))[0]
        if oid is None:
            raise ConfigError(
                f"there is no table greendot_outbox at {self.place}: run `greendot outbox install --url URL` once."
            )
        if "shard" not in columns:
            raise ConfigError(
                f"the table greendot_outbox at {self.place} is outdated. Wait until its rows have been sent, DROP it, "
                "and run `greendot outbox install --url URL`."
            )
        return int(oid), {*columns}


class _Session:
    """PostgreSQL adapter of `OutboxSession`."""

    def __init__(self, link: Any, silent_ms: int) -> None:
        self._link = link
        self._silent = timedelta(milliseconds=silent_ms)
        self._turn = asyncio.Lock()  # a connection runs one statement at a time
        self._base = 0
        self._mine: set[int] = set()

    async def open(self, table: int, wake: Callable[[], None]) -> None:
        self._base = (table & 0x3FFFFFF) << 5  # separate locks for each outbox in this database
        self._link.add_termination_listener(lambda _: wake())

        async def work(link: Link) -> None:
            await link.add_listener(CHANNEL, lambda *_: wake())
            await link.execute("SELECT pg_advisory_lock_shared($1, $2)", _CLASS, self._base + _PRESENT)

        await self.do(work)

    async def claim(self, busy: Collection[int]) -> frozenset[int]:
        async def work(link: Link) -> None:
            await link.fetch(_END_STALLED, self._silent, _CLASS)
            held = [row[0] - self._base for row in await link.fetch(_HELD, _CLASS)]
            share = -(-SHARDS // max(1, held.count(_PRESENT)))
            free = [shard for shard in range(SHARDS) if shard not in held]
            random.shuffle(free)  # relays that start together must not all try the same shards
            while free and len(self._mine) < share:
                shard = free.pop()
                if await link.fetchval("SELECT pg_try_advisory_lock($1, $2)", _CLASS, self._base + shard):
                    self._mine.add(shard)
            for shard in sorted(self._mine - set(busy)):
                if len(self._mine) > share:
                    self._mine.discard(shard)
                    await link.execute("SELECT pg_advisory_unlock($1, $2)", _CLASS, self._base + shard)

        await self.do(work)
        return frozenset(self._mine)

    async def waiting(self, shards: Collection[int]) -> list[int]:
        return [row[0] for row in await self.do(lambda link: link.fetch(WAITING, [*shards]))]

    async def depth(self, shards: Collection[int], most: int) -> tuple[int | None, float]:
        async def work(link: Link) -> tuple[int | None, float]:
            oldest_s = max(0.0, await link.fetchval(OLDEST, [*shards]))
            try:
                async with link.transaction():
                    await link.execute(COUNT_SETTINGS.format(COUNT_LIMIT_S * 1000))
                    return await link.fetchval(COUNT, [*shards], most), oldest_s
            except asyncpg.PostgresError:  # most likely a timeout; the connection and its locks are intact
                return None, oldest_s

        return await self.do(work)

    async def take(self, shard: int, limit: int) -> list[OutboxRow]:
        return [OutboxRow(*row) for row in await self.do(lambda link: link.fetch(TAKE, shard, limit))]

    async def settle(self, shard: int, done: Sequence[int], aside: Sequence[SetAside]) -> None:
        async def work(link: Link) -> None:
            async with link.transaction():
                if done:
                    await link.execute(_DONE, shard, done)
                if aside:
                    await link.execute(_ASIDE, shard, [row.id for row in aside], [row.reason for row in aside])

        await self.do(work)

    async def do(self, work: Callable[[Link], Awaitable[T]]) -> T:
        """Run `work`, one call at a time. Any error ends the session, because its locks are no longer certain."""
        async with self._turn:
            try:
                async with asyncio.timeout(CALL_S):
                    return await work(self._link)
            except BaseException as error:
                self._link.terminate()
                if isinstance(error, Exception):
                    raise translated(error) from error
                raise


async def _close(link: Any) -> None:
    try:
        await link.close(timeout=1.0)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
        link.terminate()


_: type[Outbox] = PostgresOutbox
_session: type[OutboxSession] = _Session
