"""Read markers of rooms, and read receipts: what other users get to know of the markers.

The store decides what is a receipt, in the transaction that moves the marker. A node announces a receipt from a read
that begins after that transaction, at most once per user, room and second. Each node then decides for its own
listeners who sees the reader, at the moment of the delivery. A large room gets only counts. A count is the same for
all users. Users who hide from any user are not counted, so that a comparison of counts shows no hidden reader.
"""

from __future__ import annotations

from bisect import bisect_right

from greendot.engine.messages import Deliver, Topic
from greendot.engine.messages import Receipt as ReceiptMessage
from greendot.engine.port import Engine
from greendot.errors import Refused, StoreUnavailable
from greendot.ids import Key
from greendot.node.batching import BatchedReads
from greendot.node.bus import BusTable
from greendot.node.channel import RoomKey
from greendot.node.coalescing import Coalescer
from greendot.node.commands import CommandTable, Outcome
from greendot.node.context import NodeContext
from greendot.node.session import Connection, Session
from greendot.presence.status import StatusService
from greendot.protocol.codec import encode_event
from greendot.protocol.codes import Err
from greendot.protocol.commands import RoomRead, RoomReceipts
from greendot.protocol.events import RoomChanged, RoomReceipt, RoomReceiptCount
from greendot.protocol.replies import ReadReply, ReceiptEntry, ReceiptsReply
from greendot.rooms.local_room import LocalRoom
from greendot.rooms.service import RoomService
from greendot.store.markers import MemberKey, Reader, Receipt
from greendot.store.port import Store
from greendot.telemetry.metrics import Metrics
from greendot.visibility.cache import VisibilityCache

EVERY_S = 1.0  # seconds between two receipts of a user in a room, and between two counts of a room
PAGE = 500  # receipts read at a time


