"""Records as clients read them."""

from __future__ import annotations

from msgspec import Raw

from greendot.protocol.events import RoomMessage
from greendot.store.base import Record


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
