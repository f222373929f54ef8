"""Audit in SQLite."""

from __future__ import annotations

import sqlite3

from greendot.ids import Bound
from greendot.store.audit import ANY, AuditEntry, AuditFilter, AuditNote, AuditStore, check_note
from greendot.store.sqlite.thread import DatabaseThread
from greendot.store.sqlite.webhooks import queue
from greendot.store.webhooks import AUDITED, Hooked

_NUMBER = """
    INSERT INTO audit_heads (tenant, number) VALUES (?, 1) ON CONFLICT DO UPDATE SET number = number + 1
    RETURNING number
"""
_WRITE = """
    INSERT INTO audit (tenant, number, at, actor, action, room, user, ref, reason, until, slow_mode_s)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
PRUNE = """
    DELETE FROM audit WHERE (tenant, number) IN (
        SELECT tenant, number FROM audit WHERE at < ? ORDER BY at LIMIT ?
    )
"""
_BEYOND = 2**62  # above every number


class SqliteAudit:
    """SQLite adapter of `AuditStore`."""

    _thread: DatabaseThread
    _hooked: Hooked

    async def put_audit(self, note: AuditNote) -> None:
        check_note(note)
        await self._thread.do(lambda db: write_note(db, note, self._hooked))

    async def audit(
        self, tenant: str, only: AuditFilter = ANY, *, after: Bound = None, before: Bound = None, limit: int
    ) -> list[AuditEntry]:
        wanted = [value for value in only if value is not None]
        values = (tenant, *wanted, after or 0, _BEYOND if before is None else before, limit)
        sql = page_sql(only, newest=after is None)
        rows = await self._thread.do(lambda db: db.execute(sql, values).fetchall())
        return [AuditEntry(*row) for row in (rows[::-1] if after is None else rows)]

    async def prune_audit(self, before: int, limit: int) -> int:
        return await self._thread.do(lambda db: db.execute(PRUNE, (before, limit)).rowcount)


def write_note(db: sqlite3.Connection, note: AuditNote, hooked: Hooked) -> None:
    """Write an entry in the caller's transaction, and queue its webhook."""
    (number,) = db.execute(_NUMBER, (note.tenant,)).fetchone()
    db.execute(_WRITE, (note.tenant, number, *note[1:]))
    if AUDITED in hooked.get(note.tenant, ()):
        queue(db, [(note.tenant, AUDITED, note.room or "", number, note.at)])


def page_sql(only: AuditFilter, *, newest: bool) -> str:
    where = "".join(f" AND {column} = ?" for column, value in zip(only._fields, only, strict=True) if value is not None)
    return (
        "SELECT number, at, tenant, actor, action, room, user, ref, reason, until, slow_mode_s FROM audit"
        f" WHERE tenant = ?{where} AND number > ? AND number < ? ORDER BY number {'DESC' if newest else 'ASC'} LIMIT ?"
    )


_: type[AuditStore] = SqliteAudit
