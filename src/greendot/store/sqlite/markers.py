"""Read markers and receipts in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from greendot.store.markers import Marked, MarkerStore, MemberKey, Reader, Receipt
from greendot.store.sqlite.rooms import read_room
from greendot.store.sqlite.thread import DatabaseThread

_INVISIBLE = """
    EXISTS (SELECT 1 FROM status s WHERE s.tenant = ?1 AND s.user = ?3 AND s.status = 'invisible'
            AND (s.until IS NULL OR s.until > ?5))
"""
_PUT_MARKER = (
    "INSERT INTO markers (tenant, room, user, seq) VALUES (?, ?, ?, ?)"
    " ON CONFLICT DO UPDATE SET seq = max(seq, excluded.seq) RETURNING seq"
)
_PUT_RECEIPT = f"""
    INSERT INTO receipts
    SELECT ?1, ?2, ?3, ?4, ifnull(p.hide_from, '')
    FROM (SELECT 1) LEFT JOIN privacy p ON p.tenant = ?1 AND p.user = ?3
    WHERE ifnull(p.last_seen, 'shown') = 'shown' AND NOT {_INVISIBLE}
    ON CONFLICT DO UPDATE SET seq = excluded.seq, hidden_from = excluded.hidden_from
"""
_MARKER = "SELECT seq FROM markers WHERE tenant = ? AND room = ? AND user = ?"
READER = f"""
    SELECT ifnull((SELECT seq FROM markers WHERE tenant = ?1 AND room = ?2 AND user = ?3), 0), ifnull(c.seq, 0),
           ifnull(p.last_seen, 'shown') = 'hidden' OR {_INVISIBLE},
           ifnull(p.hide_from, '') <> '' OR ifnull(c.hidden_from, '') <> '',
           (SELECT count(*) FROM (SELECT 1 FROM members WHERE tenant = ?1 AND room = ?2 LIMIT ?4))
    FROM (SELECT 1) LEFT JOIN receipts c ON c.tenant = ?1 AND c.room = ?2 AND c.user = ?3
    LEFT JOIN privacy p ON p.tenant = ?1 AND p.user = ?3
"""
RECEIPTS = """
    SELECT * FROM (
        SELECT c.user, c.seq FROM receipts c LEFT JOIN privacy p ON p.tenant = c.tenant AND p.user = c.user
        WHERE c.tenant = ?1 AND c.room = ?2 AND c.user > ?4 AND c.user <> ?3 AND ifnull(p.last_seen, 'shown') = 'shown'
            AND (?3 = '' OR NOT instr(' ' || c.hidden_from || ' ' || ifnull(p.hide_from, '') || ' ', ' ' || ?3 || ' '))
        ORDER BY c.user LIMIT ?5
    )
    UNION ALL
    SELECT user, seq FROM markers WHERE tenant = ?1 AND room = ?2 AND user = ?3 AND user > ?4 AND seq > 0
    ORDER BY 1 LIMIT ?5
"""
COUNT_RECEIPTS = """
    SELECT count(*) FROM receipts c WHERE c.tenant = ? AND c.room = ? AND c.seq >= ? AND c.hidden_from = ''
        AND NOT EXISTS (SELECT 1 FROM privacy p WHERE p.tenant = c.tenant AND p.user = c.user
                        AND (p.last_seen = 'hidden' OR p.hide_from <> ''))
"""


class SqliteMarkers:
    """SQLite adapter of `MarkerStore`."""

    _thread: DatabaseThread

    async def put_marker(self, tenant: str, room: str, user: str, seq: int, now: int | None = None) -> Marked:
        def work(db: sqlite3.Connection) -> Marked:
            found = read_room(db, tenant, room)
            if found is None:
                return Marked(0, 0, counts=False)
            key, seen = (tenant, room, user), max(0, min(seq, found.head))
            before = db.execute(_MARKER, key).fetchone()
            marker = db.execute(_PUT_MARKER, (*key, seen)).fetchone()[0]
            counts = found.receipts and now is not None and seen > (before[0] if before else 0)
            if counts:
                db.execute(_PUT_RECEIPT, (*key, seen, now))
            return Marked(marker, found.head, counts)

        return await self._thread.do(work)

    async def marker(self, tenant: str, room: str, user: str) -> int:
        row = await self._thread.do(lambda db: db.execute(_MARKER, (tenant, room, user)).fetchone())
        return row[0] if row else 0

    async def readers(self, keys: Sequence[MemberKey], now: int, most: int) -> Mapping[MemberKey, Reader]:
        def work(db: sqlite3.Connection) -> dict[MemberKey, Reader]:
            found = ((key, db.execute(READER, (*key, most, now)).fetchone()) for key in keys)
            return {key: Reader(row[0], row[1], bool(row[2]), bool(row[3]), row[4]) for key, row in found}

        return await self._thread.do(work)

    async def receipts(
        self, tenant: str, room: str, viewer: str | None, after: str | None, limit: int
    ) -> list[Receipt] | None:
        def work(db: sqlite3.Connection) -> list[Receipt] | None:
            if not _has_receipts(db, tenant, room):
                return None
            rows = db.execute(RECEIPTS, (tenant, room, viewer or "", after or "", limit))
            return [Receipt(*row) for row in rows]

        return await self._thread.do(work)

    async def receipt_count(self, tenant: str, room: str, seq: int) -> int | None:
        def work(db: sqlite3.Connection) -> int | None:
            if not _has_receipts(db, tenant, room):
                return None
            return db.execute(COUNT_RECEIPTS, (tenant, room, seq)).fetchone()[0]  # type: ignore[no-any-return]

        return await self._thread.do(work)


def _has_receipts(db: sqlite3.Connection, tenant: str, room: str) -> bool:
    found = read_room(db, tenant, room)
    return found is not None and found.receipts


_: type[MarkerStore] = SqliteMarkers
