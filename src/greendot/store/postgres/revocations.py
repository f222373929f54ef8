"""Revocations, in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from greendot.auth.model import Name, Revocation
from greendot.ids import check_text
from greendot.store.postgres.messages import columns
from greendot.store.postgres.pool import Link, Pool
from greendot.store.revocations import KEPT_MS, MOST_KEPT, Numbered, Progress, RevocationStore, numbered

_COLUMNS = "tenant, kind, value, expires_at, before"
NEXT = "UPDATE greendot_revocations_head SET number = number + 1 RETURNING number"
_PUT = """
    INSERT INTO greendot_revocations AS r (tenant, kind, value, expires_at, before, number)
    VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (tenant, kind, value) DO UPDATE
    SET expires_at = greatest(r.expires_at, excluded.expires_at), before = greatest(r.before, excluded.before),
        number = excluded.number
    RETURNING r.tenant, r.kind, r.value, r.expires_at, r.before
"""
_CONFIRM = "UPDATE greendot_revocations_head SET confirmed = greatest(confirmed, $1), served_at = now()"
_PROGRESS = """
    SELECT number, confirmed, coalesce(served_at > now() - interval '45 s', false) FROM greendot_revocations_head
"""
READ = f"""
    SELECT number, {_COLUMNS} FROM greendot_revocations WHERE number > $1 AND expires_at > $3 ORDER BY number LIMIT $2
"""
FIND = f"""
    SELECT {_COLUMNS} FROM unnest($1::text[], $2::text[], $3::text[]) AS n (tenant, kind, value)
    JOIN greendot_revocations USING (tenant, kind, value)
"""
REMOVE = """
    WITH ended AS MATERIALIZED (
        SELECT tenant, kind, value FROM greendot_revocations WHERE expires_at <= $1
        AND (expires_at <= $3 OR kind IN ('session', 'ban', 'mute')
             OR number <= (SELECT number FROM greendot_revocations_head) - $4)
        LIMIT $2 FOR UPDATE
    )
    DELETE FROM greendot_revocations r USING ended e
    WHERE r.tenant = e.tenant AND r.kind = e.kind AND r.value = e.value RETURNING 1
"""


class PostgresRevocations:
    """PostgreSQL adapter of `RevocationStore`."""

    _links: Pool

    async def put_revocation(self, revocation: Revocation) -> Revocation:
        check_text(revocation.name)

        async def work(link: Link) -> Revocation:
            number = await link.fetchval(NEXT)
            row = *revocation.name, revocation.expires_at, revocation.before, number
            return Revocation(*(await link.fetch(_PUT, *row))[0])

        return await self._links.transact(work)

    async def revocations(self, after: int, limit: int, now: int = 0) -> list[Numbered]:
        rows = await self._links.fetch(READ, after, limit, now)
        return [numbered(*row) for row in rows]

    async def confirm_revocations(self, number: int) -> None:
        await self._links.fetch(_CONFIRM, number)

    async def revocation_progress(self) -> Progress:
        (row,) = await self._links.fetch(_PROGRESS)
        return Progress(*row)

    async def remove_revocations(self, now: int, *, limit: int) -> int:
        return len(await self._links.fetch(REMOVE, now, limit, now - KEPT_MS, MOST_KEPT))

    async def find_revocations(self, names: Sequence[Name]) -> dict[Name, Revocation]:
        rows = await self._links.fetch(FIND, *columns(names, 3))
        return {found.name: found for found in (Revocation(*row) for row in rows)}


_: type[RevocationStore] = PostgresRevocations
