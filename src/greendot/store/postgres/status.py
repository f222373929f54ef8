"""What users set by hand, in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from greendot.presence.model import Manual
from greendot.store.port import Key, StatusStore, check_text
from greendot.store.postgres.pool import Links

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
    """See `StatusStore`."""

    _links: Links

    async def put_status(self, tenant: str, user: str, manual: Manual) -> Manual:
        check_text((tenant, user, manual.text))
        rows = await self._links.fetch(_PUT, tenant, user, manual.status, manual.until, manual.text)
        return Manual(*rows[0])

    async def statuses(self, keys: Sequence[Key]) -> dict[Key, Manual]:
        rows = await self._links.fetch(STATUSES, [key[0] for key in keys], [key[1] for key in keys])
        return {(row[0], row[1]): Manual(*row[2:]) for row in rows}


_: type[StatusStore] = PostgresStatus
