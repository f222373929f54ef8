"""Read markers and receipts in PostgreSQL.

Moving a marker is one statement, which sees one moment: the status and the privacy of the reader are of the moment at
which the marker moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from greendot.store.markers import Marked, MarkerStore, MemberKey, Reader, Receipt
from greendot.store.postgres.pool import Pool

MARKER = "SELECT seq FROM greendot_markers WHERE tenant = $1 AND room = $2 AND user_id = $3"
PUT_MARKER = f"""
    WITH room AS (
        SELECT head, greatest(0, least($4, head)) AS seq, receipts AND $5::bigint IS NOT NULL AS receipts
        FROM greendot_rooms WHERE tenant = $1 AND room = $2
    ), moved AS (
        SELECT seq FROM room WHERE receipts AND seq > coalesce(({MARKER}), 0)
    ), put AS (
        INSERT INTO greendot_markers AS k SELECT $1, $2, $3, seq FROM room
        ON CONFLICT (tenant, room, user_id) DO UPDATE SET seq = greatest(k.seq, excluded.seq)
        RETURNING k.seq
    ), shown AS (
        INSERT INTO greendot_receipts AS c
        SELECT $1, $2, $3, moved.seq, coalesce(p.hide_from, '')
        FROM moved LEFT JOIN greendot_privacy p ON p.tenant = $1 AND p.user_id = $3
        WHERE coalesce(p.last_seen, 'shown') = 'shown' AND NOT EXISTS (
            SELECT 1 FROM greendot_status s WHERE s.tenant = $1 AND s.user_id = $3 AND s.status = 'invisible'
            AND (s.until IS NULL OR s.until > $5)
        )
        ON CONFLICT (tenant, room, user_id) DO UPDATE SET seq = excluded.seq, hidden_from = excluded.hidden_from
        WHERE excluded.seq > c.seq
    )
    SELECT put.seq, room.head, EXISTS (SELECT 1 FROM moved), room.seq FROM put, room
"""
_MARKER_AND_HEAD = """
    SELECT k.seq, r.head FROM greendot_markers k JOIN greendot_rooms r USING (tenant, room)
    WHERE tenant = $1 AND room = $2 AND user_id = $3
"""
READERS = """
    SELECT s.tenant, s.room, s.user_id, coalesce(k.seq, 0), coalesce(c.seq, 0),
        coalesce(p.last_seen, 'shown') = 'hidden' OR EXISTS (
            SELECT 1 FROM greendot_status t WHERE t.tenant = s.tenant AND t.user_id = s.user_id
            AND t.status = 'invisible' AND (t.until IS NULL OR t.until > $4)
        ),
        coalesce(p.hide_from, '') <> '' OR coalesce(c.hidden_from, '') <> '',
        (SELECT count(*) FROM (
            SELECT 1 FROM greendot_members m WHERE m.tenant = s.tenant AND m.room = s.room LIMIT $5) few)
    FROM unnest($1::text[], $2::text[], $3::text[]) AS s (tenant, room, user_id)
    LEFT JOIN greendot_markers k USING (tenant, room, user_id)
    LEFT JOIN greendot_receipts c USING (tenant, room, user_id)
    LEFT JOIN greendot_privacy p USING (tenant, user_id)
"""
RECEIPTS = """
    SELECT x.user_id, x.seq FROM greendot_rooms r LEFT JOIN LATERAL (
        (
            SELECT c.user_id, c.seq FROM greendot_receipts c
            WHERE c.tenant = $1 AND c.room = $2 AND c.user_id > $4 AND c.user_id <> $3
                AND NOT ($3 <> '' AND position(' ' || $3 || ' ' IN ' ' || c.hidden_from || ' ') > 0)
                AND NOT coalesce((
                    SELECT p.last_seen = 'hidden'
                        OR ($3 <> '' AND position(' ' || $3 || ' ' IN ' ' || p.hide_from || ' ') > 0)
                    FROM greendot_privacy p WHERE p.tenant = $1 AND p.user_id = c.user_id
                ), false)
            ORDER BY c.user_id LIMIT $5
        )
        UNION ALL
        SELECT user_id, seq FROM greendot_markers
        WHERE tenant = $1 AND room = $2 AND user_id = $3 AND user_id > $4 AND seq > 0
        ORDER BY user_id LIMIT $5
    ) x ON true WHERE r.tenant = $1 AND r.room = $2 AND r.receipts ORDER BY x.user_id
"""
COUNT_RECEIPTS = """
    SELECT (SELECT count(*) FROM greendot_receipts c
        WHERE c.tenant = $1 AND c.room = $2 AND c.seq >= $3 AND c.hidden_from = '' AND NOT EXISTS (
            SELECT 1 FROM greendot_privacy p WHERE p.tenant = $1 AND p.user_id = c.user_id
            AND (p.last_seen = 'hidden' OR p.hide_from <> '')))
    FROM greendot_rooms r WHERE r.tenant = $1 AND r.room = $2 AND r.receipts
"""


class PostgresMarkers:
    """PostgreSQL adapter of `MarkerStore`."""

    _links: Pool

    async def put_marker(self, tenant: str, room: str, user: str, seq: int, now: int | None = None) -> Marked:
        rows = await self._links.fetch(PUT_MARKER, tenant, room, user, seq, now)
        if not rows:
            return Marked(0, 0, counts=False)
        marker, head, counts, seen = rows[0]
        if marker > seen:
            # Another device has read further. Its marker may be newer than the head that this statement saw.
            newer = await self._links.fetch(_MARKER_AND_HEAD, tenant, room, user)
            marker, head = newer[0] if newer else (0, 0)
        return Marked(marker, head, counts)

    async def marker(self, tenant: str, room: str, user: str) -> int:
        rows = await self._links.fetch(MARKER, tenant, room, user)
        return rows[0][0] if rows else 0

    async def readers(self, keys: Sequence[MemberKey], now: int, most: int) -> Mapping[MemberKey, Reader]:
        rows = await self._links.fetch(READERS, *([key[part] for key in keys] for part in range(3)), now, most)
        return {(row[0], row[1], row[2]): Reader(*row[3:]) for row in rows}

    async def receipts(
        self, tenant: str, room: str, viewer: str | None, after: str | None, limit: int
    ) -> list[Receipt] | None:
        rows = await self._links.fetch(RECEIPTS, tenant, room, viewer or "", after or "", limit)
        return [Receipt(*row) for row in rows if row[0] is not None] if rows else None

    async def receipt_count(self, tenant: str, room: str, seq: int) -> int | None:
        rows = await self._links.fetch(COUNT_RECEIPTS, tenant, room, seq)
        return rows[0][0] if rows else None


_: type[MarkerStore] = PostgresMarkers
