"""Conversion of stored records to events, replies and frames for clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from msgspec import UNSET, Raw, structs

from greendot.presence.profile_model import NO_PROFILE, Profile
from greendot.protocol.codec import encode_event
from greendot.protocol.events import MarkedAs, NotificationCreated, NotificationUpdatedV1, ReactionCount, RoomMessage
from greendot.protocol.replies import InboxEntry
from greendot.store.inbox import Notification
from greendot.store.pages import RoomPage
from greendot.store.rooms import Record

PAGE_BYTES = 1024 * 1024  # bodies in one page
R = TypeVar("R", Record, Notification)


def message_event(record: Record, profile: Profile = NO_PROFILE) -> RoomMessage:
    """Return the event for a stored message, with the current profile of its author."""
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
        info=profile.wire if profile.rev else UNSET,
    )


def message_page(records: list[Record], profiles: Mapping[str, Profile], *, newest: bool) -> list[RoomMessage]:
    """Return the events of a page: as many of the records as fit. `profiles` are those of authors, by id."""

    def author(record: Record) -> Profile:
        return profiles.get(record.user, NO_PROFILE)

    page = fit(records, newest=newest, also=lambda record: len(author(record).info))
    return [message_event(record, author(record)) for record in page]


def sent_size(message: RoomMessage) -> int:
    """Return the bytes of a message's content. `info` comes from the store, encoded."""
    info: object = message.info
    return len(bytes(message.body)) + (len(bytes(info)) if isinstance(info, Raw) else 0)


def with_reactions(messages: list[RoomMessage], page: RoomPage, *, for_reader: bool = True) -> list[RoomMessage]:
    """Return messages of a page with their reactions. Without `for_reader`, reactions do not have `mine`."""
    if not page.reactions:
        return messages
    return [
        structs.replace(
            message,
            reactions=[ReactionCount(*of) if for_reader else ReactionCount(of.reaction, of.users) for of in counts],
            reacted=page.room.head,
        )
        if message.op is None and (counts := page.reactions.get(message.seq)) is not None
        else message
        for message in messages
    ]


def created_event(notification: Notification) -> NotificationCreated:
    """Return the event that announces a stored notification."""
    return NotificationCreated(
        seq=notification.seq,
        id=notification.id,
        kind=notification.kind,
        body=Raw(notification.body),
        created_at=notification.created_at,
        ack=notification.ack and notification.acked_at is None,
    )


def message_frame(record: Record, profile: Profile = NO_PROFILE) -> bytes:
    """Return the frame of a stored message, for subscribers that missed it."""
    return encode_event(message_event(record, profile), record.at, None, record.traceparent)


def created_frame(notification: Notification, now: int) -> bytes:
    """Return the frame that announces a stored notification."""
    return encode_event(created_event(notification), now, None, notification.traceparent)


def inbox_entry(notification: Notification) -> InboxEntry:
    """Return the entry of a stored notification in a page of the inbox."""
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
    """Return the marks set since the notifications were announced, each notification under its furthest mark."""
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
    """Return whether the notification has expired, though it is still stored."""
    return notification.expires_at is not None and notification.expires_at <= now


def fit(records: list[R], *, newest: bool, also: Callable[[R], int] = lambda record: 0) -> list[R]:
    """Return as many records as fit in `PAGE_BYTES`, but at least one; the last ones if `newest`, else the first.

    `also` returns the bytes that are sent with a record.
    """
    size, kept = 0, 0
    for record in reversed(records) if newest else records:
        size += len(record.body) + also(record)
        if kept and size > PAGE_BYTES:
            break
        kept += 1
    return records[len(records) - kept :] if newest else records[:kept]
