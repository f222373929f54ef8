"""Records as clients read them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from msgspec import Raw

from greendot.protocol.codec import encode_event
from greendot.protocol.events import MarkedAs, NotificationCreated, NotificationUpdatedV1, RoomMessage
from greendot.protocol.replies import InboxEntry
from greendot.store.inbox import Notification
from greendot.store.rooms import Record

PAGE_BYTES = 1024 * 1024  # of bodies in one page
R = TypeVar("R", Record, Notification)


def message_event(record: Record) -> RoomMessage:
    """A stored message as clients read it."""
    return RoomMessage(
        room=record.room,
        seq=record.seq,
        id=record.id,
        user=record.user,
        name=record.name,
        body=Raw(record.body),
        at=record.at,
        ref=record.ref,
        op=record.op,
    )


def created_event(notification: Notification) -> NotificationCreated:
    """A stored notification as it is announced."""
    return NotificationCreated(
        seq=notification.seq,
        id=notification.id,
        kind=notification.kind,
        body=Raw(notification.body),
        created_at=notification.created_at,
        ack=notification.ack and notification.acked_at is None,
    )


def message_frame(record: Record) -> bytes:
    """It is announced so to who has missed it."""
    return encode_event(message_event(record), record.at, None, record.traceparent)


def created_frame(notification: Notification, now: int) -> bytes:
    """A stored notification as it is announced, in a frame."""
    return encode_event(created_event(notification), now, None, notification.traceparent)


def inbox_entry(notification: Notification) -> InboxEntry:
    """A stored notification as its reader finds it in a page."""
    return InboxEntry(
        seq=notification.seq,
        id=notification.id,
        kind=notification.kind,
        body=Raw(notification.body),
        created_at=notification.created_at,
        seen_at=notification.seen_at,
        read_at=notification.read_at,
        archived_at=notification.archived_at,
        acked_at=notification.acked_at,
        ack=notification.ack and notification.acked_at is None,
    )


def state_events(notifications: Iterable[Notification]) -> list[NotificationUpdatedV1]:
    """What became of notifications since they were announced, each by the most that was done with it."""
    states: dict[MarkedAs, list[str]] = {"seen": [], "read": [], "acked": []}
    for of in notifications:
        if of.acked_at is not None:
            states["acked"].append(of.id)
        elif of.read_at is not None:
            states["read"].append(of.id)
        elif of.seen_at is not None:
            states["seen"].append(of.id)
    return [NotificationUpdatedV1(state, ids) for state, ids in states.items() if ids]


def is_over(notification: Notification, now: int) -> bool:
    """Whether it has expired, though it is still kept."""
    return notification.expires_at is not None and notification.expires_at <= now


def fit(records: list[R], *, newest: bool) -> list[R]:
    """As many of the records as one answer may hold, from the end they are wanted from; at least one."""
    size, kept = 0, 0
    for record in reversed(records) if newest else records:
        size += len(record.body)
        if kept and size > PAGE_BYTES:
            break
        kept += 1
    return records[len(records) - kept :] if newest else records[:kept]
