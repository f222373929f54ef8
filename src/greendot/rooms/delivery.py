"""Delivery of messages to a room's subscribers: in order, each once, without gaps (`node.stream`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from greendot.engine.messages import Deliver, Part
from greendot.errors import StoreUnavailable
from greendot.node.channel import RoomKey
from greendot.node.context import NodeContext
from greendot.node.session import Connection
from greendot.node.stream import AT_ONCE, GAP_S, RECOVER, LocalStream, StreamFollower, retry_s
from greendot.node.subscriptions import Subscriptions
from greendot.presence.profile_model import NO_PROFILE
from greendot.presence.profiles import ProfileService
from greendot.protocol.codec import encode_event
from greendot.protocol.events import Resync
from greendot.rooms.local_room import LocalRoom, Recent
from greendot.rooms.members_model import NONE
from greendot.store.port import Store
from greendot.store.rooms import Record, Room
from greendot.store.wire import message_frame
from greendot.telemetry import log_events
from greendot.telemetry.log import log

COMPARE_S = 15.0  # seconds between two comparisons of all local rooms with the store
MEMBERS_S = 2.0  # longest read of all members after a pause; less than messages wait for it (`freshness.LONGEST_S`)
MOST_SKIPPED = 1_000  # messages of a room that wait to be left out for a connection
ATTEMPTS = 10  # maximum number of reads of one client's missed messages; new messages can make another read necessary


class RoomDelivery(StreamFollower[LocalRoom]):
    """Follower of the message streams of all local rooms."""

    def __init__(
        self,
        store: Store,
        context: NodeContext,
        local: Subscriptions[LocalRoom],
        profiles: ProfileService,
        changed: Callable[[LocalRoom, Room | None, bool], None],
        known: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(context, "rooms", COMPARE_S)
        self.gaps = 0  # number of gap reads
        self.recoveries = 0  # number of requests for missed messages by returning clients
        self._store = store
        self._local = local
        self._profiles = profiles
        # Called if the store has newer members of a room, or another room, or none; with True if a task waits for them.
        self._changed = changed
        self._known = known  # waits until this node knows all removals from rooms (`visibility.freshness`)

    def begin(self, local: LocalRoom, head: int) -> None:
        """Follow a room from its head (last number in the store) on.

        Messages that arrived while the head was read are put in order.
        """
        self._set_compare_timer()
        self._forward(local, local.stream.skip_to(head))
        self._schedule_if_behind(local)

    def expect_room(self) -> None:
        """Compare rooms with the store from now on: a room that foreign protocols use may be created at any time."""
        self._set_compare_timer()

    def received(self, local: LocalRoom, message: Deliver) -> None:
        """Forward a message from the bus; for a hint (a message without content), schedule a read of the store."""
        assert message.seq is not None
        if message.without_connection is not None:
            self._skip(local, message.seq, message.without_connection)
        if message.frame:
            self._forward(local, local.stream.offer(message.seq, message.frame))
        else:  # a hint: only the store has the content
            local.stream.hint(message.seq)
        if local.opening is None:
            self._schedule_if_behind(local)

    def _forward(self, local: LocalRoom, frames: list[bytes]) -> None:
        room, seq = local.channel.topic.name, local.cursor - len(frames)
        for number, frame in enumerate(frames, start=seq + 1):
            skip = () if local.skipped is None else self._skipped(local.skipped, number)
            self._context.hub.offer(local.channel, frame, record=True, key=RoomKey(room, number), skip=skip)

    @staticmethod
    def _skip(local: LocalRoom, seq: int, connection: str) -> None:
        if local.skipped is None or len(local.skipped) >= MOST_SKIPPED:
            local.skipped = {}
        if seq > local.cursor:
            local.skipped[seq] = connection

    def _skipped(self, skipped: dict[int, str], seq: int) -> tuple[Connection, ...]:
        """Return the connection that must not get a message, if it is on this node."""
        connection = self._context.registry.connections.get(skipped.pop(seq, ""))
        return () if connection is None else (connection,)

    # --- reading ---

    async def _read_gap(self, local: LocalRoom) -> None:
        self.gaps += 1
        topic = local.channel.topic
        records = await self._store.messages(topic.tenant, topic.name, after=local.cursor, limit=RECOVER)
        profiles = await self._profiles.learnt(topic.tenant, {record.user for record in records})
        await self._members_known(local)  # the node may have been stopped during the reads
        for record in records:
            frame = message_frame(record, profiles.get(record.user, NO_PROFILE))
            self._forward(local, local.stream.offer(record.seq, frame))
        if len(records) < RECOVER:
            return
        # There are too many missed messages to send: a client fetches them when the app needs them.
        room = await self._store.room(topic.tenant, topic.name)
        await self._members_known(local)
        if room is not None and room.head > local.cursor:
            frame = encode_event(Resync(f"room:{topic.name}"), self._context.clock.now_ms())
            self._context.hub.offer(local.channel, frame, record=True, key=RoomKey(topic.name, ("resync",)))
            for connection in [*local.channel.listeners]:
                connection.missed_messages()
            self._forward(local, local.stream.skip_to(room.head))

    async def _members_known(self, local: LocalRoom) -> None:
        """Wait until those who may not be in the room are removed. Raise StoreUnavailable if its members are unknown.

        After a pause, the read of the members may have failed although the store has answered the read of the gap.
        """
        await self._known()
        while local.members_rev == NONE:
            await self._check_members([local], at_once=True)
            if local.checking is not None:
                await asyncio.shield(local.checking)
            if local.members_rev == NONE:
                raise StoreUnavailable(f"the members of room {local.channel.topic.name!r} are not known")
            await self._known()

    def _next_read_s(self, stream: LocalStream[Any], *, done: bool, moved: bool, hinted: bool) -> float | None:
        if not done:
            return retry_s()
        if hinted:
            return 0.0
        if stream.gap:
            return GAP_S
        stream.hinted = 0  # the hinted messages were read, or the store does not have them
        return None

    async def compare(self, part: Part) -> None:
        """Compare the cursors of a part's rooms with the heads in the store."""
        await self._compare(await self._local.within(part))

    async def _compare_heads(self, some: Sequence[LocalRoom]) -> None:
        """Read the gap of each room whose cursor is behind the store.

        If the store has a newer revision of the members, the gap is read after the members are known.
        """
        for local, room in (await self._check_members(some)).items():  # the checks of all rooms have begun
            if room is None:
                continue
            if (local.room is None or room.members_rev > local.members_rev) and local.checking is not None:
                await asyncio.shield(local.checking)
            if local.room is None or local.is_another(room):
                continue
            if room.head > local.cursor and local.members_rev >= room.members_rev:
                await self.fill_quietly(local)

    async def compare_members(self) -> None:
        """Compare the members of all rooms with the store. On return, those who may not be in a room are removed.

        If the store does not answer in time, forget which members are known, and raise StoreUnavailable. Records then
        wait until the members are read.
        """
        rooms, at = await self._followed(), 0
        try:
            async with asyncio.timeout(MEMBERS_S):
                for at in range(0, len(rooms), AT_ONCE):
                    await self._compare_members(rooms[at : at + AT_ONCE])
        except (StoreUnavailable, TimeoutError) as error:
            for local in rooms[at:]:
                local.members_rev = NONE
            raise StoreUnavailable(f"the members of {len(rooms) - at} rooms are not known: {error}") from error

    async def _compare_members(self, some: Sequence[LocalRoom]) -> None:
        for _ in range(2):  # again, because a read that was under way may have missed a removal
            await self._check_members(some, at_once=True)
            some = [local for local in some if local.checking is not None]
            for local in some:
                if local.checking is not None:
                    await asyncio.shield(local.checking)
            if not some:
                return

    async def _check_members(self, some: Sequence[LocalRoom], *, at_once: bool = False) -> dict[LocalRoom, Room | None]:
        """Begin to read the members of each room that differs in the store. Return all rooms as the store has them.

        With `at_once`, do not wait for the announcements of members that are missing.
        """
        rooms = {(local.channel.topic.tenant, local.channel.topic.name): local for local in some}
        heads = await self._store.heads([*rooms])
        found = {local: heads.get(key) for key, local in rooms.items()}
        for local, room in found.items():
            if differs(local, room) or (at_once and local.missing_timer is not None):
                self._changed(local, room, at_once)
        return found

    async def _followed(self) -> list[LocalRoom]:
        return await self._local.within(Part())

    def _log_gap(self, local: LocalRoom, error: StoreUnavailable) -> None:
        log(
            log_events.WORK_LATER, work="reading missed messages of a room", reason=error, room=local.channel.topic.name
        )

    # --- returning clients ---

    async def catch_up(self, local: LocalRoom, seq: int, room: Room) -> None:
        """Read the gap if message `seq` has not arrived here. The store has it, and a client that returns may, too.

        The client then comes from another node. If this node has lost its link to the bus, its messages come only with
        the next comparison of heads. The listeners get the messages, too. So first those are removed who may no longer
        be in the room, by the members of `room`, which the caller has just read. Read nothing if these are not known.
        """
        for _ in range(2):  # a read that is under way may have begun before the message was written
            if seq <= local.cursor:
                return
            if differs(local, room):
                self._changed(local, room, True)
            while local.checking is not None:
                await asyncio.shield(local.checking)
            if differs(local, room):
                return
            await self._fill(local)

    async def missed(self, local: LocalRoom, after: int, erasures: int = 0) -> list[Record] | None:
        """Return the records after `after` up to the room's cursor; None if there are too many records.

        `erasures` is the room's counter, read just now: records in memory from before an erasure are read again.
        Clients that return together share one read. Raise StoreUnavailable if new messages arrived during every read.
        """
        self.recoveries += 1
        if local.cursor - after > RECOVER:
            return None
        for _ in range(ATTEMPTS):
            recent = local.recent
            is_new = recent is not None and recent.last >= local.cursor and recent.erasures >= erasures
            if recent is not None and is_new and (kept := recent.after(after)) is not None:
                return [record for record in kept if record.seq <= local.cursor]
            async with local.returning:
                if local.recent is recent:
                    await self._read_recent(local, after, erasures)
                    recent = local.recent
            if recent is not None and recent.after(after) is None:
                return None  # the missed messages have more bytes than `Recent` keeps
        raise StoreUnavailable("messages arrive faster than the store returns them")

    async def _read_recent(self, local: LocalRoom, after: int, erasures: int) -> None:
        topic, recent = local.channel.topic, local.recent
        if recent is None or recent.erasures < erasures or recent.after(after) is None:
            # Read as far back as a client may recover, for the clients that return after this one.
            recent = Recent(max(0, local.cursor - RECOVER), erasures)
        upto = local.cursor
        while recent.last < upto:
            records = await self._store.messages(topic.tenant, topic.name, after=recent.last, limit=RECOVER)
            if not records:
                break
            recent.add(records)
        local.recent = recent


def differs(local: LocalRoom, room: Room | None) -> bool:
    """Return whether the store has newer members of a room, or another room, or none."""
    if local.room is None:  # only foreign protocols use the room, unless it was created under this name
        return room is not None
    return room is None or local.is_another(room) or room.members_rev > local.members_rev
