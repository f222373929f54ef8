"""Last-seen times, in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from greendot.ids import Key
from greendot.store.last_seen import REVOKED_MS, LastSeenStore
from greendot.store.sqlite.thread import DatabaseThread

PUT = f"""
    INSERT INTO last_seen (tenant, user, at) SELECT ?1, ?2, ?3 WHERE NOT EXISTS (
        SELECT 1 FROM revocations WHERE tenant = ?1 AND before >= ?3 - {REVOKED_MS}
        AND (kind = 'user' AND value = ?2 OR kind = 'tenant' AND value = ?1)
    )
    ON CONFLICT DO UPDATE SET at = excluded.at WHERE at < excluded.at
"""
LAST_SEEN = "SELECT at FROM last_seen WHERE tenant = ? AND user = ?"
PRUNE = """
    DELETE FROM last_seen WHERE (tenant, user) IN (
        SELECT tenant, user FROM last_seen WHERE at < ? ORDER BY at LIMIT ?
    )
"""


class SqliteLastSeen:
    """SQLite adapter of `LastSeenStore`."""

    _thread: DatabaseThread

    async def put_last_seen(self, seen: Mapping[Key, int]) -> None:
        rows = [(*key, at) for key, at in seen.items()]

        def work(db: sqlite3.Connection) -> None:
            db.executemany(PUT, rows)

        await self._thread.do(work)

    async def last_seen(self, keys: Sequence[Key]) -> dict[Key, int]:
        def work(db: sqlite3.Connection) -> dict[Key, int]:
            rows = ((key, db.execute(LAST_SEEN, key).fetchone()) for key in keys)
            return {key: row[0] for key, row in rows if row is not None}

        return await self._thread.do(work)

    async def prune_last_seen(self, before: int, limit: int) -> int:
        return await self._thread.do(lambda db: db.execute(PRUNE, (before, limit)).rowcount)


_: type[LastSeenStore] = SqliteLastSeen
