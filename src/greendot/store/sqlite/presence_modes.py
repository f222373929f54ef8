"""Modes of presence, in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from greendot.ids import Key
from greendot.presence.mode_model import PresenceMode
from greendot.store.presence_modes import PresenceModeStore
from greendot.store.sqlite.thread import DatabaseThread

PUT = """
    INSERT INTO presence_modes VALUES (?1, ?2, ?3)
    ON CONFLICT DO UPDATE SET mode = excluded.mode WHERE mode <> excluded.mode
"""
REMOVE = "DELETE FROM presence_modes WHERE tenant = ? AND user = ?"
OTHERS = "SELECT count(*) FROM presence_modes WHERE tenant = ? AND user <> ?"
MODE = "SELECT mode FROM presence_modes WHERE tenant = ? AND user = ?"
MODES = "SELECT user, mode FROM presence_modes WHERE tenant = ?"


class SqlitePresenceModes:
    """SQLite adapter of `PresenceModeStore`."""

    _thread: DatabaseThread

    async def put_presence_mode(self, tenant: str, user: str, mode: PresenceMode, *, most: int) -> bool:
        def work(db: sqlite3.Connection) -> bool:
            if mode == "auto":
                db.execute(REMOVE, (tenant, user))
            elif db.execute(OTHERS, (tenant, user)).fetchone()[0] >= most:
                return False
            else:
                db.execute(PUT, (tenant, user, mode))
            return True

        return await self._thread.do(work)

    async def presence_modes(self, keys: Sequence[Key]) -> dict[Key, PresenceMode]:
        def work(db: sqlite3.Connection) -> dict[Key, PresenceMode]:
            rows = ((key, db.execute(MODE, key).fetchone()) for key in keys)
            return {key: row[0] for key, row in rows if row is not None}

        return await self._thread.do(work)

    async def presence_modes_in(self, tenants: Sequence[str]) -> dict[Key, PresenceMode]:
        def work(db: sqlite3.Connection) -> dict[Key, PresenceMode]:
            return {(tenant, user): mode for tenant in tenants for user, mode in db.execute(MODES, (tenant,))}

        return await self._thread.do(work)


_: type[PresenceModeStore] = SqlitePresenceModes
