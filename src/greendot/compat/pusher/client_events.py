"""Client events: signals of a user to the other clients of a channel. `client-typing` is typing for native clients."""

from __future__ import annotations

from collections.abc import Awaitable

import msgspec
from msgspec import Raw

from greendot.compat.connection import NodeServices
from greendot.compat.pusher import connection as codes
from greendot.compat.pusher import frames
from greendot.compat.pusher.channel_events import ChannelEvents
from greendot.compat.pusher.connection import PusherConnection, Subscription
from greendot.compat.pusher.dialect import TYPING
from greendot.compat.pusher.frames import ClientFrame
from greendot.engine.messages import Deliver, Topic
from greendot.errors import Refused
from greendot.protocol import commands as wire
from greendot.protocol.codec import encode_event
from greendot.protocol.codes import Err
from greendot.protocol.decoding import VAST_NUMBER, has_vast_number, is_too_deep
from greendot.protocol.events import Signal

LONGEST_NAME = 200  # characters
PREFIX = "client-"


class ClientEvents:
    """Service for the client events of all connections."""

    def __init__(self, services: NodeServices, events: ChannelEvents) -> None:
        self._services = services
        self._events = events

    def received(self, connection: PusherConnection, frame: ClientFrame) -> Awaitable[None] | None:
        """Send a client event to the other clients of the channel, or the reason for the refusal to the client."""
        subscription = connection.subscriptions.get(frame.channel or "")
        why = self._refusal(connection, frame, subscription)
        if why is not None or subscription is None:
            connection.send(frames.error_frame(None, why or ""), record=False, key="wrong")
        elif not connection.take_event(self._services.clock.monotonic()):
            rate = connection.app.client_events_per_s
            why = f"this connection sends more than {rate} client events per second; send fewer"
            connection.send(frames.error_frame(codes.RATE_LIMITED, why), record=False, key="refused")
        elif connection.session is None:
            self._publish_quietly(connection, frame, subscription)
        else:
            return self._send(connection, frame, subscription)
        return None

    def _refusal(
        self, connection: PusherConnection, frame: ClientFrame, subscription: Subscription | None
    ) -> str | None:
        """Return the reason why a client event is not sent; None if it may be sent."""
        data = bytes(frame.data)
        if not connection.app.client_events:
            return "this app does not allow client events"
        if subscription is None:
            return "a client event needs a channel that this connection has subscribed to"
        if subscription.channel.kind not in ("private", "presence"):
            return "client events are for private and presence channels"
        if len(frame.event) > LONGEST_NAME or len(frame.event) == len(PREFIX):
            return f"the name of a client event has {len(PREFIX) + 1} to {LONGEST_NAME} characters"
        if len(data) > connection.app.event_bytes:
            return f"the data of a client event may have at most {connection.app.event_bytes} bytes"
        if is_too_deep(data) or has_vast_number(data):
            return f"the data of a client event is nested too deeply, or {VAST_NUMBER}"
        return None

    async def _send(self, connection: PusherConnection, frame: ClientFrame, subscription: Subscription) -> None:
        """Send the event as a signal of the user. Typing also feeds the typing service."""
        room, kind = subscription.channel.room, frame.event.removeprefix(PREFIX)
        dispatcher = self._services.dispatcher
        try:
            await dispatcher.execute(connection, wire.SignalSend(kind=kind, room=room, body=frame.data))
            if kind == TYPING:
                typing = wire.TypingStop(room=room) if _is_stop(frame.data) else wire.TypingStart(room=room)
                await dispatcher.execute(connection, typing)
        except Refused as refused:
            if kind != TYPING or refused.code != Err.RATE_LIMITED:  # typing above the limit is dropped silently
                code = codes.RATE_LIMITED if refused.code == Err.RATE_LIMITED else None
                connection.send(frames.error_frame(code, refused.message), record=False, key="refused")
            return
        self._report(connection, frame, subscription)

    def _publish_quietly(self, connection: PusherConnection, frame: ClientFrame, subscription: Subscription) -> None:
        """Send the event of a client without a user, or the reason for the refusal to the client."""
        try:
            self._publish(connection, frame, subscription)
        except Refused as refused:
            code = codes.RATE_LIMITED if refused.code == Err.RATE_LIMITED else None
            connection.send(frames.error_frame(code, refused.message), record=False, key="refused")

    def _publish(self, connection: PusherConnection, frame: ClientFrame, subscription: Subscription) -> None:
        """Send the event of a client without a user. Raise Refused in stored rooms, and above a limit.

        Mutes, bans and roles of a stored room apply to users, so a client without a user cannot send there.
        """
        room, kind = subscription.channel.room, frame.event.removeprefix(PREFIX)
        local = self._services.rooms.local(Topic("room", connection.app.tenant, room))
        if local is None or local.room is not None or local.unchecked is not None:
            raise Refused(Err.FORBIDDEN, "client events in this room need a user; sign in first")
        if self._services.context.hub.shedding:
            return
        self._services.rate_limits.signal_without_user(connection.app.tenant, room)
        signal = Signal(sender=None, name=None, kind=kind, room=room, body=frame.data)
        encoded = encode_event(signal, self._services.clock.now_ms())
        topic = Topic("room", connection.app.tenant, room)
        self._services.engine.publish(topic, Deliver(encoded, without_connection=connection.id))
        self._report(connection, frame, subscription)

    def _report(self, connection: PusherConnection, frame: ClientFrame, subscription: Subscription) -> None:
        event: dict[str, object] = {"channel": subscription.channel.name, "event": frame.event}
        event["data"] = bytes(frame.data).decode()
        if subscription.channel.kind == "presence" and connection.session is not None:
            event["user_id"] = connection.session.user
        self._events.client_event(connection.app, connection.id, event)


def _is_stop(data: Raw) -> bool:
    """Return whether the data of `client-typing` has `typing: false`."""
    try:
        return frames.read_object(data).get("typing") is False
    except msgspec.DecodeError:
        return False
