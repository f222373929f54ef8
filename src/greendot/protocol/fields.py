"""Descriptions of wire fields. The generated API documents show the description of every field."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, UnsetType


def about(text: str) -> Meta:
    """Return the annotation that describes a field."""
    return Meta(description=text)


# Fields that many events, replies and HTTP answers have.
RoomField = Annotated[str, about("Id of the room.")]
UserField = Annotated[str, about("Id of the user.")]
NameField = Annotated[str | None, about("Display name of the user; null if there is none.")]
InfoField = Annotated[
    dict[str, Any] | UnsetType,
    about("Info that the app has set for the user: a JSON object of at most 1,024 bytes. Absent if there is none."),
]
MessageIdField = Annotated[str, about("Id of the message.")]
MessageSeqField = Annotated[int, about("Number of the message in the room. Numbers start at 1 and have no gaps.")]
NotificationIdField = Annotated[str, about("Id of the notification.")]
NotificationSeqField = Annotated[
    int, about("Number of the notification in the inbox. Numbers start at 1 and have no gaps.")
]
KindField = Annotated[str, about("Kind of the notification, chosen by the app.")]
AckField = Annotated[bool, about("Whether a device must acknowledge the notification with `inbox.ack`.")]
CreatedAtField = Annotated[int, about("Time when the notification was created, in milliseconds UTC.")]
SeenAtField = Annotated[int | None, about("Time when the notification was seen, in milliseconds UTC; null if unseen.")]
ReadAtField = Annotated[int | None, about("Time when the notification was read, in milliseconds UTC; null if unread.")]
ArchivedAtField = Annotated[
    int | None, about("Time when the notification was archived, in milliseconds UTC; null if it is not archived.")
]
AckedAtField = Annotated[
    int | None,
    about("Time when the notification was acknowledged, in milliseconds UTC; null if it is not acknowledged."),
]
InboxHeadField = Annotated[int, about("Number of the newest notification in the inbox; 0 if there was never one.")]
UnreadField = Annotated[int, about("Number of notifications that are neither read nor archived.")]
UnseenField = Annotated[int, about("Number of notifications that are neither seen nor archived.")]
RoomHeadField = Annotated[int, about("Number of the newest message of the room; 0 if there is none.")]
RoomUnreadField = Annotated[int, about("Number of messages after the user's read marker.")]
ExpiresInField = Annotated[int, about("Time until the typing ends unless it is repeated, in milliseconds.")]
PublicKeyField = Annotated[
    str | None,
    about("VAPID public key of the tenant, in URL-safe base64; null if Web Push is not set up."),
]
