"""Modes of presence on this node: read from the store, changed by the app, kept up to date.

At the first use of a tenant all modes of its users are read: they are few (`MOST_MODES`). A change is in force on every
node before it is answered. In case a message was lost, the changes since the last known revision are read periodically.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from greendot.errors import Refused
from greendot.ids import Key
from greendot.node.batching import BatchedReads
from greendot.node.context import NodeContext
from greendot.presence.mode_model import ModeTable, PresenceMode
from greendot.protocol.codes import Err
from greendot.store.port import Store
from greendot.store.visibility import LATEST, Revision

TENANTS_AT_ONCE = 100  # tenants whose changes are read together
MOST_MODES = 10_000  # users of one tenant for whom the app has chosen a mode


class _Start(NamedTuple):
    """Modes of a tenant."""

    revision: Revision  # older than the modes
    modes: dict[str, PresenceMode]


class PresenceModes:
    """Modes of presence. `table` has the modes of tenants in use."""

    def __init__(
        self,
        store: Store,
        context: NodeContext,
        table: ModeTable,
        announce: Callable[[str, str], Awaitable[object]],  # returns when every node has called `apply`
    ) -> None:
        self._store = store
        self._slices = context.slices
        self._table = table
        self._announce = announce
        self._revisions: dict[str, Revision] = {}  # by tenant in use: the modes in `table` have at least this revision
        self._locks: dict[str, asyncio.Lock] = {}  # by tenant: held during a read, so that no older result comes last
        self._starts: BatchedReads[str, _Start] = BatchedReads(context, self._read, _Start(Revision(), {}))
        self.listeners: list[Callable[[Key], None]] = []  # called with a user whose mode has changed

    async def set(self, key: Key, mode: PresenceMode) -> None:
        """Store the mode of a user; `auto` removes the stored mode. On return, the mode is in force on every node.

        Raise EngineUnavailable if the mode is stored, but a node has not confirmed it.
        """
        if not await self._store.put_presence_mode(*key, mode, most=MOST_MODES):
            raise Refused(
                Err.TOO_MANY,
                f"at most {MOST_MODES} users of a tenant may have a mode; set the mode of another user to `auto` first",
            )
        await self._announce(*key)

    async def get(self, key: Key) -> PresenceMode:
        """Return the stored mode of a user."""
        return (await self._store.presence_modes([key])).get(key, "auto")

    async def know(self, tenant: str) -> None:
        """Read the modes of a tenant at its first use. Raise StoreUnavailable if they cannot be read."""
        if tenant in self._revisions:
            return
        async with self._lock(tenant):
            if tenant not in self._revisions:
                await self._begin(tenant, await self._starts.get(tenant))

    def _lock(self, tenant: str) -> asyncio.Lock:
        return self._locks.setdefault(tenant, asyncio.Lock())

    async def _begin(self, tenant: str, start: _Start) -> None:
        self._revisions[tenant] = start.revision
        await self._notify(self._table.replace(tenant, start.modes))

    async def _notify(self, changed: Sequence[Key]) -> None:
        async for some in self._slices.cut(changed):
            for key in some:
                for listener in self.listeners:
                    listener(key)

    async def _read(self, tenants: Sequence[str]) -> Mapping[str, _Start]:
        """Read revisions first: the modes that follow contain all changes up to them."""
        revisions = [of.revision for of in await self._store.changes([(tenant, "mode", LATEST) for tenant in tenants])]
        found = {tenant: _Start(revision, {}) for tenant, revision in zip(tenants, revisions, strict=True)}
        for (tenant, user), mode in (await self._store.presence_modes_in(tenants)).items():
            found[tenant].modes[user] = mode
        return found

    async def apply(self, key: Key) -> None:
        """Read the mode of a user again, because it has changed. Raise StoreUnavailable if it cannot be read."""
        tenant, user = key
        if tenant in self._revisions or tenant in self._locks:
            await self._reread(tenant, [user])

    async def _reread(self, tenant: str, users: Collection[str]) -> None:
        async with self._lock(tenant):
            if tenant in self._revisions:
                found = await self._store.presence_modes([(tenant, user) for user in users])
                await self._notify(self._table.put(tenant, users, {user: mode for (_, user), mode in found.items()}))

    async def refresh(self, tenants: Collection[str]) -> None:
        """Read the changes since the last known revisions, in case a message was lost. Forget all other tenants."""
        for tenant in [of for of, lock in self._locks.items() if of not in tenants and not lock.locked()]:
            del self._locks[tenant]
            self._revisions.pop(tenant, None)
            self._table.replace(tenant, {})
        async for some in self._slices.cut([*self._revisions.items()], TENANTS_AT_ONCE):
            found = await self._store.changes([(tenant, "mode", revision) for tenant, revision in some])
            for (tenant, _), (revision, users) in zip(some, found, strict=True):
                await self._apply_changes(tenant, revision, users)

    async def _apply_changes(self, tenant: str, revision: Revision, users: Collection[str] | None) -> None:
        if users:
            await self._reread(tenant, users)
            if tenant in self._revisions:
                self._revisions[tenant] = revision
        elif users is None:
            async with self._lock(tenant):
                await self._begin(tenant, (await self._read([tenant]))[tenant])
