"""Export and erasure of one user's data, in SQLite."""

from __future__ import annotations

import sqlite3
from typing import Any

from greendot.store.sqlite.thread import DatabaseThread
from greendot.store.user_data import (
    ERASED,
    NOTHING,
    Erased,
    ExportCursor,
    Table,
    UserDataStore,
    UserRows,
    at,
    export_page,
    tables_of,
)

_ANONYMOUS = f"user = '', name = NULL, body = x'{NOTHING.hex()}', key = 'erased-' || seq, op = '{ERASED}'"


class SqlitePeople:
    """SQLite adapter of `UserDataStore`."""

    _thread: DatabaseThread

    async def rows_of(self, tenant: str, user: str, place: ExportCursor | None, *, limit: int) -> UserRows:
        def work(db: sqlite3.Connection) -> UserRows:
            table, following = at(_tables(db), place)
            after = place.after if place is not None else ()
            where, values, last = _window(db, table, tenant, user, after, limit)
            cursor = db.execute(f"SELECT * FROM {table.name} WHERE {where} LIMIT ?", (*values, limit))
            names = [column[0] for column in cursor.description]
            rows = [dict(zip(names, row, strict=True)) for row in cursor]
            return export_page(table, following, rows, last, limit)

        return await self._thread.do(work)

    async def erase_user(self, tenant: str, user: str, place: ExportCursor | None, *, limit: int) -> Erased:
        def work(db: sqlite3.Connection) -> Erased:
            table, following = at(_tables(db), place)
            after = place.after if place is not None else ()
            if not after:
                _forget(db, table, tenant, user)
            where, values, last = _window(db, table, tenant, user, after, limit)
            count = _erase(db, table, where, (*values, limit))
            if not table.walked and count == limit:
                return Erased(count, ExportCursor(table.plain))  # from the start again: the rows read are gone
            return Erased(
                count, ExportCursor(table.plain, last) if last else following and ExportCursor(following.plain)
            )

        return await self._thread.do(work)


def _tables(db: sqlite3.Connection) -> list[Table]:
    columns, keys = {}, {}
    for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall():
        found = db.execute("SELECT name, pk FROM pragma_table_info(?) ORDER BY pk", (name,)).fetchall()
        columns[name] = [column for column, _ in found]
        keys[name] = [column for column, place in found if place] or ["rowid"]
    return tables_of(columns, keys, "")


def _window(
    db: sqlite3.Connection, table: Table, tenant: str, user: str, after: tuple[Any, ...], limit: int
) -> tuple[str, tuple[Any, ...], tuple[Any, ...]]:
    """Return a condition for the next rows, its values, and the key of the last row if more rows may follow."""
    beyond = f" AND ({table.keys}) > ({_marks(after)})" if after else ""
    where, values = f"tenant = ? AND {table.owner} = ?{beyond}", (tenant, user, *after)
    if not table.walked:
        return where + (f" ORDER BY {table.keys}" if table.key else ""), values, ()
    sql = f"SELECT {table.keys} FROM {table.name} WHERE tenant = ?{beyond} ORDER BY {table.keys} LIMIT 1 OFFSET ?"
    last = db.execute(sql, (tenant, *after, limit - 1)).fetchone()
    if last is None:
        return where, values, ()
    return f"{where} AND ({table.keys}) <= ({_marks(last)})", (*values, *last), tuple(last)


def _marks(values: tuple[Any, ...]) -> str:
    return ", ".join("?" * len(values))


def _erase(db: sqlite3.Connection, table: Table, where: str, values: tuple[Any, ...]) -> int:
    key = ", ".join(dict.fromkeys(("tenant", *table.key, table.owner)))
    rows = db.execute(f"SELECT {key} FROM {table.name} WHERE {where} LIMIT ?", values).fetchall()
    this = " AND ".join(f"{column} = ?" for column in key.split(", "))
    if table.plain == "messages":
        db.executemany(f"UPDATE messages SET {_ANONYMOUS} WHERE {this}", rows)
        return len(rows)
    if table.plain == "audit":
        db.executemany(f"UPDATE audit SET user = NULL, reason = NULL WHERE {this}", rows)
        return len(rows)
    if table.plain == "notifications":
        lower = f"""
            UPDATE inboxes SET unread = unread - (n.read_at IS NULL), unseen = unseen - (n.seen_at IS NULL)
            FROM (SELECT read_at, seen_at FROM notifications WHERE {this}) n WHERE tenant = ? AND user = ?
        """
        db.executemany(lower, [(*row, row[0], row[2]) for row in rows])
    if table.plain == "members":
        sql = "UPDATE rooms SET members_rev = members_rev + 1 WHERE tenant = ? AND room = ?"
        db.executemany(sql, [row[:2] for row in rows])
    db.executemany(f"DELETE FROM {table.name} WHERE {this}", rows)
    return len(rows)


def _forget(db: sqlite3.Connection, table: Table, tenant: str, user: str) -> None:
    """Remove the user from rows of other users, and the queued webhook events of the user's notifications."""
    if table.names_others:
        db.execute(f"DELETE FROM {table.name} WHERE tenant = ? AND other = ?", (tenant, user))
    hiding = {"privacy": "hide_from", "receipts": "hidden_from"}.get(table.plain)
    if hiding is not None:
        db.execute(
            f"UPDATE {table.name} SET {hiding} = trim(replace(' ' || {hiding} || ' ', ' ' || ?1 || ' ', ' '))"
            f" WHERE tenant = ?2 AND {hiding} <> '' AND instr(' ' || {hiding} || ' ', ' ' || ?1 || ' ')",
            (user, tenant),
        )
    if table.plain == "restrictions":
        db.execute("UPDATE restrictions SET actor = '' WHERE tenant = ? AND actor = ?", (tenant, user))
    if table.plain == "audit":
        db.execute("UPDATE audit SET actor = '', reason = NULL WHERE tenant = ? AND actor = ?", (tenant, user))
    if table.plain == "notifications":
        sql = "DELETE FROM hook_events WHERE tenant = ? AND stream = ? AND type LIKE 'notification.%'"
        db.execute(sql, (tenant, user))


_: type[UserDataStore] = SqlitePeople
