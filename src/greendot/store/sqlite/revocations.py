"""Revocations, in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from greendot.auth.model import Name, Revocation
from greendot.ids import check_text
from greendot.store.revocations import KEPT_MS, MOST_KEPT, Numbered, Progress, RevocationStore, numbered
from greendot.store.sqlite.lock import is_locked
from greendot.store.sqlite.thread import DatabaseThread

_COLUMNS = "tenant, kind, value, expires_at, before"
_PUT = f"""
    INSERT INTO revocations ({_COLUMNS}, number) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (tenant, kind, value) DO UPDATE
    SET expires_at = max(expires_at, excluded.expires_at), before = max(before, excluded.before),
        number = excluded.number
    RETURNING {_COLUMNS}
"""
_READ = f"SELECT number, {_COLUMNS} FROM revocations WHERE number > ? AND expires_at > ? ORDER BY number LIMIT ?"
_FIND = f"SELECT {_COLUMNS} FROM revocations WHERE tenant = ? AND kind = ? AND value = ?"
_REMOVE = """
    DELETE FROM revocations WHERE number IN (
        SELECT number FROM revocations WHERE expires_at <= ?1
        AND (expires_at <= ?2 OR kind IN ('session', 'ban', 'mute')
             OR number <= (SELECT number FROM revocations_head) - ?3) LIMIT ?4
    )
"""


class SqliteRevocations:
    """SQLite adapter of `RevocationStore`."""

    _thread: DatabaseThread

    async def put_revocation(self, revocation: Revocation) -> Revocation:
        check_text(revocation.name)

        def work(db: sqlite3.Connection) -> Revocation:
            row = *revocation.name, revocation.expires_at, revocation.before, next_number(db)
            return Revocation(*db.execute(_PUT, row).fetchone())

        return await self._thread.do(work)

    async def revocations(self, after: int, limit: int, now: int = 0) -> list[Numbered]:
        rows = await self._thread.do(lambda db: db.execute(_READ, (after, now, limit)).fetchall())
        return [numbered(*row) for row in rows]

    async def confirm_revocations(self, number: int) -> None:
        sql = "UPDATE revocations_head SET confirmed = ?1 WHERE confirmed < ?1"
        await self._thread.do(lambda db: db.execute(sql, (number,)))

    async def revocation_progress(self) -> Progress:
        sql = "SELECT number, confirmed FROM revocations_head"
        given, confirmed = await self._thread.do(lambda db: db.execute(sql).fetchone())
        return Progress(given, confirmed, is_locked(self._thread.path))

    async def remove_revocations(self, now: int, *, limit: int) -> int:
        return await self._thread.do(lambda db: db.execute(_REMOVE, (now, now - KEPT_MS, MOST_KEPT, limit)).rowcount)

    async def find_revocations(self, names: Sequence[Name]) -> dict[Name, Revocation]:
        def work(db: sqlite3.Connection) -> dict[Name, Revocation]:
            rows = [row for name in names for row in db.execute(_FIND, name)]
            return {found.name: found for found in (Revocation(*row) for row in rows)}

        return await self._thread.do(work)


def next_number(db: sqlite3.Connection) -> int:
    """Return the number of the next entry, in the caller's transaction."""
    (number,) = db.execute("UPDATE revocations_head SET number = number + 1 RETURNING number").fetchone()
    return int(number)


_: type[RevocationStore] = SqliteRevocations
