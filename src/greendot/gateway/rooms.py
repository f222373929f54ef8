"""Rooms on this node: who may enter, who listens, what is said.

A room is local while it has listeners here (and a little longer). The first listener subscribes, and only once that
is confirmed reads where the room stands. A joiner reads up to the cursor and attaches in the same turn of the loop.
"""

from __future__ import annotations

import asyncio

from greendot.clock import Clock
from greendot.core.wheel import Timer
from greendot.engine.base import Deliver, Engine, MemberRemoved, Topic, Typing
from greendot.errors import Refused
from greendot.gateway.connection import Connection
from greendot.gateway.hub import Channel, Hub, RoomKey
from greendot.gateway.registry import Registry
from greendot.gateway.session import Session
from greendot.gateway.statuses import Statuses
from greendot.gateway.tasks import Tasks
from greendot.gateway.timers import Timers
from greendot.gateway.typing import TypingLine
from greendot.ids import new_message_id
from greendot.protocol.codec import encode_event
from greendot.protocol.codes import Err
from greendot.protocol.commands import RoomHistory, RoomSend
from greendot.protocol.events import RoomChanged, RoomMessage
from greendot.protocol.replies import HistoryReply, JoinReply, PresentReply, RoomEntry, RoomsReply, SendReply
from greendot.store.base import Draft, Record, Room, Store
from greendot.store.events import message_event

EMPTY_S = 5.0  # how long a room without listeners stays subscribed
RECOVER = 300  # a client further behind than this is told to fetch again


class LocalRoom:
    """A room with listeners on this node."""

    __slots__ = ("channel", "cursor", "opening", "timer", "typing")

    def __init__(self, channel: Channel, typing: TypingLine) -> None:
        self.channel = channel
        self.typing = typing
        self.cursor = 0  # number of the newest message offered to the listeners
        self.opening: asyncio.Future[None] | None = None
        self.timer: Timer | None = None  # set while nobody listens


