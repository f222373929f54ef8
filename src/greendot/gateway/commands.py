"""What each command does, and the order commands are carried out in.

Commands of one connection are carried out one after the other. Most are done at once; one that has to wait for the
engine or the store holds back those behind it, in `Connection.waiting`, which exists only as long as that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from math import ceil
from typing import Any

from msgspec import UNSET, Struct

from greendot.clock import Clock
from greendot.core.limits import CommandLimit
from greendot.core.presence import Manual
from greendot.core.projection import project
from greendot.engine.base import Bus, Deliver, Topic
from greendot.errors import EngineUnavailable, Refused, StoreUnavailable, TokenError, Unstorable
from greendot.gateway.connection import Connection
from greendot.gateway.greeting import RETRY_MS, Greeting
from greendot.gateway.notifying import Notifying
from greendot.gateway.rooms import Rooms
from greendot.gateway.session import Session
from greendot.gateway.sessions import Sessions
from greendot.gateway.speaking import Speaking
from greendot.gateway.statuses import Statuses
from greendot.gateway.tasks import Tasks
from greendot.gateway.watching import Watching
from greendot.metrics import Metrics
from greendot.protocol import commands as wire
from greendot.protocol.codec import BadCommand, decode_command, encode_error, encode_event, encode_reply
from greendot.protocol.codes import Close, Err
from greendot.protocol.events import HeartbeatAck, Overloaded, Signal
from greendot.protocol.replies import PresenceReply, RefreshReply, Reply, StatusReply
from greendot.tokens import Tokens

MOST_WAITING = 100  # commands behind one that takes its time; beyond it the socket is not read
BAD_FRAMES, BAD_FRAMES_S = 3, 10.0  # so many within so long close the connection

Outcome = Reply | None
Result = Outcome | Awaitable[Outcome]
Handler = Callable[[Connection, Session, Any], Result]
_NOTHING = Reply()
_QUIET = (wire.TypingStart, wire.TypingStop)  # over the limit these are dropped without a word


class Parts(Struct, frozen=True):
    """What commands act on."""

    greeting: Greeting
    sessions: Sessions
    statuses: Statuses
    watching: Watching
    rooms: Rooms
    speaking: Speaking
    notifying: Notifying
    bus: Bus
    tokens: Tokens
    clock: Clock
    tasks: Tasks
    metrics: Metrics
    quiet: Callable[[Connection], None]  # told when a connection has no command under way any more
    rate: tuple[float, float] | None  # commands per second and burst; None: no limit


class Commands:
    """Decodes, limits, carries out, answers."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._table: dict[type[wire.Command], Handler] = {
            wire.Heartbeat: self._heartbeat,
            wire.Activity: lambda connection, session, command: None,
            wire.StatusSet: self._status_set,
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
            wire.RoomRead: lambda connection, session, command: parts.speaking.read(connection, session, command),
            wire.RoomHistory: lambda connection, session, command: parts.speaking.history(session, command),
            wire.InboxList: lambda connection, session, command: parts.notifying.page(session, command),
            **dict.fromkeys(wire.MARKS, parts.notifying.mark),
            wire.SignalSend: self._signal_send,
            wire.TokenRefresh: self._token_refresh,
            wire.Bye: lambda connection, session, command: connection.said_bye(),
        }

    def limit(self, now: float) -> CommandLimit | None:
        return None if self._parts.rate is None else CommandLimit(*self._parts.rate, now)

    # --- the way in ---

    def received(self, connection: Connection, text: str) -> None:
        """A text message from the client."""
        if connection.waiting is None:
            self._handle(connection, text)
            return
        connection.waiting.append(text)
        if len(connection.waiting) == MOST_WAITING:
            connection.pause_reading()  # what follows waits with the client, which is in nobody's way

    def _handle(self, connection: Connection, text: str) -> None:
        metrics = self._parts.metrics
        metrics.realtime_commands_total += 1
        wait_s = 0.0 if connection.limit is None else connection.limit.admit(connection.heard)
        try:
            command = decode_command(text)
        except BadCommand as bad:
            metrics.realtime_commands_refused_total += 1
            self._bad(connection, bad)
            return
        # A busy client must not be taken for a dead one: heartbeats pass, unless they are the flood.
        if wait_s and (type(command) is not wire.Heartbeat or self._is_flooding(connection)):
            metrics.realtime_commands_refused_total += 1
            self._over_limit(connection, command, wait_s)
            return
        session = connection.session
        if session is None or type(command) is wire.Hello:
            self._first(connection, command)
            return
        if type(command) in wire.ACTIVITY:
            self._parts.sessions.active(session, connection.heard)
        try:
            outcome = self._table[type(command)](connection, session, command)
        except Refused as refused:
            self._refuse(connection, command, refused)
            return
        if isawaitable(outcome):
            connection.waiting = deque()
            self._parts.tasks.spawn(self._finish(connection, command, outcome))
        elif command.id is not None:
            connection.send(encode_reply(command.id, outcome or _NOTHING))

    async def _finish(self, connection: Connection, command: wire.Command, work: Awaitable[Outcome]) -> None:
        try:
            outcome = await work
            if command.id is not None and type(command) is not wire.Hello:
                connection.send(encode_reply(command.id, outcome or _NOTHING))
        except Refused as refused:
            self._refuse(connection, command, refused)
        except (EngineUnavailable, StoreUnavailable):
            later = Refused(Err.UNAVAILABLE, "try again in a moment", retry_in_ms=RETRY_MS)
            self._refuse(connection, command, later)
        except Unstorable as error:
            self._refuse(connection, command, Refused(Err.BAD_FIELD, f"this cannot be stored: {error}"))
        except Exception:
            self._refuse(connection, command, Refused(Err.INTERNAL, "this failed on the server; it was logged"))
            raise
        finally:
            self._next(connection)

    def _next(self, connection: Connection) -> None:
        """Go on with what waited, until something has to wait again."""
        waiting, connection.waiting = connection.waiting, None
        while waiting and not connection.closing:
            self._handle(connection, waiting.popleft())
            if self._is_waiting(connection):
                connection.waiting = waiting
                return
        connection.resume_reading()
        self._parts.quiet(connection)

    @staticmethod
    def _is_waiting(connection: Connection) -> bool:
        return connection.waiting is not None

    def _first(self, connection: Connection, command: wire.Command) -> None:
        if connection.session is not None:
            connection.close(Close.PROTOCOL_ERROR, "hello was said already")
        elif isinstance(command, wire.Hello):
            connection.waiting = deque()
            self._parts.tasks.spawn(self._finish(connection, command, self._parts.greeting.hello(connection, command)))
        else:
            connection.close(Close.PROTOCOL_ERROR, "the first frame must be hello")

    # --- what is not granted ---

    def _refuse(self, connection: Connection, command: wire.Command, refused: Refused) -> None:
        self._parts.metrics.realtime_commands_refused_total += 1
        connection.send(encode_error(refused, command.id))

    def _bad(self, connection: Connection, bad: BadCommand) -> None:
        connection.send(encode_error(bad, bad.command_id))
        if bad.code == Err.BAD_FRAME:
            now = connection.heard
            recent = [at for at in connection.bad_frames if now - at < BAD_FRAMES_S]
            connection.bad_frames = (*recent, now)
            if len(connection.bad_frames) >= BAD_FRAMES:
                connection.close(Close.PROTOCOL_ERROR, "too many frames that are not commands")
        elif connection.session is None:
            connection.close(Close.PROTOCOL_ERROR, "the first frame must be a hello without errors")
        elif self._is_flooding(connection):
            self._overloaded(connection)

    def _over_limit(self, connection: Connection, command: wire.Command, wait_s: float) -> None:
        if self._is_flooding(connection):
            self._overloaded(connection)
        elif not isinstance(command, _QUIET):
            refused = Refused(Err.RATE_LIMITED, "too many commands", retry_in_ms=ceil(wait_s * 1000))
            connection.send(encode_error(refused, command.id))

    @staticmethod
    def _is_flooding(connection: Connection) -> bool:
        return connection.limit is not None and connection.limit.flooding

    def _overloaded(self, connection: Connection) -> None:
        last = encode_event(Overloaded(RETRY_MS), self._parts.clock.now_ms())
        connection.close(Close.OVERLOADED, "too many commands", last)

    def pinged(self, connection: Connection) -> bool:
        """Whether a ping is to be answered; pings count like commands."""
        limit = connection.limit
        if limit is None or not limit.admit(connection.heard):
            return True
        if limit.flooding:
            self._overloaded(connection)
        return False

    # --- the commands: each gets the connection it came on, which need not be its session's any more ---

    def _heartbeat(self, connection: Connection, session: Session, command: wire.Heartbeat) -> None:
        frame = encode_event(HeartbeatAck(), self._parts.clock.now_ms())
        connection.send(frame, key="heartbeat", record=False)

    async def _status_set(self, connection: Connection, session: Session, command: wire.StatusSet) -> Outcome:
        snapshot = await self._parts.statuses.set(session.key, Manual(command.status, command.until, command.text))
        if command.status == "invisible":
            self._parts.rooms.hush(connection)
        return StatusReply(project(session.user, snapshot, own=True))

    async def _watch(self, connection: Connection, session: Session, command: wire.Watch) -> Outcome:
        return PresenceReply(await self._parts.watching.watch(connection, session, command.users))

    async def _presence_get(self, connection: Connection, session: Session, command: wire.PresenceGet) -> Outcome:
        return PresenceReply(await self._parts.watching.read(session, command.users))

    def _typing_start(self, connection: Connection, session: Session, command: wire.TypingStart) -> Result:
        _may_send(session)
        room = command.room
        return self._spoken(connection, room, lambda: self._parts.rooms.start_typing(connection, session, room))

    def _typing_stop(self, connection: Connection, session: Session, command: wire.TypingStop) -> Result:
        room = command.room
        return self._spoken(connection, room, lambda: self._parts.rooms.stop_typing(session, room))

    def _spoken(self, connection: Connection, room: str, say: Callable[[], None]) -> Result:
        """Say it at once in a room that was joined (the fast path), else after looking up the membership."""
        session = connection.session
        if session is not None and connection.rooms is not None and room in connection.rooms:
            if self._parts.rooms.is_reader(session, room):
                raise Refused(Err.FORBIDDEN, f"you may only read in {room!r}")
            say()
            return None
        return self._spoken_later(connection, room, say)

    async def _spoken_later(self, connection: Connection, room: str, say: Callable[[], None]) -> Outcome:
        assert connection.session is not None
        await self._parts.speaking.speaker(connection, connection.session, room)
        say()
        return None

    async def _room_present(self, connection: Connection, session: Session, command: wire.RoomPresent) -> Outcome:
        await self._parts.rooms.membership.admit(session, command.room)
        topic = Topic("room", session.tenant, command.room)
        return await self._parts.rooms.present(topic, session.user, command.after, command.limit)

    def _room_send(self, connection: Connection, session: Session, command: wire.RoomSend) -> Awaitable[Outcome]:
        _may_send(session)
        return self._parts.speaking.send(connection, session, command)

    def _room_edit(self, connection: Connection, session: Session, command: wire.RoomEdit) -> Awaitable[Outcome]:
        _may_send(session)
        return self._parts.speaking.edit(connection, session, command)

    def _room_delete(self, connection: Connection, session: Session, command: wire.RoomDelete) -> Awaitable[Outcome]:
        _may_send(session)
        return self._parts.speaking.delete(connection, session, command)

    def _signal_send(self, connection: Connection, session: Session, command: wire.SignalSend) -> Result:
        _may_send(session)
        if (command.room is None) == (command.user is None):
            raise Refused(Err.BAD_FIELD, "field `room` of signal.send: give either room or user")
        frame = encode_event(
            Signal(
                sender=session.user,
                name=session.grants.name,
                kind=command.kind,
                room=UNSET if command.room is None else command.room,
                body=command.body,
                key=UNSET if command.key is None else command.key,
            ),
            self._parts.clock.now_ms(),
            command.trace,
        )
        # Values of different senders and kinds never replace each other.
        key = command.key and (session.user, command.kind, command.key)
        message = Deliver(frame, key=key, without_connection=connection.id)
        if command.user is None:
            topic = Topic("room", session.tenant, command.room or "")
            return self._spoken(connection, topic.name, lambda: self._parts.bus.publish(topic, message))
        if not session.grants.may_watch(command.user):
            raise Refused(Err.FORBIDDEN, "this token does not reach that user")
        self._parts.bus.publish(Topic("user", session.tenant, command.user), message)
        return None

    def _token_refresh(self, connection: Connection, session: Session, command: wire.TokenRefresh) -> Outcome:
        try:
            grants = self._parts.tokens.read(command.token, self._parts.clock.now_ms())
        except TokenError as error:
            raise Refused(Err.BAD_FIELD, f"field `token` of token.refresh: {error}") from None
        if (grants.tenant, grants.user) != session.key:
            raise Refused(Err.BAD_FIELD, "field `token` of token.refresh: it is another user's")
        session.grants = grants
        self._parts.sessions.rearm(session)
        return RefreshReply(grants.expires_at)


def _may_send(session: Session) -> None:
    if not session.grants.send:
        raise Refused(Err.FORBIDDEN, "this token may listen but not send")
