"""Watches: the state of a user at once, then every change, delivered to watchers only.

For each watched user the node keeps the last state. If a change arrives while the state is being read, the node keeps
the state with the higher version. The node takes the snapshot and attaches the watcher in one turn of the loop, so
there is neither a gap nor a duplicate between snapshot and changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence

from msgspec import Raw, Struct, structs

from greendot.auth.model import Grants
from greendot.engine.messages import Part, Topic
from greendot.engine.port import Engine
from greendot.errors import EngineUnavailable, Refused
from greendot.ids import Key
from greendot.node.channel import Channel
from greendot.node.context import NodeContext
from greendot.node.session import Connection, Session
from greendot.node.subscriptions import Subscriptions
from greendot.node.time_slices import STEP
from greendot.node.timer_model import has_come
from greendot.presence.celebrities import Celebrities
from greendot.presence.held_changes import HeldChanges
from greendot.presence.held_model import is_certain
from greendot.presence.hidden_watchers import HiddenWatchers, unknown_presence
from greendot.presence.holds import WatchHolds
from greendot.presence.last_seen import LastSeenReader
from greendot.presence.model import Change, Snapshot, VisibleState, ordered, restored_order
from greendot.presence.modes import PresenceModes
from greendot.presence.profile_model import Profile, doubted, newest
from greendot.presence.profiles import ProfileService
from greendot.presence.reads import PresenceReads, PresenceSnapshots, watchable
from greendot.presence.shown_model import VERSION, newer, same_to_others, same_to_user
from greendot.presence.status import StatusService
from greendot.presence.watched_user import WatchedUser, WatchEntry
from greendot.protocol.codec import encode_event, encode_part, joined
from greendot.protocol.codes import Err
from greendot.protocol.events import Presence
from greendot.visibility.cache import VisibilityCache


class WatchLimits(Struct, frozen=True):
    """Limits and times of watches, from the settings."""

    users: Callable[[str], int]  # maximum number of users that one connection may watch, by tenant
    hold_s: float  # seconds to keep a user's state after the engine has lost data, while nodes restore the sessions


class WatchService:
    """Service for all watched users of this node."""

    def __init__(
        self,
        engine: Engine,
        context: NodeContext,
        celebrities: tuple[Celebrities, PresenceModes],
        visibility: VisibilityCache,
        statuses: StatusService,
        last_seen: LastSeenReader,
        held_changes: HeldChanges,
        profiles: ProfileService,
        limits: WatchLimits,
    ) -> None:
        self._engine = engine
        self._context = context
        self._celebrities, self._modes = celebrities
        self._modes.listeners.append(self._mode_changed)
        self._held_changes = held_changes
        self._visibility = visibility
        visibility.consumers.append(self)
        self._most = limits.users
        self._hold_s = limits.hold_s
        self._watched = Subscriptions(engine, context, self._make, self._read, self._celebrities.close)
        self._hidden_watchers = HiddenWatchers(context, self._watched, self._celebrities, engine.now_ms)
        self._holds = WatchHolds(context, self._watched)
        followed = self._watched, self._hidden_watchers, self._celebrities, self._modes
        profiles.consumers.append(self)
        self.snapshots = PresenceSnapshots(engine, statuses, last_seen, profiles, self.watched)
        self.read = PresenceReads(
            self.snapshots, followed, visibility, context.slices, self._snapshot, self._watched_by, self._owe
        ).read
        self._restoring: list[WatchedUser] = []

    def watched(self, topic: Topic) -> WatchedUser | None:
        return self._watched.get(topic)

    async def watch(self, connection: Connection, session: Session, users: list[str]) -> Raw:
        """Return the users' states, in the order of `users`; changes follow until `unwatch` or the connection's end.

        The users are processed in groups. For each group, the node attaches the connection and takes the snapshots in
        the same turn of the loop. If a user's state changes before the reply is complete, the user's entry is made
        again. The reply is therefore never older than an event sent before it.
        """
        watches = connection.watches or set()
        new = {*users}.difference(watches)
        if len(watches) + len(new) > (most := self._most(session.tenant)):
            raise Refused(Err.TOO_MANY, f"a connection may watch at most {most} users; stop watching others first")
        entries: list[WatchEntry] = []
        many, order = len(users) > STEP, self.snapshots.order(session.tenant, users)
        users = [*ordered(users, order)]
        allowed = await watchable(self._context.slices, session.grants, users)
        await self._visibility.know_many(session.tenant, session.user, [*allowed])
        try:
            async for some in self._context.slices.cut(users):
                topics = {user: Topic("watch", session.tenant, user) for user in some if user in allowed}
                await self._open(session, topics, many=many)
                if connection.closing:
                    return joined("presence", ())
                entries += self._watch_some(connection, session, some, topics)
            if many:
                await self._context.slices.turn()  # joining so many entries takes time too
            while changed := [number for number, entry in enumerate(entries) if entry.is_outdated]:
                async for numbers in self._context.slices.cut(changed):
                    for number in numbers:
                        if (watched := entries[number].watched) is not None:
                            entries[number] = self._begin(watched, connection, session)
        except Exception:
            await self.unwatch(connection, session, new)
            raise
        return joined("presence", restored_order([entry.data for entry in entries], order))

    async def _open(self, session: Session, topics: Mapping[str, Topic], *, many: bool) -> None:
        """Follow the users, and read the facts that decide who sees them. On return, no user or fact is missing."""
        while True:
            await self._modes.know(session.tenant)
            await self._visibility.learn(session.tenant, [session.user], topics)
            await self._watched.open([*topics.values()])
            if many:
                # Reads for several commands may end in one turn of the loop. Together they must not block it.
                await self._context.slices.turn()
            # Facts or users may have been dropped during these awaits.
            if self._visibility.knows(session.tenant, session.user, topics) and self._watched.follows(topics.values()):
                return

    def _watch_some(
        self, connection: Connection, session: Session, users: Sequence[str], topics: Mapping[str, Topic]
    ) -> list[WatchEntry]:
        """Attach the connection and take the snapshots, in one turn: changes and snapshots meet without a gap."""
        connection.watches = connection.watches or set()
        connection.watches.update(topics)
        entries = []
        for user in users:
            watched = self._watched.get(topics[user]) if user in topics else None
            if watched is None:
                entries.append(WatchEntry(None, 0, encode_part(unknown_presence(user))))
            else:
                entries.append(self._begin(watched, connection, session))
        return entries

    def _begin(self, watched: WatchedUser, connection: Connection, session: Session) -> WatchEntry:
        """Attach the connection, if it may see the user, and take the snapshot."""
        self._holds.settle(watched)
        shown = self._attach(watched, connection, session)
        if watched.held and not watched.stale:
            watched.owe(connection)
        return WatchEntry(watched, watched.shows, encode_part(shown))

    def _attach(self, watched: WatchedUser, connection: Connection, session: Session) -> Presence:
        if not watched.is_wanted:
            watched.discreet = self._visibility.is_discreet(*watched.key)
        if not self._may_see(session, watched.user):
            self._hidden_watchers.bar(watched, connection)
            return self._hidden_watchers.snapshot(watched, connection, stale=watched.is_doubtful)
        if connection in watched.barred and (lifted := self._hidden_watchers.lift(watched, connection)) is not None:
            return structs.replace(self._snapshot(watched, session), version=lifted.version)
        if connection not in watched.channel.listeners or watched.celebrity is not None:
            self._watched.attach(watched, connection)
            self._celebrities.came(watched, connection)
        return self._snapshot(watched, session)

    def _may_see(self, session: Session, user: str) -> bool:
        return self._visibility.see(session.tenant, session.user, user) != "hidden"

    async def unwatch(self, connection: Connection, session: Session, users: Collection[str]) -> None:
        watches = (connection.watches or set()).intersection(users)
        async for some in self._context.slices.cut([*watches]):
            if connection.watches is not None:
                connection.watches.difference_update(some)
            self._detach_all(session.tenant, some, connection)

    async def keep_granted(self, connection: Connection, session: Session, grants: Grants) -> None:
        """End the watches that the session's next token does not allow."""
        watches = [*(connection.watches or ())]
        lost = {*watches}.difference(await watchable(self._context.slices, grants, watches))
        if lost:
            await self.unwatch(connection, session, lost)
            connection.drop(lambda key: isinstance(key, tuple) and key[0] == "presence" and key[1] in lost)

    def forget(self, connection: Connection) -> None:
        """End the watches of a closed connection."""
        watches, connection.watches = connection.watches, None
        if watches and connection.session is not None:
            if len(watches) <= STEP:
                self._detach_all(connection.session.tenant, watches, connection)
            else:
                self._context.tasks.spawn(self._forget_many(connection.session.tenant, [*watches], connection))

    async def _forget_many(self, tenant: str, users: list[str], connection: Connection) -> None:
        async for some in self._context.slices.cut(users):
            self._detach_all(tenant, some, connection)

    def _detach_all(self, tenant: str, users: Iterable[str], connection: Connection) -> None:
        for user in users:
            self._detach(Topic("watch", tenant, user), connection)

    def _detach(self, topic: Topic, connection: Connection) -> None:
        watched = self._watched.get(topic)
        if watched is not None:
            self._hidden_watchers.forget(watched, connection)
            self._watched.detach(topic, connection)
            self._celebrities.left(watched, connection)

    def _make(self, channel: Channel) -> WatchedUser:
        watched = WatchedUser(channel)
        self._celebrities.opened(watched)
        return watched

    def _mode_changed(self, key: Key) -> None:
        """Deliver the change of a mode to the user's watchers on this node."""
        if (watched := self._watched.get(Topic("watch", *key))) is not None:
            self._celebrities.mode_changed(watched)

    def _snapshot(self, watched: WatchedUser, session: Session) -> Presence:
        if watched.user == session.user:
            return watched.shown_own(devices=True)
        return watched.shown(self._engine.now_ms(), devices=True)

    # --- changes ---

    def changed(self, topic: Topic, change: Change) -> None:
        """Apply a change from the bus."""
        watched = self._watched.get(topic)
        if watched is None:
            return
        self._holds.settle(watched)
        if watched.held:
            self._changed_meanwhile(watched, change)
            return
        if change.restored and not (
            same_to_others(change.visible, watched.visible) and same_to_user(change.own, watched.own)
        ):
            self._await_restored(watched)  # other sessions of the user may follow: showing this would flicker
            # The user may have connected at the same time. The engine then publishes no other change of the state.
            self._changed_meanwhile(watched, change)
            return
        renamed = self._rename(watched, change.name)
        watched.devices = change.devices
        if change.public and change.visible.version > watched.visible.version:
            self._show(watched, change.visible, anyway=renamed)
        elif renamed:
            self._show_again(watched)
        if change.private and change.own.version > watched.own.version:
            self._show_own(watched, change.own)

    def _rename(self, watched: WatchedUser, name: str | None) -> bool:
        """Set the name of a new token; return whether watchers must get the name now.

        While the user appears offline, watchers get no new name: its time would show that the user is connected.
        """
        known, watched.name = watched.name, name or watched.name
        return known != watched.name and watched.profile.name is None and watched.visible.state != "offline"

    def _changed_meanwhile(self, watched: WatchedUser, change: Change) -> None:
        """Show a change of a held user at once, or when the sessions on all nodes confirm the change.

        The engine may have computed the change without some of the user's sessions. The change is shown at once if no
        missing session can make it wrong (`is_certain`).
        """
        if is_certain(change):
            self._show_held(watched, change)
        elif not (same_to_others(change.visible, watched.visible) and same_to_user(change.own, watched.own)):
            tenant, user = watched.key
            self._held_changes.confirm((tenant, user, ""), change.own.state, lambda: self._show_held(watched, change))

    def _show_held(self, watched: WatchedUser, change: Change) -> None:
        """Show a change of a held user. The user stays held."""
        if not watched.held or self._watched.get(watched.channel.topic) is not watched:
            return  # the user was read or dropped meanwhile
        was_stale, watched.stale = watched.stale, False
        if was_stale:
            watched.name, watched.devices = change.name or watched.name, change.devices
        visible = change.visible
        if not visible.version:  # the user was restored after a loss, and has not been visible since then
            asked_ms = self._engine.now_ms()
            visible = newer(watched.visible, visible, asked_ms, keeps=same_to_others(visible, watched.visible))
        # A state that stays as it was is shown, too, if it was marked as stale: the mark ends.
        if was_stale or visible.version > watched.visible.version:
            self._show(watched, max(visible, watched.visible, key=VERSION), anyway=was_stale)
        if was_stale or change.own.version > watched.own.version:
            self._show_own(watched, max(change.own, watched.own, key=VERSION), anyway=was_stale)
        if was_stale:
            self._hidden_watchers.redeliver(watched)

    def _show(self, watched: WatchedUser, visible: VisibleState, *, anyway: bool = False) -> None:
        """Set the state for others, and deliver it if it differs; with `anyway`, in any case."""
        before, watched.visible = watched.visible, visible
        watched.shows += 1
        if (not anyway and same_to_others(before, visible)) or self._celebrities.delivers(watched):
            return
        frame = encode_event(watched.shown(self._engine.now_ms()), self._context.clock.now_ms())
        key = ("presence", watched.user)
        own = self._devices(watched)
        skip = [*own, *watched.marked] if same_to_others(before, visible) else own
        self._context.hub.offer(watched.channel, frame, key=key, skip=skip)
        if watched.owed:
            watched.completed([c for c in watched.owed if c not in own and c not in watched.barred])

    def _show_again(self, watched: WatchedUser) -> None:
        """Deliver the state with a new name or info. The version stays: the state has not changed."""
        visible = watched.visible
        if 0 < visible.version < watched.raised:  # a watcher who is no longer hidden has this version
            visible = structs.replace(visible, version=watched.raised)
        self._show(watched, visible, anyway=True)
        self._show_own(watched, watched.own, anyway=True)

    def _show_own(self, watched: WatchedUser, visible: VisibleState, *, anyway: bool = False) -> None:
        before, watched.own = watched.own, visible
        watched.shows += 1
        if not anyway and same_to_user(before, visible):
            return
        if own := self._devices(watched):
            marked = watched.marked if same_to_user(before, visible) else ()
            self._send(watched, [device for device in own if device not in marked], watched.shown_own())
            watched.completed(own)

    def _show_owed(self, watched: WatchedUser) -> None:
        """Deliver the state to watchers whose snapshot was marked as stale, after the end of a hold.

        Their clients may know a newer state from another node than the one in the snapshot. So they get the state also
        if it has not changed here.
        """
        owed, watched.owed = watched.owed, None
        own: list[Connection] = []
        others: list[Connection] = []
        for connection in owed or ():
            session = connection.session
            if connection in watched.barred:
                self._hidden_watchers.complete(watched, connection)
            elif session is not None and connection in watched.channel.listeners:
                (own if session.user == watched.user else others).append(connection)
        self._send(watched, own, watched.shown_own())
        if not watched.is_polled:
            self._send(watched, others, watched.shown(self._engine.now_ms()))

    def _watched_by(self, session: Session, user: str) -> WatchedUser | None:
        watched, connection = self._watched.get(Topic("watch", session.tenant, user)), session.connection
        if watched is None or connection is None or user not in (connection.watches or ()):
            return None
        self._holds.settle(watched)
        return watched

    def _owe(self, watched: WatchedUser, session: Session) -> None:
        """Deliver the state to a watcher when it is known again, because a reply to `presence.get` has it as stale."""
        if session.connection is not None and not watched.stale:  # else all watchers get the state
            if not watched.held:
                self._await_restored(watched)
            watched.owe(session.connection)

    def _send(self, watched: WatchedUser, connections: Sequence[Connection], shown: Presence) -> None:
        if connections:
            frame = encode_event(shown, self._context.clock.now_ms())
            self._context.hub.send_each(connections, frame, key=("presence", watched.user))

    def _devices(self, watched: WatchedUser) -> list[Connection]:
        return self._connections(watched, watched.user)

    # --- profiles ---

    async def doubt_profiles(self, tenant: str) -> Collection[str]:
        """Return the tenant's watched users. The next profile of each replaces the known one."""
        users = [user async for some in self.in_use(tenant) for user in some]
        for user in users:
            if (watched := self.watched(Topic("watch", tenant, user))) is not None:
                watched.profile = doubted(watched.profile)
        return users

    async def profiles_changed(self, changed: Mapping[Key, Profile], known: Collection[Key]) -> None:
        """Deliver changed names and info of watched users."""
        async for some in self._context.slices.cut([*changed.items()]):
            for key, profile in some:
                if (watched := self.watched(Topic("watch", *key))) is not None:
                    before, watched.profile = watched.profile, newest(watched.profile, profile)
                    if not watched.profile.looks_like(before) and watched.opening is None:
                        self._show_again(watched)

    # --- visibility ---

    async def in_use(self, tenant: str) -> AsyncIterator[list[str]]:
        """Yield the users of the tenant who are watched, some at a time, in slices."""
        async for topics in self._watched.topics():
            yield [topic.name for topic in topics if topic.tenant == tenant]

    async def review(self, tenant: str, users: Collection[str] | None) -> None:
        """Decide again whom these users see and who sees them (None: all users). Send the differences."""
        slices, looked = self._context.slices, 0
        async for named in self.in_use(tenant) if users is None else slices.cut([*users]):
            for user in named:
                if looked > STEP:
                    looked = 0
                    await slices.turn()
                looked += 1
                if (watched := self._watched.get(Topic("watch", tenant, user))) is not None:
                    looked += await self._review_watched(watched)
        for user in users or () if self._visibility.is_viewer_fact(tenant) else ():
            for connection in [*self._context.registry.connections_of(tenant, user)]:
                async for seen in slices.cut([*(connection.watches or ())]):
                    await self._visibility.know(tenant, [user], seen)
                    for other in seen:
                        if (found := self._watched.get(Topic("watch", tenant, other))) is not None:
                            self._reconsider(found, [connection])

    async def _review_watched(self, watched: WatchedUser) -> int:
        """Decide again who sees the user. Return the number of decisions."""
        tenant, user = watched.key
        viewers = _watchers(watched) if self._visibility.is_viewer_fact(tenant) else ()
        await self._visibility.know(tenant, viewers, [user])
        concerned = self._concerned(watched)
        self._reconsider(watched, ())
        async for some in self._context.slices.cut(concerned):
            self._reconsider(watched, some)
        return len(concerned)

    def _concerned(self, watched: WatchedUser) -> list[Connection]:
        """Return the watchers from whom the user is hidden, or may have to be hidden."""
        hide_from = self._visibility.only_hidden_from(*watched.key)
        if hide_from is None:
            return [*watched.channel.listeners, *watched.barred]
        return [*(device for user in hide_from for device in self._connections(watched, user)), *watched.barred]

    def _connections(self, watched: WatchedUser, user: str) -> list[Connection]:
        return self._context.registry.connections_in(watched.channel, user)

    def _reconsider(self, watched: WatchedUser, connections: Iterable[Connection]) -> None:
        discreet, watched.discreet = watched.discreet, self._visibility.is_discreet(*watched.key)
        if discreet != watched.discreet and watched.visible.state == "offline":
            self._show(watched, watched.visible, anyway=True)
        for connection in connections:
            session = connection.session
            if session is None or watched.user not in (connection.watches or ()):
                continue  # the watch ended while other watchers were reviewed
            if not self._may_see(session, watched.user):
                self._hidden_watchers.bar(watched, connection)
            elif (shown := self._hidden_watchers.lift(watched, connection)) is not None:
                self._send(watched, [connection], shown)
                watched.completed([connection])

    # --- after missed messages, or a loss of data in the engine ---

    def hold(self, part: Part, seconds: float) -> None:
        """Keep the states of the users in `part` for `seconds`: their sessions are being restored.

        `part` is some of the users and rooms, such as those on one Redis server. A later call replaces the time. Until
        then, `resync` without `release` skips these users. So a recovery from another outage does not end the hold.
        """
        self._holds.add(part, seconds)

    def _await_restored(self, watched: WatchedUser) -> None:
        """Keep the state of a user while sessions are being restored, at most `hold_s`, then read the user."""
        watched.held = True
        if not self._restoring:
            self._context.timers.set(self._hold_s, self._restored)
        self._restoring.append(watched)

    def _restored(self, _: None) -> None:
        """Read the users of `_await_restored`: by now all nodes should have restored the sessions of these users."""
        found, self._restoring = self._restoring, []
        self._context.tasks.spawn(self._quietly(found))

    async def _quietly(self, found: list[WatchedUser]) -> None:
        async for some in self._context.slices.cut(found):
            known = self._still_watched(some)
            try:
                for tenant, users in _by_tenant(known).items():
                    await self._resync(tenant, users, intact=False)
            except EngineUnavailable:
                # No recovery may follow a short outage. So read these users again later.
                for watched in self._still_watched(known):
                    self._await_restored(watched)

    def _still_watched(self, some: Iterable[WatchedUser]) -> list[WatchedUser]:
        return [watched for watched in some if self._watched.get(watched.channel.topic) is watched]

    async def mark_stale(self, part: Part) -> None:
        """Mark the users of a part as stale, and deliver the mark to their watchers."""
        async for some in self._watched.steps(part):
            for watched in some:
                if not watched.stale:
                    watched.stale = True
                    self._show(watched, watched.visible, anyway=True)
                    self._show_own(watched, watched.own, anyway=True)
                    self._hidden_watchers.redeliver(watched)

    async def resync(self, part: Part, *, intact: bool, release: bool = False) -> None:
        """Read a part's users again and deliver the differences.

        With `intact` False the engine lost data. Then the state that is read replaces the node's state, even if the
        node's state has a newer version. If a change arrived during the read, the newer version is kept. With
        `release`, the hold of these users ends first.
        """
        if release:
            self._holds.add(part, 0.0)  # ends the hold; a hold that is added later still applies
        await self._holds.written()
        found: dict[str, list[WatchedUser]] = {}
        async for some in self._watched.steps(part):
            for tenant, theirs in _by_tenant(some).items():
                found.setdefault(tenant, []).extend(theirs)
        for tenant, theirs in found.items():
            async for users in self._context.slices.cut(theirs):
                await self._resync(tenant, users, intact=intact)

    async def refresh(self, key: Key) -> None:
        """Read a watched user again, because the message about a change may be late.

        If the user is being read for a first watcher, wait for this read: its result may be older than the change.
        """
        watched = self.watched(Topic("watch", *key))
        if watched is not None and watched.opening is not None:
            await asyncio.wait([watched.opening])
        if watched is not None and self._still_watched([watched]):
            await self._resync(key[0], [watched], intact=True)

    async def _resync(self, tenant: str, users: Sequence[WatchedUser], *, intact: bool) -> None:
        now, asked_ms = self._context.timers.now(), self._engine.now_ms()
        chunk = [watched for watched in users if not self._is_held(watched, now)]
        before = [watched.visible for watched in chunk]
        for watched in chunk:
            watched.held = False  # from now on `changed` applies every change, so none is missed during the read
        seen = {watched.user for watched in chunk if watched.visible.last_seen is not None}
        names = [watched.user for watched in chunk]
        snapshots = await self.snapshots.read_shared(tenant, names, seen)
        if not intact:
            snapshots = await self.snapshots.without_hidden(tenant, names, snapshots, before)
        for watched, snapshot, visible in zip(chunk, snapshots, before, strict=True):
            if not self._is_held(watched, now):  # no further loss meanwhile
                self._retry(watched, snapshot, asked_ms, settled=intact or watched.visible is not visible)

    def _is_held(self, watched: WatchedUser, now: float) -> bool:
        """Return whether the user is still held at `now`: a state that is read must not replace the shown one."""
        self._holds.settle(watched)
        return not has_come(watched.held_until, now)

    def _retry(self, watched: WatchedUser, snapshot: Snapshot, asked_ms: int, *, settled: bool) -> None:
        """Apply a snapshot that was read at `asked_ms` of the engine's clock, or a moment later.

        Unless `settled`, apply it even if its version is older: the newer state was lost.
        """
        if snapshot.stale:
            self._await_restored(watched)
            return
        was_stale, watched.stale = watched.stale, False
        if snapshot.visible.version >= watched.visible.version or not settled:
            watched.name, watched.devices = snapshot.name or watched.name, snapshot.devices
        visible, own = snapshot.visible, snapshot.own
        visible = newer(watched.visible, visible, asked_ms, keeps=settled or same_to_others(visible, watched.visible))
        own = newer(watched.own, own, asked_ms, keeps=settled or same_to_user(own, watched.own))
        self._show(watched, visible, anyway=was_stale)
        self._show_own(watched, own, anyway=was_stale)
        if was_stale:
            self._hidden_watchers.redeliver(watched)
        self._show_owed(watched)

    async def _read(self, fresh: Sequence[WatchedUser]) -> None:
        topics = [watched.channel.topic for watched in fresh]
        snapshots = await self.snapshots.read(topics[0].tenant, [topic.name for topic in topics])
        for watched, snapshot in zip(fresh, snapshots, strict=True):
            watched.name, watched.devices, watched.profile = snapshot.name, snapshot.devices, snapshot.profile
            # A change received between the subscription and the read may be newer than the read.
            watched.visible = max(snapshot.visible, watched.visible, key=lambda visible: visible.version)
            watched.own = max(snapshot.own, watched.own, key=lambda visible: visible.version)
            if snapshot.stale:
                watched.stale = True
                self._await_restored(watched)


def _by_tenant(some: Iterable[WatchedUser]) -> dict[str, list[WatchedUser]]:
    found: dict[str, list[WatchedUser]] = {}
    for watched in some:
        found.setdefault(watched.channel.topic.tenant, []).append(watched)
    return found


def _watchers(watched: WatchedUser) -> set[str]:
    connections = (*watched.channel.listeners, *watched.barred)
    return {connection.session.user for connection in connections if connection.session is not None}
