"""Upkeep of inboxes in PostgreSQL: removal of old notifications, and recounts."""

from __future__ import annotations

from greendot.ids import Key
from greendot.store.inbox import Inbox
from greendot.store.postgres.inbox import LOCK
from greendot.store.postgres.messages import columns
from greendot.store.postgres.pool import Link, Pool

EXPIRED = "SELECT tenant, user_id, seq FROM greendot_notifications WHERE expires_at <= $1 LIMIT $2"
OLD = "SELECT tenant, user_id, seq FROM greendot_notifications WHERE created_at < $1 LIMIT $2"
_REMOVE = """
    WITH gone AS (
        DELETE FROM greendot_notifications n
        USING unnest($1::text[], $2::text[], $3::bigint[]) AS g (tenant, user_id, seq)
        WHERE n.tenant = g.tenant AND n.user_id = g.user_id AND n.seq = g.seq
        RETURNING n.tenant, n.user_id, n.read_at, n.seen_at
    ), counts AS (
        SELECT tenant, user_id, count(*) FILTER (WHERE read_at IS NULL) AS unread,
               count(*) FILTER (WHERE seen_at IS NULL) AS unseen
        FROM gone GROUP BY tenant, user_id
    )
    UPDATE greendot_inboxes i SET unread = i.unread - c.unread, unseen = i.unseen - c.unseen
    FROM counts c WHERE i.tenant = c.tenant AND i.user_id = c.user_id
    RETURNING i.tenant, i.user_id, i.head, i.unread, i.unseen
"""
# One statement sees one moment, so concurrent writes cannot appear as wrong counters.
_COUNTED = """
    SELECT tenant, user_id, coalesce(i.head, 0), coalesce(i.unread, 0), coalesce(i.unseen, 0),
           greatest(i.head, n.head), coalesce(n.unread, 0), coalesce(n.unseen, 0)
    FROM greendot_inboxes i FULL JOIN (
        SELECT tenant, user_id, max(seq) AS head, count(*) FILTER (WHERE read_at IS NULL) AS unread,
               count(*) FILTER (WHERE seen_at IS NULL) AS unseen
        FROM greendot_notifications GROUP BY tenant, user_id
    ) n USING (tenant, user_id)
    WHERE (coalesce(i.unread, 0), coalesce(i.unseen, 0)) <> (coalesce(n.unread, 0), coalesce(n.unseen, 0))
       OR coalesce(n.head, 0) > coalesce(i.head, 0)
    ORDER BY tenant, user_id
"""
_PUT = """
    INSERT INTO greendot_inboxes VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (tenant, user_id) DO UPDATE SET head = $3, unread = $4, unseen = $5
"""
_RECOUNT_S = 3600.0


class PostgresUpkeep:
    """PostgreSQL adapter of `InboxStore`: the methods for jobs and operators."""

    _links: Pool

    async def prune(self, now: int, *, keep_ms: int, limit: int) -> dict[Key, Inbox]:
        async def work(link: Link) -> dict[Key, Inbox]:
            found = [*await link.fetch(EXPIRED, now, limit), *await link.fetch(OLD, now - keep_ms, limit)]
            gone = [*dict.fromkeys((row[0], row[1], row[2]) for row in found)][:limit]
            # Another node may remove the same rows meanwhile: only the lock of the heads makes the result certain.
            await link.fetch(LOCK, *columns(sorted({(tenant, user) for tenant, user, _ in gone}), 2))
            rows = await link.fetch(_REMOVE, *columns(gone, 3)) if gone else []
            return {(row[0], row[1]): Inbox(*row[2:]) for row in rows}

        return await self._links.transact(work)

    async def recount(self, *, fix: bool) -> list[tuple[Key, Inbox, Inbox]]:
        async def work(link: Link) -> list[tuple[Key, Inbox, Inbox]]:
            await link.execute("SET LOCAL statement_timeout = 0")
            await link.execute("SET LOCAL enable_seqscan = on")
            await link.execute("SET LOCAL enable_hashjoin = on")
            wrong = await link.fetch(_COUNTED)
            if fix and wrong:
                # Count again under the locks: changes since the first count must not be undone.
                locked = {(row[0], row[1]) for row in wrong}
                await link.fetch(LOCK, *columns(sorted(locked), 2))
                wrong = [row for row in await link.fetch(_COUNTED) if (row[0], row[1]) in locked]
                await link.executemany(_PUT, [(row[0], row[1], *row[5:]) for row in wrong])
            return [((row[0], row[1]), Inbox(*row[2:5]), Inbox(*row[5:])) for row in wrong]

        return await self._links.patiently(lambda: self._links.transact_once(work, _RECOUNT_S))
