"""Store in one SQLite file."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from greendot.store.port import Store
from greendot.store.sqlite.api_keys import SqliteKeys
from greendot.store.sqlite.audit import SqliteAudit
from greendot.store.sqlite.inbox import SqliteInbox
from greendot.store.sqlite.jobs import SqliteJobs
from greendot.store.sqlite.last_seen import SqliteLastSeen
from greendot.store.sqlite.markers import SqliteMarkers
from greendot.store.sqlite.moderation import SqliteModeration
from greendot.store.sqlite.pages import SqliteSnapshots
from greendot.store.sqlite.presence_modes import SqlitePresenceModes
from greendot.store.sqlite.profiles import SqliteProfiles
from greendot.store.sqlite.restrictions import SqliteRestrictions
from greendot.store.sqlite.revocations import SqliteRevocations
from greendot.store.sqlite.rooms import SqliteRooms
from greendot.store.sqlite.status import SqliteStatus
from greendot.store.sqlite.tenants import SqliteTenants
from greendot.store.sqlite.thread import DatabaseThread
from greendot.store.sqlite.user_data import SqlitePeople
from greendot.store.sqlite.visibility import SqlitePrivacy
from greendot.store.webhooks import Hooked


class SqliteStore(
    SqliteRooms,
    SqliteMarkers,
    SqliteModeration,
    SqliteInbox,
    SqliteSnapshots,
    SqliteStatus,
    SqliteProfiles,
    SqliteLastSeen,
    SqlitePresenceModes,
    SqlitePrivacy,
    SqliteKeys,
    SqliteTenants,
    SqlitePeople,
    SqliteRevocations,
    SqliteRestrictions,
    SqliteJobs,
    SqliteAudit,
):
    """SQLite adapter of `Store`. `path` is a file or `:memory:`.

    Webhook events are queued for `hooked` tenants, pushes for `pushed` tenants.
    """

    def __init__(self, path: str, *, hooked: Hooked | None = None, pushed: Collection[str] = ()) -> None:
        self._thread = DatabaseThread(path)
        self._hooked = hooked or {}
        self._pushed = pushed

    async def start(self) -> None:
        await self._thread.start()

    async def migrate(self) -> list[str]:
        return await asyncio.to_thread(self._thread.migrate)

    async def close(self) -> None:
        await self._thread.close()

    async def ping(self) -> None:
        await self._thread.do(lambda db: db.execute("SELECT 1").fetchone())


_: type[Store] = SqliteStore
