"""Inbox service: new notifications, pages of an inbox, and marks (seen, read, archived, acknowledged).

The kind of a notification decides whether the notification is kept. A kept notification is first written to the store,
and then published to the user's devices. Any other notification is sent to the connected devices as a signal, and never
written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import UNSET, Raw, structs

from greendot.engine.messages import Deliver, InboxChanged, Message, Notified, Topic
from greendot.engine.port import Engine
from greendot.errors import Refused
from greendot.ids import APP_USER, Key, new_message_id, number_of
from greendot.inbox.delivery import InboxDelivery
from greendot.inbox.kinds_model import Kinds
from greendot.node.commands import CommandTable
from greendot.node.context import NodeContext
from greendot.node.session import Connection, Session
from greendot.node.time_slices import STEP
from greendot.protocol.codec import encode_event
from greendot.protocol.codes import Err
from greendot.protocol.commands import InboxAck, InboxArchive, InboxList, InboxMark, InboxRead, InboxSeen
from greendot.protocol.events import MarkedAs, NotificationUpdatedV1, Refresh, Signal
from greendot.protocol.replies import BadgeReply, InboxReply
from greendot.push.policy_model import QueuePolicy
from greendot.store.inbox import Created, Mark, Notice, Notification
from greendot.store.port import Store
from greendot.store.wire import created_frame, fit, inbox_entry
from greendot.telemetry.metrics import Metrics
from greendot.telemetry.spans import parent, span

MOST_IDS = 1_000  # maximum number of ids in an event to the user's other devices
TOGETHER = 50  # maximum number of notifications in one bus message
TOGETHER_BYTES = 64 * 1024  # a bus message that has reached this size takes no further notification
IN_A_ROW = 50  # bus messages that are published before other tasks run
SENDER = APP_USER  # sender of the signal for a notification that is not kept
_MARKS: dict[type[InboxMark], tuple[Mark, MarkedAs]] = {
    InboxSeen: ("seen", "seen"),
    InboxRead: ("read", "read"),
    InboxArchive: ("archive", "archived"),
    InboxAck: ("ack", "acked"),
}


class InboxService:
    """Service for the commands and HTTP requests that change or read an inbox."""

    def __init__(
        self,
        engine: Engine,
        store: Store,
        context: NodeContext,
        inboxes: InboxDelivery,
        kinds: Kinds,
        metrics: Metrics,
        queue_policies: Mapping[str, QueuePolicy],  # push policies by tenant; "" for all other tenants
        push_queued: Callable[[], None],  # called after the write of notifications that may have to be pushed
    ) -> None:
        self._engine = engine
        self._store = store
        self._context = context
        self._inboxes = inboxes
        self._kinds = kinds
        self._metrics = metrics
        self._queue_policies = queue_policies
        self._push_queued = push_queued
        self.commands: CommandTable = {
            InboxList: lambda connection, session, command: self.page(session, command),
            **dict.fromkeys(_MARKS, self.mark),
        }

    # --- new notifications ---

    async def notify(self, notices: Sequence[Notice]) -> list[Created | None]:
        """Write notices as notifications, in one transaction, and publish the notifications to the users' devices.

        A notice whose kind is not kept is only published, as a signal. If the user already has a notification with the
        key of a notice, this notification is published again, and no new one is written. A notice without a key always
        makes a new notification. The field `ack` of a notice is ignored: the kind has this setting.

        Return one result for each notice, in the order of the notices. The result is None if the kind is not kept.
        """
        kept: list[Notice] = []
        async for some in self._context.slices.cut(notices):
            kept += self._kept(some)
        written = iter(await self._write(kept) if kept else ())
        is_many = len(notices) > STEP
        if is_many:
            await self._context.slices.turn()
        created = [next(written) if self._kinds.of(notice.kind).is_kept else None for notice in notices]
        await self._publish(self._signals([of for of, made in zip(notices, created, strict=True) if made is None]))
        if is_many:
            await self._context.slices.turn()
        with span("bus.publish", kind="user"):
            await self._publish(self._published(kept, [made.notification for made in created if made is not None]))
        if is_many:
            await self._context.slices.turn()
        if any(notice.push for notice in kept):
            self._push_queued()
        self._context.recorder.notified(notices)
        self._metrics.inbox_notified_total += sum(made is None or made.new for made in created)
        return created

    def _kept(self, notices: Sequence[Notice]) -> Iterator[Notice]:
        """Yield the notices whose kind is kept, with `key`, `ack`, `push` and `traceparent` set for the store."""
        traceparent = parent()
        for notice in notices:
            if (kind := self._kinds.of(notice.kind)).is_kept:
                yield structs.replace(
                    notice,
                    key=notice.key or new_message_id(),
                    ack=kind.wants_ack,
                    push=notice.push and self._queue_policy(notice.tenant).queues(notice.kind),
                    traceparent=traceparent,
                )

    def _queue_policy(self, tenant: str) -> QueuePolicy:
        return self._queue_policies.get(tenant) or self._queue_policies[""]

    async def _write(self, notices: Sequence[Notice]) -> list[Created]:
        with span("store.commit", channel="inbox"):
            return await self._store.notify(notices)

    def _published(self, notices: Sequence[Notice], made: Sequence[Notification]) -> Iterator[tuple[Topic, Message]]:
        """Yield bus messages for the users: one for each user, or several if a user gets many notifications.

        A notification that an earlier call has written is published again: the process of the earlier call may have
        ended between the write and the publication. Nodes that already have the notification ignore the repetition.
        """
        users: dict[Key, list[Notification]] = {}
        for notice, notification in zip(notices, made, strict=True):
            users.setdefault((notice.tenant, notice.user), []).append(notification)
        for key, notifications in users.items():
            topic, records, size = Topic("user", *key), list[tuple[int, bytes, bool]](), 0
            for notification in notifications:
                is_hint = self._kinds.of(notification.kind).bus == "hint"
                frame = b"" if is_hint else created_frame(notification, notification.created_at)
                records.append((notification.seq, frame, notification.ack and notification.acked_at is None))
                size += len(frame)
                if len(records) >= TOGETHER or size >= TOGETHER_BYTES:
                    yield topic, Notified(records, parent())
                    records, size = [], 0
            if records:
                yield topic, Notified(records, parent())

    def _signals(self, notices: Sequence[Notice]) -> Iterator[tuple[Topic, Message]]:
        for notice in notices:
            kind = self._kinds.of(notice.kind)
            body, key = Raw(notice.body), notice.key or UNSET
            signal = Signal(SENDER, None, notice.kind, body=body, key=key)
            frame = encode_event(signal, notice.created_at, None, parent())
            merged = (SENDER, notice.kind, notice.key) if kind.promise == "recomputable" else None
            yield Topic("user", notice.tenant, notice.user), Deliver(frame, key=merged)

    async def _publish(self, messages: Iterable[tuple[Topic, Message]]) -> None:
        for number, (topic, message) in enumerate(messages, start=1):
            self._engine.publish(topic, message)
            if number % IN_A_ROW == 0:
                await self._context.slices.turn()

    # --- reads and marks by users ---

    async def page(self, session: Session, command: InboxList) -> InboxReply:
        if command.before is not None and command.after is not None:
            raise Refused(Err.BAD_FIELD, "field `before` of inbox.list: give at most one of `before` and `after`")
        found, inbox = await self._store.inbox_page(
            *session.key, after=command.after, before=command.before, limit=command.limit, only=command.filter
        )
        self._inboxes.answered(session.key, inbox)
        entries = [inbox_entry(notification) for notification in fit(found, newest=command.after is None)]
        return InboxReply(entries, inbox.head, inbox.unread, inbox.unseen)

    async def mark(self, connection: Connection, session: Session, command: InboxMark) -> BadgeReply:
        """Mark notifications of the user, and publish the marks to the user's other devices."""
        mark, state = _MARKS[type(command)]
        ids, through = command.ids, command.through
        if (ids is None) == (through is None):
            raise Refused(Err.BAD_FIELD, f"field `ids` of inbox.{mark}: give exactly one of `ids` and `through`")
        now = self._context.clock.now_ms()
        marked = await self._store.mark(*session.key, mark, ids=ids, through=through, at=now)
        if marked.ids:
            event = NotificationUpdatedV1(state, marked.ids[-MOST_IDS:], UNSET if through is None else through)
            frames = encode_event(event, now)
            if len(marked.ids) > MOST_IDS:  # this version of the event cannot name all ids
                frames += encode_event(Refresh(event.type), now)
            acked = [seq for text in marked.ids if (seq := number_of(text)) is not None] if through is None else []
            told = InboxChanged(frames, connection.id)
            if mark == "ack":
                told = structs.replace(told, acked=acked, acked_through=through or 0)
            self._engine.publish(Topic("user", *session.key), told)
        else:
            # No notification has changed, so nothing is published. `InboxDelivery` still gets the counts of the store.
            self._inboxes.answered(session.key, marked.inbox)
        return BadgeReply(marked.inbox.unread, marked.inbox.unseen)
