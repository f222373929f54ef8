"""Watching: the state of a user at once, then every change, and nothing for anybody else.

For each watched user the node keeps what it last heard; changes that arrive while the state is being read are kept by
version. Taking the state and joining the listeners happen in one turn of the loop, so there is neither a gap nor a
duplicate between snapshot and changes.
"""

from __future__ import annotations

from collections.abc import Sequence

from greendot.core.presence import NOBODY, Change
from greendot.core.projection import entry, project
from greendot.engine.base import Engine, Topic
from greendot.errors import Refused
from greendot.gateway.connection import Connection
from greendot.gateway.following import Followed, Following
from greendot.gateway.hub import Channel
from greendot.gateway.session import Session
from greendot.gateway.shared import Shared
from greendot.protocol.codec import encode_event
from greendot.protocol.codes import Err
from greendot.protocol.events import Presence


class Watched(Followed):
    """A user with local watchers, as last heard."""

    __slots__ = ("devices", "face", "name", "own")

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        self.face = self.own = NOBODY
        self.name: str | None = None
        self.devices: list[str] = []


class Watching:
    """All watched users of this node."""

    def __init__(self, engine: Engine, shared: Shared, most: int) -> None:
        self._engine = engine
        self._shared = shared
        self._most = most
        self._watched = Following(engine, shared, Watched, self._read, lambda watched: None)

    async def watch(self, connection: Connection, session: Session, users: list[str]) -> list[Presence]:
        """The users' states, in the order asked for; changes follow as events until `unwatch` or the end."""
        if len((connection.watches or set()).union(users)) > self._most:
            raise Refused(Err.TOO_MANY, f"a connection may watch at most {self._most} users")
        allowed = {user: Topic("watch", session.tenant, user) for user in users if session.grants.may_watch(user)}
        await self._watched.open([*allowed.values()])
        if connection.closing:
            return []
        # No await below: what is read here and what the listener will hear must meet without a gap.
        connection.watches = (connection.watches or set()).union(allowed)
        entries = []
        for user in users:
            watched = self._watched.get(allowed[user]) if user in allowed else None
            if watched is None:
                entries.append(entry(user, NOBODY, None, []))
                continue
            self._watched.attach(watched, connection)
            face = watched.own if user == session.user else watched.face
            entries.append(entry(user, face, watched.name, watched.devices, own=user == session.user))
        return entries

    def unwatch(self, connection: Connection, session: Session, users: list[str]) -> None:
        if connection.watches is not None:
            for user in connection.watches.intersection(users):
                connection.watches.discard(user)
                self._watched.detach(Topic("watch", session.tenant, user), connection)

    def forget(self, connection: Connection) -> None:
        """The connection is gone, and its interest with it."""
        if connection.watches is not None and connection.session is not None:
            for user in connection.watches:
                self._watched.detach(Topic("watch", connection.session.tenant, user), connection)
            connection.watches = None

    async def read(self, session: Session, users: list[str]) -> list[Presence]:
        """The users' states now, without watching them."""
        snapshots = await self._engine.read(session.tenant, users)
        return [
            project(user, snapshot, own=user == session.user)
            if session.grants.may_watch(user)
            else entry(user, NOBODY, None, [])
            for user, snapshot in zip(users, snapshots, strict=True)
        ]

    def changed(self, topic: Topic, change: Change) -> None:
        """A change from the bus."""
        watched = self._watched.get(topic)
        if watched is None:
            return
        watched.name, watched.devices = change.name or watched.name, change.devices
        user, now, key = topic.name, self._shared.clock.now_ms(), ("presence", topic.name)
        devices = self._shared.registry.connections_of(topic.tenant, user)
        own = [device for device in devices if device in watched.channel.listeners]
        if change.public and change.face.version > watched.face.version:
            watched.face = change.face
            frame = encode_event(entry(user, change.face, watched.name), now)
            self._shared.hub.offer(watched.channel, frame, key=key, skip=own)
        if change.private and change.own.version > watched.own.version:
            watched.own = change.own
            if own:
                frame = encode_event(entry(user, change.own, watched.name, own=True), now)
                self._shared.hub.send_each(own, frame, key=key)

    async def _read(self, fresh: Sequence[Watched]) -> None:
        topics = [watched.channel.topic for watched in fresh]
        snapshots = await self._engine.read(topics[0].tenant, [topic.name for topic in topics])
        for watched, snapshot in zip(fresh, snapshots, strict=True):
            watched.name, watched.devices = snapshot.name, snapshot.devices
            # A change that came between subscribing and reading may be newer than what was read.
            watched.face = max(watched.face, snapshot.face, key=lambda face: face.version)
            watched.own = max(watched.own, snapshot.own, key=lambda face: face.version)