class Rooms:
    """All rooms of this node."""

    def __init__(
        self, engine: Engine, store: Store, hub: Hub, registry: Registry, clock: Clock, limits: tuple[int, int, int]
    ) -> None:
        self._engine = engine
        self._store = store
        self._hub = hub
        self._registry = registry
        self._clock = clock
        self._most, *typing = limits
        self._typing_limits = (typing[0], typing[1])
        self._local: dict[Topic, LocalRoom] = {}

    def use(self, timers: Timers, tasks: Tasks, statuses: Statuses) -> None:
        self._timers = timers
        self._tasks = tasks
        self._statuses = statuses

    # --- who may ---

    async def admit(self, session: Session, room: str) -> Room:
        """The room, if the session may be in it. A room its token opens is made when it does not exist."""
        found = await self._store.room(session.tenant, room)
        if session.grants.may_join(room):
            return found or await self._store.put_room(session.tenant, room, open=False)
        if found is not None and (found.open or await self._store.is_member(session.tenant, room, session.user)):
            return found
        raise Refused(Err.NOT_A_MEMBER, f"you are not a member of {room!r}")

    async def speaker(self, session: Session, room: str) -> None:
        """Pass if the session may speak in the room: it has joined, or its user is a member."""
        connection = session.connection
        if connection is not None and connection.rooms is not None and room in connection.rooms:
            return
        if (await self.admit(session, room)).open and not session.grants.may_join(room):
            raise Refused(Err.NOT_A_MEMBER, f"join {room!r} first")

    # --- listening ---

    async def join(self, session: Session, room: str, after: int | None) -> JoinReply:
        connection = session.connection
        if connection is None:
            raise Refused(Err.UNAVAILABLE, "the connection is gone")
        joined = connection.rooms or set()
        if room not in joined and len(joined) >= self._most:
            raise Refused(Err.TOO_MANY, f"a connection may be in at most {self._most} rooms")
        await self.admit(session, room)
        topic = Topic("room", session.tenant, room)
        local = await self._open(topic)
        missed, truncated = await self._missed(local, after)
        if self._local.get(topic) is not local:  # given up while the store was slow: nobody would hear there
            return await self.join(session, room, after)
        # No await below: what was read and what the listener will hear must meet without a gap.
        if not connection.closing:
            self._timers.cancel(local.timer)
            local.timer = None
            self._hub.attach(local.channel, connection)
            connection.rooms = (connection.rooms or set()) | {room}
        return JoinReply(
            room=room,
            head=local.cursor,
            messages=missed,
            recovered=after is not None and not truncated,
            truncated=truncated,
            typing=local.typing.typers(session.user),
            typing_count=local.typing.count(session.user),
            present=len(self._seen_in(local, session.user)),
            unread=0,
        )

    async def _missed(self, local: LocalRoom, after: int | None) -> tuple[list[RoomMessage], bool]:
        """The messages after `after` up to the cursor; empty and True if there are too many, or it lies beyond."""
        if after is None:
            return [], False
        missed: list[Record] = []
        while (missed[-1].seq if missed else after) < local.cursor:
            if local.cursor - after > RECOVER:
                return [], True
            topic, last = local.channel.topic, missed[-1].seq if missed else after
            missed += await self._store.messages(topic.tenant, topic.name, after=last, limit=RECOVER)
        return [message_event(record) for record in missed], after > local.cursor

    def leave(self, connection: Connection, room: str) -> None:
        if connection.rooms is None or room not in connection.rooms:
            return
        connection.rooms.discard(room)
        self._silence(connection, room)
        self._detach(connection, room)

    def forget(self, connection: Connection, *, said_bye: bool) -> None:
        """The connection is gone. A farewell ends its typing now, a lost socket's ends by itself."""
        rooms, connection.rooms = connection.rooms, None
        for room in rooms or ():
            if said_bye:
                self._silence(connection, room)
            self._detach(connection, room)

    def present(self, topic: Topic, reader: str | None, after: str | None, limit: int) -> PresentReply:
        """Who listens on this node, as far as `reader` (None: the app) may see."""
        local = self._local.get(topic)
        users = sorted(self._seen_in(local, reader)) if local else []
        return PresentReply([user for user in users if after is None or user > after][:limit], len(users))

    def _seen_in(self, local: LocalRoom, reader: str | None) -> set[str]:
        tenant = local.channel.topic.tenant
        users = {connection.session.user for connection in local.channel.listeners if connection.session is not None}
        return {user for user in users if user == reader or not self._statuses.is_invisible((tenant, user))}

    async def list_for(self, session: Session) -> RoomsReply:
        rooms = await self._store.rooms_of(session.tenant, session.user)
        return RoomsReply([RoomEntry(room.room, room.head, 0, room.open) for room in rooms])

    # --- speaking ---

    def start_typing(self, connection: Connection, session: Session, room: str) -> None:
        if self._statuses.is_invisible(session.key):
            return
        connection.typed = (connection.typed or set()) | {room}
        self._engine.typing_start(session.tenant, room, session.user, session.grants.name)

    def stop_typing(self, session: Session, room: str) -> None:
        self._engine.typing_stop(session.tenant, room, session.user)

    async def send(self, session: Session, command: RoomSend) -> SendReply:
        await self.speaker(session, command.room)
        # The message shows that the typing is over: nobody waits for a stop that may never come.
        self.stop_typing(session, command.room)
        draft = Draft(
            user=session.user,
            name=session.grants.name,
            body=bytes(command.body),
            key=command.key or new_message_id(),
            at=self._clock.now_ms(),
        )
        record = await self.append(session.tenant, command.room, draft, command.trace)
        return SendReply(record.id, record.seq)

    async def append(self, tenant: str, room: str, draft: Draft, trace: str | None = None) -> Record:
        """Write first, then tell. A message whose key was written before is not told again."""
        written = await self._store.append(tenant, room, draft)
        if written is None:
            raise Refused(Err.NOT_A_MEMBER, f"there is no room {room!r}")
        record, new = written
        if new:
            frame = encode_event(message_event(record), draft.at, trace)
            self._engine.publish(Topic("room", tenant, room), Deliver(frame, seq=record.seq))
        return record

    async def history(self, session: Session, command: RoomHistory) -> HistoryReply:
        if command.before is not None and command.after is not None:
            raise Refused(Err.BAD_FIELD, "field `before` of room.history: give either before or after")
        await self.admit(session, command.room)
        records = await self._store.messages(
            session.tenant, command.room, after=command.after, before=command.before, limit=command.limit
        )
        return HistoryReply([message_event(record) for record in records])

    # --- from the bus ---

    def received(self, topic: Topic, message: Deliver | Typing | MemberRemoved) -> None:
        local = self._local.get(topic)
        if local is None:
            return
        match message:
            case Typing():
                local.typing.heard(message)
            case MemberRemoved():
                self._removed(local, message)
            case Deliver(seq=int(seq)):
                local.cursor = max(local.cursor, seq)
                self._hub.offer(local.channel, message.frame, record=True, key=RoomKey(topic.name, seq))
            case Deliver():
                sender = self._registry.connections.get(message.without_connection or "")
                key = RoomKey(topic.name, message.key or object())  # without a key nothing is replaced
                self._hub.offer(local.channel, message.frame, key=key, skip=(sender,) if sender else ())

    def _removed(self, local: LocalRoom, message: MemberRemoved) -> None:
        room = local.channel.topic.name
        frame = encode_event(RoomChanged(room, removed=True, reason=message.reason), self._clock.now_ms())
        for connection in [*self._registry.connections_of(local.channel.topic.tenant, message.user)]:
            if connection.rooms is not None and room in connection.rooms:
                self.leave(connection, room)
                connection.drop(lambda key: isinstance(key, RoomKey) and key.room == room)
                connection.send(frame)

    # --- local rooms ---

    async def _open(self, topic: Topic) -> LocalRoom:
        local = self._local.get(topic)
        if local is not None:
            if local.opening is not None:
                await asyncio.shield(local.opening)
            return local
        channel = self._hub.channel(topic)
        typing = TypingLine(channel, self._hub, self._registry, self._clock, self._timers, self._typing_limits)
        local = self._local[topic] = LocalRoom(channel, typing)
        local.opening = asyncio.get_running_loop().create_future()
        try:
            await self._engine.subscribe([topic])
            typing.seed(await self._engine.typers(topic.tenant, topic.name))
            room = await self._store.room(topic.tenant, topic.name)
        except BaseException as error:
            del self._local[topic]
            self._hub.drop(channel)
            local.opening.set_exception(error)
            local.opening.exception()  # whoever waits raises it; perhaps nobody does
            raise
        local.cursor = max(local.cursor, room.head if room else 0)
        opening, local.opening = local.opening, None
        opening.set_result(None)
        self._expire(local)
        return local

    def _silence(self, connection: Connection, room: str) -> None:
        session = connection.session
        if connection.typed is not None and room in connection.typed and session is not None:
            connection.typed.discard(room)
            self.stop_typing(session, room)

    def _detach(self, connection: Connection, room: str) -> None:
        session = connection.session
        local = self._local.get(Topic("room", session.tenant, room)) if session is not None else None
        if local is not None:
            self._hub.detach(local.channel, connection)
            self._expire(local)

    def _expire(self, local: LocalRoom) -> None:
        if not local.channel.listeners and local.timer is None:
            local.timer = self._timers.set(EMPTY_S, self._abandoned, local)

    def _abandoned(self, local: LocalRoom) -> None:
        local.timer = None
        if not local.channel.listeners:
            local.typing.close()
            self._local.pop(local.channel.topic, None)
            self._hub.drop(local.channel)
            self._tasks.spawn(self._engine.unsubscribe([local.channel.topic]))
