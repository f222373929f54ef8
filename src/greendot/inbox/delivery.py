"""Inboxes on this node: what is new reaches every device of its user in order, each once, none left out.

An inbox is a stream (`node.stream`) of which numbers may be missing for good: a notification that was archived on
another device or has expired is not announced any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

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

COMPARE_S = 60.0  # between two comparisons of the heads of all inboxes here
READERS = 32  # gaps read at the same time


class InboxCatchUp(NamedTuple):
    """What a device is told when it comes."""

    unread: int
    events: list[Event]  # what it missed, and what it is to acknowledge still


class InboxDelivery(StreamFollower[LocalInbox]):
    """The inboxes of all users with sessions on this node."""

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

    # --- devices come and go ---

    def ask(self, session: Session) -> asyncio.Future[Inbox]:
        """Where the inbox of a device that comes stands. Nothing that comes after this is lost for it."""
        self._of(session.key)
        return self._heads.ask(session.key)

    async def attach(
        self, connection: Connection, session: Session, asked: asyncio.Future[Inbox], after: int | None
    ) -> InboxCatchUp:
        """The device hears what is new from now on, beginning behind `after`; without it, with what comes now."""
        local = self._of(session.key)
        inbox = await asyncio.shield(asked)
        await self._catch_up(local, inbox.head)
        urgent = await self.redelivery.pending(session.key) if inbox.head else []
        start = inbox.head if after is None else after
        self._metrics.notification_recovery_fetch_total += after is not None
        missed, inbox = await self._missed(local, start, inbox)
        # No await below: what was read and what the device will hear must meet without a gap.
        self._show(local, inbox)
        events: list[Event] = []
        if missed is None:
            events.append(Resync("inbox"))
        if connection.closing:
            return InboxCatchUp(inbox.unread, events)
        again = [n for n in urgent if n.seq <= (local.cursor if missed is None else min(start, local.cursor))]
        events += [created_event(notification) for notification in again]
        events += self._replayed(missed or [])
        connection.gets_inbox = True
        self.receipts.add(local.key, [n.seq for n in (*again, *(missed or ()))])
        self.redelivery.sent(local, [n.seq for n in (*again, *(missed or ())) if n.ack and n.acked_at is None])
        return InboxCatchUp(inbox.unread, events)

    def _of(self, key: Key) -> LocalInbox:
        local = self._local.get(key)
        if local is None:
            local = self._local[key] = LocalInbox(key)
            self._set_compare_timer()
        return local

    async def _catch_up(self, local: LocalInbox, head: int) -> None:
        """No device that comes may be ahead of what was offered to those that are there."""
        if not local.known:
            local.known = True
            self._forward(local, local.stream.skip_to(head))
            if local.stream.is_behind:
                self._schedule(local, GAP_S)
        while head > local.cursor:
            await self._fill(local)

    async def _missed(self, local: LocalInbox, after: int, inbox: Inbox) -> tuple[list[Notification] | None, Inbox]:
        """Read the notifications after `after` up to the cursor; None if they are too many, or it lies beyond.

        The counters are those of the last read, `inbox` where nothing has to be read.
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
        """As if the device had been there: each as it was announced, then what became of them."""
        return [*(created_event(notification) for notification in missed), *state_events(missed)]

    def left(self, key: Key) -> None:
        """The user's last session here is gone."""
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
                else:  # the content is in the store only
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

    # --- to the devices ---

    def _devices(self, local: LocalInbox) -> Iterator[Connection]:
        if local.stream.closed:  # while something was read for it
            return iter(())
        return (c for c in self._context.registry.connections_of(*local.key) if c.gets_inbox and not c.closing)

    def _is_attached(self, local: LocalInbox) -> bool:
        return any(True for _ in self._devices(local))

    def _send(self, local: LocalInbox, frame: bytes) -> int:
        """To how many devices."""
        sent = 0
        for connection in self._devices(local):
            connection.send(frame)
            sent += 1
        return sent

    def _forward(self, local: LocalInbox, entries: list[QueuedNotification]) -> None:
        """The last of these is the cursor's."""
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
        # The head first: what it counts and a page does not show is not to be announced any more.
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
            # Too much for a live stream: clients fetch it when they want it.
            self._send(local, encode_event(Resync("inbox"), now))
        self._forward(local, local.stream.skip_to(head))

    # --- comparing ---

    def _followed(self) -> Collection[LocalInbox]:
        return self._local.values()

    def _log_gap(self, local: LocalInbox, error: StoreUnavailable) -> None:
        log(log_events.WORK_LATER, work="a gap in an inbox", reason=error, user=local.key[1])

    async def _compare_heads(self, some: Sequence[LocalInbox]) -> None:
        inboxes = await self._store.inboxes([local.key for local in some])
        self._compared(inboxes)
        for key, inbox in inboxes.items():
            if (local := self._local.get(key)) is not None:
                self._show(local, inbox)

    def _show(self, local: LocalInbox, inbox: Inbox) -> None:
        """What was marked elsewhere and not heard of here is seen by the count only."""
        if local.shown is None:
            local.shown = inbox
        elif (local.shown.unread, local.shown.unseen) != (inbox.unread, inbox.unseen):
            self.badges.changed([local.key])

    def answered(self, key: Key, inbox: Inbox) -> None:
        """Read the counters again for the user's devices if a reply carries others than their last badge.

        The reply may be older than that badge and still reach its device after it.
        """
        if (local := self._local.get(key)) is not None:
            self._show(local, inbox)

    def _badges_sent(self, inboxes: Mapping[Key, Inbox]) -> None:
        """The devices know these counts now."""
        for key, inbox in inboxes.items():
            if (local := self._local.get(key)) is not None:
                local.shown = inbox
        self._compared(inboxes)

    def _compared(self, inboxes: Mapping[Key, Inbox]) -> None:
        """What is behind the store may still come by itself; it is read if it does not."""
        for key, inbox in inboxes.items():
            local = self._local.get(key)
            if local is not None and local.known and inbox.head > local.cursor:
                local.stream.hint(inbox.head)
                self._schedule(local, GAP_S)

    async def resync(self, part: Part, node: str) -> None:
        """Something may have been missed. What a node is told comes from where its own name is kept."""
        everything = part.covers("", node)
        await self._compare([local for key, local in self._local.items() if everything or part.covers(*key)])
