"""What happened, as apps read it."""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from greendot.engine.transitions import Turn
from greendot.protocol.webhooks import PING, CreatedFor, HookEvent, OfRoom, OfUser, UpdatedFor
from greendot.store.webhooks import Queued
from greendot.store.wire import message_event

_encode = msgspec.json.encode


def turn_type(turn: Turn) -> str:
    if turn.kind == "user":
        return "user.online" if turn.on else "user.offline"
    return "room.occupied" if turn.on else "room.vacated"


def turn_event(turn: Turn, event_id: str, at: int) -> HookEvent:
    data = OfUser(turn.name) if turn.kind == "user" else OfRoom(turn.name)
    return _event(event_id, turn_type(turn), turn.tenant, at, data)


def queued_event(queued: Queued) -> HookEvent | None:
    """The same each time it is asked for, id included; None if its record is gone."""
    if queued.record is not None:
        data: Struct = message_event(queued.record)
        event_id = f"message-{queued.record.id}"
    elif (made := queued.notification) is not None:
        data = CreatedFor(queued.stream, made.seq, made.id, made.kind, Raw(made.body), made.created_at, made.ack)
        event_id = f"notification-{queued.stream}-{made.id}"
    elif queued.state is not None:
        data = UpdatedFor(queued.stream, queued.state, queued.ids)
        event_id = f"update-{queued.id}-{queued.at}"
    else:
        return None
    return _event(event_id, queued.type, queued.tenant, queued.at, data)


def ping_event(tenant: str, event_id: str, at: int) -> HookEvent:
    return HookEvent(event_id, PING, tenant, at, Raw(b"{}"))


def _event(event_id: str, kind: str, tenant: str, at: int, data: Struct) -> HookEvent:
    return HookEvent(event_id, kind, tenant, at, Raw(_encode(data)))
