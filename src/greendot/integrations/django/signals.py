"""Django signals of webhook events. A receiver takes `event`, whose `data` has the fields of docs/webhooks.md.

    @receiver(room_message)
    def index(event: Event[Message], **kwargs: object) -> None: ...

If a receiver fails, the view answers 500, and Greendot sends the event again.
"""

from __future__ import annotations

from django.dispatch import Signal

from greendot.integrations.webhooks import (
    AuditCreated,
    Event,
    NotificationCreated,
    NotificationUpdated,
    RoomChange,
    UserChange,
)
from greendot.sdk.responses import Message

__all__ = [
    "AuditCreated",
    "Event",
    "Message",
    "NotificationCreated",
    "NotificationUpdated",
    "RoomChange",
    "UserChange",
    "audit_created",
    "event_received",
    "notification_created",
    "notification_updated",
    "room_message",
    "room_occupied",
    "room_vacated",
    "user_offline",
    "user_online",
]

user_online = Signal()
user_offline = Signal()
room_occupied = Signal()
room_vacated = Signal()
room_message = Signal()
notification_created = Signal()
notification_updated = Signal()
audit_created = Signal()
event_received = Signal()  # events of all types, also of types that later versions add

BY_TYPE = {
    "user.online": user_online,
    "user.offline": user_offline,
    "room.occupied": room_occupied,
    "room.vacated": room_vacated,
    "room.message": room_message,
    "notification.created": notification_created,
    "notification.updated": notification_updated,
    "audit.created": audit_created,
}
