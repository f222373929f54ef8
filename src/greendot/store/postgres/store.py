"""Store in PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection

from greendot.errors import StoreUnavailable
from greendot.store.inbox import Created, InboxStore
from greendot.store.port import Store
from greendot.store.postgres import inbox, messages, migrations
from greendot.store.postgres.api_keys import PostgresKeys
from greendot.store.postgres.audit import PostgresAudit
from greendot.store.postgres.group_commit import GroupCommit
from greendot.store.postgres.inbox import InsertRow, PostgresInbox, Queues
from greendot.store.postgres.inbox_marks import PostgresMarks
from greendot.store.postgres.inbox_upkeep import PostgresUpkeep
from greendot.store.postgres.jobs import PostgresJobs
from greendot.store.postgres.last_seen import PostgresLastSeen
from greendot.store.postgres.markers import PostgresMarkers
from greendot.store.postgres.messages import Message
from greendot.store.postgres.moderation import PostgresModeration
from greendot.store.postgres.pages import PostgresSnapshots
from greendot.store.postgres.pool import Pool, PoolLimits
from greendot.store.postgres.presence_modes import PostgresPresenceModes
from greendot.store.postgres.profiles import PostgresProfiles
from greendot.store.postgres.push import PostgresPushes
from greendot.store.postgres.restrictions import PostgresRestrictions
from greendot.store.postgres.revocations import PostgresRevocations
from greendot.store.postgres.rooms import PostgresRooms
from greendot.store.postgres.status import PostgresStatus
from greendot.store.postgres.tenants import PostgresTenants
from greendot.store.postgres.user_data import PostgresPeople
from greendot.store.postgres.visibility import PostgresPrivacy
from greendot.store.rooms import Written
from greendot.store.webhooks import Hooked


class PostgresStore(
    PostgresRooms,
    PostgresMarkers,
    PostgresModeration,
    PostgresInbox,
    PostgresMarks,
    PostgresUpkeep,
    PostgresSnapshots,
    PostgresStatus,
    PostgresProfiles,
    PostgresLastSeen,
    PostgresPresenceModes,
    PostgresPrivacy,
    PostgresKeys,
    PostgresTenants,
    PostgresPeople,
    PostgresRevocations,
    PostgresRestrictions,
    PostgresPushes,
    PostgresJobs,
    PostgresAudit,
):
    """PostgreSQL adapter of `Store`, with at most `pool` connections.

    With `migrate`, `start` applies missing migrations. Webhook events are queued for `hooked` tenants, pushes for
    `pushed` tenants.
    """

    def __init__(
        self,
        url: str,
        *,
        pool: int = 8,
        migrate: bool = False,
        limits: PoolLimits | None = None,
        hooked: Hooked | None = None,
        pushed: Collection[str] = (),
    ) -> None:
        self._links = Pool(url, pool, limits or PoolLimits())
        self._migrate = migrate
        self._hooked = hooked or {}
        self._pushed = pushed
        flights, patience_s = max(1, pool // 4), self._links.limits.patience_s  # the other connections serve reads
        self._appends: GroupCommit[Message, Written | None] = GroupCommit(self._write_messages, flights, patience_s)
        self._notifies: GroupCommit[list[InsertRow], list[Created]] = GroupCommit(
            self._write_entries, flights, patience_s
        )

    async def start(self) -> None:
        await self._links.open()
        try:
            if self._migrate:
                await migrations.migrate(self._links)
            await migrations.check(self._links)
        except BaseException as error:
            await self._links.close()
            if isinstance(error, StoreUnavailable):
                raise self._links.unusable(error) from None
            raise
        self._appends.open()
        self._notifies.open()

    async def migrate(self) -> list[str]:
        await self._links.open()
        try:
            return await migrations.migrate(self._links)
        except StoreUnavailable as error:
            raise self._links.unusable(error) from None
        finally:
            await self._links.close()

    async def close(self) -> None:
        await self._appends.close()
        await self._notifies.close()
        await self._links.close()

    async def ping(self) -> None:
        await self._links.ping()

    async def _write_messages(self, batch: list[Message]) -> list[Written | Exception | None]:
        hooked = self._wanting("room.message")
        return await self._links.transact_once(lambda link: messages.write(link, batch, hooked))

    async def _write_entries(self, batch: list[list[InsertRow]]) -> list[list[Created]]:
        queues = Queues(self._wanting("notification.created"), self._pushed)
        return await self._links.transact_once(lambda link: inbox.write(link, batch, queues))


_: type[Store] = PostgresStore
_inbox: type[InboxStore] = PostgresStore
