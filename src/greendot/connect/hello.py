"""Answers to `hello`, the first command of a client. A hello turns a new connection into a session.

`received` admits the hello at once, lets the hello wait for up to LONGEST_S, or sends the client away. To send a client
away is to close the connection, and to give the client a time to return. After the admission, `_answer` verifies the
token, opens or resumes the session, attaches rooms and inbox, and sends the welcome.

Two limits protect the node when all clients return at once. The number of hellos in work at the same time is limited,
so that the event loop stays responsive. The number of hellos per second is limited, so that the node has time for the
connected clients.

A client that waits or is sent away may still have a session from an earlier connection. The session could end before
the client's time to return, or less than SOON_S after this time. The node then keeps the session until the time to
return, and for one grace more. So the user stays online.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from math import ceil
from typing import Any

from msgspec import structs

from greendot.auth.model import Grants
from greendot.auth.revocation import RevocationService
from greendot.auth.tenants import Tenants
from greendot.auth.tokens import Tokens
from greendot.connect.admission_model import HelloQueue
from greendot.engine.messages import HoldSession, Topic
from greendot.engine.port import Bus
from greendot.errors import (
    EngineUnavailable,
    KeysUnavailable,
    Refused,
    StoreUnavailable,
    TokenError,
    TokenRevoked,
    Unreadable,
    UserBanned,
)
from greendot.ids import incarnation_of
from greendot.inbox.delivery import InboxCatchUp, InboxDelivery
from greendot.limits.connection_limits import ConnectionLimits, TooManyConnections
from greendot.limits.overload_model import Level
from greendot.limits.rate_limits import RateLimits
from greendot.node.bus import BusTable
from greendot.node.channel import MISSED, RoomKey
from greendot.node.context import NodeContext
from greendot.node.session import Connection, Session
from greendot.node.stream import RECOVER_BYTES
from greendot.presence.sessions import SessionService
from greendot.protocol.codec import encode_error, encode_event
from greendot.protocol.codes import Close, Err
from greendot.protocol.commands import Hello, Resume
from greendot.protocol.events import Event, Overloaded, RoomState, TypingCount, TypingStarted, Welcome
from greendot.protocol.replies import JoinReply
from greendot.protocol.versions import Dialects
from greendot.rooms.service import RoomService
from greendot.store.wire import sent_size
from greendot.telemetry import log_events
from greendot.telemetry.log import log
from greendot.telemetry.metrics import Metrics

AT_ONCE = 50  # rooms of a client that are rejoined at the same time
CROWDED_MS = 30_000  # longest wait before a retry while the user or tenant has too many connections
# Longest wait before a retry while the tenant has too many connections on this node, but other nodes may soon give this
# node a larger part of the tenant's limit.
CLAIMING_MS = 4_000
RETRY_MS = 5_000  # time until a retry after the engine or the store was unavailable
LONGEST_S = 10.0  # longest wait of a hello
SOON_S = 5.0  # a client may come back up to this many seconds late, and still finds its session
TOGETHER_S = 0.05  # shortest delay of the timer that admits a group of hellos; a group shares its reads of the store
IN_A_TURN = 50  # hellos admitted in one turn of the event loop: about 5 ms of work
REFUSING_S = 2.0  # shortest wait before a retry while the node refuses new work

Answered = Callable[[Connection], None]


class HelloService:
    """Admission, verification and welcome of clients.

    Nothing is registered before the token is verified. The user id comes from the token only.
    """

    def __init__(
        self,
        queue: HelloQueue[Connection],
        bus: Bus,
        sessions: SessionService,
        rooms: RoomService,
        inboxes: InboxDelivery,
        context: NodeContext,
        tokens: Tokens,
        tenants: Tenants,
        revocation_service: RevocationService,
        rate_limits: RateLimits,
        connection_limits: ConnectionLimits,
        metrics: Metrics,
        heartbeat_s: float,
    ) -> None:
        self.strangers: set[Connection] = set()  # connections whose hello has not been answered
        self.bus: BusTable = {HoldSession: self._hold_received}
        self._queue = queue
        self._bus = bus
        self._sessions = sessions
        self._rooms = rooms
        self._inboxes = inboxes
        self._context = context
        self._registry = context.registry
        self._timers = context.timers
        self._clock = context.clock
        self._tokens = tokens
        self._tenants = tenants
        self._revocation_service = revocation_service
        self._rate_limits = rate_limits
        self._connection_limits = connection_limits
        self._metrics = metrics
        self._heartbeat_s = heartbeat_s
        self._dialects = Dialects()
        self._waiting: dict[Connection, tuple[Hello, Answered]] = {}
        self._received_at: dict[Connection, float] = {}  # times of hellos that have not been answered
        # Only for foreign protocols: the future is done if the hello is dropped without an answer.
        self._dropped: dict[Connection, asyncio.Future[None]] = {}
        self._timed: set[Connection] = set()  # connections with a waiting hello and a timer for the end of the wait
        self._begun = 0  # hellos admitted in this turn of the event loop
        self._timer_set = False
        self._refusing = False  # the node is overloaded and refuses new work

    # --- admission ---

    def received(
        self, connection: Connection, hello: Hello, answered: Answered, dropped: asyncio.Future[None] | None = None
    ) -> None:
        """Admit a hello now or soon, or send its client away.

        For an admitted hello, `answered` is called after the welcome or the refusal. Only connections of a foreign
        protocol (Pusher, Centrifuge) pass `dropped`. If their hello is not admitted, this future gets the result None,
        and `answered` is not called.
        """
        now, returning = self._timers.now(), _returns(hello)
        if dropped is not None:
            self._dropped[connection] = dropped
        self._received_at[connection] = now
        if self._refusing:
            self._send_away(connection, hello, REFUSING_S + self._queue.turn(now, returning=returning))
        elif self._begun < IN_A_TURN and self._queue.enter(now):  # nearly always
            self._begin(connection, hello, answered)
        elif wait_s := self._queue.ask(connection, now, returning=returning):
            self._send_away(connection, hello, wait_s)
        else:
            self._waiting[connection] = hello, answered
            self._admit()
            if connection in self._waiting:
                self._timers.cancel(connection.timer)  # the timer for sockets without a hello
                connection.timer = self._timers.set(LONGEST_S, self._waited_too_long, connection)
                self._timed.add(connection)
                self._hold_session(hello, LONGEST_S)

    def _admit(self, _: object = None) -> None:
        """Admit hellos, a few in each turn of the event loop. So connected clients are served between them."""
        for connection in self._queue.admit(self._timers.now(), IN_A_TURN - self._begun):
            if connection in self._timed:
                self._untime(connection)
            hello, answered = self._waiting.pop(connection)
            self._begin(connection, hello, answered)
        if not self._waiting or self._timer_set or self._begun == IN_A_TURN:
            return
        wait_s = self._queue.next_in()
        if wait_s is not None:
            self._timer_set = True
            self._timers.set(max(wait_s, TOGETHER_S), self._on_timer)

    def _begin(self, connection: Connection, hello: Hello, answered: Answered) -> None:
        if not self._begun:
            self._context.tasks.loop.call_soon(self._next_turn)
        self._begun += 1
        self._context.tasks.spawn(self._answer(connection, hello, answered))

    def _next_turn(self) -> None:
        self._begun = 0
        if self._waiting:
            self._admit()

    def _untime(self, connection: Connection) -> None:
        """Cancel the timer of a hello that waits no longer."""
        self._timed.discard(connection)
        self._timers.cancel(connection.timer)
        connection.timer = None

    def _on_timer(self, _: object) -> None:
        self._timer_set = False
        self._admit()

    # --- from the token to the welcome ---

    async def _answer(self, connection: Connection, hello: Hello, answered: Answered) -> None:
        """Welcome the client, or close the connection with the reason."""
        try:
            grants = await self._verified(connection, hello)
            if grants is not None:
                with self._context.surge.one():
                    if await self._greet(connection, grants, hello):
                        self._time(connection, hello)
        finally:
            self.strangers.discard(connection)
            self._dropped.pop(connection, None)
            self._received_at.pop(connection, None)
            self._queue.ended()
            if self._waiting:
                self._admit()
            answered(connection)

    async def _verified(self, connection: Connection, hello: Hello) -> Grants | None:
        """Return the token's grants. Return None if this method closes the connection, or if it has ended meanwhile."""
        try:
            grants = connection.granted or await self._tokens.verify(hello.token, self._clock.now_ms())
            await self._revocation_service.admit(grants, hello.resume.session if hello.resume else None)
            if connection.foreign is None:
                connection.dialect = self._dialects.of(hello.supports)
        except KeysUnavailable as error:
            self._close_for_now(connection, error.retry_in_ms)
            return None  # without the keys, the owner of the session cannot be verified: do not hold the session
        except TokenError as error:
            self._close_for_token(connection, error, hello)
            return None
        except Unreadable as error:
            connection.close(Close.VERSION, str(error))
            return None
        return None if connection.closing else grants

    async def _greet(self, connection: Connection, grants: Grants, hello: Hello) -> bool:
        """Open or resume the session and send the welcome. Return False if the connection was closed instead."""
        connection.hold()
        try:
            if self._tenants.are_checked:
                await self._tenants.admit(grants.tenant)
            with self._connection_limits.entering(connection, grants, hello):
                opened = await self._sessions.open(connection, grants, hello)
            session = opened.session
            # Check again, because a revocation may have come before `open` registered this session.
            self._revocation_service.check(grants, session.id)
            self._registry.greeted(connection, session, opened.resumed)
            self._rate_limits.greeted(connection, session)
            inbox = self._inboxes.ask(session)  # the inbox is read while the rooms are rejoined
            await self._sessions.show(opened, connection)
            joined = await self._rejoin(connection, session, hello.resume) if hello.resume else []
            self._rooms.returned(connection, session)
            after = hello.resume.inbox if hello.resume else None
            arrival = await self._inboxes.attach(connection, session, inbox, after)
        except TokenError as error:
            self._close_for_token(connection, error, hello)
            return False
        except (EngineUnavailable, StoreUnavailable):
            self._hold_session(hello, RETRY_MS / 1000)
            self._close_for_now(connection, RETRY_MS)
            return False
        except TooManyConnections as error:
            # Another connection may end before the retry. The wait is random: clients must not return all at once.
            longest_ms = CLAIMING_MS if error.soon else CROWDED_MS
            wait_ms = random.randint(longest_ms // 2, longest_ms)
            self._hold_session(hello, wait_ms / 1000)
            self._close_for_now(connection, wait_ms, str(error))
            return False
        except Exception:
            connection.close(Close.INTERNAL, "internal error; see the server log")
            raise
        # The session may have left a room, or lost its access, since the room was rejoined above.
        if joined:
            joined = [reply for reply in joined if connection.rooms is not None and reply.room in connection.rooms]
        self._context.recorder.came(session, opened.resumed)
        connection.release(self._welcome(session, opened.resumed, joined, arrival))
        return True

    async def _rejoin(self, connection: Connection, session: Session, resume: Resume) -> list[JoinReply]:
        """Rejoin the client's rooms. Leave out a room if the user is no longer allowed to join it."""
        joined: list[JoinReply] = []
        most = RECOVER_BYTES  # bytes of missed messages that may still be sent, for all rooms together
        # A session is never in more rooms than the limit, so ignore all names beyond the limit.
        named = [*resume.rooms.items()][: self._rate_limits.shown(session.tenant).rooms]
        # Many rooms at a time, so that their reads are batched.
        for at in range(0, len(named), AT_ONCE):
            if connection.closing:
                break
            work = [self._rooms.rejoin(connection, session, *room, most) for room in named[at : at + AT_ONCE]]
            for reply in await _all_of(work):
                if isinstance(reply, JoinReply):
                    size = sum(map(sent_size, reply.messages))
                    joined.append(reply if size <= most else _truncated(reply))
                    most -= size if size <= most else 0
                elif not isinstance(reply, Refused):
                    raise reply
        return joined

    def _welcome(
        self, session: Session, resumed: bool, joined: list[JoinReply], arrival: InboxCatchUp
    ) -> list[tuple[bytes, object]]:
        """Return the frames to send, as pairs of frame and key: the welcome, then events of the rooms and the inbox.

        Only events of a room have a key, which names the room. So if the user is removed from the room while the events
        wait for a slow client, the node can withdraw the events.
        """
        now = self._clock.now_ms()
        welcome = Welcome(
            session=session.id,
            user=session.user,
            tenant=session.tenant,
            node=self._sessions.incarnation,
            resumed=resumed,
            heartbeat_s=self._heartbeat_s,
            server_time=now,
            unread=arrival.unread,
            limits=self._rate_limits.shown(session.tenant),
            rooms={reply.room: RoomState(reply.head, reply.recovered, reply.truncated) for reply in joined},
            typing=self._rooms.typing,
        )
        frames: list[tuple[bytes, object]] = [(encode_event(welcome, now), None)]
        for reply in joined:
            events: list[Event] = [*reply.messages]
            events += [TypingStarted(reply.room, t.user, t.name, t.expires_in_ms, t.info) for t in reply.typing]
            if reply.typing_count > len(reply.typing):
                events.append(TypingCount(reply.room, reply.typing_count, self._rooms.typing.hold_ms))
            key = RoomKey(reply.room, MISSED)
            frames += [(encode_event(event, now), key) for event in events]
        if arrival.events:
            frames += [(encode_event(event, now), None) for event in arrival.events]
        return frames

    def _time(self, connection: Connection, hello: Hello) -> None:
        """Add the time from hello to welcome to the metrics, unless the connection has ended before the welcome."""
        if (received_at := self._received_at.get(connection)) is not None:
            took_s = self._timers.now() - received_at
            self._metrics.hello.observe(took_s)
            if _returns(hello):
                self._metrics.recovery.observe(took_s)

    # --- refusals ---

    @staticmethod
    def _close_for_token(connection: Connection, error: TokenError, hello: Hello) -> None:
        code = Close.TOKEN_EXPIRED if error.expired else Close.BAD_TOKEN
        if isinstance(error, TokenRevoked):
            code = Close.REVOKED
        log(log_events.HELLO_REFUSED, reason=error, code=int(code))
        last = None
        if isinstance(error, UserBanned):
            last = encode_error(Refused(Err.BANNED, str(error), retry_in_ms=error.retry_in_ms), hello.id)
        # A reason is at most 123 bytes (RFC 6455 5.5).
        connection.close(code, str(error).encode()[:123].decode(errors="ignore"), last)

    def _close_for_now(
        self,
        connection: Connection,
        in_ms: int,
        why: str = "the engine, the store or the token keys are not available; reconnect later",
    ) -> None:
        last = encode_event(Overloaded(in_ms), self._clock.now_ms())
        connection.close(Close.OVERLOADED, why, last)

    def _waited_too_long(self, connection: Connection) -> None:
        connection.timer = None
        self._timed.discard(connection)
        hello, _ = self._waiting.pop(connection)
        self._queue.forget(connection)
        wait_s = self._queue.turn(self._timers.now(), returning=_returns(hello))
        self._send_away(connection, hello, wait_s)

    def _send_away(self, connection: Connection, hello: Hello, wait_s: float) -> None:
        self._metrics.realtime_hellos_refused_total += 1
        self._hold_session(hello, wait_s)
        if not self._drop(connection):
            connection.waiting = None
        if self._refusing:
            self._close_for_now(connection, ceil(wait_s * 1000), "this node is overloaded; reconnect later")
        else:
            self._close_for_now(
                connection, ceil(wait_s * 1000), "too many clients connect at the same time; reconnect later"
            )

    # --- sessions of clients that wait ---

    def _hold_session(self, hello: Hello, wait_s: float) -> None:
        """While the client waits `wait_s` seconds, keep the session that its hello wants to resume.

        Do nothing if the token does not belong to the session's user, if no node has the session, or if the session
        lasts long enough anyway. If another node has the session, ask that node to keep it.
        """
        wanted = hello.resume.session if hello.resume else None
        if wanted is None:
            return
        session = self._registry.sessions.get(wanted)
        if session is not None:
            if self._sessions.may_end_within(session, wait_s + SOON_S) and self._user_of(hello) == session.key:
                self._sessions.prolong(session, wait_s)
        elif incarnation_of(wanted) != self._sessions.incarnation and (key := self._user_of(hello)) is not None:
            node = Topic("node", "", incarnation_of(wanted))
            self._bus.publish(node, HoldSession(wanted, *key, round(wait_s * 1000)))

    def _hold_received(self, topic: Topic, message: HoldSession) -> None:
        """Keep a session of this node, because its client waits on another node, or was sent away by another node."""
        session = self._registry.sessions.get(message.session)
        wait_s = message.wait_ms / 1000
        if session is None or session.key != (message.tenant, message.user):
            return
        if self._sessions.may_end_within(session, wait_s + SOON_S):
            self._sessions.prolong(session, wait_s)

    def _user_of(self, hello: Hello) -> tuple[str, str] | None:
        """Return the tenant and the user of the hello's token. Return None if the token is not valid."""
        try:
            grants = self._tokens.read(hello.token, self._clock.now_ms())
            self._revocation_service.check(grants)
        except TokenError:
            return None
        return grants.tenant, grants.user

    # --- called by other services of the node ---

    def forget(self, connection: Connection) -> bool:
        """Forget a connection that has ended. Return True if the caller must clean up what belongs to it.

        True: the hello was waiting for admission, and nothing else cleans up. False, in one of these cases:

        - No hello came, or the hello was answered: there is nothing to clean up.
        - `_answer` is running, and cleans up at its end.
        - The hello was waiting, and the connection has a foreign protocol: `_drop` wakes a task, which cleans up.
        """
        self.strangers.discard(connection)
        if self._received_at.pop(connection, None) is None:  # its hello was answered, or did not come
            return False
        self._timed.discard(connection)
        self._queue.forget(connection)
        is_dropped = self._waiting.pop(connection, None) is not None
        return is_dropped and not self._drop(connection)

    def _drop(self, connection: Connection) -> bool:
        """Wake the task of a foreign protocol that waits for the answer to the hello. Return whether there is one."""
        done = self._dropped.pop(connection, None)
        if done is not None and not done.done():
            done.set_result(None)
        return done is not None

    def turn_s(self) -> float:
        """Return how many seconds a client must wait before it retries, if the node does not accept its connection."""
        return self._queue.turn(self._timers.now(), returning=False)

    def loaded(self, level: Level) -> None:
        """Take note of the node's overload level. At the level REFUSING, the node refuses all hellos."""
        self._refusing = level is Level.REFUSING

    @property
    def waiting(self) -> int:
        return len(self._waiting)


def _returns(hello: Hello) -> bool:
    return hello.resume is not None and hello.resume.session is not None


async def _all_of(work: list[Coroutine[Any, Any, JoinReply]]) -> list[JoinReply | BaseException]:
    """Run the coroutines concurrently; return their results and exceptions.

    If this call itself is cancelled, it raises CancelledError.
    """
    # One room is the usual case. It needs no task.
    if len(work) > 1:
        return await asyncio.gather(*work, return_exceptions=True)
    try:
        return [await work[0]]
    except Exception as error:
        return [error]


def _truncated(reply: JoinReply) -> JoinReply:
    """Return the reply without the missed messages. The client then fetches these messages."""
    return structs.replace(reply, messages=[], recovered=False, truncated=True)
