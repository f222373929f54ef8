"""Watching: the state of a user at once, then every change, and nothing for anybody else.

For each watched user the node keeps what it last heard; changes that arrive while the state is being read are kept by
version. Taking the state and joining the listeners happen in one turn of the loop, so there is neither a gap nor a
duplicate between snapshot and changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import groupby

from msgspec import structs

from greendot.core.presence import Change, Face, Snapshot
from greendot.core.projection import project, without_last_seen
from greendot.core.wheel import has_come
from greendot.engine.base import Engine, Part, Topic
from greendot.errors import EngineUnavailable, Refused
from greendot.gateway.barring import Barring, unknown
from greendot.gateway.channel import Channel
from greendot.gateway.connection import Connection
from greendot.gateway.counting import devices
from greendot.gateway.crowds import Crowds
from greendot.gateway.following import Following
from greendot.gateway.session import Session
from greendot.gateway.shared import Shared
from greendot.gateway.sights import Sights
from greendot.gateway.watched import Watched
from greendot.protocol.codec import encode_event
from greendot.protocol.codes import Err
from greendot.protocol.events import Presence

AT_ONCE = 250  # users read or told of in one turn of the loop


class Watching:
    """All watched users of this node."""

    def __init__(
        self,
        engine: Engine,
        shared: Shared,
        crowds: Crowds,
        sights: Sights,
        most: Callable[[str], int],
        hold_s: float,
    ) -> None:
        self._engine = engine
        self._shared = shared
        self._crowds = crowds
        self._sights = sights
        self._most = most  # users one connection may watch, by its tenant
        self._hold_s = hold_s  # how long all nodes together take to restore what was lost
        self._watched = Following(engine, shared, self._make, self._read, crowds.close)
        self._barring = Barring(shared, self._watched, crowds, engine.now_ms)
        self._restoring: list[Watched] = []

    def watched(self, topic: Topic) -> Watched | None:
        return self._watched.get(topic)

    async def watch(self, connection: Connection, session: Session, users: list[str]) -> list[Presence]:
        """The users' states, in the order asked for; changes follow as events until `unwatch` or the end."""
        if len((connection.watches or set()).union(users)) > (most := self._most(session.tenant)):
            raise Refused(Err.TOO_MANY, f"a connection may watch at most {most} users")
        allowed = {user: Topic("watch", session.tenant, user) for user in users if session.grants.may_watch(user)}
        known = False
        while not known:
            await self._sights.know(session.tenant, [session.user], allowed)
            await self._watched.open([*allowed.values()])
            # Else it was forgotten while they were opened.
            known = self._sights.knows(session.tenant, session.user, allowed)
        if connection.closing:
            return []
        # No await below: what is read here and what the listener will hear must meet without a gap.
        connection.watches = (connection.watches or set()).union(allowed)
        entries = []
        for user in users:
            watched = self._watched.get(allowed[user]) if user in allowed else None
            if watched is None:
                entries.append(unknown(user))
            else:
                entries.append(self._begin(watched, connection, session))
        return entries

    def _begin(self, watched: Watched, connection: Connection, session: Session) -> Presence:
        """Watch, and be told if it may be seen."""
        if not watched.is_wanted:
            watched.discreet = self._sights.is_discreet(*watched.key)
        if not self._may_see(session, watched.user):
            self._barring.bar(watched, connection)
            return self._barring.snapshot(watched, connection)
        if connection in watched.barred and (lifted := self._barring.lift(watched, connection)) is not None:
            return structs.replace(self._snapshot(watched, session), version=lifted.version)
        if connection not in watched.channel.listeners or watched.crowd is not None:
            self._watched.attach(watched, connection)
            self._crowds.came(watched, connection)
        return self._snapshot(watched, session)

    def _may_see(self, session: Session, user: str) -> bool:
        return self._sights.see(session.tenant, session.user, user) != "hidden"

    def unwatch(self, connection: Connection, session: Session, users: list[str]) -> None:
        if connection.watches is not None:
            for user in connection.watches.intersection(users):
                connection.watches.discard(user)
                self._detach(Topic("watch", session.tenant, user), connection)

    def keep_granted(self, connection: Connection, session: Session) -> None:
        """The session has another token: whom it does not let watch is not watched any more."""
        lost = [user for user in connection.watches or () if not session.grants.may_watch(user)]
        if lost:
            self.unwatch(connection, session, lost)
            keys = {("presence", user) for user in lost}
            connection.drop(lambda key: isinstance(key, tuple) and key in keys)

    def forget(self, connection: Connection) -> None:
        """The connection is gone, and its interest with it."""
        if connection.watches is not None and connection.session is not None:
            for user in connection.watches:
                self._detach(Topic("watch", connection.session.tenant, user), connection)
            connection.watches = None

    def _detach(self, topic: Topic, connection: Connection) -> None:
        watched = self._watched.get(topic)
        if watched is not None:
            self._barring.forget(watched, connection)
            self._watched.detach(topic, connection)
            self._crowds.left(watched, connection)

    def _make(self, channel: Channel) -> Watched:
        watched = Watched(channel)
        self._crowds.opened(watched)
        return watched

    def _snapshot(self, watched: Watched, session: Session) -> Presence:
        if watched.user == session.user:
            return watched.shown_own(devices=True)
        return watched.shown(self._engine.now_ms(), devices=True)

    # --- asking ---

    async def read(self, session: Session, users: list[str]) -> list[Presence]:
        """The users' states now, without watching them."""
        await self._sights.know(session.tenant, [session.user], users)
        polled = await self._open_polled(session, users)
        others = [user for user in users if user not in polled]
        # Those not to be seen are read under names nobody can have: that takes as long as for the unknown.
        may_watch = session.grants.may_watch
        names = [user if may_watch(user) and self._may_see(session, user) else f".{user}" for user in others]
        snapshots = await self._engine.read(session.tenant, names) if names else []
        # Once more, with nothing to wait for behind it: who was hidden meanwhile is.
        await self._sights.learn(session.tenant, [session.user], users)
        known = {user: self._read_one(session, user, snap) for user, snap in zip(others, snapshots, strict=True)}
        for user, watched in polled.items():
            hidden = not self._may_see(session, user)
            known[user] = self._hidden(session, user) if hidden else self._snapshot(watched, session)
        return [known[user] for user in users]

    def _read_one(self, session: Session, user: str, snapshot: Snapshot) -> Presence:
        if user == session.user:
            return project(user, snapshot, own=True)
        if not session.grants.may_watch(user):
            return unknown(user)
        sight = self._sights.see(session.tenant, session.user, user)
        if sight == "hidden":
            return self._hidden(session, user)
        shown = project(user, snapshot)
        return shown if sight == "full" else without_last_seen(shown)

    def _hidden(self, session: Session, user: str) -> Presence:
        watched = self._watched.get(Topic("watch", session.tenant, user))
        return unknown(user) if watched is None else self._barring.snapshot(watched, session.connection)

    async def _open_polled(self, session: Session, users: list[str]) -> dict[str, Watched]:
        """Those of the users whom thousands ask for. They are followed, if only for some seconds: while they are, what
        they are asked for is known here."""
        polled = self._crowds.polled
        if not polled:
            return {}
        tenant, grants = session.tenant, session.grants
        asked = [user for user in users if (tenant, user) in polled and grants.may_watch(user)]
        asked = [user for user in asked if self._may_see(session, user)]
        topics = {user: Topic("watch", tenant, user) for user in asked}
        await self._watched.open([*topics.values()])
        found = {user: self._watched.get(topic) for user, topic in topics.items()}
        return {user: watched for user, watched in found.items() if watched is not None}

    # --- changes ---

    def changed(self, topic: Topic, change: Change) -> None:
        """A change from the bus."""
        watched = self._watched.get(topic)
        if watched is None or watched.held:
            return
        if change.restored and not (_same(change.face, watched.face) and _same_own(change.own, watched.own)):
            # The user's other sessions may be still to come: showing this now would be a flicker.
            watched.held = True
            if not self._restoring:
                self._shared.timers.set(self._hold_s, self._restored)
            self._restoring.append(watched)
            return
        watched.name, watched.devices = change.name or watched.name, change.devices
        if change.public and change.face.version > watched.face.version:
            self._show(watched, change.face)
        if change.private and change.own.version > watched.own.version:
            self._show_own(watched, change.own)

    def _show(self, watched: Watched, face: Face, *, anyway: bool = False) -> None:
        """Others see this now; told unless it looks the same."""
        before, watched.face = watched.face, face
        if (not anyway and _same(before, face)) or self._crowds.tells(watched):
            return
        frame = encode_event(watched.shown(self._engine.now_ms()), self._shared.clock.now_ms())
        key = ("presence", watched.user)
        self._shared.hub.offer(watched.channel, frame, key=key, skip=self._devices(watched))

    def _show_own(self, watched: Watched, face: Face, *, anyway: bool = False) -> None:
        before, watched.own = watched.own, face
        if not anyway and _same_own(before, face):
            return
        if own := self._devices(watched):
            frame = encode_event(watched.shown_own(), self._shared.clock.now_ms())
            self._shared.hub.send_each(own, frame, key=("presence", watched.user))

    def _devices(self, watched: Watched) -> list[Connection]:
        return self._connections(watched, watched.user)

    # --- who may see whom ---

    def in_use(self, tenant: str) -> set[str]:
        """Those who are watched."""
        return {watched.user for watched in self._watched.within(Part()) if watched.key[0] == tenant}

    async def review(self, tenant: str, users: Collection[str] | None) -> None:
        """Decide again what these see and who sees them, and tell what is different."""
        topics = [Topic("watch", tenant, user) for user in (self.in_use(tenant) if users is None else users)]
        looked = 0
        for watched in [found for topic in topics if (found := self._watched.get(topic)) is not None]:
            await self._sights.know(tenant, _watchers(watched), [watched.user])
            concerned = self._concerned(watched)
            self._reconsider(watched, concerned)
            looked += 1 + len(concerned)
            if looked > AT_ONCE:  # the rest in the next turn of the loop
                looked = 0
                await asyncio.sleep(0)
        for user in users or ():
            for connection in [*self._shared.registry.connections_of(tenant, user)]:
                seen = {other: Topic("watch", tenant, other) for other in connection.watches or ()}
                await self._sights.know(tenant, [user], seen)
                for topic in seen.values():
                    if (found := self._watched.get(topic)) is not None:
                        self._reconsider(found, [connection])

    def _concerned(self, watched: Watched) -> list[Connection]:
        """Those of the watchers for whom there may be something else to decide than that they see the user."""
        hide_from = self._sights.only_hidden_from(*watched.key)
        if hide_from is None:
            return [*watched.channel.listeners, *watched.barred]
        return [*(device for user in hide_from for device in self._connections(watched, user)), *watched.barred]

    def _connections(self, watched: Watched, user: str) -> list[Connection]:
        return devices(self._shared, watched.channel, user)

    def _reconsider(self, watched: Watched, connections: Iterable[Connection]) -> None:
        discreet, watched.discreet = watched.discreet, self._sights.is_discreet(*watched.key)
        if discreet != watched.discreet and watched.face.state == "offline":
            self._show(watched, watched.face, anyway=True)
        for connection in connections:
            session = connection.session
            if session is None or watched.user not in (connection.watches or ()):
                continue  # it went while others were looked at
            if not self._may_see(session, watched.user):
                self._barring.bar(watched, connection)
            elif (shown := self._barring.lift(watched, connection)) is not None:
                frame = encode_event(shown, self._shared.clock.now_ms())
                connection.send(frame, record=False, key=("presence", watched.user))

    # --- when something may have been missed ---

    def hold(self, part: Part) -> None:
        """Show nothing new of these users until they are read again: their sessions are being restored.

        Who holds them reads them when the time is over. What else reads them before leaves them alone: another return
        of the engine, or an earlier loss.
        """
        until = self._shared.timers.now() + self._hold_s
        for watched in self._watched.within(part):
            watched.held, watched.held_until = True, until

    def _restored(self, _: None) -> None:
        """Users that were restored before this node knew of any loss must all be back by now."""
        found, self._restoring = self._restoring, []
        known = [watched for watched in found if self._watched.get(watched.channel.topic) is watched]
        self._shared.tasks.spawn(self._quietly(known))

    async def _quietly(self, known: list[Watched]) -> None:
        try:
            await self._resync(known, False)
        except EngineUnavailable:
            pass  # everything is read again when it is back

    async def mark_stale(self, part: Part) -> None:
        """Watchers are told that what they see is not followed any more."""
        for number, watched in enumerate(self._watched.within(part)):
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
            if not watched.stale:
                watched.stale = True
                self._show(watched, watched.face, anyway=True)
                self._show_own(watched, watched.own, anyway=True)
                self._barring.tell_again(watched)

    async def resync(self, part: Part, *, intact: bool) -> None:
        """Read everybody again and tell what is different. Unless `intact`, an older version may be the truth."""
        await self._resync(self._watched.within(part), intact)

    async def _resync(self, all_watched: list[Watched], intact: bool) -> None:
        all_watched.sort(key=lambda watched: watched.channel.topic.tenant)
        for tenant, theirs in groupby(all_watched, key=lambda watched: watched.channel.topic.tenant):
            users = [*theirs]
            for at in range(0, len(users), AT_ONCE):
                now = self._shared.timers.now()
                chunk = [watched for watched in users[at : at + AT_ONCE] if has_come(watched.held_until, now)]
                before = [watched.face for watched in chunk]
                for watched in chunk:
                    watched.held = False  # what is heard from here on is newer than what is being read
                snapshots = await self._engine.read(tenant, [watched.channel.topic.name for watched in chunk])
                for watched, snapshot, face in zip(chunk, snapshots, before, strict=True):
                    if has_come(watched.held_until, now):  # not lost again meanwhile
                        self._again(watched, snapshot, settled=intact or watched.face is not face)

    def _again(self, watched: Watched, snapshot: Snapshot, *, settled: bool) -> None:
        """What was read. Unless `settled`, it stands even if its version is older: what was newer is lost."""
        was_stale, watched.stale = watched.stale, False
        if snapshot.face.version >= watched.face.version or not settled:
            watched.name, watched.devices = snapshot.name or watched.name, snapshot.devices
        self._show(watched, _newer(watched.face, snapshot.face, settled), anyway=was_stale)
        self._show_own(watched, _newer(watched.own, snapshot.own, settled), anyway=was_stale)
        if was_stale:
            self._barring.tell_again(watched)

    async def _read(self, fresh: Sequence[Watched]) -> None:
        topics = [watched.channel.topic for watched in fresh]
        snapshots = await self._engine.read(topics[0].tenant, [topic.name for topic in topics])
        for watched, snapshot in zip(fresh, snapshots, strict=True):
            watched.name, watched.devices = snapshot.name, snapshot.devices
            # A change that came between subscribing and reading may be newer than what was read.
            watched.face = max(watched.face, snapshot.face, key=lambda face: face.version)
            watched.own = max(watched.own, snapshot.own, key=lambda face: face.version)


def _watchers(watched: Watched) -> set[str]:
    connections = (*watched.channel.listeners, *watched.barred)
    return {connection.session.user for connection in connections if connection.session is not None}


def _same(one: Face, other: Face) -> bool:
    """Whether others would see no difference."""
    return (one.state, one.text) == (other.state, other.text)


def _same_own(one: Face, other: Face) -> bool:
    """Whether the user would see no difference."""
    return _same(one, other) and (one.status, one.until) == (other.status, other.until)


def _newer(shown: Face, read: Face, settled: bool) -> Face:
    if read.version >= shown.version:
        return read
    if settled or _same_own(shown, read):
        return shown
    # Readers take nothing older than what they have: the truth gets a version of its own.
    return structs.replace(read, version=shown.version + 1)
