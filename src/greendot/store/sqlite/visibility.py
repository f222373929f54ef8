"""Privacy settings and contacts, in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from greendot.ids import Key
from greendot.protocol.commands import LastSeen
from greendot.store.sqlite.thread import DatabaseThread
from greendot.store.visibility import MOST_CHANGES, Changes, FactKind, PrivacyStore, Revision, changed_since, listed
from greendot.visibility.model import Privacy

CONTACTS = "SELECT other, last_contact_at FROM contacts WHERE tenant = ? AND user = ?"
_OTHERS = "SELECT count(*) FROM contacts WHERE tenant = ? AND user = ? AND other <> ?"
HIDES = "(last_seen = 'hidden' OR hide_from <> '')"
RESTRICTED = f"""
    SELECT user, last_seen, hide_from, rev FROM privacy WHERE tenant = ? AND {HIDES} AND user > ? ORDER BY user LIMIT ?
"""
HEAD = "SELECT number, token FROM visibility_heads WHERE tenant = ? AND kind = ?"
CHANGES = "SELECT number, user, token FROM visibility_changes WHERE tenant = ? AND kind = ? AND number >= ?"
MEMBERSHIPS = "SELECT room FROM members WHERE tenant = ? AND user = ?"


class SqlitePrivacy:
    """SQLite adapter of `PrivacyStore`."""

    _thread: DatabaseThread

    async def put_privacy(
        self, tenant: str, user: str, *, last_seen: LastSeen | None = None, hide_from: frozenset[str] | None = None
    ) -> Privacy:
        def work(db: sqlite3.Connection) -> Privacy:
            row = db.execute(
                "INSERT INTO privacy VALUES (?1, ?2, ifnull(?3, 'shown'), ifnull(?4, ''), 1) ON CONFLICT DO UPDATE SET"
                " last_seen = ifnull(?3, last_seen), hide_from = ifnull(?4, hide_from), rev = rev + 1"
                " RETURNING last_seen, hide_from, rev",
                (tenant, user, last_seen, None if hide_from is None else listed(hide_from)),
            ).fetchone()
            return _privacy(*row)

        return await self._thread.do(work)

    async def privacies(self, keys: Sequence[Key]) -> dict[Key, Privacy]:
        sql = "SELECT last_seen, hide_from, rev FROM privacy WHERE tenant = ? AND user = ?"

        def work(db: sqlite3.Connection) -> dict[Key, Privacy]:
            rows = ((key, db.execute(sql, key).fetchone()) for key in keys)
            return {key: _privacy(*row) for key, row in rows if row is not None}

        return await self._thread.do(work)

    async def hiding(self, tenants: Sequence[str]) -> set[str]:
        sql = f"SELECT EXISTS (SELECT 1 FROM privacy WHERE tenant = ? AND {HIDES})"
        return await self._thread.do(lambda db: {name for name in tenants if db.execute(sql, (name,)).fetchone()[0]})

    async def restricted(self, tenant: str, after: str, limit: int) -> dict[str, Privacy]:
        values = (tenant, after, limit)
        return await self._thread.do(lambda db: {row[0]: _privacy(*row[1:]) for row in db.execute(RESTRICTED, values)})

    async def changes(self, since: Sequence[tuple[str, FactKind, Revision]]) -> list[Changes]:
        return await self._thread.do(lambda db: [_changes(db, *known) for known in since])

    async def put_contact(self, tenant: str, user: str, other: str, at: int, *, most: int) -> bool:
        def work(db: sqlite3.Connection) -> bool:
            if db.execute(_OTHERS, (tenant, user, other)).fetchone()[0] >= most:
                return False
            db.execute(
                "INSERT INTO contacts VALUES (?, ?, ?, ?)"
                " ON CONFLICT DO UPDATE SET last_contact_at = max(last_contact_at, excluded.last_contact_at)",
                (tenant, user, other, at),
            )
            return True

        return await self._thread.do(work)

    async def remove_contact(self, tenant: str, user: str, other: str) -> bool:
        sql = "DELETE FROM contacts WHERE tenant = ? AND user = ? AND other = ?"
        return await self._thread.do(lambda db: db.execute(sql, (tenant, user, other)).rowcount > 0)

    async def contacts(self, keys: Sequence[Key]) -> dict[Key, dict[str, int]]:
        def work(db: sqlite3.Connection) -> dict[Key, dict[str, int]]:
            found = ((key, dict(db.execute(CONTACTS, key).fetchall())) for key in keys)
            return {key: contacts for key, contacts in found if contacts}

        return await self._thread.do(work)

    async def memberships(self, keys: Sequence[Key]) -> dict[Key, frozenset[str]]:
        def work(db: sqlite3.Connection) -> dict[Key, frozenset[str]]:
            found = ((key, frozenset(row[0] for row in db.execute(MEMBERSHIPS, key))) for key in keys)
            return {key: rooms for key, rooms in found if rooms}

        return await self._thread.do(work)


def _changes(db: sqlite3.Connection, tenant: str, kind: FactKind, since: Revision) -> Changes:
    head = Revision(*(db.execute(HEAD, (tenant, kind)).fetchone() or ()))
    few = 0 < head.number - since.number <= MOST_CHANGES
    return changed_since(since, head, db.execute(CHANGES, (tenant, kind, since.number)) if few else ())


def _privacy(last_seen: LastSeen, hide_from: str, rev: int) -> Privacy:
    return Privacy(last_seen, frozenset(hide_from.split()), rev)


_: type[PrivacyStore] = SqlitePrivacy
