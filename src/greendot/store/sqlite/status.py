"""What users set by hand, in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from greendot.presence.model import Manual
from greendot.store.port import Key, StatusStore, check_text
from greendot.store.sqlite.thread import DatabaseThread


class SqliteStatus:
    """See `StatusStore`."""

    _thread: DatabaseThread

    async def put_status(self, tenant: str, user: str, manual: Manual) -> Manual:
        check_text((tenant, user, manual.text))

        def work(db: sqlite3.Connection) -> Manual:
            row = db.execute(
                "INSERT INTO status VALUES (?, ?, ?, ?, ?, 1) ON CONFLICT DO UPDATE SET"
                " status = excluded.status, until = excluded.until, text = excluded.text, rev = rev + 1"
                " RETURNING status, until, text, rev",
                (tenant, user, manual.status, manual.until, manual.text),
            ).fetchone()
            return Manual(*row)

        return await self._thread.do(work)

    async def statuses(self, keys: Sequence[Key]) -> dict[Key, Manual]:
        sql = "SELECT status, until, text, rev FROM status WHERE tenant = ? AND user = ?"

        def work(db: sqlite3.Connection) -> dict[Key, Manual]:
            rows = ((key, db.execute(sql, key).fetchone()) for key in keys)
            return {key: Manual(*row) for key, row in rows if row is not None}

        return await self._thread.do(work)


_: type[StatusStore] = SqliteStatus
