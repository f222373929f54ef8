"""Events of the app: messages where the channel is a room or caches its last event, signals in all other channels."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, Raw

from greendot.compat.connection import NodeServices
from greendot.compat.pusher.apps import PusherApp
from greendot.compat.pusher.channel_model import ChannelName
from greendot.compat.pusher.dialect import APP
from greendot.compat.pusher.frames import as_body
from greendot.engine.messages import Deliver, Topic
from greendot.errors import Refused, RoomBeingDeleted
from greendot.ids import new_message_id
from greendot.protocol.codec import encode_event
from greendot.protocol.codes import Err
from greendot.protocol.decoding import has_vast_number, is_too_deep
from greendot.protocol.events import Signal
from greendot.rooms.members import AGAIN_MS
from greendot.store.rooms import Draft, NewRoom, Room
from greendot.telemetry.spans import parent


class EventPublisher:
    """Publisher of one node."""

    def __init__(self, services: NodeServices) -> None:
        self._services = services

    async def publish(
        self, app: PusherApp, channel: ChannelName, event: str, data: str, socket_id: str | None = None
    ) -> None:
        """Publish an event. Raise Refused above a limit, or while the node refuses work."""
        body = as_body(data)
        if is_too_deep(bytes(body)) or has_vast_number(bytes(body)):
            body = Raw(msgspec.json.encode(data))
        if channel.kind == "user":
            await self._services.backpressure.check_users(app.tenant, [channel.room])
            self._services.rate_limits.app_signal(app.tenant, None)
            self._signal(Topic("user", app.tenant, channel.room), event, body, socket_id)
            return
        await self._services.backpressure.check_room(app.tenant, channel.room)
        if channel.caches or isinstance(await self._services.rooms.membership.find(app.tenant, channel.room), Room):
            await self._append(app, channel, event, body, socket_id)
        else:
            self._services.rate_limits.app_signal(app.tenant, channel.room)
            self._signal(Topic("room", app.tenant, channel.room), event, body, socket_id)

    async def _append(self, app: PusherApp, channel: ChannelName, event: str, body: Raw, socket_id: str | None) -> None:
        self._services.rate_limits.app_message(app.tenant, channel.room)
        content = msgspec.json.encode({"event": event, "data": body})
        draft = Draft(APP, None, content, new_message_id(), self._services.clock.now_ms())
        append = self._services.room_messages.append
        try:
            await append(app.tenant, channel.room, draft, without_connection=socket_id)
        except Refused as refused:
            if refused.code != Err.NO_SUCH_ROOM or not channel.caches:
                raise
            try:  # the room may exist by now, and then it stays open or closed
                new: NewRoom = "open" if channel.kind == "public" else "closed"
                await self._services.store.put_room(app.tenant, channel.room, new=new)
            except RoomBeingDeleted:
                why = f"room {channel.room!r} was deleted a moment ago; try again later"
                raise Refused(Err.UNAVAILABLE, why, retry_in_ms=AGAIN_MS) from None
            await append(app.tenant, channel.room, draft, without_connection=socket_id)

    def _signal(self, topic: Topic, event: str, body: Raw, socket_id: str | None) -> None:
        room = topic.name if topic.kind == "room" else UNSET
        signal = Signal(sender=APP, name=None, kind=event, room=room, body=body)
        traceparent = parent()
        frame = encode_event(signal, self._services.clock.now_ms(), None, traceparent)
        message = Deliver(frame, without_connection=socket_id, traceparent=traceparent)
        self._services.engine.publish(topic, message)
