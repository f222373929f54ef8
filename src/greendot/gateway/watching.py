"""Watching: the state of a user at once, then every change, and nothing for anybody else.

For each watched user the node keeps what it last heard. The first local watcher subscribes, and only once that is
confirmed reads the state; changes that arrive in between are kept by version. Taking the state and joining the
listeners happen in one turn of the loop, so there is neither a gap nor a duplicate between snapshot and changes.
"""

from __future__ import annotations

import asyncio

from greendot.clock import Clock
from greendot.core.presence import NOBODY, Change
from greendot.core.projection import entry, project
from greendot.core.wheel import Timer
from greendot.engine.base import Engine, Topic
from greendot.errors import Refused
from greendot.gateway.connection import Connection
from greendot.gateway.hub import Channel, Hub
from greendot.gateway.registry import Registry
from greendot.gateway.session import Session
from greendot.gateway.tasks import Tasks
from greendot.gateway.timers import Timers
from greendot.protocol.codec import encode_event
from greendot.protocol.codes import Err
from greendot.protocol.events import Presence

UNWATCHED_S = 5.0  # how long a user nobody watches any more stays subscribed


class Watched:
    """A user with local watchers, as last heard."""

    __slots__ = ("channel", "devices", "face", "name", "opening", "own", "timer")

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.face = self.own = NOBODY
        self.name: str | None = None
        self.devices: list[str] = []
        self.opening: asyncio.Future[None] | None = None  # done once subscribed and read
        self.timer: Timer | None = None  # set while nobody watches


class Watching:
    """All watched users of this node."""

    def __init__(self, engine: Engine, hub: Hub, registry: Registry, clock: Clock, most: int) -> None:
        self._engine = engine
        self._hub = hub
        self._registry = registry
        self._clock = clock
        self._most = most
        self._watched: dict[Topic, Watched] = {}

    def use(self, timers: Timers, tasks: Tasks) -> None:
        self._timers = timers
        self._tasks = tasks

    async def watch(self, session: Session, users: list[str]) -> list[Presence]:
        """The users' states, in the order asked for; changes follow as events until `unwatch` or the end."""
        connection = session.connection
        if connection is None:
            return []
        watches = connection.watches or set()
        if len(watches.union(users)) > self._most:
            raise Refused(Err.TOO_MANY, f"a connection may watch at most {self._most} users")
        allowed = {user for user in users if session.grants.may_watch(user)}
        topics = [Topic("watch", session.tenant, user) for user in allowed]
        await self._open(topics)
        if connection.closing:
            return []
        if any(topic not in self._watched for topic in topics):  # given up while another one was read
            return await self.watch(session, users)
        connection.watches = (connection.watches or set()) | allowed
        # No await below: what is read here and what the listener will hear must meet without a gap.
        entries = []
        for user in users:
            watched = self._watched.get(Topic("watch", session.tenant, user)) if user in allowed else None
            if watched is None:
                entries.append(entry(user, NOBODY, None, []))
                continue
            self._timers.cancel(watched.timer)
            watched.timer = None
            self._hub.attach(watched.channel, connection)
            face = watched.own if user == session.user else watched.face
            entries.append(entry(user, face, watched.name, watched.devices, own=user == session.user))
        return entries

    def unwatch(self, session: Session, users: list[str]) -> None:
        connection = session.connection
        if connection is not None and connection.watches is not None:
            for user in connection.watches.intersection(users):
                connection.watches.discard(user)
                self._detach(connection, Topic("watch", session.tenant, user))

    def forget(self, connection: Connection) -> None:
        """The connection is gone, and its interest with it."""
        if connection.watches is not None and connection.session is not None:
            for user in connection.watches:
                self._detach(connection, Topic("watch", connection.session.tenant, user))
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
        user, now, key = topic.name, self._clock.now_ms(), ("presence", topic.name)
        own = [c for c in self._registry.connections_of(topic.tenant, user) if c in watched.channel.listeners]
        if change.public and change.face.version > watched.face.version:
            watched.face = change.face
            frame = encode_event(entry(user, change.face, watched.name), now)
            self._hub.offer(watched.channel, frame, key=key, skip=own)
        if change.private and change.own.version > watched.own.version:
            watched.own = change.own
            if own:
                frame = encode_event(entry(user, change.own, watched.name, own=True), now)
                self._hub.send_each(own, frame, key=key)

    async def _open(self, topics: list[Topic]) -> None:
        """Make sure these users are subscribed and read; those another watcher is opening are waited for."""
        fresh = [topic for topic in topics if topic not in self._watched]
        for topic in fresh:
            watched = self._watched[topic] = Watched(self._hub.channel(topic))
            watched.opening = asyncio.get_running_loop().create_future()
        waiting = [opening for t in topics if (opening := self._watched[t].opening) is not None and t not in fresh]
        if fresh:
            await self._load(fresh)
        for opening in waiting:
            await asyncio.shield(opening)

    async def _load(self, topics: list[Topic]) -> None:
        try:
            await self._engine.subscribe(topics)
            snapshots = await self._engine.read(topics[0].tenant, [topic.name for topic in topics])
        except BaseException as error:
            for topic in topics:
                self._drop(self._watched[topic], error)
            raise
        for topic, snapshot in zip(topics, snapshots, strict=True):
            watched = self._watched[topic]
            watched.name, watched.devices = snapshot.name, snapshot.devices
            # A change that came between subscribing and reading may be newer than what was read.
            watched.face = max(watched.face, snapshot.face, key=lambda face: face.version)
            watched.own = max(watched.own, snapshot.own, key=lambda face: face.version)
            opening, watched.opening = watched.opening, None
            if opening is not None:
                opening.set_result(None)
            self._expire(watched)

    def _detach(self, connection: Connection, topic: Topic) -> None:
        watched = self._watched.get(topic)
        if watched is not None:
            self._hub.detach(watched.channel, connection)
            self._expire(watched)

    def _expire(self, watched: Watched) -> None:
        if not watched.channel.listeners and watched.timer is None:
            watched.timer = self._timers.set(UNWATCHED_S, self._abandoned, watched)

    def _abandoned(self, watched: Watched) -> None:
        watched.timer = None
        if not watched.channel.listeners and watched.opening is None:
            self._drop(watched, None)
            self._tasks.spawn(self._engine.unsubscribe([watched.channel.topic]))

    def _drop(self, watched: Watched, error: BaseException | None) -> None:
        self._watched.pop(watched.channel.topic, None)
        self._hub.drop(watched.channel)
        if watched.opening is not None and error is not None:
            watched.opening.set_exception(error)
            watched.opening.exception()  # whoever waits raises it; perhaps nobody does
