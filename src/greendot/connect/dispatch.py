"""Dispatch of client commands: decoded, limited, run in order, answered.

Commands of one connection run one after the other. Most finish at once. A command that awaits the engine or the store
delays the commands behind it. These wait in `Connection.waiting`, which is None while no command is under way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from random import randint

from msgspec import structs

from greendot.clock import Clock
from greendot.connect.disconnect import DisconnectCleanup
from greendot.connect.hello import RETRY_MS, HelloService
from greendot.errors import EngineUnavailable, Refused, StoreUnavailable, Unstorable
from greendot.limits.overload import BUSY_MS
from greendot.limits.overload_model import Level
from greendot.limits.rate_limits import RateLimits
from greendot.node.channel import ReplyKey, RoomKey
from greendot.node.commands import CommandTable, Outcome
from greendot.node.context import NodeContext
from greendot.node.session import Connection, ForeignProtocol, Session, log_fields
from greendot.presence.sessions import SessionService
from greendot.protocol import commands as wire
from greendot.protocol.codec import BadCommand, decode_command, encode_error, encode_event, encode_reply
from greendot.protocol.codes import Close, Err
from greendot.protocol.events import Overloaded
from greendot.protocol.replies import Reply
from greendot.telemetry import log_events, spans
from greendot.telemetry.log import log
from greendot.telemetry.metrics import Metrics
from greendot.telemetry.spans import Course, began
from greendot.telemetry.traceparent import enter
from greendot.transport.connection import Violation
from greendot.transport.flow_control import SHARE, FlowControl

MOST_WAITING = 100  # commands that wait behind one under way; at this number the socket is not read
LARGE_FRAME = 8 * 1024  # bytes; a longer frame is decoded when there is loop time for it
BAD_FRAMES, BAD_FRAMES_S = 3, 10.0  # this number of bad frames within this time closes the connection

_NOTHING = Reply()
# Signals, which may be lost at any time: dropped first under overload.
_LOW = frozenset({wire.TypingStart, wire.TypingStop, wire.SignalSend})
# Handled at any overload level: cheap commands, and commands that reduce the load.
_ALWAYS = frozenset(
    {wire.Heartbeat, wire.Activity, wire.Unwatch, wire.RoomLeave, wire.TokenRefresh, wire.Bye, *wire.MARKS}
)
# Their replies contain data that only members may see.
_OF_ROOMS = (wire.RoomJoin, wire.RoomHistory, wire.RoomPresent, wire.RoomReceipts)
_QUIET = (wire.TypingStart, wire.TypingStop)  # dropped without an error above the limit
# Cheap, and never refused because other users of the tenant are busy.
_UNSHARED = frozenset({wire.Heartbeat, wire.TokenRefresh, wire.Bye})


class Dispatcher:
    """Dispatcher that decodes, limits and runs the commands of all connections."""

    def __init__(
        self,
        table: CommandTable,
        hello: HelloService,
        cleanup: DisconnectCleanup,
        sessions: SessionService,
        context: NodeContext,
        metrics: Metrics,
        rate_limits: RateLimits,
    ) -> None:
        self._table = table
        self._hello = hello
        self._cleanup = cleanup
        self._sessions = sessions
        self._clock: Clock = context.clock
        self._spawn = context.tasks.spawn
        self._slices = context.slices
        self._recorder = context.recorder
        self._metrics = metrics
        self._rate_limits = rate_limits
        self._level = Level.NORMAL
        self._turns = FlowControl(self._next, context.clock.monotonic, metrics)

    def loaded(self, level: Level) -> None:
        """Set the node's overload level."""
        self._level = level

    # --- received frames ---

    def received(self, connection: Connection, text: str) -> None:
        """Handle a text message from the client, now or after the messages before it."""
        if connection.waiting is None:
            has_turn = self._turns.count(connection)
            if has_turn and len(text) <= LARGE_FRAME:
                self._handle(connection, text, connection.received_at)
                return
            connection.waiting = deque()
            if has_turn:
                self._spawn(self._wait_for_slice(connection))
            else:
                self._turns.wait(connection)
        connection.waiting.append(text)
        if len(connection.waiting) == MOST_WAITING:
            connection.pause_reading()  # further frames stay unread in the socket

    def bye_waits(self, connection: Connection) -> bool:
        """Return whether `bye` waits behind a command under way. A close frame does not wait for commands before it."""
        return connection.foreign is None and any(_is_bye(message) for message in connection.waiting or ())

    def counted(self, connection: Connection) -> bool:
        """Count a control frame or a fragment like a command; return False if it is over the connection's limit."""
        self._turns.count(connection)
        limit = connection.limit
        if limit is None or not limit.admit(connection.received_at):
            return True
        self._metrics.realtime_rate_limited_connection_total += 1
        if connection.session is None and connection.foreign is None:
            self._metrics.realtime_flood_closed_total += 1
            connection.close(Close.PROTOCOL_ERROR, "too many frames before hello; send hello first")
        elif limit.flooding:
            self._overloaded(connection)
        return False

    def violated(self, connection: Connection, code: int, reason: str) -> None:
        """Close a connection that broke the protocol, after the messages received before are handled."""
        if connection.waiting is None or connection.session is None:
            connection.close(code, reason)
        else:
            connection.waiting.append(Violation(code, reason))

    async def _wait_for_slice(self, connection: Connection) -> None:
        """Wait until there is loop time.

        Decoding a large frame takes milliseconds, and many may arrive in one turn of the event loop.
        """
        await self._slices.turn()
        self._next(connection)

    def _handle(self, connection: Connection, text: str, now: float) -> None:
        metrics = self._metrics
        metrics.realtime_commands_total += 1
        wait_s = 0.0 if connection.limit is None else connection.limit.admit(now)
        if connection.foreign is not None:
            begun = self._foreign_work(connection, connection.foreign, text, wait_s)
            if begun is not None:
                connection.waiting = deque()
                self._spawn(self._finish_foreign(connection, connection.foreign, begun))
            return
        try:
            command = decode_command(text)
        except BadCommand as bad:
            metrics.realtime_commands_refused_total += 1
            self._bad(connection, bad)
            return
        # A busy client must not be taken for dead: heartbeats pass, unless they are the flood.
        if wait_s and (type(command) is not wire.Heartbeat or self._is_flooding(connection)):
            self._over_limit(connection, command, wait_s)
            return
        session = connection.session
        if session is None or type(command) is wire.Hello:
            self._first(connection, command)
            return
        if self._level and self._turned_down(connection, command):
            return
        course = _enter(session, command) if command.traceparent is not None or spans.sampling else None
        try:
            if type(command) not in _UNSHARED:
                self._rate_limits.command(session, now)
            if type(command) in wire.ACTIVITY:
                self._sessions.active(session, connection.received_at)
            outcome = self._table[type(command)](connection, session, command)
            if outcome is not None and isawaitable(outcome):
                connection.waiting = deque()
                work = outcome if course is None else course.through(outcome)
                self._spawn(self._finish(connection, command, work))
            elif command.id is not None:
                self._reply(connection, command, command.id, outcome)
        except Refused as refused:
            if course is not None:
                course.failed(refused)
            self._refuse(connection, command, refused)
        except BaseException as error:
            if course is not None:
                course.failed(error)
            raise
        finally:
            if course is not None:
                course.leave()

    async def _finish(self, connection: Connection, command: wire.Command, work: Awaitable[Outcome]) -> None:
        try:
            outcome = await work
            if command.id is not None:
                self._reply(connection, command, command.id, outcome)
        except Refused as refused:
            self._refuse(connection, command, refused)
        except (EngineUnavailable, StoreUnavailable, Unstorable) as error:
            self._refuse(connection, command, refusal_of(error))
        except Exception:
            self._refuse(connection, command, Refused(Err.INTERNAL, "internal error; see the server log"))
            raise
        finally:
            enter(None)  # waiting commands do not belong to this command's trace
            self._next(connection)

    @staticmethod
    def _reply(connection: Connection, command: wire.Command, number: str | int, outcome: Outcome) -> None:
        """Send the reply.

        A reply with data of a room has the room's key, so it can be withdrawn from a removed member.
        """
        key = RoomKey(command.room, ReplyKey(number)) if isinstance(command, _OF_ROOMS) else None
        connection.send(encode_reply(number, outcome or _NOTHING), key=key)

    def _next(self, connection: Connection) -> None:
        """Handle waiting messages until one has to wait again."""
        waiting, connection.waiting = connection.waiting, None
        done = 0
        while waiting and not connection.closing:
            if done == SHARE:
                connection.waiting = waiting
                self._turns.wait(connection)
                return
            if done and len(waiting[0]) > LARGE_FRAME:
                connection.waiting = waiting
                self._spawn(self._wait_for_slice(connection))
                return
            done += 1
            message = waiting.popleft()
            if isinstance(message, Violation):
                connection.close(*message)
                break
            self._handle(connection, message, self._clock.monotonic())
            if self._is_waiting(connection):
                connection.waiting = waiting
                return
        connection.resume_reading()
        if connection.ended_by is not None:
            self._cleanup.leave(connection)

    @staticmethod
    def _is_waiting(connection: Connection) -> bool:
        return connection.waiting is not None

    def _first(self, connection: Connection, command: wire.Command) -> None:
        if connection.session is not None:
            connection.close(Close.PROTOCOL_ERROR, "this connection has already sent hello; send hello once")
        elif isinstance(command, wire.Hello):
            connection.waiting = deque()
            offered, connection.token = connection.token, ""  # a token is kept no longer than needed
            if offered and not command.token:
                command = structs.replace(command, token=offered)
            self._hello.received(connection, command, self._next)
        else:
            connection.close(Close.PROTOCOL_ERROR, "the first frame must be hello")

    # --- clients of foreign protocols ---

    def _foreign_work(
        self, connection: Connection, foreign: ForeignProtocol, text: str, wait_s: float
    ) -> Awaitable[None] | None:
        """Pass a message to its protocol, unless it is over the connection's limit. Return what is to be awaited."""
        if not wait_s:
            return foreign.received(connection, text)
        assert connection.limit is not None
        foreign.refused(connection, text, self._rate_limits.over(connection.limit, wait_s))
        if self._is_flooding(connection):
            self._overloaded(connection)
        return None

    async def _finish_foreign(self, connection: Connection, foreign: ForeignProtocol, work: Awaitable[None]) -> None:
        """Await the work of a message, then handle messages behind it, up to the connection's share of a turn.

        They are handled in one task, because most need no I/O. So what they publish in one turn is written at once.
        """
        try:
            await work
            for _ in range(SHARE):
                if (text := _next_text(connection)) is None:
                    break
                self._metrics.realtime_commands_total += 1
                wait_s = 0.0 if connection.limit is None else connection.limit.admit(self._clock.monotonic())
                if (more := self._foreign_work(connection, foreign, text, wait_s)) is not None:
                    await more
        except Exception:
            connection.close(Close.INTERNAL, "internal error; see the server log")
            raise
        finally:
            enter(None)
            self._next(connection)

    async def execute(
        self, connection: Connection, command: wire.Command, prepare: Callable[[], Awaitable[None]] | None = None
    ) -> Outcome:
        """Run a command for a client of a foreign protocol, which is under way; return the data of the reply.

        The same limits apply as to commands of other clients. Raise Refused for the same reasons. `prepare` runs before
        the command, if the limits admit it.
        """
        session = connection.session
        if session is None or connection.closing:
            raise Refused(Err.FORBIDDEN, "this connection has no user; sign in first")
        course = _enter(session, command) if spans.sampling else None
        try:
            self.admit(session, type(command))
            if prepare is not None:
                await prepare()
            if type(command) in wire.ACTIVITY:
                self._sessions.active(session, connection.received_at)
            outcome = self._table[type(command)](connection, session, command)
            return await outcome if isawaitable(outcome) else outcome
        except (Refused, EngineUnavailable, StoreUnavailable, Unstorable) as error:
            refused = refusal_of(error)
            self._count_refused(connection, command, refused)
            if course is not None:
                course.failed(refused)
            raise refused from None
        finally:
            if course is not None:
                course.leave()

    def check_without_user(self, connection: Connection, tenant: str, kind: type[wire.Command]) -> None:
        """Raise Refused if overload or a limit prevents what a client without a user asks for: as this command would.

        Only clients of foreign protocols do something without a user.
        """
        self._check_level(kind)
        self._rate_limits.command_without_user(connection, tenant)

    def admit(self, session: Session, kind: type[wire.Command]) -> None:
        """Raise Refused if overload, or a limit of the user or the tenant, prevents a command of this kind."""
        self._check_level(kind)
        if kind not in _UNSHARED:
            self._rate_limits.command(session, self._clock.monotonic())

    async def open_session(self, connection: Connection, hello: wire.Hello) -> bool:
        """Open the session of `connection.granted`. Return False if the connection was closed instead."""
        done = asyncio.get_running_loop().create_future()
        self._hello.received(connection, hello, lambda _: None if done.done() else done.set_result(None), done)
        await done
        return connection.session is not None and not connection.closing

    def _check_level(self, kind: type[wire.Command]) -> None:
        """Raise Refused if overload prevents a command of this kind."""
        is_low = bool(self._level) and kind in _LOW
        if is_low or (self._level is Level.REFUSING and kind not in _ALWAYS):
            self._metrics.realtime_overload_refused_total += 1
            why = "this node is overloaded; retry after `retry_in_ms`"
            raise Refused(Err.UNAVAILABLE, why, retry_in_ms=randint(*BUSY_MS))

    # --- refusals ---

    def _count_refused(self, connection: Connection, command: wire.Command, refused: Refused) -> None:
        self._metrics.realtime_commands_refused_total += 1
        if connection.tally is not None:
            connection.tally.refused += 1
        self._recorder.refused(connection.session, command, refused.code)

    def _refuse(self, connection: Connection, command: wire.Command, refused: Refused) -> None:
        self._count_refused(connection, command, refused)
        if refused.code != Err.RATE_LIMITED or not isinstance(command, _QUIET):
            connection.send(encode_error(refused, command.id))

    def _turned_down(self, connection: Connection, command: wire.Command) -> bool:
        """Return whether overload prevents the command: signals are shed first, other work is refused.

        Commands that reduce the load are always handled.
        """
        kind = type(command)
        if self._level is Level.REFUSING and kind not in _ALWAYS and kind not in _QUIET:
            self._metrics.realtime_overload_refused_total += 1
            why = "this node is overloaded; retry after `retry_in_ms`"
            self._refuse(connection, command, Refused(Err.UNAVAILABLE, why, retry_in_ms=randint(*BUSY_MS)))
            return True
        if kind not in _LOW:
            return False
        self._metrics.realtime_shed_total += 1
        if command.id is not None:
            connection.send(encode_reply(command.id, _NOTHING))
        return True

    def _bad(self, connection: Connection, bad: BadCommand) -> None:
        self._recorder.refused(connection.session, None, bad.code)
        connection.send(encode_error(bad, bad.command_id))
        if bad.code == Err.BAD_FRAME:
            now = connection.received_at
            recent = [at for at in connection.bad_frames if now - at < BAD_FRAMES_S]
            connection.bad_frames = (*recent, now)
            if len(connection.bad_frames) >= BAD_FRAMES:
                connection.close(
                    Close.PROTOCOL_ERROR,
                    "too many malformed frames; send each command as one JSON object with a `type`",
                )
        elif connection.session is None:
            connection.close(Close.PROTOCOL_ERROR, "the first frame must be a valid hello")
        elif self._is_flooding(connection):
            self._overloaded(connection)

    def _over_limit(self, connection: Connection, command: wire.Command, wait_s: float) -> None:
        assert connection.limit is not None
        self._refuse(connection, command, self._rate_limits.over(connection.limit, wait_s))
        if self._is_flooding(connection):
            self._overloaded(connection)

    @staticmethod
    def _is_flooding(connection: Connection) -> bool:
        return connection.limit is not None and connection.limit.flooding

    def _overloaded(self, connection: Connection) -> None:
        self._metrics.realtime_flood_closed_total += 1
        last = encode_event(Overloaded(RETRY_MS), self._clock.now_ms())
        connection.close(
            Close.OVERLOADED, "frame rate far above the limit; reconnect later and send fewer frames", last
        )


