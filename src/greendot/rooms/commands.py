"""Handlers of the commands `room.*`, `typing.*` and `signal.send`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from greendot.engine.messages import Topic
from greendot.errors import Refused
from greendot.limits.rate_limits import RateLimits
from greendot.node.commands import CommandTable, Outcome, Result, check_may_send
from greendot.node.event_recorder import EventRecorder
from greendot.node.session import Connection, Session
from greendot.presence.status import StatusService
from greendot.protocol import commands as wire
from greendot.protocol.codes import Err
from greendot.rooms.messages import RoomMessages
from greendot.rooms.service import RoomService
from greendot.rooms.signals import Signals

RoomLimit = Callable[[Connection, Session, str], None]  # raises Refused above the limit of the user, tenant or room


class RoomCommands:
    """Handlers of room commands: check permission and limits, then call the service."""

    def __init__(
        self,
        rooms: RoomService,
        messages: RoomMessages,
        signals: Signals,
        statuses: StatusService,
        rate_limits: RateLimits,
        recorder: EventRecorder,
    ) -> None:
        self._rooms = rooms
        self._messages = messages
        self._signals = signals
        self._statuses = statuses
        self._rate_limits = rate_limits
        self._recorder = recorder
        self.commands: CommandTable = {
            wire.TypingStart: self._typing_start,
            wire.TypingStop: self._typing_stop,
            wire.RoomList: lambda connection, session, command: rooms.list_for(session),
            wire.RoomJoin: self._room_join,
            wire.RoomLeave: lambda connection, session, command: rooms.leave(connection, command.room),
            wire.RoomPresent: self._room_present,
            wire.RoomSend: self._room_send,
            wire.RoomEdit: self._room_edit,
            wire.RoomDelete: self._room_delete,
            wire.RoomReact: self._room_react,
            wire.RoomHistory: lambda connection, session, command: messages.history(session, command),
            wire.SignalSend: self._signal_send,
        }

    def _typing_start(self, connection: Connection, session: Session, command: wire.TypingStart) -> Result:
        check_may_send(session)
        room = command.room
        return self._in_room(
            connection, room, self._rate_limits.typing, lambda: self._rooms.start_typing(session, room)
        )

    def _typing_stop(self, connection: Connection, session: Session, command: wire.TypingStop) -> Result:
        room = command.room

        def stop() -> None:
            self._recorder.typed(session, room, on=False)
            self._rooms.stop_typing(session, room)

        return self._in_room(connection, room, self._rate_limits.typing, stop)

    def _in_room(self, connection: Connection, room: str, limit: RoomLimit, act: Callable[[], None]) -> Result:
        """Run `act` at once if the connection has joined the room (fast path), else after the membership is read.

        When `act` runs, the node is certain of the user's status: an invisible user must not be shown.
        """
        session = connection.session
        is_joined = connection.rooms is not None and room in connection.rooms
        if session is not None and is_joined and self._statuses.is_certain(session):
            self._rooms.check_may_speak(session, room)
            limit(connection, session, room)
            act()
            return None
        return self._once_admitted(connection, room, limit, act)

    async def _once_admitted(
        self, connection: Connection, room: str, limit: RoomLimit, act: Callable[[], None]
    ) -> Outcome:
        session = connection.session
        assert session is not None
        await self._messages.speaker(connection, session, room)
        while not self._statuses.is_certain(session):
            await self._statuses.make_certain(session)
            await self._messages.speaker(connection, session, room)
        limit(connection, session, room)
        if not session.revoked:
            act()
        return None

    def _room_join(self, connection: Connection, session: Session, command: wire.RoomJoin) -> Awaitable[Outcome]:
        if command.after is not None and command.history is not None:
            raise Refused(Err.BAD_FIELD, "field `history` of room.join: give at most one of `after` and `history`")
        return self._rooms.join(connection, session, command.room, command.after, command.history)

    async def _room_present(self, connection: Connection, session: Session, command: wire.RoomPresent) -> Outcome:
        topic = Topic("room", session.tenant, command.room)
        found = await self._rooms.membership.throughout(
            session, command.room, lambda: self._rooms.present_page(topic, session.user, command.after, command.limit)
        )
        return self._rooms.people.refreshed(session.tenant, found)

    def _room_send(self, connection: Connection, session: Session, command: wire.RoomSend) -> Awaitable[Outcome]:
        check_may_send(session)
        return self._messages.send(connection, session, command)

    def _room_edit(self, connection: Connection, session: Session, command: wire.RoomEdit) -> Awaitable[Outcome]:
        check_may_send(session)
        return self._messages.change(connection, session, command)

    def _room_delete(self, connection: Connection, session: Session, command: wire.RoomDelete) -> Awaitable[Outcome]:
        check_may_send(session)
        return self._messages.change(connection, session, command)

    def _room_react(self, connection: Connection, session: Session, command: wire.RoomReact) -> Awaitable[Outcome]:
        check_may_send(session)
        return self._messages.react(connection, session, command)

    def _signal_send(self, connection: Connection, session: Session, command: wire.SignalSend) -> Result:
        check_may_send(session)
        if (command.room is None) == (command.user is None):
            raise Refused(Err.BAD_FIELD, "field `room` of signal.send: give exactly one of `room` and `user`")
        if command.user is None:
            topic = Topic("room", session.tenant, command.room or "")
            # Encode only admitted signals: refusing a flood must be cheap.
            return self._in_room(
                connection,
                topic.name,
                self._rate_limits.signal,
                lambda: self._signals.publish(connection, session, command, topic),
            )
        _check_may_signal(session, command.user)
        if self._statuses.is_certain(session) and self._signals.is_ready(session, command.user):
            self._signal_to_user(connection, session, command, command.user)
            return None
        return self._once_certain(connection, session, command, command.user)

    async def _once_certain(
        self, connection: Connection, session: Session, command: wire.SignalSend, user: str
    ) -> Outcome:
        while not (self._statuses.is_certain(session) and self._signals.is_ready(session, user)):
            await self._statuses.make_certain(session)
            await self._signals.learn(session, user)
        _check_may_signal(session, user)
        if not session.revoked:
            self._signal_to_user(connection, session, command, user)
        return None

    def _signal_to_user(self, connection: Connection, session: Session, command: wire.SignalSend, user: str) -> None:
        self._rooms.mutes.check(session, None, 0)
        self._rate_limits.signal_to_user(connection, session)
        self._signals.check_receiver(session, user)
        self._signals.publish(connection, session, command, Topic("user", session.tenant, user))


def _check_may_signal(session: Session, user: str) -> None:
    if not session.grants.may_watch(user):
        raise Refused(
            Err.FORBIDDEN,
            "the token does not allow signals to this user; use a token whose claim `watch` covers the user",
        )
