"""Records as clients read them."""

from __future__ import annotations

from msgspec import Raw

from greendot.protocol.events import NotificationCreated, RoomMessage
from greendot.protocol.replies import InboxEntry
from greendot.store.base import Notification, Record


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


def created_event(notification: Notification, *, ack: bool = False) -> NotificationCreated:
    """A stored notification as it is announced; with `ack` its reader is asked to acknowledge it."""
    return NotificationCreated(
        seq=notification.seq,
        id=notification.id,
        kind=notification.kind,
        body=Raw(notification.body),
        created_at=notification.created_at,
        ack=ack,
    )


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
    )
