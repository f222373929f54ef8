"""Revocations, in SQLite."""

from __future__ import annotations

import sqlite3

from greendot.core.revocations import Revocation
from greendot.store.revocations import Numbered, Progress, RevocationStore
from greendot.store.sqlite.lock import is_locked
from greendot.store.sqlite.thread import DatabaseThread

_COLUMNS = "tenant, kind, value, expires_at, before"
_PUT = f"""
    INSERT INTO revocations ({_COLUMNS}, number) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (tenant, kind, value) DO UPDATE
    SET expires_at = max(expires_at, excluded.expires_at), before = max(before, excluded.before),
        number = excluded.number
    RETURNING {_COLUMNS}
"""


class SqliteRevocations:
    """See `RevocationStore`."""

    _thread: DatabaseThread

    async def put_revocation(self, revocation: Revocation) -> Revocation:
        def work(db: sqlite3.Connection) -> Revocation:
            (number,) = db.execute("UPDATE revocations_head SET number = number + 1 RETURNING number").fetchone()
            row = *revocation.name, revocation.expires_at, revocation.before, number
            return Revocation(*db.execute(_PUT, row).fetchone())

        return await self._thread.do(work)

    async def revocations(self, after: int, limit: int) -> list[Numbered]:
        sql = f"SELECT number, {_COLUMNS} FROM revocations WHERE number > ? ORDER BY number LIMIT ?"
        rows = await self._thread.do(lambda db: db.execute(sql, (after, limit)).fetchall())
        return [Numbered(number, Revocation(*columns)) for number, *columns in rows]

    async def confirm_revocations(self, number: int) -> None:
        sql = "UPDATE revocations_head SET confirmed = ?1 WHERE confirmed < ?1"
        await self._thread.do(lambda db: db.execute(sql, (number,)))

    async def revocation_progress(self) -> Progress:
        sql = "SELECT number, confirmed FROM revocations_head"
        given, confirmed = await self._thread.do(lambda db: db.execute(sql).fetchone())
        return Progress(given, confirmed, is_locked(self._thread.path))

    async def remove_revocations(self, now: int, *, limit: int) -> int:
        some = "SELECT number FROM revocations WHERE expires_at <= ? LIMIT ?"
        sql = f"DELETE FROM revocations WHERE number IN ({some})"
        return await self._thread.do(lambda db: db.execute(sql, (now, limit)).rowcount)


_: type[RevocationStore] = SqliteRevocations