def _next_text(connection: Connection) -> str | None:
    """Take the next message that waits and can be handled at once; None if there is none."""
    waiting = connection.waiting
    if not waiting or connection.closing or isinstance(waiting[0], Violation) or len(waiting[0]) > LARGE_FRAME:
        return None
    text = waiting.popleft()
    assert isinstance(text, str)
    return text


def refusal_of(error: Refused | EngineUnavailable | StoreUnavailable | Unstorable) -> Refused:
    """Return the refusal for an error of a command."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, Unstorable):
        return Refused(Err.BAD_FIELD, f"a value of this command cannot be stored: {error}")
    why = "the engine or the store is not available; retry after `retry_in_ms`"
    return Refused(Err.UNAVAILABLE, why, retry_in_ms=RETRY_MS)


def _enter(session: Session, command: wire.Command) -> Course | None:
    """Enter the command's trace; return None if the command has none, which is usual."""
    trace = began(command.traceparent)
    if trace is None:
        return None
    kind = type(command).__struct_config__.tag

    def told(outcome: str) -> None:
        log(log_events.COMMAND_DONE, type=kind, outcome=outcome, **log_fields(session))

    return Course(f"command {kind}", trace, {"type": kind}, told).enter()


def _is_bye(message: str | Violation) -> bool:
    try:
        return not isinstance(message, Violation) and '"bye"' in message and type(decode_command(message)) is wire.Bye
    except BadCommand:
        return False
