"""Audit in PostgreSQL.

The head of a tenant's entries is the last row that a transaction locks. Transactions hold it until the end of their
commit, so entries become visible in the order of their numbers, and no two writers wait for each other.
"""

from __future__ import annotations

from collections.abc import Sequence

from greendot.ids import Bound
from greendot.store.audit import ANY, AuditEntry, AuditFilter, AuditNote, AuditStore, check_note
from greendot.store.postgres.pool import Link, Pool
from greendot.store.webhooks import AUDITED, Hooked

_NUMBER = """
    INSERT INTO greendot_audit_heads AS h (tenant, number) VALUES ($1, 1)
    ON CONFLICT (tenant) DO UPDATE SET number = h.number + 1 RETURNING number
"""
_WRITE = """
    INSERT INTO greendot_audit (tenant, number, at, actor, action, room, user_id, ref, reason, until, slow_mode_s)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
"""
_QUEUE = "INSERT INTO greendot_hook_events (tenant, type, stream, seq, at) VALUES ($1, $2, $3, $4, $5)"
PRUNE = """
    WITH chosen AS MATERIALIZED (
        SELECT tenant, number FROM greendot_audit WHERE at < $1 ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED
    )
    DELETE FROM greendot_audit t USING chosen
    WHERE t.tenant = chosen.tenant AND t.number = chosen.number RETURNING 1
"""
_COLUMNS = ("room", "user_id", "action")  # in the order of `AuditFilter`
_BEYOND = 2**62  # above every number


class PostgresAudit:
    """PostgreSQL adapter of `AuditStore`."""

    _links: Pool
    _hooked: Hooked

    async def put_audit(self, note: AuditNote) -> None:
        check_note(note)
        await self._links.transact_once(lambda link: write_notes(link, [note], self._hooked))

    async def audit(
        self, tenant: str, only: AuditFilter = ANY, *, after: Bound = None, before: Bound = None, limit: int
    ) -> list[AuditEntry]:
        wanted = [value for value in only if value is not None]
        values = (tenant, after or 0, _BEYOND if before is None else before, limit, *wanted)
        rows = await self._links.fetch(page_sql(only, newest=after is None), *values)
        return [AuditEntry(*row) for row in (reversed(rows) if after is None else rows)]

    async def prune_audit(self, before: int, limit: int) -> int:
        return len(await self._links.fetch(PRUNE, before, limit))


async def write_notes(link: Link, notes: Sequence[AuditNote], hooked: Hooked) -> None:
    """Write entries and queue their webhooks in the caller's transaction, as its last statements.

    Tenants are locked in the order of their names, so that two batches cannot wait for each other.
    """
    for note in sorted(notes, key=lambda note: note.tenant):
        number = await link.fetchval(_NUMBER, note.tenant)
        await link.execute(_WRITE, note.tenant, number, *note[1:])
        if AUDITED in hooked.get(note.tenant, ()):
            await link.execute(_QUEUE, note.tenant, AUDITED, note.room or "", number, note.at)


def page_sql(only: AuditFilter, *, newest: bool) -> str:
    wanted = [column for column, value in zip(_COLUMNS, only, strict=True) if value is not None]
    where = "".join(f" AND {column} = ${place}" for place, column in enumerate(wanted, start=5))
    return (
        "SELECT number, at, tenant, actor, action, room, user_id, ref, reason, until, slow_mode_s FROM greendot_audit"
        f" WHERE tenant = $1{where} AND number > $2 AND number < $3"
        f" ORDER BY number {'DESC' if newest else 'ASC'} LIMIT $4"
    )


_: type[AuditStore] = PostgresAudit
