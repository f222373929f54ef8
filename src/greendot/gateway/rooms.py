"""Rooms on this node: who may enter, who listens, what is said.

A room is local while it has listeners here (and a little longer). A joiner reads up to the cursor and attaches in the
same turn of the loop.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from greendot.engine.base import Deliver, Engine, MemberRemoved, Part, Topic, Typing
from greendot.errors import Refused
from greendot.gateway.connection import Connection
from greendot.gateway.following import Followed, Following
from greendot.gateway.hub import Channel, RoomKey
from greendot.gateway.session import Session
from greendot.gateway.shared import Shared
from greendot.gateway.statuses import Statuses
from greendot.gateway.typing import TypingLine
from greendot.ids import new_message_id
from greendot.protocol.codec import encode_event
from greendot.protocol.codes import Err
from greendot.protocol.commands import RoomHistory, RoomSend
from greendot.protocol.events import Resync, RoomChanged, RoomMessage
from greendot.protocol.replies import HistoryReply, JoinReply, PresentReply, RoomEntry, RoomsReply, SendReply
from greendot.store.base import Draft, Record, Room, Store
from greendot.store.events import message_event

RECOVER = 300  # a client further behind than this is told to fetch again
RECOVER_BYTES = 4 * 1024 * 1024  # the same; all of it waits for a client that returns and does not read
PAGE_BYTES = 1024 * 1024  # of messages in one page of history


class LocalRoom(Followed):
    """A room with listeners on this node."""

    __slots__ = ("caught", "cursor", "members_rev", "removals", "typing")

    def __init__(self, channel: Channel, typing: TypingLine) -> None:
        super().__init__(channel)
        self.typing = typing
        self.cursor = 0  # number of the newest message offered to the listeners
        self.removals = 0  # how often somebody was removed while it was local
        self.members_rev = 0  # the newest revision of the members this node acted on
        self.caught: list[tuple[int, bytes]] | None = None  # what arrives while a gap is being read


class RoomLimits(Struct, frozen=True):
    """From the settings."""

    rooms: int  # per connection
    large: int  # above so many listeners only the number of typers is told
    typing_ttl_ms: int


class Rooms:
    """All rooms of this node."""

    def __init__(self, engine: Engine, store: Store, statuses: Statuses, shared: Shared, limits: RoomLimits) -> None:
        self._engine = engine
        self._store = store
        self._statuses = statuses
        self._shared = shared
        self._limits = limits
        self._local = Following(engine, shared, self._make, self._read, lambda local: local.typing.close())

    @property
    def typing_ttl_ms(self) -> int:
        return self._limits.typing_ttl_ms

    # --- who may ---

    async def admit(self, session: Session, room: str, *, make: bool = False) -> Room:
        """The room, if the session may be in it. With `make`, one its token opens is made if it does not exist."""
        found = await self._store.room(session.tenant, room)
        if session.grants.may_join(room) and (found is not None or make):
            return found or await self._store.put_room(session.tenant, room, open=None)
        if found is not None and (found.open or await self._store.role(session.tenant, room, session.user)):
            return found
        raise Refused(Err.NOT_A_MEMBER, f"you are not a member of {room!r}")

    async def speaker(self, connection: Connection, session: Session, room: str) -> None:
        """Pass if the session may speak in the room: it has joined, or its user is a member."""
        if connection.rooms is not None and room in connection.rooms:
            return
        if (await self.admit(session, room, make=True)).open and not session.grants.may_join(room):
            raise Refused(Err.NOT_A_MEMBER, f"join {room!r} first")

    # --- listening ---

    async def join(
        self, connection: Connection, session: Session, room: str, after: int | None, most: int = RECOVER_BYTES
    ) -> JoinReply:
        """Listen from now on. With `after`, also what was missed, up to `most` bytes of it."""
        joined = connection.rooms or set()
        if room not in joined and len(joined) >= self._limits.rooms:
            raise Refused(Err.TOO_MANY, f"a connection may be in at most {self._limits.rooms} rooms")
        await self.admit(session, room, make=True)
        topic = Topic("room", session.tenant, room)
        await self._local.open([topic])
        local = self._local.get(topic)
        if local is None:
            return await self.join(connection, session, room, after, most)
        removals = local.removals
        # Again, now that removals are heard: who was removed in between must not slip in.
        await self.admit(session, room)
        missed, truncated = await self._missed(local, after, most)
        if self._local.get(topic) is not local or local.removals != removals:
            return await self.join(connection, session, room, after, most)
        # No await below: what was read and what the listener will hear must meet without a gap.
        if not connection.closing:
            self._local.attach(local, connection)
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

    async def _missed(self, local: LocalRoom, after: int | None, most: int) -> tuple[list[RoomMessage], bool]:
        """The messages after `after` up to the cursor; empty and True if they are too many, or it lies beyond."""
        if after is None:
            return [], False
        missed: list[Record] = []
        while (missed[-1].seq if missed else after) < local.cursor:
            topic, last = local.channel.topic, missed[-1].seq if missed else after
            if local.cursor - after > RECOVER:
                return [], True
            missed += await self._store.messages(topic.tenant, topic.name, after=last, limit=RECOVER)
        if sum(len(record.body) for record in missed) > most:
            return [], True
        return [message_event(record) for record in missed], after > local.cursor

    def leave(self, connection: Connection, room: str) -> None:
        session = connection.session
        if session is None or connection.rooms is None or room not in connection.rooms:
            return
        connection.rooms.discard(room)
        self._silence(connection, session, room)
        self._local.detach(Topic("room", session.tenant, room), connection)

    def forget(self, connection: Connection, *, said_bye: bool) -> None:
        """The connection is gone. A farewell ends its typing now, a lost socket's ends by itself."""
        session = connection.session
        if session is None:
            return
        if said_bye:
            self.hush(connection)
        rooms, connection.rooms = connection.rooms, None
        for room in rooms or ():
            self._local.detach(Topic("room", session.tenant, room), connection)

    def hush(self, connection: Connection) -> None:
        """End the typing this connection started, in every room."""
        session = connection.session
        if session is not None:
            for room in [*(connection.typed or ())]:
                self._silence(connection, session, room)

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
        return RoomsReply([RoomEntry(of.room.room, of.room.head, 0, of.room.open) for of in rooms])

    # --- speaking ---

    def start_typing(self, connection: Connection, session: Session, room: str) -> None:
        if self._statuses.is_invisible(session.key):
            return
        if connection.typed is None:
            connection.typed = set()
        connection.typed.add(room)
        self._engine.typing_start(session.tenant, room, session.user, session.grants.name)

    def stop_typing(self, session: Session, room: str) -> None:
        self._engine.typing_stop(session.tenant, room, session.user)

    async def send(self, connection: Connection, session: Session, command: RoomSend) -> SendReply:
        await self.speaker(connection, session, command.room)
        # The message shows that the typing is over: nobody waits for a stop that may never come.
        self.stop_typing(session, command.room)
        draft = Draft(
            user=session.user,
            name=session.grants.name,
            body=bytes(command.body),
            key=command.key or new_message_id(),
            at=self._shared.clock.now_ms(),
        )
        record = await self.append(session.tenant, command.room, draft, command.trace)
        return SendReply(record.id, record.seq)

    async def append(self, tenant: str, room: str, draft: Draft, trace: str | None = None) -> Record:
        """Write first, then tell. A message whose key was written before is not told again."""
        written = await self._store.append(tenant, room, draft)
        if written is None:
            raise Refused(Err.NOT_A_MEMBER, f"there is no room {room!r}")
        record = written.record
        if written.new:
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
        return HistoryReply([message_event(record) for record in fit(records, newest=command.after is None)])

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
                if local.caught is None:
                    self._offer(local, seq, message.frame)
                else:
                    local.caught.append((seq, message.frame))
            case Deliver():
                sender = self._shared.registry.connections.get(message.without_connection or "")
                key = RoomKey(topic.name, message.key or object())  # without a key nothing is replaced
                self._shared.hub.offer(local.channel, message.frame, key=key, skip=(sender,) if sender else ())

    def _offer(self, local: LocalRoom, seq: int, frame: bytes) -> None:
        local.cursor = max(local.cursor, seq)
        key = RoomKey(local.channel.topic.name, seq)
        self._shared.hub.offer(local.channel, frame, record=True, key=key)

    # --- when something may have been missed ---

    async def resync(self, part: Part) -> None:
        """Compare with the engine and the store, and make up for what was missed."""
        for local in self._local.within(part):
            topic = local.channel.topic
            local.typing.resync(await self._engine.typers(topic.tenant, topic.name))
            await self._catch_up(local)

    async def _catch_up(self, local: LocalRoom) -> None:
        if local.caught is not None:
            return
        local.caught = []
        try:
            topic = local.channel.topic
            room = await self._store.room(topic.tenant, topic.name)
            if room is not None and room.members_rev != local.members_rev:
                await self._look_again(local, room)
            await self._read_gap(local, room.head if room else 0)
        finally:
            caught, local.caught = local.caught, None
            for seq, frame in sorted(caught):
                if seq > local.cursor:
                    self._offer(local, seq, frame)

    async def _read_gap(self, local: LocalRoom, head: int) -> None:
        topic, now = local.channel.topic, self._shared.clock.now_ms()
        if head - local.cursor > RECOVER:
            local.cursor = head
            frame = encode_event(Resync(f"room:{topic.name}"), now)
            self._shared.hub.offer(local.channel, frame, record=True, key=RoomKey(topic.name, ("resync",)))
        elif head > local.cursor:
            for record in await self._store.messages(topic.tenant, topic.name, after=local.cursor, limit=RECOVER):
                self._offer(local, record.seq, encode_event(message_event(record), record.at))

    async def _look_again(self, local: LocalRoom, room: Room) -> None:
        """Members came or went unheard: those who may no longer listen are detached."""
        local.members_rev = room.members_rev
        for connection in [*local.channel.listeners]:
            session = connection.session
            try:
                if session is not None:
                    await self.admit(session, room.room)
            except Refused:
                if session is not None:
                    self._removed(local, MemberRemoved(session.user, "removed"))

    def _removed(self, local: LocalRoom, message: MemberRemoved) -> None:
        room = local.channel.topic.name
        local.removals += 1
        frame = encode_event(RoomChanged(room, removed=True, reason=message.reason), self._shared.clock.now_ms())
        for connection in [*self._shared.registry.connections_of(local.channel.topic.tenant, message.user)]:
            if connection.rooms is not None and room in connection.rooms:
                self.leave(connection, room)
                connection.drop(lambda key: isinstance(key, RoomKey) and key.room == room)
                connection.send(frame)

    # --- local rooms ---

    def _make(self, channel: Channel) -> LocalRoom:
        typing = TypingLine(channel, self._shared, self._limits.large, self._limits.typing_ttl_ms)
        return LocalRoom(channel, typing)

    async def _read(self, fresh: Sequence[LocalRoom]) -> None:
        for local in fresh:
            topic = local.channel.topic
            local.typing.seed(await self._engine.typers(topic.tenant, topic.name))
            room = await self._store.room(topic.tenant, topic.name)
            local.cursor = max(local.cursor, room.head if room else 0)
            local.members_rev = room.members_rev if room else 0

    def _silence(self, connection: Connection, session: Session, room: str) -> None:
        if connection.typed is not None and room in connection.typed:
            connection.typed.discard(room)
            self.stop_typing(session, room)


def fit(records: list[Record], *, newest: bool) -> list[Record]:
    """As many of the records as one answer may hold, from the end they are wanted from; at least one."""
    size, kept = 0, 0
    for record in reversed(records) if newest else records:
        size += len(record.body)
        if kept and size > PAGE_BYTES:
            break
        kept += 1
    return records[len(records) - kept :] if newest else records[:kept]