class ReceiptService:
    """Service for read markers and receipts. Rooms with more than `most` members or occupants get counts."""

    def __init__(
        self,
        engine: Engine,
        store: Store,
        rooms: RoomService,
        statuses: StatusService,
        visibility: VisibilityCache,
        context: NodeContext,
        metrics: Metrics,
        most: int,
    ) -> None:
        self._engine = engine
        self._store = store
        self._rooms = rooms
        self._statuses = statuses
        self._visibility = visibility
        self._context = context
        self._metrics = metrics
        self._most = most
        self._readers: BatchedReads[MemberKey, Reader] = BatchedReads(
            context, lambda keys: store.readers(keys, engine.now_ms(), most + 1), Reader()
        )
        spawn = context.tasks.spawn
        self._users: Coalescer[MemberKey] = Coalescer(context.timers, EVERY_S, lambda key: spawn(self._announce(key)))
        self._counts: Coalescer[Key] = Coalescer(context.timers, EVERY_S, lambda key: spawn(self._count(key)))
        self._counted: dict[Key, int] = {}  # by room: highest number read since the last count
        self._unknown: dict[tuple[Topic, str], int] = {}  # receipts of users whose visibility is being looked up
        self.commands: CommandTable = {RoomRead: self.read, RoomReceipts: self.receipts}
        self.bus: BusTable = {ReceiptMessage: self.received}

    # --- reading ---

    async def read(self, connection: Connection, session: Session, command: RoomRead) -> ReadReply:
        """Store the read marker and publish it to the user's other devices."""
        tenant, room, user = key = session.tenant, command.room, session.user
        await self._rooms.membership.admit(session, room)
        marked = await self._store.put_marker(*key, command.seq, self._engine.now_ms())
        unread = max(0, marked.head - marked.marker)
        frame = encode_event(RoomChanged(room, read=marked.marker, unread=unread), self._context.clock.now_ms())
        told = Deliver(frame, key=("read", room), without_connection=connection.id)
        self._engine.publish(Topic("user", tenant, user), told)
        if marked.counts and not self._users.soon(key):
            self._coalesced(RoomReceipt.type)
        return ReadReply(unread)

    async def _announce(self, key: MemberKey) -> None:
        """Publish the receipt of a user, as the store has it now. A receipt that cannot be read is lost.

        If the user is hidden, only the user's own devices get the receipt.
        """
        tenant, room, user = key
        topic = Topic("room", tenant, room)
        try:
            reader = await self._readers.get(key)
        except StoreUnavailable:
            return
        is_read_openly = reader.receipt >= reader.marker
        if reader.is_hidden or not is_read_openly or self._statuses.is_invisible((tenant, user)):
            self._metrics.room_receipts_hidden_total += 1
            told = Deliver(self._frame(room, user, reader.marker), key=("receipt", room))
            self._engine.publish(Topic("user", tenant, user), told)
        elif max(reader.members, self._occupants(topic) or 0) <= self._most:
            self._metrics.room_receipts_total += 1
            self._engine.publish(topic, ReceiptMessage(user, reader.receipt))
        elif self._is_counting(tenant) and not reader.hides:
            at = tenant, room
            self._counted[at] = max(self._counted.get(at, 0), reader.receipt)
            if not self._counts.soon(at):
                self._coalesced(RoomReceiptCount.type)

    async def _count(self, at: Key) -> None:
        """Publish the number of users who have read up to the highest number read since the last count."""
        seq = self._counted.pop(at)
        try:
            count = await self._store.receipt_count(*at, seq)
        except StoreUnavailable:
            return
        if count:
            self._metrics.room_receipt_counts_total += 1
            frame = encode_event(RoomReceiptCount(at[1], seq, count), self._context.clock.now_ms())
            self._engine.publish(Topic("room", *at), Deliver(frame, key=("receipts",)))

    def _coalesced(self, kind: str) -> None:
        self._metrics.coalesced[kind] = self._metrics.coalesced.get(kind, 0) + 1

    def _frame(self, room: str, user: str, seq: int) -> bytes:
        return encode_event(RoomReceipt(room, user, seq), self._context.clock.now_ms())

    def _is_counting(self, tenant: str) -> bool:
        """Return whether users in one room see each other, so that a count shows nothing else."""
        return self._visibility.policy(tenant).is_open

    def _occupants(self, topic: Topic) -> int | None:
        """Return the number of a room's occupants; None if this node has no copy."""
        local = self._rooms.local(topic)
        return None if local is None or local.opening is not None else len(local.present.users)

    # --- from the bus ---

    def received(self, topic: Topic, message: ReceiptMessage) -> None:
        """Deliver a receipt to the listeners who see the reader, as soon as the facts for that are known."""
        local = self._rooms.local(topic)
        if local is None or not local.channel.listeners:
            return
        at = topic, message.user
        if at in self._unknown:
            self._unknown[at] = max(message.seq, self._unknown[at])
        elif self._visibility.is_ready(topic.tenant, message.user):
            self._deliver(local, message.user, message.seq)
        else:
            self._unknown[at] = message.seq
            self._context.tasks.spawn(self._learn(local, message.user))

    async def _learn(self, local: LocalRoom, user: str) -> None:
        topic = local.channel.topic
        try:
            await self._visibility.know(topic.tenant, local.present.room_view.viewers(), [user])
            self._deliver(local, user, self._unknown[topic, user])
        except StoreUnavailable:
            return
        finally:
            del self._unknown[topic, user]

    def _deliver(self, local: LocalRoom, user: str, seq: int) -> None:
        """Send a receipt to the listeners who see the reader now. A room that has become large gets no receipts."""
        visibility, topic, hub = self._visibility, local.channel.topic, self._context.hub
        tenant, room = topic.tenant, topic.name
        is_hidden = self._statuses.is_invisible((tenant, user)) or visibility.is_discreet(tenant, user)
        if is_hidden or len(local.present.users) > self._most:
            return
        frame, key = self._frame(room, user, seq), RoomKey(room, ("receipt", user))
        named = {*visibility.exceptions(tenant, user, local.present.room_view.viewers)} - {user}
        if visibility.policy(tenant).is_open:
            hub.offer(local.channel, frame, key=key, skip=self._devices(local, named), low=True)
        else:
            hub.send_each(self._devices(local, named | {user}), frame, key=key)

    def _devices(self, local: LocalRoom, users: set[str]) -> list[Connection]:
        registry = self._context.registry
        return [device for user in users for device in registry.connections_in(local.channel, user)]

    # --- lists and counts ---

    async def receipts(self, connection: Connection, session: Session, command: RoomReceipts) -> Outcome:
        """Return the receipts that the user may see, or the number of users who have read a message."""
        if command.seq is not None and command.after is not None:
            raise Refused(Err.BAD_FIELD, "field `after` of room.receipts: give at most one of `after` and `seq`")
        return await self._rooms.membership.throughout(session, command.room, lambda: self._reply(session, command))

    async def _reply(self, session: Session, command: RoomReceipts) -> ReceiptsReply:
        tenant, room, seq = session.tenant, command.room, command.seq
        is_large = await self._is_large(Topic("room", tenant, room))
        if is_large and seq is None:
            raise Refused(
                Err.TOO_MANY,
                f"room {room!r} has more than {self._most} members or occupants; give `seq` to get a count",
            )
        if seq is not None and is_large and self._is_counting(tenant):
            count = await self._store.receipt_count(tenant, room, seq)
            if count is None:
                raise _no_receipts(room)
            return ReceiptsReply(count, seq=seq)
        seen = await self._seen(tenant, room, session.user)
        if seq is not None:
            return ReceiptsReply(sum(receipt.seq >= seq for receipt in seen), seq=seq)
        at = 0 if command.after is None else bisect_right(seen, command.after, key=lambda receipt: receipt.user)
        page, rest = seen[at : at + command.limit], len(seen) - at
        following = page[-1].user if rest > command.limit else None
        return ReceiptsReply(len(seen), [ReceiptEntry(*receipt) for receipt in page], following)

    async def _is_large(self, topic: Topic) -> bool:
        occupants = self._occupants(topic)
        if occupants is None:
            occupants = (await self._engine.present_page(topic.tenant, topic.name, None, 0)).total
        if occupants > self._most:
            return True
        return len(await self._store.members(topic.tenant, topic.name, None, self._most + 1)) > self._most

    async def _seen(self, tenant: str, room: str, viewer: str) -> list[Receipt]:
        """Return all receipts that the viewer may see, by user id. Raise Refused if the room has no receipts."""
        seen: list[Receipt] = []
        after: str | None = None
        while True:
            page = await self._store.receipts(tenant, room, viewer, after, PAGE)
            if page is None:
                raise _no_receipts(room)
            # The privacy of a user may have changed since the read. The cache has each change before its answer.
            visible = {*await self._visibility.visible(tenant, viewer, [receipt.user for receipt in page])}
            seen += [it for it in page if it.user in visible and self._is_shown(tenant, viewer, it.user)]
            if len(page) < PAGE:
                return seen
            after = page[-1].user

    def _is_shown(self, tenant: str, viewer: str, user: str) -> bool:
        return user == viewer or not self._visibility.is_discreet(tenant, user)


def _no_receipts(room: str) -> Refused:
    return Refused(
        Err.FORBIDDEN, f"room {room!r} has no read receipts; the app can turn them on with PUT /v1/rooms/{room}"
    )
