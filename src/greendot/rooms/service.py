"""Rooms on this node: who enters, who listens, what is said.

A room is local while it has listeners here (and a little longer). A joiner reads up to the cursor and attaches in the
same turn of the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

from msgspec import Struct

from greendot.engine.messages import (
    Deliver,
    Entered,
    Left,
    MemberRemoved,
    MembersChanged,
    Part,
    Topic,
    Typing,
)
from greendot.engine.port import Engine
from greendot.errors import EngineUnavailable, Refused, StoreUnavailable
from greendot.node.bus import BusTable, traced
from greendot.node.channel import Channel, RoomKey
from greendot.node.context import NodeContext
from greendot.node.session import Connection, Session
from greendot.node.stream import RECOVER_BYTES
from greendot.node.subscriptions import Subscriptions
from greendot.protocol.codes import Err
from greendot.protocol.events import RoomMessage, TypingTimes
from greendot.protocol.replies import JoinReply, PresentReply, RoomEntry, RoomsReply
from greendot.rooms.delivery import RoomDelivery
from greendot.rooms.local_room import LocalRoom
from greendot.rooms.members import RoomAccess, RoomMembers
from greendot.rooms.occupancy import RoomOccupancy, page
from greendot.rooms.removal import MemberRemoval
from greendot.rooms.session_rooms import SessionRooms
from greendot.rooms.typing import RoomTyping
from greendot.store.port import Store
from greendot.store.wire import message_event
from greendot.visibility.cache import VisibilityCache

ATTEMPTS = 100  # to join while the members of the room change
MOST_PAIRS = 1_000_000  # of viewers and those they see in a room, to be looked through in case a change was missed
AT_ONCE = 100  # rooms looked through together


class RoomLimits(Struct, frozen=True):
    """From the settings."""

    rooms: Callable[[str], int]  # per connection, by its tenant
    large: int  # above so many listeners only the number of typers, and of those present, is told
    typing: TypingTimes
    hold_s: float  # how long all nodes together take to restore what the engine forgot


class RoomService:
    """All rooms of this node."""

    def __init__(
        self,
        engine: Engine,
        store: Store,
        session_rooms: SessionRooms,
        visibility: VisibilityCache,
        context: NodeContext,
        limits: RoomLimits,
    ) -> None:
        self._engine = engine
        self._store = store
        self._session_rooms = session_rooms
        self._visibility = visibility
        visibility.consumers.append(self)
        self._context = context
        self._limits = limits
        self._local = Subscriptions(engine, context, self._make, self._read, self._dropped)
        self.membership = RoomMembers(store, context, self._local)
        self.delivery = RoomDelivery(store, context, self._local, self._check)
        self.removal = MemberRemoval(
            engine,
            context,
            self._local,
            session_rooms,
            self.membership,
            self.delivery,
            leave=self.leave,
            receive=self.received,
        )
        self.bus: BusTable = {
            **dict.fromkeys((Typing, Entered, Left, MembersChanged), self.received),
            MemberRemoved: self.removal.receive,
        }

    def _check(self, local: LocalRoom) -> None:
        self.removal.check(local)

    @property
    def typing(self) -> TypingTimes:
        return self._limits.typing

    def local(self, topic: Topic) -> LocalRoom | None:
        return self._local.get(topic)

    # --- listening ---

    async def join(self, connection: Connection, session: Session, room: str, after: int | None) -> JoinReply:
        """Listen from now on. With `after`, also what was missed."""
        with self._context.surge.one():
            return await self.rejoin(connection, session, room, after, RECOVER_BYTES)

    async def rejoin(
        self, connection: Connection, session: Session, room: str, after: int | None, most: int
    ) -> JoinReply:
        """As a part of a hello: what was missed, up to `most` bytes of it."""
        for _ in range(ATTEMPTS):
            reply = await self._try_to_join(connection, session, room, after, most)
            if reply is not None:
                return reply
        raise StoreUnavailable(f"the members of room {room!r} changed each time they were read")

    async def _try_to_join(
        self, connection: Connection, session: Session, room: str, after: int | None, most: int
    ) -> JoinReply | None:
        """None if the room or its members changed meanwhile: then it is to be tried again."""
        joined = connection.rooms or set()
        if room not in joined and len(joined) >= (most_rooms := self._limits.rooms(session.tenant)):
            raise Refused(Err.TOO_MANY, f"a connection may be in at most {most_rooms} rooms")
        topic = Topic("room", session.tenant, room)
        if not self.membership.remembers(session.tenant, room):  # whoever may not be in it must not have it opened
            await self.membership.admit(session, room, make=True)
        await self._local.open([topic])
        local = self._local.get(topic)
        if local is None:
            return None
        removals = local.removals
        # Now that removals are heard: who was removed in between must not slip in.
        admitted = await self.membership.admit(session, room, fresh=True)
        there = {*local.present.users, *local.typing.users} if self._visibility.matters(session.tenant) else ()
        await self._visibility.know(session.tenant, [session.user], there)
        missed, truncated = await self._missed(local, after, most)
        if self._local.get(topic) is not local or local.removals != removals or not self._is_current(local, admitted):
            if local.unchecked is not None and local.checking is not None:
                await asyncio.shield(local.checking)
            return None
        # No await below: what was read and what the listener will hear must meet without a gap.
        if not connection.closing:
            self._local.attach(local, connection)
            connection.rooms = (connection.rooms or set()) | {room}
            self._context.recorder.joined(session, room)
            self._session_rooms.enter(session, room)
            local.present.room_view.came(session.user)
            local.typing.room_view.came(session.user)
        return JoinReply(
            room=room,
            head=local.cursor,
            messages=missed,
            recovered=after is not None and not truncated,
            truncated=truncated,
            typing=local.typing.typers(session.user),
            typing_count=local.typing.count(session.user),
            present=local.present.count(session.user),
            unread=max(0, local.cursor - admitted.marker),
        )

    def _is_current(self, local: LocalRoom, admitted: RoomAccess) -> bool:
        """Return whether an admission still holds: no newer revision of the members is known or being read here.

        A room may be closed, or a member removed, while the joiner waits for the store. The look-up that follows
        compares the listeners only, so whoever is not attached yet has to be admitted again.
        """
        if local.unchecked is None and admitted.room.members_rev < local.members_rev:
            self._check(local)  # also ends the wait when the store was restored to an older revision
        return local.unchecked is None

    async def _missed(self, local: LocalRoom, after: int | None, most: int) -> tuple[list[RoomMessage], bool]:
        """The messages after `after` up to the cursor; empty and True if they are too many, or it lies beyond."""
        if after is None:
            return [], False
        while True:
            records = await self.delivery.missed(local, after)
            if records is None or sum(len(record.body) for record in records) > most:
                return [], True
            if (records[-1].seq if records else after) >= local.cursor:  # nothing came while it was read
                return [message_event(record) for record in records], after > local.cursor

    def leave(self, connection: Connection, room: str) -> None:
        session = connection.session
        if session is None or connection.rooms is None or room not in connection.rooms:
            return
        connection.rooms.discard(room)
        self._context.recorder.left(session, room)
        self._session_rooms.exit(session, room)
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

    def returned(self, connection: Connection, session: Session) -> None:
        """The session is back on this connection: the rooms it did not come back into it has left."""
        if not connection.closing and session.connection is connection:
            self._session_rooms.keep(session, connection.rooms or ())

    def hush(self, connection: Connection) -> None:
        """End the typing this connection started, in every room."""
        session = connection.session
        if session is not None:
            for room in [*(connection.typed or ())]:
                self._silence(connection, session, room)

    async def present(self, topic: Topic, reader: str | None, after: str | None, limit: int) -> PresentReply:
        """Who is in the room, on whichever node, as far as `reader` (None: the app) may see."""
        local = self._local.get(topic)
        if local is not None and local.opening is None:
            users, unseen, stale = local.present.ordered(), local.present.unseen(reader), local.present.stale
        else:
            stale = self._engine.is_restoring(topic.tenant, topic.name)
            local, users, unseen = None, await self._engine.present(topic.tenant, topic.name), None
            stale = stale or self._engine.is_restoring(topic.tenant, topic.name)
        if reader is not None and self._visibility.matters(topic.tenant):
            if local is not None and local.present.is_viewer(reader):
                return local.present.page(reader, after, limit)
            users = await self._visibility.visible(topic.tenant, reader, [*users])
        return page(users, unseen, after, limit, stale=stale)

    async def list_for(self, session: Session) -> RoomsReply:
        rooms = await self._store.rooms_of(session.tenant, session.user)
        return RoomsReply(
            [RoomEntry(of.room.room, of.room.head, max(0, of.room.head - of.marker), of.room.open) for of in rooms]
        )

    # --- typing ---

    def start_typing(self, connection: Connection, session: Session, room: str) -> None:
        if self._session_rooms.statuses.is_invisible(session.key):
            return
        if connection.typed is None:
            connection.typed = set()
        connection.typed.add(room)
        self._context.recorder.typed(session, room, on=True)
        self._engine.typing_start(session.tenant, room, session.user, session.grants.name)

    def is_reader(self, session: Session, room: str) -> bool:
        """Whether somebody who has joined may only listen."""
        local = self._local.get(Topic("room", session.tenant, room))
        standing = local.roles.get(session.user) if local is not None else None
        return standing is not None and standing.role == "reader"

    def stop_typing(self, session: Session, room: str) -> None:
        self._engine.typing_stop(session.tenant, room, session.user)

    def _silence(self, connection: Connection, session: Session, room: str) -> None:
        if connection.typed is not None and room in connection.typed:
            connection.typed.discard(room)
            self.stop_typing(session, room)

    # --- from the bus ---

    def deliver(self, topic: Topic, message: Deliver) -> None:
        """Deliver a message or a signal to the subscribers of a room, in its trace."""
        if message.traceparent is None:
            self.received(topic, message)
        else:
            with traced(topic, message.traceparent, message.seq):
                self.received(topic, message)

    def received(self, topic: Topic, message: Deliver | Typing | Entered | Left | MembersChanged) -> None:
        local = self._local.get(topic)
        if local is None:
            return
        match message:
            case Typing():
                local.typing.receive(message)
            case Entered() | Left():
                if local.present.receive(message):
                    local.present.hold(self._limits.hold_s)
                    self._context.timers.set(self._limits.hold_s, self._restored, local)
            case MembersChanged():
                if local.unchecked is not None:
                    local.unchecked.append(message)  # they may have been read before: they are looked up once more
                self._check(local)
            case Deliver(seq=None):
                sender = self._context.registry.connections.get(message.without_connection or "")
                key = RoomKey(topic.name, message.key or object())  # without a key nothing is replaced
                self._context.hub.offer(
                    local.channel, message.frame, key=key, skip=(sender,) if sender else (), low=True
                )
            case Deliver():
                if message.members_rev > local.members_rev:
                    self._check(local)  # whoever was removed must not hear it
                if local.unchecked is not None:
                    local.unchecked.append(message)
                else:
                    self.delivery.received(local, message)

    # --- who may see whom ---

    def in_use(self, tenant: str) -> set[str]:
        """Those who are there or type in the rooms here."""
        users = set[str]()
        for local in self._local.within(Part()):
            if local.channel.topic.tenant == tenant:
                users.update(local.present.users, local.typing.users)
        return users

    async def review(self, tenant: str, users: Collection[str] | None) -> None:
        """Decide again what these see and who sees them, and tell what is different."""
        for local in self._local.within(Part()):
            if local.channel.topic.tenant != tenant:
                continue
            viewers, there = local.present.room_view.viewers(), {*local.present.users, *local.typing.users}
            concerned = viewers | there if users is None else (viewers | there).intersection(users)
            if not concerned or (users is None and len(viewers) * len(there) > MOST_PAIRS):
                continue
            await self._visibility.know(tenant, viewers, there.intersection(concerned))
            await self._visibility.know(tenant, viewers.intersection(concerned), there)
            while local.channel.pending or local.channel.queued:  # said before, and not to come after what is said now
                self._context.hub.flush()
                await asyncio.sleep(0)
            local.present.review(users)
            local.typing.review(users)

    # --- when something may have been missed ---

    async def resync(self, part: Part) -> None:
        """Compare with the engine and the store, and make up for what was missed."""
        await self.delivery.compare(part)
        for local in self._local.within(part):
            topic = local.channel.topic
            local.typing.resync(await self._engine.typers(topic.tenant, topic.name))
        await self.check_occupancy(part)

    async def check_occupancy(self, part: Part) -> None:
        """See who is in the rooms, and tell what is different."""
        rooms = self._local.within(part)
        for at in range(0, len(rooms), AT_ONCE):
            await asyncio.gather(*(local.present.read(self._engine) for local in rooms[at : at + AT_ONCE]))

    def hold(self, part: Part, seconds: float) -> None:
        """The engine has forgotten who is in them: for so long, or until they are held anew and read, nobody leaves."""
        for local in self._local.within(part):
            local.present.hold(seconds)

    def _restored(self, local: LocalRoom) -> None:
        """One that was seen to be restored before this node knew of any loss."""
        if self._local.get(local.channel.topic) is local:
            self._context.tasks.spawn(self._check_quietly(local))

    async def _check_quietly(self, local: LocalRoom) -> None:
        try:
            await local.present.read(self._engine)
        except EngineUnavailable:  # perhaps for a moment, in which no loss is found that has all read again
            self._context.timers.set(self._limits.hold_s, self._restored, local)

    # --- local rooms ---

    def _make(self, channel: Channel) -> LocalRoom:
        limits, session_rooms = self._limits, self._session_rooms
        typing = RoomTyping(channel, self._context, self._visibility, limits.large, limits.typing.hold_ms)
        present = RoomOccupancy(
            channel, self._context, session_rooms.statuses, session_rooms, self._visibility, limits.large
        )
        return LocalRoom(channel, typing, present)

    async def _read(self, fresh: Sequence[LocalRoom]) -> None:
        keys = [(local.channel.topic.tenant, local.channel.topic.name) for local in fresh]
        rooms = await self._store.heads(keys)
        for local, key in zip(fresh, keys, strict=True):
            typists = await self._engine.typers(*key)
            await self._visibility.know(key[0], (), [typist.user for typist in typists])
            local.typing.seed(typists)
            await local.present.read(self._engine)
            room = rooms.get(key)
            if room is not None:
                local.room, local.members_rev = room, max(local.members_rev, room.members_rev)
                self.delivery.begin(local, room.head)
        for local, key in zip(fresh, keys, strict=True):
            if local.present.stale and not self._engine.is_restoring(*key):
                self._restored(local)  # the recovery has ended, and does not read rooms that are being opened

    def _dropped(self, local: LocalRoom) -> None:
        local.typing.close()
        local.present.close()
        self.delivery.drop(local)
