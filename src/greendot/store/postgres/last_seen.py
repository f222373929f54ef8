"""Last-seen times, in PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from greendot.ids import Key
from greendot.store.last_seen import REVOKED_MS, LastSeenStore
from greendot.store.postgres.pool import Pool

# Rows are written in the order of their keys, so that two nodes with the same users cannot wait for each other.
# Revocations are read in scalar subqueries: a join could read the whole table.
_REVOKED = "SELECT r.before FROM greendot_revocations r WHERE r.tenant = n.tenant"
PUT = f"""
    INSERT INTO greendot_last_seen AS s (tenant, user_id, at)
    SELECT n.tenant, n.user_id, n.at FROM unnest($1::text[], $2::text[], $3::bigint[]) AS n (tenant, user_id, at)
    WHERE coalesce(({_REVOKED} AND r.kind = 'user' AND r.value = n.user_id) < n.at - {REVOKED_MS}, true)
    AND coalesce(({_REVOKED} AND r.kind = 'tenant' AND r.value = n.tenant) < n.at - {REVOKED_MS}, true)
    ORDER BY n.tenant COLLATE "C", n.user_id COLLATE "C"
    ON CONFLICT (tenant, user_id) DO UPDATE SET at = excluded.at WHERE s.at < excluded.at
"""
LAST_SEEN = """
    SELECT tenant, user_id, at FROM greendot_last_seen
    WHERE (tenant, user_id) IN (SELECT * FROM unnest($1::text[], $2::text[]))
"""
PRUNE = """
    WITH chosen AS MATERIALIZED (
        SELECT tenant, user_id FROM greendot_last_seen WHERE at < $1 ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED
    )
    DELETE FROM greendot_last_seen t USING chosen
    WHERE t.tenant = chosen.tenant AND t.user_id = chosen.user_id RETURNING 1
"""


class PostgresLastSeen:
    """PostgreSQL adapter of `LastSeenStore`."""

    _links: Pool

    async def put_last_seen(self, seen: Mapping[Key, int]) -> None:
        await self._links.fetch(PUT, [key[0] for key in seen], [key[1] for key in seen], [*seen.values()])

    async def last_seen(self, keys: Sequence[Key]) -> dict[Key, int]:
        rows = await self._links.fetch(LAST_SEEN, [key[0] for key in keys], [key[1] for key in keys])
        return {(row[0], row[1]): row[2] for row in rows}

    async def prune_last_seen(self, before: int, limit: int) -> int:
        return len(await self._links.fetch(PRUNE, before, limit))


_: type[LastSeenStore] = PostgresLastSeen
