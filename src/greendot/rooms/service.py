"""Rooms on this node: joining and leaving, occupants, typing, and messages from the bus.

A room is local while it has listeners on this node, and a little longer. The cursor of a local room is the number of
the newest message offered to its listeners. A joining connection gets the messages up to the cursor, and is attached in
the same turn of the loop. So it gets each later message once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import NamedTuple

from msgspec import UNSET, Struct, structs

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
from greendot.engine.results import OccupantPage
from greendot.errors import EngineUnavailable, Refused, StoreUnavailable
from greendot.ids import Key
from greendot.node.bus import BusTable, traced
from greendot.node.channel import Channel
from greendot.node.context import NodeContext
from greendot.node.session import Connection, Session
from greendot.node.stream import RECOVER, RECOVER_BYTES
from greendot.node.subscriptions import Subscriptions
from greendot.node.time_slices import STEP
from greendot.presence.held_changes import HeldChanges
from greendot.presence.profile_model import NO_PROFILE
from greendot.presence.profiles import ProfileService
from greendot.protocol.codes import Err
from greendot.protocol.events import RoomMessage, TypingTimes
from greendot.protocol.replies import JoinReply, PresentReply, RoomEntry, RoomsReply
from greendot.rooms.delivery import RoomDelivery
from greendot.rooms.hidden_typing import HiddenTyping
from greendot.rooms.listeners import RoomListeners
from greendot.rooms.local_room import LocalRoom
from greendot.rooms.member_updates import MemberUpdates
from greendot.rooms.members import UNSTORED, RoomAccess, RoomMembers, archived, reader_only
from greendot.rooms.mutes import RoomMutes
from greendot.rooms.occupancy import RoomOccupancy, present_reply
from greendot.rooms.people import RoomProfiles
from greendot.rooms.reactions_model import REACTING
from greendot.rooms.removal import MemberRemoval
from greendot.rooms.session_rooms import SessionRooms
from greendot.rooms.signals import RoomSignals
from greendot.rooms.typing import RoomTyping
from greendot.store.port import Store
from greendot.store.rooms import MemberState, Room
from greendot.store.wire import message_event, message_page, sent_size, with_reactions
from greendot.visibility.cache import VisibilityCache

ATTEMPTS = 100  # attempts to join while the members of the room change
MOST_PAIRS = 1_000_000  # viewers times occupants; rooms with more are left out when all users are reviewed
AT_ONCE = 100  # rooms read concurrently
REVIEW_COST = 20  # the review of a room without changes takes as long as the look-up of this number of users


class RoomLimits(Struct, frozen=True):
    """Limits and times of rooms, from the settings."""

    rooms: Callable[[str], int]  # maximum number of rooms of a connection, by tenant
    large: int  # listeners, or occupants, above which a room gets counts instead of events
    typing: TypingTimes
    hold_s: float  # seconds in which all nodes restore what the engine lost


class Wanted(NamedTuple):
    """Messages that the reply to a join contains: those after a number, the newest ones, or none."""

    after: int | None
    history: int | None = None
    most: int = RECOVER_BYTES  # bytes of the messages after a number; if there are more, none are sent


class RoomService:
    """Service for all rooms of this node."""

    def __init__(
        self,
        engine: Engine,
        store: Store,
        session_rooms: SessionRooms,
        visibility: VisibilityCache,
        context: NodeContext,
        held_changes: HeldChanges,
        profiles: ProfileService,
        limits: RoomLimits,
        tenant_mute: Callable[[str, str], int],  # end of the mute of a tenant and user, 0 if there is none
    ) -> None:
        self._engine = engine
        self._store = store
        self._session_rooms = session_rooms
        self._visibility = visibility
        visibility.consumers.append(self)
        self._context = context
        self._held_changes = held_changes
        self.profiles = profiles
        freshness = visibility.freshness
        self.people = RoomProfiles(engine, context, profiles, self._rooms_of, freshness.known)
        profiles.consumers.append(self.people)
        self._limits = limits
        self.signals = RoomSignals(context, visibility)
        self.reactions: dict[str, int] = dict.fromkeys(REACTING, 0)  # records written by this node, by operation
        self._local = Subscriptions(engine, context, self._make, self._read, self._dropped)
        self._hidden_typing = HiddenTyping(engine, session_rooms.statuses, context, self._local, limits.typing.hold_ms)
        self.listeners = RoomListeners(self._local, lambda local: self.member_updates.check(local))
        self.mutes = RoomMutes(context, self._local, tenant_mute)
        self.membership = RoomMembers(
            store, context, self._local, self._created, self.mutes.room_changed, freshness.is_awaited
        )
        self.delivery = RoomDelivery(
            store, context, self._local, profiles, lambda *found: self.member_updates.differs(*found), freshness.known
        )
        freshness.read_members = self.delivery.compare_members
        self.removal = MemberRemoval(
            engine, context, self._local, session_rooms, leave=self.leave, is_member=self.membership.is_member
        )
        self.member_updates = MemberUpdates(
            context, self._local, self.membership, self.delivery, remove=self.removal.remove, receive=self.received
        )
        self.bus: BusTable = {
            **dict.fromkeys((Typing, Entered, Left, MembersChanged), self.received),
            MemberRemoved: self.removal.receive,
        }

    @property
    def typing(self) -> TypingTimes:
        return self._limits.typing

    def local(self, topic: Topic) -> LocalRoom | None:
        return self._local.get(topic)

    # --- joining and leaving ---

    async def join(
        self, connection: Connection, session: Session, room: str, after: int | None, history: int | None = None
    ) -> JoinReply:
        """Join a room. The reply contains the messages after number `after`, or the newest `history` messages."""
        with self._context.surge.one():
            return await self._join(connection, session, room, Wanted(after, history))

    async def rejoin(
        self, connection: Connection, session: Session, room: str, after: int | None, most: int
    ) -> JoinReply:
        """Join a room as part of a hello. Missed messages of more than `most` bytes are left out (`truncated`)."""
        return await self._join(connection, session, room, Wanted(after, most=most))

    async def _join(self, connection: Connection, session: Session, room: str, wanted: Wanted) -> JoinReply:
        """Join a room; raise StoreUnavailable if the members of the room changed during every attempt."""
        for _ in range(ATTEMPTS):
            reply = await self._try_to_join(connection, session, room, wanted)
            if reply is not None:
                return reply
        raise StoreUnavailable(f"the members of room {room!r} changed during every read")

    async def _try_to_join(
        self, connection: Connection, session: Session, room: str, wanted: Wanted
    ) -> JoinReply | None:
        """Join a room; return None if the room or its members changed meanwhile and the caller has to try again."""
        self.check_number(connection, session, room)
        topic = Topic("room", session.tenant, room)
        if not self.membership.remembers(session.tenant, room):  # a session without access must not open the room
            await self.membership.admit(session, room, make=True)
        await self._local.open([topic])
        local = self._local.get(topic)
        if local is None:
            return None
        removals, revision = local.removals, local.members_rev
        # Check again now that the node receives removals: a user removed in between must not join. The room may have
        # been deleted and not yet announced as such. The protocol of a foreign client decides how a room is created.
        admitted = await self.membership.admit(session, room, make=connection.foreign is None, fresh=True)
        there = {*local.present.users, *local.typing.users} if self._visibility.needs_reads(session.tenant) else ()
        await self._visibility.know(session.tenant, [session.user], there)
        counted = await local.present.count_with(session.user)
        messages, truncated = None, False
        if not local.is_another(admitted.room):  # else its numbers do not fit this cursor
            messages, truncated = await self._wanted(local, session.user, wanted, admitted.room)
        is_same = self._local.get(topic) is local and local.removals == removals
        is_same = is_same and self._visibility.freshness.is_fresh()  # else the process was stopped during a read
        if not is_same or not self._is_current(local, admitted, revision) or messages is None:
            if local.unchecked is not None and local.checking is not None:
                await asyncio.shield(local.checking)
            return None
        # No await below: the messages read and the messages delivered from now on must meet without a gap.
        if not connection.closing:
            self._attach(local, connection, session, admitted)
        return JoinReply(
            room=room,
            head=local.cursor,
            messages=messages,
            recovered=wanted.after is not None and not truncated,
            truncated=truncated,
            typing=local.typing.typers(session.user),
            typing_count=local.typing.count(session.user),
            present=local.present.count(session.user, counted),
            unread=max(0, local.cursor - admitted.marker),
            archived=admitted.room.archived,
            slow_mode_s=admitted.room.slow_mode_s or UNSET,
            muted_until=self.mutes.until(session, admitted.muted),
        )

    def check_number(self, connection: Connection, session: Session, room: str) -> None:
        """Raise Refused if the connection has joined its maximum number of rooms, and this room is not one of them."""
        joined = connection.rooms or set()
        if room not in joined and len(joined) >= (most_rooms := self._limits.rooms(session.tenant)):
            raise Refused(Err.TOO_MANY, f"a connection may be in at most {most_rooms} rooms; leave a room first")

    def _attach(self, local: LocalRoom, connection: Connection, session: Session, admitted: RoomAccess) -> None:
        room = local.channel.topic.name
        self._local.attach(local, connection)
        self.membership.remember(local, {session.user: MemberState(*admitted[1:])})
        connection.rooms = (connection.rooms or set()) | {room}
        self._context.recorder.joined(session, room)
        self._session_rooms.enter(session, room)
        local.present.room_view.came(session.user)
        local.typing.room_view.came(session.user)

    def _is_current(self, local: LocalRoom, admitted: RoomAccess, revision: int) -> bool:
        """Return whether an admission still holds: no newer revision of the members is known or being read here.

        A room may be closed, or a member removed, while the joining session waits for the store. The update of the
        members concerns attached listeners only, so the joining session has to be admitted again. `revision` is the
        revision that this node knew before the admission was read. If the store has an older one, it was restored.
        """
        if local.room is None:
            if admitted.room.epoch == UNSTORED:
                return local.unchecked is None
            if not self._local.give_up(local):  # the room was deleted and created again, or is new
                self.member_updates.check(local)
            return False
        if admitted.room.members_rev < revision or local.is_another(admitted.room):
            self.member_updates.check(local)
        return local.unchecked is None and admitted.room.members_rev >= local.members_rev

    async def _wanted(
        self, local: LocalRoom, reader: str, wanted: Wanted, room: Room
    ) -> tuple[list[RoomMessage] | None, bool]:
        """Return the messages of the reply, up to the cursor, and whether missed messages are left out.

        Return None instead of the messages if content was erased since the admission, which has read `room`.
        """
        if wanted.after is not None:
            await self.delivery.catch_up(local, min(wanted.after, room.head), room)
            messages, truncated = await self._missed(local, wanted.after, wanted.most, room.erasures)
        else:
            messages, truncated = await self._newest(local, reader, wanted.history) if wanted.history else [], False
        return await self._unerased(local, wanted, messages, room.erasures) if messages else messages, truncated

    async def _newest(self, local: LocalRoom, reader: str, count: int) -> list[RoomMessage]:
        """Return the newest `count` messages up to the cursor: a page of the store, then what came during the read."""
        topic, truncated = local.channel.topic, True
        found: list[RoomMessage] = []
        while truncated:
            page = await self._store.room_page(topic.tenant, topic.name, limit=count, reader=reader)
            if page is None:
                return []
            profiles = await self.profiles.learnt(topic.tenant, {record.user for record in page.messages})
            # The store may be ahead of this node: the messages after the cursor are delivered to all listeners.
            records = [record for record in page.messages if record.seq <= local.cursor]
            found = with_reactions(message_page(records, profiles, newest=True), page)
            truncated = False
            if page.room.head < local.cursor:
                later, truncated = await self._missed(local, page.room.head, RECOVER_BYTES, page.room.erasures)
                found += later
        return found[-count:]

    async def _missed(self, local: LocalRoom, after: int, most: int, erasures: int) -> tuple[list[RoomMessage], bool]:
        """Return the messages after `after` up to the cursor, and whether some are left out.

        Return none and True if the messages are too many, or if `after` is beyond the cursor.
        """
        while True:
            records = await self.delivery.missed(local, after, erasures)
            if records is None:
                return [], True
            profiles = await self.profiles.learnt(local.channel.topic.tenant, {record.user for record in records})
            messages = [message_event(record, profiles.get(record.user, NO_PROFILE)) for record in records]
            if sum(map(sent_size, messages)) > most:
                return [], True
            if (records[-1].seq if records else after) >= local.cursor:  # no message came during the reads
                return messages, after > local.cursor

    async def _unerased(
        self, local: LocalRoom, wanted: Wanted, messages: list[RoomMessage], erasures: int
    ) -> list[RoomMessage] | None:
        """Return the messages of a reply, up to the cursor. Return None if content was erased since the admission.

        The app may delete a message while the session joins. The reply must not have the content that was deleted.
        """
        topic, last = local.channel.topic, local.cursor
        if await self.membership.erasures(topic.tenant, topic.name) != erasures:
            return None
        if local.cursor == last:
            return messages
        # Messages came during the read. Those after a number have limits, so all of them are read again.
        after, kept = (last, messages) if wanted.after is None else (wanted.after, [])
        found, is_cut = await self._missed(local, after, wanted.most, erasures)
        if is_cut or any(message.op == "delete" and message.seq > last for message in found):
            return None
        return (kept + found)[-(wanted.history or RECOVER) :]

    def _created(self, topic: Topic) -> None:
        """Announce a new room. Nodes may have clients of foreign protocols that listened before the room existed."""
        self._engine.publish(topic, MembersChanged())

    def leave(self, connection: Connection, room: str) -> None:
        session = connection.session
        if session is None or connection.rooms is None or room not in connection.rooms:
            return
        connection.rooms.discard(room)
        self._context.recorder.left(session, room)
        self._session_rooms.exit(session, room)
        self._silence(session, room)
        self._local.detach(Topic("room", session.tenant, room), connection)

    def forget(self, connection: Connection, *, said_bye: bool) -> None:
        """Detach an ended connection from its rooms. After a `bye` its typing stops now; otherwise typing expires."""
        session = connection.session
        if session is None:
            return
        if said_bye:
            self.hush(connection)
        rooms, connection.rooms = connection.rooms, None
        for room in rooms or ():
            self._local.detach(Topic("room", session.tenant, room), connection)

    def returned(self, connection: Connection, session: Session) -> None:
        """Remove a resumed session from the rooms that it has not joined again on this connection."""
        if not connection.closing and session.connection is connection:
            self._session_rooms.keep(session, connection.rooms or ())

    def hush(self, connection: Connection) -> None:
        """Stop the typing that the session of this connection started, in every room."""
        session = connection.session
        if session is not None:
            for room in [*(session.typed or ())]:
                self._silence(session, room)

    async def present_page(self, topic: Topic, reader: str | None, after: str | None, limit: int) -> PresentReply:
        """Return a page of occupants as `present` does, with their names and info."""
        found = await self.present(topic, reader, after, limit)
        return structs.replace(found, profiles=await self.people.named(topic.tenant, found.users))

    async def present(self, topic: Topic, reader: str | None, after: str | None, limit: int) -> PresentReply:
        """Return a page of the room's occupants on all nodes that `reader` may see (None: the app, which sees all)."""
        local, is_hiding = self._local.get(topic), reader is not None and self._visibility.matters(topic.tenant)
        if local is None or local.opening is not None or local.present.is_counted:
            return await self._present_of_engine(topic, reader, after, limit)
        users, unseen, stale = local.present.ordered(), local.present.unseen(reader), local.present.stale
        if reader is not None and is_hiding:
            if local.present.is_viewer(reader):
                return local.present.page(reader, after, limit)
            users = await self._visibility.visible(topic.tenant, reader, [*users])
        return present_reply(users, unseen, after, limit, stale=stale)

    async def _present_of_engine(self, topic: Topic, reader: str | None, after: str | None, limit: int) -> PresentReply:
        """Return a page of occupants of whom this node has no copy. Read all only if some may hide from the reader."""
        tenant, room = topic.tenant, topic.name
        stale = self._engine.is_restoring(tenant, room)
        if reader is None:
            found, hidden = await self._engine.present_page(tenant, room, after, limit), set[str]()
        elif (seen := await self._seen_page(topic, reader, after, limit)) is not None:
            found, hidden = seen
        else:
            users = await self._visibility.visible(tenant, reader, await self._engine.present(tenant, room))
            return present_reply(users, None, after, limit, stale=stale or self._engine.is_restoring(tenant, room))
        local = self._local.get(topic)
        # An invisible listener, or one who is about to enter, is an occupant for the listener's own devices only.
        is_unseen = reader is not None and not found.is_there and local is not None and local.present.is_viewer(reader)
        stale = stale or self._engine.is_restoring(tenant, room)
        users = [user for user in found.users if user not in hidden]
        return present_reply(users, reader if is_unseen else None, after, limit, found.total - len(hidden), stale=stale)

    async def _seen_page(
        self, topic: Topic, reader: str, after: str | None, limit: int
    ) -> tuple[OccupantPage, set[str]] | None:
        """Return a page with enough occupants, and the occupants who hide from the reader. None: all must be decided.

        Read again if further users hide from the reader meanwhile, or a user who hides has entered.
        """
        visibility, tenant, room = self._visibility, topic.tenant, topic.name
        while True:
            await visibility.know(tenant, [reader], ())
            if not visibility.lists_hiders(tenant):
                return None
            hiders = visibility.hidden_in_rooms(tenant, reader)
            hidden = {*await self._engine.sessions_in_room(tenant, room, [*hiders])} if hiders else set[str]()
            found = await self._engine.present_page(tenant, room, after, limit + len(hidden), reader)
            is_fresh = visibility.lists_hiders(tenant) and visibility.knows(tenant, reader, ())
            entered = hiders.intersection(found.users) - hidden  # between the two reads
            if is_fresh and not entered and visibility.hidden_in_rooms(tenant, reader) <= hiders:
                return found, hidden

    async def list_for(self, session: Session) -> RoomsReply:
        rooms, now = await self._store.rooms_of(session.tenant, session.user), self._context.clock.now_ms()
        return RoomsReply(
            [
                RoomEntry(of.room.room, of.room.head, max(0, of.room.head - of.marker), of.room.open, of.room.archived)
                for of in rooms
                if of.banned <= now
            ]
        )

    # --- typing ---

    def start_typing(self, session: Session, room: str) -> None:
        if self._session_rooms.statuses.is_invisible(session.key):
            return
        if session.typed is None:
            session.typed = set()
        session.typed.add(room)
        self._context.recorder.typed(session, room, on=True)
        self._engine.typing_start(session.tenant, room, session.user, self.profiles.name_of(session))

    async def withdraw(self, key: Key) -> None:
        """Drop signals and stop typing of a user who has become invisible. On return, others get none of them."""
        await self.signals.withdraw(key)
        await self._hidden_typing.withdraw(key)

    def check_may_speak(self, session: Session, room: str) -> None:
        """Raise Refused if the user of a joined session may only read, as far as this node knows."""
        local = self._local.get(Topic("room", session.tenant, room))
        state = local.roles.get(session.user) if local is not None else None
        if state is not None and state.role == "reader":
            raise reader_only(room)
        if local is not None and local.room is not None and local.room.archived:
            raise archived(room)
        self.mutes.check(session, room, 0 if state is None else state.muted)

    def stop_typing(self, session: Session, room: str) -> None:
        self._engine.typing_stop(session.tenant, room, session.user)

    def _silence(self, session: Session, room: str) -> None:
        if session.typed is not None and room in session.typed:
            session.typed.discard(room)
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
            case Left(user) if local.present.is_held and not local.present.is_counted:
                place = topic.tenant, user, topic.name
                local.present.left_meanwhile(user)
                self._held_changes.confirm(place, "offline", lambda: local.present.confirm_left(user))
            case Entered() | Left():
                if local.present.receive(message):
                    local.present.hold(self._limits.hold_s)
                    self._context.timers.set(self._limits.hold_s, self._restored, local)
            case MembersChanged():
                self.member_updates.announced(local, message)
            case Deliver(seq=None):
                self.signals.receive(local.channel, message)
            case Deliver():
                if local.room is None and local.opening is None:  # the room was created since this node read it
                    self.member_updates.check(local)
                elif message.members_rev > local.members_rev:  # a removed member must not receive the message
                    self.member_updates.expect(local, message.members_rev)
                if local.unchecked is not None:
                    local.unchecked.append(message)
                else:
                    self.delivery.received(local, message)

    # --- visibility ---

    async def in_use(self, tenant: str) -> AsyncIterator[Sequence[str]]:
        """Yield the occupants and typists of the tenant's local rooms, some at a time, in slices."""
        rooms = await self._rooms_of(tenant)
        async for some in self._context.slices.over([*of.present.users, *of.typing.users] for of in rooms):
            yield some

    async def _rooms_of(self, tenant: str) -> list[LocalRoom]:
        steps = self._local.steps(Part())
        return [local async for some in steps for local in some if local.channel.topic.tenant == tenant]

    async def review(self, tenant: str, users: Collection[str] | None) -> None:
        """Decide again whom these users see and who sees them (None: all users). Announce the differences."""
        slices, named, looked = self._context.slices, [*(users or ())], 0
        for local in await self._rooms_of(tenant):
            looked += REVIEW_COST + len(named)
            if looked > STEP:
                looked = 0
                await slices.turn()
            found = [user async for some in slices.cut(named) for user in some if local.concerns(user)]
            concerned = None if users is None else found
            if concerned != [] and self._local.get(local.channel.topic) is local:
                await self._review(local, concerned)

    async def _review(self, local: LocalRoom, users: Collection[str] | None) -> None:
        tenant = local.channel.topic.tenant
        try:
            await local.present.find(users)
        except EngineUnavailable:
            self._context.timers.set(self._limits.hold_s, self._restored, local)
        if self._visibility.needs_reads(tenant):
            viewers, there = local.present.room_view.viewers(), {*local.present.users, *local.typing.users}
            if users is None and len(viewers) * len(there) > MOST_PAIRS:
                return
            await self._visibility.know(tenant, viewers, there if users is None else there.intersection(users))
            await self._visibility.know(tenant, viewers if users is None else viewers.intersection(users), there)
        await local.present.review(users)
        await local.typing.review(users)

    # --- after missed messages or a loss ---

    async def compare(self, part: Part) -> None:
        """Compare the messages of a part's rooms with the store, and deliver the missing ones."""
        await self.delivery.compare(part)

    async def resync(self, part: Part) -> None:
        """Compare typists and occupants with the engine, and deliver the differences."""
        rooms = await self._local.within(part)
        for at in range(0, len(rooms), AT_ONCE):
            await asyncio.gather(*map(self._check_typing, rooms[at : at + AT_ONCE]))
        await self.check_occupancy(part)

    async def _check_typing(self, local: LocalRoom) -> None:
        topic = local.channel.topic
        local.typing.resync(await self._engine.typers(topic.tenant, topic.name))

    async def check_occupancy(self, part: Part) -> None:
        """Read the occupants of a part's rooms, and announce the differences."""
        rooms = await self._local.within(part)
        for at in range(0, len(rooms), AT_ONCE):
            await asyncio.gather(*(local.present.read() for local in rooms[at : at + AT_ONCE]))

    def hold(self, part: Part, seconds: float) -> None:
        """Keep the occupants of a part's rooms for `seconds`: the engine lost some. A later call replaces the time."""
        for local in self._local.within_now(part):
            local.present.hold(seconds)

    def _restored(self, local: LocalRoom) -> None:
        """Read the occupants of a room that may have been restored without a recovery on this node."""
        if self._local.get(local.channel.topic) is local:
            self._context.tasks.spawn(self._check_quietly(local))

    async def _check_quietly(self, local: LocalRoom) -> None:
        try:
            await local.present.read()
        except EngineUnavailable:  # no recovery may follow a short outage, so read again later
            self._context.timers.set(self._limits.hold_s, self._restored, local)

    # --- local rooms ---

    def _make(self, channel: Channel) -> LocalRoom:
        limits, session_rooms = self._limits, self._session_rooms
        visibility, profiles = self._visibility, self.profiles
        hidden, hold_ms = self._hidden_typing, limits.typing.hold_ms
        typing = RoomTyping(channel, self._context, visibility, profiles, hidden, limits.large, hold_ms)
        present = RoomOccupancy(channel, self._context, self._engine, session_rooms, visibility, profiles, limits.large)
        return LocalRoom(channel, typing, present)

    async def _read(self, fresh: Sequence[LocalRoom]) -> None:
        keys = [(local.channel.topic.tenant, local.channel.topic.name) for local in fresh]
        rooms = await self._store.heads(keys)
        for local, key in zip(fresh, keys, strict=True):
            typists = await self._engine.typers(*key)
            await self._visibility.know(key[0], (), [typist.user for typist in typists])
            await self.profiles.learn(key[0], [typist.user for typist in typists])
            local.typing.seed(typists)
            await local.present.read()
            room = rooms.get(key)
            if room is not None:
                if room.members_rev >= local.members_rev:  # else a read since then was newer
                    local.room, local.members_rev = room, room.members_rev
                self.member_updates.advance(local)  # before `begin`, which puts messages that waited in order
                self.delivery.begin(local, room.head)
            else:
                self.delivery.expect_room()
        for local, key in zip(fresh, keys, strict=True):
            if local.present.stale and not self._engine.is_restoring(*key):
                self._restored(local)  # the recovery has ended; it does not read rooms that are still opening

    def _dropped(self, local: LocalRoom) -> None:
        local.typing.close()
        local.present.close()
        self.delivery.drop(local)
