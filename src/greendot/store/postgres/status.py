"""Statuses that users set, in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from greendot.ids import Key, check_text
from greendot.presence.model import ManualStatus
from greendot.store.postgres.pool import Pool
from greendot.store.status import StatusStore

_PUT = """
    INSERT INTO greendot_status AS s VALUES ($1, $2, $3, $4, $5, 1)
    ON CONFLICT (tenant, user_id) DO UPDATE
    SET status = excluded.status, until = excluded.until, text = excluded.text, rev = s.rev + 1
    RETURNING status, until, text, rev
"""
STATUSES = """
    SELECT tenant, user_id, status, until, text, rev FROM greendot_status
    WHERE (tenant, user_id) IN (SELECT * FROM unnest($1::text[], $2::text[]))
"""


class PostgresStatus:
    """PostgreSQL adapter of `StatusStore`."""

    _links: Pool

    async def put_status(self, tenant: str, user: str, manual: ManualStatus) -> ManualStatus:
        check_text((tenant, user, manual.text))
        rows = await self._links.fetch(_PUT, tenant, user, manual.status, manual.until, manual.text)
        return ManualStatus(*rows[0])

    async def statuses(self, keys: Sequence[Key]) -> dict[Key, ManualStatus]:
        rows = await self._links.fetch(STATUSES, [key[0] for key in keys], [key[1] for key in keys])
        return {(row[0], row[1]): ManualStatus(*row[2:]) for row in rows}


_: type[StatusStore] = PostgresStatus
