"""Profiles of users on this node: read in batches, shown to watchers and in rooms, and read again after a change.

A profile is the name and the info of a user. Only the store has profiles, not the engine. A change is committed, then
announced to all nodes. A node reads a changed profile again before it shows the profile. Announcements may be lost, so
every node also reads the log of changes periodically (`PrivacyStore.changes`).

In a tenant without profiles, no profile is read. The revision of the log shows whether the tenant has profiles.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Protocol

from greendot.engine.messages import ALL_NODES, ProfileChanged, Topic
from greendot.engine.port import Engine
from greendot.errors import StoreUnavailable
from greendot.ids import Key
from greendot.node.batching import BatchedReads
from greendot.node.bus import BusTable
from greendot.node.context import NodeContext
from greendot.node.session import Session
from greendot.node.timer_model import has_come
from greendot.presence.profile_model import NO_PROFILE, Profile, ProfileChange, claimed, doubted, newest, shown_name
from greendot.presence.status import StatusService
from greendot.store.port import Store
from greendot.store.visibility import LATEST, Revision
from greendot.telemetry import log_events
from greendot.telemetry.log import log
from greendot.telemetry.metrics import Metrics

EVERY_S = 30.0  # between two reads of the log of changes
ANNOUNCED = 200  # announcements of a tenant after which the log is read: one read returns 1,000 changes at most
AT_ONCE = 500  # profiles in one read
MOST_KNOWN = 50_000  # profiles kept; above it the oldest is dropped
MOST_CHANGED = 100_000  # users whose changed profiles wait to be read; further changes are only in the log
WAIT_S = 1.0  # longest wait for the profiles of watched users; after that, the users are shown without profiles
AWAY_S = 5.0  # pause of the reads for watched users after the store did not answer in time
RETRY_S = 1.0


class ProfileConsumer(Protocol):
    """Part of the node that shows profiles."""

    async def doubt_profiles(self, tenant: str) -> Collection[str]:
        """Return the users of the tenant whose profiles are shown. The next profile replaces any, even a newer one."""
        ...

    async def profiles_changed(self, changed: Mapping[Key, Profile], known: Collection[Key]) -> None:
        """Show these profiles, which may have changed. Profiles of `known` users are as this node knew them before."""
        ...


class ProfileService:
    """Profiles of users who are shown by this node."""

    def __init__(
        self, engine: Engine, store: Store, context: NodeContext, statuses: StatusService, metrics: Metrics
    ) -> None:
        self._engine = engine
        self._store = store
        self._context = context
        self._statuses = statuses
        self._metrics = metrics
        statuses.listeners.append(self._visible_again)
        self._reads: BatchedReads[Key, Profile] = BatchedReads(context, self._load_known, NO_PROFILE)
        self._known = OrderedDict[Key, Profile]()  # of occupants, typists, authors and users with sessions here
        self._revisions: dict[str, Revision] = {}  # by tenant: the log is read up to here
        self._empty: set[str] = set()  # tenants without any profile
        self._announced: dict[str, int] = {}  # by tenant: announcements since the last read of the log
        self._loads: list[set[Key]] = []  # for each read under way: users whose profiles changed meanwhile
        self._changed: dict[Key, None] = {}  # users to read again
        self._is_refreshing = self._is_comparing = False
        self._ask_at = float("-inf")  # monotonic seconds before which the store is not asked for watchers
        self.consumers: list[ProfileConsumer] = []
        self.bus: BusTable = {ProfileChanged: self._announce_received}

    def __len__(self) -> int:
        return len(self._known)

    # --- reading ---

    def matter(self, tenant: str) -> bool:
        """Return False if no user of the tenant has a profile."""
        return tenant not in self._empty

    def is_ready(self, tenant: str, user: str) -> bool:
        """Return whether `of` knows the profile, so that no read is needed."""
        return tenant in self._empty or (tenant, user) in self._known

    def of(self, tenant: str, user: str) -> Profile:
        """Return the profile as this node knows it, after `learn`."""
        return NO_PROFILE if tenant in self._empty else self._known.get((tenant, user), NO_PROFILE)

    def name_of(self, session: Session) -> str | None:
        """Return the name to show for the user of a session on this node."""
        return shown_name(self.of(*session.key), session.grants.name)

    async def learn(self, tenant: str, users: Collection[str]) -> None:
        """Read the profiles of these users, unless known. Raise StoreUnavailable if the store is away."""
        if users and await self._any_in(tenant):
            missing = [key for user in users if (key := (tenant, user)) not in self._known]
            for read in [self._reads.ask(key) for key in missing]:
                await read

    async def learnt(self, tenant: str, users: Collection[str]) -> dict[str, Profile]:
        """Return the profiles of these users, who may be many and are read in one batch. Users without are left out."""
        if tenant in self._empty or not users:
            return {}
        await self.learn(tenant, users)
        found = ((user, self._known.get((tenant, user), NO_PROFILE)) for user in users)
        return {user: profile for user, profile in found if profile.rev}

    async def read(self, tenant: str, users: Sequence[str]) -> dict[str, Profile]:
        """Return the profiles of users to watch. Users without a profile are left out.

        While the store does not answer, return none at once. The profiles are read and shown later.
        """
        if tenant in self._empty or not users:
            return {}
        keys = [(tenant, user) for user in users]
        if has_come(self._ask_at, self._context.timers.now()):
            try:
                async with asyncio.timeout(WAIT_S):
                    if not await self._any_in(tenant):
                        return {}
                    found = await self._load(keys)
            except (StoreUnavailable, TimeoutError) as error:
                log(log_events.WORK_LATER, work="reading the profiles of watched users", reason=error)
                self._ask_at = self._context.timers.now() + AWAY_S
            else:
                return {key[1]: profile for key, profile in found.items() if profile.rev}
        self._read_later(keys)
        return {}

    @contextmanager
    def watching(self) -> Iterator[set[Key]]:
        """Return a set of users, to which each user is added whose profile changes before the end."""
        changed = set[Key]()
        self._loads.append(changed)
        try:
            yield changed
        finally:
            self._loads[:] = [of for of in self._loads if of is not changed]

    async def _any_in(self, tenant: str) -> bool:
        """Return whether any user of the tenant has a profile. The first call for a tenant reads the log's revision."""
        if tenant not in self._revisions:
            with self.watching() as changed:
                ((revision, _),) = await self._store.changes([(tenant, "info", LATEST)])
            self._revisions.setdefault(tenant, revision)
            if revision == Revision() and not any(key[0] == tenant for key in changed):
                self._empty.add(tenant)
        return tenant not in self._empty

    async def _load(self, keys: Sequence[Key]) -> dict[Key, Profile]:
        """Read profiles. If a profile is changed during the read, it is read again."""
        found: dict[Key, Profile] = {}
        missing = [*dict.fromkeys(keys)]
        while missing:
            some, missing = missing[:AT_ONCE], missing[AT_ONCE:]
            with self.watching() as changed:
                read = await self._store.profiles(some)
            found |= {key: read.get(key, NO_PROFILE) for key in some}
            missing += [key for key in some if key in changed]
        return found

    async def _load_known(self, keys: Sequence[Key]) -> dict[Key, Profile]:
        found = await self._load(keys)
        for key, profile in found.items():
            self._keep(key, profile)
        return found

    def _keep(self, key: Key, profile: Profile) -> None:
        known = self._known.pop(key, NO_PROFILE)
        self._known[key] = newest(known, profile)
        if len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)

    # --- writing ---

    async def set(self, key: Key, change: ProfileChange) -> Profile | None:
        """Write a change, and announce it to all nodes. Return None if `change.only_newer` prevents the write."""
        kept = await self._store.put_profile(*key, change)
        if kept is not None:
            self._metrics.presence_info_changes_total += 1
            self._engine.publish(ALL_NODES, ProfileChanged(*key))
        return kept

    async def claim(self, session: Session) -> None:
        """Read the profile of a session's user, and write what the token changes. Raise StoreUnavailable on failure.

        While the user is invisible, the token changes nothing: the time of the change would show that the user is here.
        """
        grants, key = session.grants, session.key
        if grants.info is None and key[0] in self._empty:
            return
        await self._any_in(key[0])
        await self.learn(key[0], [key[1]])
        if self._statuses.is_invisible(key):
            return
        now = self._context.clock.now_ms()
        issued_at = now if grants.issued_at is None else grants.issued_at
        change = claimed(self.of(*key), grants.name, grants.info, issued_at, now)
        if change is not None:
            await self.set(key, change)

    def _visible_again(self, key: Key) -> None:
        """Write what tokens change, which had to wait while the user was invisible."""
        if not self._statuses.is_invisible(key) and (key[0] not in self._empty or self._has_claim(key)):
            self._context.tasks.spawn(self._claim_again(key))

    def _has_claim(self, key: Key) -> bool:
        return any(session.grants.info is not None for session in self._context.registry.sessions_of(*key))

    async def _claim_again(self, key: Key) -> None:
        try:
            for session in self._context.registry.sessions_of(*key):
                await self.claim(session)
        except StoreUnavailable as error:
            log(log_events.WORK_LATER, work="storing the info of a token", reason=error)

    # --- changes ---

    def _announce_received(self, topic: Topic, message: ProfileChanged) -> None:
        tenant = message.tenant
        self._announced[tenant] = announced = self._announced.get(tenant, 0) + 1
        self._changed_on([(tenant, message.user)])
        if announced >= ANNOUNCED:
            self.compare()

    def _changed_on(self, keys: Collection[Key]) -> None:
        """Read the profiles of these users again. Reads under way read these profiles a second time, too."""
        self._empty -= {tenant for tenant, _ in keys}
        for changed in self._loads:
            changed.update(keys)
        self._read_later(keys)

    def _read_later(self, keys: Collection[Key]) -> None:
        self._changed.update(dict.fromkeys(islice(keys, max(0, MOST_CHANGED - len(self._changed)))))
        if not self._is_refreshing and self._changed:
            self._is_refreshing = True
            self._context.tasks.spawn(self._refresh())

    async def _refresh(self) -> None:
        """Read the profiles of changed users and show them. Reads do not overlap: no older profile is shown last."""
        some: list[Key] = []
        try:
            while self._changed:
                some = [*islice(self._changed, AT_ONCE)]
                for key in some:
                    del self._changed[key]
                await self._show(await self._load(some))
        except StoreUnavailable as error:
            log(log_events.WORK_LATER, work="reading changed profiles", reason=error)
            self._context.timers.set(RETRY_S, self._read_later, some)
        finally:
            self._is_refreshing = False

    async def _show(self, found: Mapping[Key, Profile]) -> None:
        known = set[Key]()
        for key, profile in found.items():
            if (before := self._known.get(key)) is not None:
                self._known[key] = newest(before, profile)
                if self._known[key].looks_like(before):
                    known.add(key)
        for consumer in self.consumers:
            await consumer.profiles_changed(found, known)

    # --- missed announcements ---

    def start(self) -> None:
        self._context.timers.set(EVERY_S * random.uniform(0.8, 1.0), self._on_timer)

    def _on_timer(self, _: None) -> None:
        self.start()
        self.compare()

    def compare(self) -> None:
        """Read the log of changes, because announcements may have been lost."""
        if not self._is_comparing and self._revisions:
            self._is_comparing = True
            self._context.tasks.spawn(self._compare())

    async def _compare(self) -> None:
        try:
            self._forget_tenants()
            self._announced = dict.fromkeys(self._revisions, 0)
            since = [(tenant, "info", revision) for tenant, revision in self._revisions.items()]
            for (tenant, _, _), found in zip(since, await self._store.changes(since), strict=True):  # type: ignore[arg-type]
                self._revisions[tenant] = found.revision
                if found.users is None:
                    await self._changed_in(tenant)
                elif found.users:
                    self._changed_on([(tenant, user) for user in found.users])
        except StoreUnavailable as error:
            log(log_events.WORK_LATER, work="reading changes of profiles", reason=error)
        finally:
            self._is_comparing = False

    def _forget_tenants(self) -> None:
        """Forget tenants without sessions here: their changes are no longer read."""
        gone = self._revisions.keys() - self._context.registry.tenants
        for tenant in gone:
            del self._revisions[tenant]
            self._empty.discard(tenant)
        if gone:
            for key in [key for key in self._known if key[0] in gone]:
                del self._known[key]

    async def _changed_in(self, tenant: str) -> None:
        """Read all known and shown profiles again: the log no longer has all changes, or a backup was restored."""
        known = [key for key in self._known if key[0] == tenant]
        for key in known:
            self._known[key] = doubted(self._known[key])
        shown = [(tenant, user) for consumer in self.consumers for user in await consumer.doubt_profiles(tenant)]
        self._changed_on([*dict.fromkeys([*known, *shown])])
