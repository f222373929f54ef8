"""Statuses that users set, in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from greendot.ids import Key, check_text
from greendot.presence.model import ManualStatus
from greendot.store.sqlite.keyed import keyed_sql, read_keyed
from greendot.store.sqlite.thread import DatabaseThread
from greendot.store.status import StatusStore

STATUSES = keyed_sql("status, until, text, rev", "status")


class SqliteStatus:
    """SQLite adapter of `StatusStore`."""

    _thread: DatabaseThread

    async def put_status(self, tenant: str, user: str, manual: ManualStatus) -> ManualStatus:
        check_text((tenant, user, manual.text))

        def work(db: sqlite3.Connection) -> ManualStatus:
            row = db.execute(
                "INSERT INTO status VALUES (?, ?, ?, ?, ?, 1) ON CONFLICT DO UPDATE SET"
                " status = excluded.status, until = excluded.until, text = excluded.text, rev = rev + 1"
                " RETURNING status, until, text, rev",
                (tenant, user, manual.status, manual.until, manual.text),
            ).fetchone()
            return ManualStatus(*row)

        return await self._thread.do(work)

    async def statuses(self, keys: Sequence[Key]) -> dict[Key, ManualStatus]:
        def work(db: sqlite3.Connection) -> dict[Key, ManualStatus]:
            return {key: ManualStatus(*row) for key, row in read_keyed(db, STATUSES, keys)}

        return await self._thread.do(work)


_: type[StatusStore] = SqliteStatus
