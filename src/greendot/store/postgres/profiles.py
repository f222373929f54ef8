"""Profiles of users, in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from greendot.ids import Key, check_text
from greendot.presence.profile_model import Profile, ProfileChange
from greendot.store.postgres.pool import Pool
from greendot.store.profiles import ProfileStore

PUT = """
    INSERT INTO greendot_user_info AS p (tenant, user_id, name, info, at, rev) VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT (tenant, user_id) DO UPDATE SET
        name = CASE WHEN $7::boolean THEN p.name ELSE excluded.name END,
        info = CASE WHEN $8::boolean THEN p.info ELSE excluded.info END,
        at = greatest(p.at, excluded.at), rev = greatest(p.rev + 1, excluded.rev)
    WHERE NOT $9::boolean OR p.at <= excluded.at
    RETURNING name, coalesce(info, ''), at, rev
"""
PROFILES = """
    SELECT tenant, user_id, name, coalesce(info, ''), at, rev FROM greendot_user_info
    WHERE (tenant, user_id) IN (SELECT * FROM unnest($1::text[], $2::text[]))
"""


class PostgresProfiles:
    """PostgreSQL adapter of `ProfileStore`."""

    _links: Pool

    async def put_profile(self, tenant: str, user: str, change: ProfileChange) -> Profile | None:
        values = (tenant, user, *change.values)
        check_text(values[:3])
        rows = await self._links.fetch(PUT, *values)
        return Profile(*rows[0]) if rows else None

    async def profiles(self, keys: Sequence[Key]) -> dict[Key, Profile]:
        rows = await self._links.fetch(PROFILES, [key[0] for key in keys], [key[1] for key in keys])
        return {(row[0], row[1]): Profile(*row[2:]) for row in rows}


_: type[ProfileStore] = PostgresProfiles
