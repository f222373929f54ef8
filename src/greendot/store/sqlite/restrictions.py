"""Mutes, bans and slow mode, in SQLite."""

from __future__ import annotations

import sqlite3

from greendot.auth.model import LIFTED, Revocation
from greendot.ids import check_text
from greendot.store.audit import AuditNote, check_note
from greendot.store.restrictions import (
    EVERYWHERE,
    LIFTED_MS,
    PACE_MS,
    Restriction,
    RestrictionKind,
    RestrictionStore,
    RestrictionWritten,
)
from greendot.store.rooms import Room
from greendot.store.sqlite.audit import write_note
from greendot.store.sqlite.revocations import next_number
from greendot.store.sqlite.rooms import read_room
from greendot.store.sqlite.thread import DatabaseThread
from greendot.store.webhooks import Hooked

_PUT = """
    INSERT INTO restrictions (tenant, room, user, kind, until, at, actor, reason) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET until = excluded.until, at = excluded.at, actor = excluded.actor, reason = excluded.reason
    WHERE until <> excluded.until OR actor <> excluded.actor OR reason IS NOT excluded.reason
"""
_THIS = "tenant = ? AND room = ? AND user = ? AND kind = ?"
_LIFT = f"DELETE FROM restrictions WHERE {_THIS} AND until > ?"
_FORGET = f"DELETE FROM restrictions WHERE {_THIS}"
LIST = """
    SELECT tenant, room, user, kind, until, at, actor, reason FROM restrictions
    WHERE tenant = ? AND room = ? AND kind = ? AND user > ? AND until > ? ORDER BY user LIMIT ?
"""
_RAISE = "UPDATE rooms SET members_rev = members_rev + ? WHERE tenant = ? AND room = ? RETURNING members_rev"
_ENTRY = "SELECT expires_at, before, number FROM revocations WHERE tenant = ? AND kind = ? AND value = ?"
_PUT_ENTRY = (
    "INSERT OR REPLACE INTO revocations (tenant, kind, value, expires_at, before, number) VALUES (?, ?, ?, ?, ?, ?)"
)
_SLOW = "UPDATE rooms SET slow_mode_s = ?3 WHERE tenant = ?1 AND room = ?2 AND slow_mode_s <> ?3"
PRUNE = """
    DELETE FROM restrictions WHERE (tenant, user, room, kind) IN (
        SELECT tenant, user, room, kind FROM restrictions WHERE until <= ? ORDER BY until LIMIT ?
    )
"""
PRUNE_SENDS = """
    DELETE FROM slow_sends WHERE (tenant, user, room) IN (
        SELECT tenant, user, room FROM slow_sends WHERE at < ? ORDER BY at LIMIT ?
    )
"""


class SqliteRestrictions:
    """SQLite adapter of `RestrictionStore`."""

    _thread: DatabaseThread
    _hooked: Hooked

    async def restrict(self, restriction: Restriction, note: AuditNote) -> RestrictionWritten | None:
        check_note(note)
        check_text((restriction.user, restriction.actor, restriction.reason))
        tenant, room, user, kind, until, *_ = restriction

        def work(db: sqlite3.Connection) -> RestrictionWritten | None:
            if room != EVERYWHERE and read_room(db, tenant, room) is None:
                return None
            changed = db.execute(_PUT, restriction).rowcount > 0
            if changed:
                write_note(db, note, self._hooked)
            if room != EVERYWHERE:
                return _in_room(db, tenant, room, changed)
            entry = _entry(db, tenant, kind, user)
            if entry is None or (entry.expires_at, entry.before) != (until, 0):
                entry = _put_entry(db, Revocation(tenant, kind, user, until))
            return RestrictionWritten(changed, 0, entry)

        return await self._thread.do(work)

    async def lift(
        self, tenant: str, room: str, user: str, kind: RestrictionKind, note: AuditNote
    ) -> RestrictionWritten | None:
        check_note(note)

        def work(db: sqlite3.Connection) -> RestrictionWritten | None:
            if room != EVERYWHERE and read_room(db, tenant, room) is None:
                return None
            changed = db.execute(_LIFT, (tenant, room, user, kind, note.at)).rowcount > 0
            db.execute(_FORGET, (tenant, room, user, kind))  # one that has ended
            entry = _entry(db, tenant, kind, user) if room == EVERYWHERE else None
            if entry is not None and entry.before != LIFTED and entry.expires_at > note.at:
                # Also if an erasure of the user has removed the restriction itself.
                changed = True
                entry = _put_entry(db, Revocation(tenant, kind, user, note.at + LIFTED_MS, LIFTED))
            if changed:
                write_note(db, note, self._hooked)
            return RestrictionWritten(changed, 0, entry) if room == EVERYWHERE else _in_room(db, tenant, room, changed)

        return await self._thread.do(work)

    async def restrictions(
        self, tenant: str, room: str, kind: RestrictionKind, after: str | None, limit: int, now: int
    ) -> list[Restriction]:
        values = (tenant, room, kind, after or "", now, limit)
        return await self._thread.do(lambda db: [Restriction(*row) for row in db.execute(LIST, values)])

    async def set_slow_mode(self, tenant: str, room: str, seconds: int, note: AuditNote) -> Room | None:
        check_note(note)

        def work(db: sqlite3.Connection) -> Room | None:
            if db.execute(_SLOW, (tenant, room, seconds)).rowcount:
                write_note(db, note, self._hooked)
            return read_room(db, tenant, room)

        return await self._thread.do(work)

    async def prune_restrictions(self, now: int, limit: int) -> int:
        def work(db: sqlite3.Connection) -> int:
            removed = db.execute(PRUNE, (now, limit)).rowcount
            return removed + db.execute(PRUNE_SENDS, (now - PACE_MS, limit - removed)).rowcount

        return await self._thread.do(work)


def _in_room(db: sqlite3.Connection, tenant: str, room: str, changed: bool) -> RestrictionWritten:
    (members_rev,) = db.execute(_RAISE, (changed, tenant, room)).fetchone()
    return RestrictionWritten(changed, members_rev)


def _entry(db: sqlite3.Connection, tenant: str, kind: RestrictionKind, user: str) -> Revocation | None:
    row = db.execute(_ENTRY, (tenant, kind, user)).fetchone()
    return None if row is None else Revocation(tenant, kind, user, *row)


def _put_entry(db: sqlite3.Connection, entry: Revocation) -> Revocation:
    number = next_number(db)
    db.execute(_PUT_ENTRY, (*entry.name, entry.expires_at, entry.before, number))
    return Revocation(*entry.name, entry.expires_at, entry.before, number)


_: type[RestrictionStore] = SqliteRestrictions
