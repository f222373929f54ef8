"""Moderated messages, archived and deleted rooms, in SQLite."""

from __future__ import annotations

import sqlite3

from greendot.errors import NoSuchMessage
from greendot.ids import check_text
from greendot.store.audit import AuditNote, check_note
from greendot.store.moderation import DELETE_ROOMS, ModerationStore, Purged
from greendot.store.rooms import Draft, Record, Room, Written
from greendot.store.sqlite.audit import write_note
from greendot.store.sqlite.messages import MESSAGE, SqliteMessages, write
from greendot.store.sqlite.rooms import DELETED, read_room
from greendot.store.user_data import ERASED, NOTHING
from greendot.store.webhooks import Hooked

DELETION = f"{MESSAGE} AND ref = ? AND op = 'delete' ORDER BY seq LIMIT 1"
_ERASE = f"UPDATE messages SET body = x'{NOTHING.hex()}', op = '{ERASED}' WHERE tenant = ? AND room = ?"
ERASE_MESSAGE = f"{_ERASE} AND seq = ?"
ERASE_EDITS = f"{_ERASE} AND ref = ? AND op = 'edit'"
_ERASED = "UPDATE rooms SET erasures = erasures + 1 WHERE tenant = ? AND room = ?"
_ARCHIVE = """
    UPDATE rooms SET archived = ?3, members_rev = members_rev + 1 WHERE tenant = ?1 AND room = ?2 AND archived <> ?3
"""
DELETIONS = "SELECT tenant, room FROM room_deletions ORDER BY deleted_at LIMIT 100"
_KEPT = ("rooms", "room_deletions", "audit")  # not removed with a room, or removed in another way


class SqliteModeration(SqliteMessages):
    """SQLite adapter of `ModerationStore`."""

    async def moderate(self, tenant: str, room: str, draft: Draft, note: AuditNote) -> Written | None:
        check_note(note)
        check_text((tenant, room, draft.user, draft.name, draft.key, draft.traceparent))
        return await self._thread.do(lambda db: _moderate(db, tenant, room, draft, note, self._hooked))

    async def archive_room(self, tenant: str, room: str, archived: bool, note: AuditNote) -> Room | None:
        check_note(note)

        def work(db: sqlite3.Connection) -> Room | None:
            if db.execute(_ARCHIVE, (tenant, room, archived)).rowcount:
                write_note(db, note, self._hooked)
            return read_room(db, tenant, room)

        return await self._thread.do(work)

    async def delete_room(self, tenant: str, room: str, note: AuditNote) -> bool:
        check_note(note)

        def work(db: sqlite3.Connection) -> bool:
            if not db.execute("DELETE FROM rooms WHERE tenant = ? AND room = ?", (tenant, room)).rowcount:
                return db.execute(DELETED, (tenant, room)).fetchone() is not None
            db.execute(
                "INSERT INTO room_deletions (tenant, room, deleted_at) VALUES (?, ?, ?)", (tenant, room, note.at)
            )
            db.execute("UPDATE jobs SET next_at = min(next_at, ?) WHERE name = ?", (note.at, DELETE_ROOMS))
            write_note(db, note, self._hooked)
            return True

        return await self._thread.do(work)

    async def purge_rooms(self, now: int, limit: int) -> Purged:
        def work(db: sqlite3.Connection) -> Purged:
            left, tables = limit, _tables(db)
            for key in db.execute(DELETIONS).fetchall():
                for table, columns in tables.items():
                    left -= db.execute(purge_sql(table, columns), (*key, left)).rowcount
                    if not left:
                        return Purged(limit, is_over=False)
                # All other writers waited: none has read the room and not yet written.
                db.execute("DELETE FROM room_deletions WHERE tenant = ? AND room = ?", key)
            return Purged(limit - left, db.execute(DELETIONS).fetchone() is None)

        return await self._thread.do(work)


def _moderate(
    db: sqlite3.Connection, tenant: str, room: str, draft: Draft, note: AuditNote, hooks: Hooked
) -> Written | None:
    found, key = read_room(db, tenant, room), (tenant, room)
    if found is None:
        return None
    known = db.execute(f"{MESSAGE} AND user = ? AND key = ?", (*key, draft.user, draft.key)).fetchone()
    if known is not None:
        return Written(Record(*known), False, found.members_rev, found.bus)
    row = db.execute(f"{MESSAGE} AND seq = ?", (*key, draft.ref)).fetchone()
    target = None if row is None else Record(*row)
    if target is None or target.ref is not None or target.op not in (None, ERASED):
        raise NoSuchMessage(room)
    first = db.execute(DELETION, (*key, draft.ref)).fetchone()
    if draft.op != "delete" and (first is not None or target.op == ERASED):
        raise NoSuchMessage(room)
    if draft.op == "delete" and target.op is None:
        db.execute(ERASE_MESSAGE, (*key, draft.ref))
        db.execute(ERASE_EDITS, (*key, draft.ref))
        db.execute(_ERASED, key)
    if first is None or target.op is None:
        write_note(db, note._replace(user=target.user or None), hooks)
    if first is not None:
        return Written(Record(*first), False, found.members_rev, found.bus)
    hooked = "room.message" in hooks.get(tenant, ())
    return write(db, tenant, room, draft, hooked=hooked, moderated=True)


def purge_sql(table: str, key: str) -> str:
    """Return a statement that deletes some rows of a room."""
    return f"DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} WHERE tenant = ? AND room = ? LIMIT ?)"


def _tables(db: sqlite3.Connection) -> dict[str, str]:
    """Return the tables with rows of rooms and the columns of their keys. They are read from the database schema."""
    found = {}
    for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall():
        columns = db.execute("SELECT name, pk FROM pragma_table_info(?) ORDER BY pk", (name,)).fetchall()
        if name not in _KEPT and {"tenant", "room"} <= {column for column, _ in columns}:
            found[name] = ", ".join(column for column, place in columns if place) or "rowid"
    return found


_: type[ModerationStore] = SqliteModeration
