"""What each command does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import UNSET, Raw, Struct

from greendot.auth.revocation import RevocationService
from greendot.auth.tokens import Tokens
from greendot.clock import Clock
from greendot.connect.token_refresh import TokenRefreshService
from greendot.engine.port import Bus, Deliver, Topic
from greendot.errors import KeysUnavailable, Refused, TokenError
from greendot.inbox.service import InboxService
from greendot.limits.rate_limits import RateLimits
from greendot.node.event_recorder import EventRecorder
from greendot.node.session import Session
from greendot.presence.model import ManualStatus, project
from greendot.presence.status import StatusService
from greendot.presence.watch import WatchService
from greendot.protocol import commands as wire
from greendot.protocol.codec import encode_event
from greendot.protocol.codes import Err
from greendot.protocol.events import HeartbeatAck, Signal
from greendot.protocol.replies import PrivacyReply, RefreshReply, Reply, StatusReply
from greendot.push.devices import Devices
from greendot.rooms.messages import RoomMessages
from greendot.rooms.service import RoomService
from greendot.telemetry import spans
from greendot.telemetry.spans import parent
from greendot.transport.connection import Connection
from greendot.visibility.updates import VisibilityUpdates

Outcome = Reply | Raw | None  # Raw: the data of a large reply, encoded in slices
Result = Outcome | Awaitable[Outcome]
Handler = Callable[[Connection, Session, Any], Result]
Limit = Callable[[Connection, Session, str], None]  # Refused if too much is said in the room


class Parts(Struct, frozen=True):
    """What commands act on."""

    token_refresh: TokenRefreshService
    revocation_service: RevocationService
    statuses: StatusService
    visibility_updates: VisibilityUpdates
    watching: WatchService
    rooms: RoomService
    room_messages: RoomMessages
    inbox_service: InboxService
    rate_limits: RateLimits
    recorder: EventRecorder
    devices: Devices
    bus: Bus
    tokens: Tokens
    clock: Clock


class Commands:
    """One handler for each command but `hello`."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.table: dict[type[wire.Command], Handler] = {
            wire.Heartbeat: self._heartbeat,
            wire.Activity: lambda connection, session, command: None,
            wire.StatusSet: self._status_set,
            wire.PrivacySet: self._privacy_set,
            wire.Watch: self._watch,
            wire.Unwatch: lambda connection, session, command: parts.watching.unwatch(
                connection, session, command.users
            ),
            wire.PresenceGet: self._presence_get,
            wire.TypingStart: self._typing_start,
            wire.TypingStop: self._typing_stop,
            wire.RoomList: lambda connection, session, command: parts.rooms.list_for(session),
            wire.RoomJoin: lambda connection, session, command: parts.rooms.join(
                connection, session, command.room, command.after
            ),
            wire.RoomLeave: lambda connection, session, command: parts.rooms.leave(connection, command.room),
            wire.RoomPresent: self._room_present,
            wire.RoomSend: self._room_send,
            wire.RoomEdit: self._room_edit,
            wire.RoomDelete: self._room_delete,
            wire.RoomRead: lambda connection, session, command: parts.room_messages.read(connection, session, command),
            wire.RoomHistory: lambda connection, session, command: parts.room_messages.history(session, command),
            wire.InboxList: lambda connection, session, command: parts.inbox_service.page(session, command),
            **dict.fromkeys(wire.MARKS, parts.inbox_service.mark),
            wire.SignalSend: self._signal_send,
            wire.DeviceRegister: self._device_register,
            wire.DeviceRemove: self._device_remove,
            wire.TokenRefresh: self._token_refresh,
            wire.Bye: lambda connection, session, command: connection.said_bye(),
        }

    # --- the commands: each gets the connection it came on, which need not be its session's any more ---

    def _heartbeat(self, connection: Connection, session: Session, command: wire.Heartbeat) -> None:
        frame = encode_event(HeartbeatAck(), self._parts.clock.now_ms())
        connection.send(frame, key="heartbeat", record=False)

    async def _status_set(self, connection: Connection, session: Session, command: wire.StatusSet) -> Outcome:
        snapshot = await self._parts.statuses.set(
            session.key, ManualStatus(command.status, command.until, command.text)
        )
        if command.status == "invisible":
            self._parts.rooms.hush(connection)
        return StatusReply(project(session.user, snapshot, own=True))

    async def _privacy_set(self, connection: Connection, session: Session, command: wire.PrivacySet) -> Outcome:
        kept = await self._parts.visibility_updates.set_privacy(session.key, command.last_seen, command.hide_from)
        return PrivacyReply(kept.last_seen, sorted(kept.hide_from))

    async def _watch(self, connection: Connection, session: Session, command: wire.Watch) -> Outcome:
        self._parts.rate_limits.watch(connection, session, len(command.users))
        return await self._parts.watching.watch(connection, session, command.users)

    async def _presence_get(self, connection: Connection, session: Session, command: wire.PresenceGet) -> Outcome:
        self._parts.rate_limits.watch(connection, session, len(command.users))
        return await self._parts.watching.read(session, command.users)

    def _typing_start(self, connection: Connection, session: Session, command: wire.TypingStart) -> Result:
        _may_send(session)
        room, rooms = command.room, self._parts.rooms
        limit = self._parts.rate_limits.typing
        return self._spoken(connection, room, limit, lambda: rooms.start_typing(connection, session, room))

    def _typing_stop(self, connection: Connection, session: Session, command: wire.TypingStop) -> Result:
        room, limit = command.room, self._parts.rate_limits.typing

        def stop() -> None:
            self._parts.recorder.typed(session, room, on=False)
            self._parts.rooms.stop_typing(session, room)

        return self._spoken(connection, room, limit, stop)

    def _spoken(self, connection: Connection, room: str, limit: Limit, say: Callable[[], None]) -> Result:
        """Say it at once in a room that was joined (the fast path), else after looking up the membership."""
        session = connection.session
        if session is not None and connection.rooms is not None and room in connection.rooms:
            if self._parts.rooms.is_reader(session, room):
                raise Refused(Err.FORBIDDEN, f"you may only read in {room!r}")
            limit(connection, session, room)
            say()
            return None
        return self._spoken_later(connection, room, limit, say)

    async def _spoken_later(self, connection: Connection, room: str, limit: Limit, say: Callable[[], None]) -> Outcome:
        assert connection.session is not None
        await self._parts.room_messages.speaker(connection, connection.session, room)
        limit(connection, connection.session, room)
        if not connection.session.revoked:
            say()
        return None

    async def _room_present(self, connection: Connection, session: Session, command: wire.RoomPresent) -> Outcome:
        rooms, topic = self._parts.rooms, Topic("room", session.tenant, command.room)
        return await rooms.membership.throughout(
            session, command.room, lambda: rooms.present(topic, session.user, command.after, command.limit)
        )

    def _room_send(self, connection: Connection, session: Session, command: wire.RoomSend) -> Awaitable[Outcome]:
        _may_send(session)
        return self._parts.room_messages.send(connection, session, command)

    def _room_edit(self, connection: Connection, session: Session, command: wire.RoomEdit) -> Awaitable[Outcome]:
        _may_send(session)
        return self._parts.room_messages.edit(connection, session, command)

    def _room_delete(self, connection: Connection, session: Session, command: wire.RoomDelete) -> Awaitable[Outcome]:
        _may_send(session)
        return self._parts.room_messages.delete(connection, session, command)

    def _signal_send(self, connection: Connection, session: Session, command: wire.SignalSend) -> Result:
        _may_send(session)
        if (command.room is None) == (command.user is None):
            raise Refused(Err.BAD_FIELD, "field `room` of signal.send: give either room or user")
        if command.user is None:
            topic = Topic("room", session.tenant, command.room or "")
            limit = self._parts.rate_limits.signal
            return self._spoken(
                connection, topic.name, limit, lambda: self._signal(connection, session, command, topic)
            )
        if not session.grants.may_watch(command.user):
            raise Refused(Err.FORBIDDEN, "this token does not reach that user")
        self._parts.rate_limits.signal_to_user(connection, session)
        self._signal(connection, session, command, Topic("user", session.tenant, command.user))
        return None

    def _signal(self, connection: Connection, session: Session, command: wire.SignalSend, topic: Topic) -> None:
        """Made only once it is let through: a flood of them must be cheap to refuse."""
        signal = Signal(
            sender=session.user,
            name=session.grants.name,
            kind=command.kind,
            room=UNSET if command.room is None else command.room,
            body=command.body,
            key=UNSET if command.key is None else command.key,
        )
        traceparent = parent() if command.traceparent is not None or spans.sampling else None
        frame = encode_event(signal, self._parts.clock.now_ms(), command.trace, traceparent)
        # Values of different senders and kinds never replace each other.
        key = command.key and (session.user, command.kind, command.key)
        told = Deliver(frame, key=key, without_connection=connection.id, traceparent=traceparent)
        self._parts.bus.publish(topic, told)

    async def _device_register(self, connection: Connection, session: Session, command: wire.DeviceRegister) -> Outcome:
        await self._parts.devices.register(session.key, session.device, command.provider, command.token)
        return None

    async def _device_remove(self, connection: Connection, session: Session, command: wire.DeviceRemove) -> Outcome:
        await self._parts.devices.remove(session.key, session.device)
        return None

    async def _token_refresh(self, connection: Connection, session: Session, command: wire.TokenRefresh) -> Outcome:
        try:
            grants = await self._parts.tokens.verify(command.token, self._parts.clock.now_ms())
            await self._parts.revocation_service.admit(grants)
        except TokenError as error:
            raise Refused(Err.BAD_FIELD, f"field `token` of token.refresh: {error}") from None
        except KeysUnavailable as error:
            raise Refused(Err.UNAVAILABLE, str(error), retry_in_ms=error.retry_in_ms) from None
        if (grants.tenant, grants.user) != session.key:
            raise Refused(Err.BAD_FIELD, "field `token` of token.refresh: it is another user's")
        await self._parts.token_refresh.replace(connection, session, grants)
        self._parts.revocation_service.look_at(session)  # the new token may have been revoked meanwhile
        return RefreshReply(grants.expires_at)


def _may_send(session: Session) -> None:
    if not session.grants.send:
        raise Refused(Err.FORBIDDEN, "this token may listen but not send")
