"""Delivery of notifications to the devices of users on this node: in order and without gaps.

An inbox is a stream of numbered notifications. `node.stream` explains streams, cursors, heads, gaps and hints. A
missing notification may have been archived on another device, or may have expired. Its number is then skipped.

Each notification is forwarded once. A notification that needs an acknowledgement is sent again until a device
acknowledges it (`inbox.redelivery`).

The badge has two numbers. A notification is unseen until the user opens the list that contains it, and unread until the
user opens the notification itself. The badge has the number of unread notifications and the number of unseen
notifications. Devices get a new badge when one of these numbers changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from greendot.engine.messages import InboxChanged, Notified, Part, Topic
from greendot.errors import StoreUnavailable
from greendot.ids import Key
from greendot.inbox.badges import Badges
from greendot.inbox.local_inbox import LocalInbox, QueuedNotification
from greendot.inbox.receipts import Receipts
from greendot.inbox.redelivery import Redelivery
from greendot.node.batching import BatchedReads
from greendot.node.bus import BusTable, traced
from greendot.node.context import NodeContext
from greendot.node.session import Connection, Session
from greendot.node.stream import GAP_S, RECOVER, RECOVER_BYTES, LocalStream, StreamFollower, retry_s
from greendot.protocol.codec import encode_event
from greendot.protocol.events import Event, Resync
from greendot.store.inbox import Inbox, Notification
from greendot.store.port import Store
from greendot.store.wire import created_event, created_frame, is_over, state_events
from greendot.telemetry import log_events
from greendot.telemetry.log import log
from greendot.telemetry.metrics import Metrics

COMPARE_S = 60.0  # seconds between two comparisons of the inboxes on this node with the store
READERS = 32  # maximum number of concurrent reads of gaps and of missed notifications


class InboxCatchUp(Struct, frozen=True):
    """Data for a device that connects: the number of unread notifications, and the events to send."""

    unread: int
    events: list[Event]  # to acknowledge; and missed notifications with their changes, or `resync` instead of these


class InboxDelivery(StreamFollower[LocalInbox]):
    """Delivery for the inboxes of all users with sessions on this node."""

    def __init__(self, store: Store, context: NodeContext, metrics: Metrics) -> None:
        super().__init__(context, "inboxes", COMPARE_S)
        self._store = store
        self._metrics = metrics
        self._local: dict[Key, LocalInbox] = {}
        self._heads: BatchedReads[Key, Inbox] = BatchedReads(context, store.inboxes, Inbox())
        self._turns = asyncio.Semaphore(READERS)
        self.badges = Badges(store, context, metrics, self._badges_sent)
        self.receipts = Receipts(store, context)
        self.redelivery = Redelivery(store, context, metrics, self._send, self._is_attached)
        self.bus: BusTable = {Notified: self._notified, InboxChanged: self.received}

    # --- attaching and leaving ---

    def ask(self, session: Session) -> asyncio.Future[Inbox]:
        """Start to read the inbox of a session that connects. Pass the result to `attach`.

        Notifications that arrive from now on are kept for the session.
        """
        self._of(session.key)
        return self._heads.ask(session.key)

    async def attach(
        self, connection: Connection, session: Session, asked: asyncio.Future[Inbox], after: int | None
    ) -> InboxCatchUp:
        """Attach a device, so that new notifications are delivered to it. Return the notifications that it has missed.

        `after` is the number of the last notification that the client has. If `after` is None, the client asks for no
        missed notifications. Notifications that wait for an acknowledgement are always returned. `asked` is the result
        of `ask`.
        """
        local = self._of(session.key)
        inbox = await asked
        cursor = local.stream.cursor
        if not local.known or inbox.head > cursor:
            if inbox.head or cursor or local.stream.is_behind:
                await self._catch_up(local, inbox.head)
            else:  # an empty inbox, as of most users
                local.known = True
        urgent = await self.redelivery.pending(session.key) if inbox.head else []
        start = inbox.head if after is None else after
        self._metrics.notification_recovery_fetch_total += after is not None
        missed: list[Notification] | None = []
        if start != local.cursor:
            missed, inbox = await self._missed(local, start, inbox)
        # No await below. The device gets the notifications that were read from the store, and new notifications after
        # `gets_inbox` is set. During an await between here and `gets_inbox`, a new notification would be lost.
        self._show(local, inbox)
        events: list[Event] = []
        if missed is None:
            events.append(Resync("inbox"))
        if connection.closing:
            return InboxCatchUp(inbox.unread, events)
        connection.gets_inbox = True
        if not urgent and not missed:
            return InboxCatchUp(inbox.unread, events)
        again = [n for n in urgent if n.seq <= (local.cursor if missed is None else min(start, local.cursor))]
        events += [created_event(notification) for notification in again]
        events += self._replayed(missed or [])
        self.receipts.add(local.key, [n.seq for n in (*again, *(missed or ()))])
        self.redelivery.sent(local, [n.seq for n in (*again, *(missed or ())) if n.ack and n.acked_at is None])
        return InboxCatchUp(inbox.unread, events)

    def _of(self, key: Key) -> LocalInbox:
        local = self._local.get(key)
        if local is None:
            local = self._local[key] = LocalInbox(key)
            if self._compare_timer is None:
                self._set_compare_timer()
        return local

    async def _catch_up(self, local: LocalInbox, head: int) -> None:
        """Forward all notifications up to `head` to attached devices, so that a new device is not ahead of others."""
        if not local.known:
            local.known = True
            self._forward(local, local.stream.skip_to(head))
            if local.stream.is_behind:
                self._schedule(local, GAP_S)
        while head > local.cursor:
            await self._fill(local)

    async def _missed(self, local: LocalInbox, after: int, inbox: Inbox) -> tuple[list[Notification] | None, Inbox]:
        """Read the notifications after `after`, up to the cursor. Return them, and the inbox as of the last read.

        Return None instead of the notifications if there are too many, or if `after` is above the cursor. If no read
        was needed, return the argument `inbox` unchanged.
        """
        missed: list[Notification] = []
        if after > local.cursor:
            return None, inbox
        while after < local.cursor:
            upto = local.cursor
            async with self._turns:
                page, inbox = await self._store.inbox_page(
                    *local.key, after=after, before=upto + 1, limit=RECOVER + 1 - len(missed)
                )
            missed += page
            if len(missed) > RECOVER or sum(len(notification.body) for notification in missed) > RECOVER_BYTES:
                return None, inbox
            after = upto
        now = self._context.clock.now_ms()
        return [notification for notification in missed if not is_over(notification, now)], inbox

    @staticmethod
    def _replayed(missed: list[Notification]) -> list[Event]:
        """Return the events that the device missed: the notifications, then their changes, such as read marks."""
        return [*(created_event(notification) for notification in missed), *state_events(missed)]

    def left(self, key: Key) -> None:
        """Drop the inbox of a user, because the user's last session on this node has ended."""
        local = self._local.pop(key, None)
        if local is not None:
            self.drop(local)
            self.redelivery.left(local)
        if not self._local:
            self._context.timers.cancel(self._compare_timer)
            self._compare_timer = None

    # --- from the bus ---

    def _notified(self, topic: Topic, message: Notified) -> None:
        if message.traceparent is None or not message.records:
            self.received(topic, message)
        else:
            with traced(topic, message.traceparent, message.records[-1][0]):
                self.received(topic, message)

    def received(self, topic: Topic, message: Notified | InboxChanged) -> None:
        key = (topic.tenant, topic.name)
        local = self._local.get(key)
        if local is None:
            return
        if isinstance(message, Notified):
            for seq, frame, ack in message.records:
                if frame:
                    self._forward(local, local.stream.offer(seq, QueuedNotification(frame, ack)))
                else:  # a hint: the message has only the number, and the content is in the store
                    local.stream.hint(seq)
            if local.known:
                self._schedule_if_behind(local)
        else:
            self._changed(local, message)
        self.badges.changed([key])

    def _changed(self, local: LocalInbox, message: InboxChanged) -> None:
        self.redelivery.acknowledged(local, message.acked, message.acked_through)
        for connection in self._context.registry.connections_of(*local.key) if message.frame else ():
            if connection.id != message.without_connection:
                connection.send(message.frame)

    # --- sending ---

    def _devices(self, local: LocalInbox) -> Iterator[Connection]:
        if local.stream.closed:  # the last session has ended during a read
            return iter(())
        return (c for c in self._context.registry.connections_of(*local.key) if c.gets_inbox and not c.closing)

    def _is_attached(self, local: LocalInbox) -> bool:
        return any(True for _ in self._devices(local))

    def _send(self, local: LocalInbox, frame: bytes) -> int:
        """Send a frame to the user's attached devices; return their number."""
        sent = 0
        for connection in self._devices(local):
            connection.send(frame)
            sent += 1
        return sent

    def _forward(self, local: LocalInbox, entries: list[QueuedNotification]) -> None:
        """Send notifications to the devices. The cursor is already at the number of the last entry."""
        if not entries:
            return
        first = local.cursor - len(entries) + 1
        for entry in entries:
            heard = self._send(local, entry.frame)
            self._metrics.notification_live_push_total += heard
        if heard:
            self.receipts.add(local.key, range(first, local.cursor + 1))
        if urgent := [seq for seq, entry in enumerate(entries, first) if entry.ack]:
            self.redelivery.sent(local, urgent)

    # --- reading ---

    async def _read_gap(self, local: LocalInbox) -> None:
        self._metrics.inbox_gaps_total += 1
        # Read the head first, then the notifications. So if a number up to this head is missing in the store, its
        # notification was archived or has expired.
        head = (await self._heads.get(local.key)).head
        found: list[Notification] = []
        if head > local.cursor and self._is_attached(local):
            async with self._turns:
                found = await self._store.notifications(*local.key, after=local.cursor, before=head + 1, limit=RECOVER)
        self._catch(local, head, found)

    def _next_read_s(self, stream: LocalStream[Any], *, done: bool, moved: bool, hinted: bool) -> float | None:
        if hinted:
            return 0.0
        if not stream.is_behind:
            return None
        return GAP_S if moved else retry_s()

    def _catch(self, local: LocalInbox, head: int, found: list[Notification]) -> None:
        now = self._context.clock.now_ms()
        if head > local.cursor:
            self.badges.changed([local.key])
        for notification in found:
            self._forward(local, local.stream.skip_to(notification.seq - 1))
            if not is_over(notification, now):
                entry = QueuedNotification(created_frame(notification, now), notification.ack)
                self._forward(local, local.stream.offer(notification.seq, entry))
        if len(found) >= RECOVER and head > local.cursor:
            # There are too many notifications to send. After the event `resync`, the JavaScript and Python clients
            # fetch the notifications themselves.
            self._send(local, encode_event(Resync("inbox"), now))
        self._forward(local, local.stream.skip_to(head))

    # --- comparisons ---

    async def _followed(self) -> list[LocalInbox]:
        return [*self._local.values()]

    def _log_gap(self, local: LocalInbox, error: StoreUnavailable) -> None:
        log(log_events.WORK_LATER, work="reading missed notifications of an inbox", reason=error, user=local.key[1])

    async def _compare_heads(self, some: Sequence[LocalInbox]) -> None:
        inboxes = await self._store.inboxes([local.key for local in some])
        self._compared(inboxes)
        for key, inbox in inboxes.items():
            if (local := self._local.get(key)) is not None:
                self._show(local, inbox)

    def _show(self, local: LocalInbox, inbox: Inbox) -> None:
        """Send a new badge if the counts of unread or unseen notifications differ from the last badge.

        They differ for example if a device has marked notifications as read or seen, and the bus has lost the message.
        """
        if local.shown is None:
            local.shown = inbox
        elif (local.shown.unread, local.shown.unseen) != (inbox.unread, inbox.unseen):
            self.badges.changed([local.key])

    def answered(self, key: Key, inbox: Inbox) -> None:
        """Send a new badge if the counts in a reply to a device differ from the counts in the last badge.

        The counts in the reply may be older than the last badge, but reach the device after this badge. Without a new
        badge, the device would continue to show the older counts.
        """
        if (local := self._local.get(key)) is not None:
            self._show(local, inbox)

    def _badges_sent(self, inboxes: Mapping[Key, Inbox]) -> None:
        """Record the counts that were sent to the devices."""
        for key, inbox in inboxes.items():
            if (local := self._local.get(key)) is not None:
                local.shown = inbox
        self._compared(inboxes)

    def _compared(self, inboxes: Mapping[Key, Inbox]) -> None:
        """Schedule a gap read for each inbox with a cursor below the head in the store.

        The read starts after GAP_S, because the bus may still bring the missing notifications with their content. If it
        does, the read is not necessary and does not start. The head is also recorded as a hint: the hint makes sure
        that the read starts even if no later notification shows the gap.
        """
        for key, inbox in inboxes.items():
            local = self._local.get(key)
            if local is not None and local.known and inbox.head > local.cursor:
                local.stream.hint(inbox.head)
                self._schedule(local, GAP_S)

    async def resync(self, part: Part, node: str) -> None:
        """Compare inboxes with the store, because the bus may have lost messages of the partitions in `part`.

        Before another node sends a notification, it looks up in the user's partition which nodes have sessions of the
        user. Then it publishes the notification on the channels of these nodes. So if the user's partition was lost or
        unreachable, the notification may not have been sent to this node: compare the inboxes of the users in `part`.
        If the partition of this node's own channel is in `part`, any notification may be lost: compare all inboxes.
        """
        everything, found = part.covers("", node), []
        async for some in self._context.slices.cut([*self._local.items()]):
            found += [local for key, local in some if everything or part.covers(*key)]
        await self._compare(found)
