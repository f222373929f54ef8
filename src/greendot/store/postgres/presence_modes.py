"""Modes of presence, in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from greendot.ids import Key
from greendot.presence.mode_model import PresenceMode
from greendot.store.postgres.pool import Link, Pool
from greendot.store.presence_modes import PresenceModeStore

# Transactions that add modes in one tenant take turns: together they could exceed the maximum.
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('greendot presence modes ' || $1::text, 0))"
COUNT = "SELECT count(*) FROM greendot_presence_modes WHERE tenant = $1 AND user_id <> $2"
_PUT = """
    INSERT INTO greendot_presence_modes AS m VALUES ($1, $2, $3)
    ON CONFLICT (tenant, user_id) DO UPDATE SET mode = excluded.mode WHERE m.mode <> excluded.mode
"""
_REMOVE = "DELETE FROM greendot_presence_modes WHERE tenant = $1 AND user_id = $2"
MODES = """
    SELECT tenant, user_id, mode FROM greendot_presence_modes
    WHERE (tenant, user_id) IN (SELECT * FROM unnest($1::text[], $2::text[]))
"""
MODES_IN = "SELECT tenant, user_id, mode FROM greendot_presence_modes WHERE tenant = ANY($1::text[])"


class PostgresPresenceModes:
    """PostgreSQL adapter of `PresenceModeStore`."""

    _links: Pool

    async def put_presence_mode(self, tenant: str, user: str, mode: PresenceMode, *, most: int) -> bool:
        async def work(link: Link) -> bool:
            if mode == "auto":
                await link.execute(_REMOVE, tenant, user)
                return True
            await link.execute(_LOCK, tenant)
            if await link.fetchval(COUNT, tenant, user) >= most:
                return False
            await link.execute(_PUT, tenant, user, mode)
            return True

        return await self._links.transact(work)

    async def presence_modes(self, keys: Sequence[Key]) -> dict[Key, PresenceMode]:
        rows = await self._links.fetch(MODES, [key[0] for key in keys], [key[1] for key in keys])
        return {(row[0], row[1]): row[2] for row in rows}

    async def presence_modes_in(self, tenants: Sequence[str]) -> dict[Key, PresenceMode]:
        rows = await self._links.fetch(MODES_IN, [*tenants])
        return {(row[0], row[1]): row[2] for row in rows}


_: type[PresenceModeStore] = PostgresPresenceModes
