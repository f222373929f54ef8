"""Profiles of users, in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from greendot.ids import Key, check_text
from greendot.presence.profile_model import Profile, ProfileChange
from greendot.store.profiles import ProfileStore
from greendot.store.sqlite.thread import DatabaseThread

PUT = """
    INSERT INTO user_info (tenant, user, name, info, at, rev) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
    ON CONFLICT DO UPDATE SET
        name = CASE WHEN ?7 THEN name ELSE excluded.name END,
        info = CASE WHEN ?8 THEN info ELSE excluded.info END,
        at = max(at, excluded.at), rev = max(rev + 1, excluded.rev)
    WHERE NOT ?9 OR at <= excluded.at
    RETURNING name, ifnull(info, x''), at, rev
"""
PROFILES = "SELECT name, ifnull(info, x''), at, rev FROM user_info WHERE tenant = ? AND user = ?"


class SqliteProfiles:
    """SQLite adapter of `ProfileStore`."""

    _thread: DatabaseThread

    async def put_profile(self, tenant: str, user: str, change: ProfileChange) -> Profile | None:
        values = (tenant, user, *change.values)
        check_text(values[:3])

        def work(db: sqlite3.Connection) -> Profile | None:
            row = db.execute(PUT, values).fetchone()
            return None if row is None else Profile(*row)

        return await self._thread.do(work)

    async def profiles(self, keys: Sequence[Key]) -> dict[Key, Profile]:
        def work(db: sqlite3.Connection) -> dict[Key, Profile]:
            rows = ((key, db.execute(PROFILES, key).fetchone()) for key in keys)
            return {key: Profile(*row) for key, row in rows if row is not None}

        return await self._thread.do(work)


_: type[ProfileStore] = SqliteProfiles
