"""Moderation by the app: messages that it edits or deletes, and rooms that it archives or deletes."""

from __future__ import annotations

from msgspec import structs

from greendot.engine.messages import Deliver, MembersChanged, Topic
from greendot.engine.port import Engine
from greendot.errors import NoSuchMessage
from greendot.node.context import NodeContext
from greendot.protocol.codec import encode_event
from greendot.protocol.events import RoomChanged
from greendot.rooms.messages import RoomMessages
from greendot.store.audit import AuditNote
from greendot.store.port import Store
from greendot.store.rooms import Draft, Record, Room
from greendot.telemetry.metrics import Metrics
from greendot.telemetry.spans import parent

SETTINGS = "settings"  # actor of a change with the key of the settings, which has no name


class RoomModeration:
    """Service for changes by the app. The store writes each change with its entry of the audit."""

    def __init__(
        self, engine: Engine, store: Store, messages: RoomMessages, context: NodeContext, metrics: Metrics
    ) -> None:
        self._engine = engine
        self._store = store
        self._messages = messages
        self._context = context
        self._metrics = metrics

    async def change(self, tenant: str, room: str, draft: Draft, note: AuditNote) -> Record | None:
        """Edit or delete a message, then publish the change; return its record.

        None if there is no such room. Raise NoSuchMessage if there is no such message.
        """
        traceparent = parent()
        written = await self._store.moderate(tenant, room, structs.replace(draft, traceparent=traceparent), note)
        if written is None:
            return None
        if written.new:
            self._metrics.room_moderations_total += 1
            await self._messages.publish(tenant, written, None, traceparent)
        elif written.record.op != draft.op or written.record.ref != draft.ref:  # the key belongs to another record
            raise NoSuchMessage(room)
        return written.record

    async def archive(self, tenant: str, room: str, archived: bool, note: AuditNote) -> Room | None:
        """Archive a room, or end that; None if there is no such room. The listeners get a `room.changed`."""
        found = await self._store.archive_room(tenant, room, archived, note)
        if found is not None:
            topic = Topic("room", tenant, room)
            self._engine.publish(topic, MembersChanged())
            event = RoomChanged(room, archived=archived)
            frame = encode_event(event, self._context.clock.now_ms())
            self._engine.publish(topic, Deliver(frame, key=("archived",)))
            self._metrics.room_moderations_total += 1
        return found

    async def slow_mode(self, tenant: str, room: str, seconds: int, note: AuditNote) -> Room | None:
        """Set or end the slow mode of a room; None if there is no such room. The listeners get a `room.changed`."""
        found = await self._store.set_slow_mode(tenant, room, seconds, note)
        if found is not None:
            frame = encode_event(RoomChanged(room, slow_mode_s=seconds), self._context.clock.now_ms())
            self._engine.publish(Topic("room", tenant, room), Deliver(frame, key=("slow_mode",)))
            self._metrics.room_moderations_total += 1
        return found

    async def delete(self, tenant: str, room: str, note: AuditNote) -> bool:
        """Delete a room; return False if there is none. Each node detaches the listeners when the change arrives.

        A job removes the rows of the room.
        """
        if not await self._store.delete_room(tenant, room, note):
            return False
        self._engine.publish(Topic("room", tenant, room), MembersChanged())
        self._metrics.room_moderations_total += 1
        return True
