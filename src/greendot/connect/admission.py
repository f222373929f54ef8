"""Hellos on their way in: admitted, kept waiting for a moment, or sent away with a word when to return.

What bounds the loop's lag when everybody returns at once is how many hellos are under way together; the rate leaves
time for those who are there. Nobody goes offline by being sent away: a session that somebody came back to counts for as
long as its client was told to wait, and a grace more.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

from greendot.connect.admission_model import HelloQueue
from greendot.connect.handshake import Handshake
from greendot.engine.messages import HoldSession, Topic
from greendot.engine.port import Bus
from greendot.ids import incarnation_of
from greendot.limits.overload_model import Level
from greendot.node.bus import BusTable
from greendot.node.context import NodeContext
from greendot.presence.sessions import SessionService
from greendot.protocol.codec import encode_event
from greendot.protocol.codes import Close
from greendot.protocol.commands import Hello
from greendot.protocol.events import Overloaded
from greendot.telemetry.metrics import Metrics
from greendot.transport.connection import Connection

LONGEST_S = 10.0  # nobody waits here for longer
SOON_S = 5.0  # who returns so long after it was asked to is still in time
TOGETHER_S = 0.05  # those who wait are let in together, so often: they read the store together
REFUSING_S = 2.0  # while the node refuses new work nobody need come back before this

Admitted = Callable[[Connection, Hello], None]


class HelloAdmission:
    """Queue of hellos. Each is admitted at once, soon, or sent away with a time to return."""

    def __init__(
        self,
        queue: HelloQueue[Connection],
        handshake: Handshake,
        sessions: SessionService,
        bus: Bus,
        context: NodeContext,
        metrics: Metrics,
    ) -> None:
        self.strangers: set[Connection] = set()  # sockets whose hello has not been answered
        self._queue = queue
        self._handshake = handshake
        self._sessions = sessions
        self._bus = bus
        self._context = context
        self._metrics = metrics
        self._hellos: dict[Connection, tuple[Hello, Admitted]] = {}  # that wait
        self._asked: dict[Connection, float] = {}  # when those came whose hello has not been answered
        self._pumping = False
        self._refusing = False  # the node takes no new work
        self.bus: BusTable = {HoldSession: self.held}

    # --- coming ---

    def ask(self, connection: Connection, hello: Hello, admitted: Admitted) -> None:
        """Admit a hello now or soon, or send it away. `admitted` is called when it is to be answered by `greet`."""
        now, returning = self._context.timers.now(), _returns(hello)
        self._asked[connection] = now
        if self._refusing:
            self._send_away(connection, hello, REFUSING_S + self._queue.turn(now, returning=returning))
        elif wait_s := self._queue.ask(connection, now, returning=returning):
            self._send_away(connection, hello, wait_s)
        else:
            self._hellos[connection] = hello, admitted
            self._pump()
            if connection in self._hellos:
                self._keep_waiting(connection, hello)

    async def greet(self, connection: Connection, hello: Hello) -> None:
        """Answer a hello that was admitted."""
        try:
            if await self._handshake.hello(connection, hello):
                self._time(connection, hello)
        finally:
            self.strangers.discard(connection)
            self._asked.pop(connection, None)
            self._queue.ended()
            self._pump()

    def forget(self, connection: Connection) -> bool:
        """The connection has ended; whether its hello was waiting."""
        self.strangers.discard(connection)
        self._asked.pop(connection, None)
        self._queue.forget(connection)
        return self._hellos.pop(connection, None) is not None

    def turn_s(self) -> float:
        """When somebody who cannot even say hello should come back."""
        return self._queue.turn(self._context.timers.now(), returning=False)

    def loaded(self, level: Level) -> None:
        """How much this node has to do has changed."""
        self._refusing = level is Level.REFUSING

    @property
    def waiting(self) -> int:
        return len(self._hellos)

    def _time(self, connection: Connection, hello: Hello) -> None:
        """It was welcomed. One that has ended meanwhile is not asked for any more, and not counted."""
        if (asked := self._asked.get(connection)) is not None:
            took_s = self._context.timers.now() - asked
            self._metrics.hello.observe(took_s)
            if _returns(hello):
                self._metrics.recovery.observe(took_s)

    def _pump(self, _: object = None) -> None:
        for connection in self._queue.admit(self._context.timers.now()):
            self._context.timers.cancel(connection.timer)
            hello, admitted = self._hellos.pop(connection)
            admitted(connection, hello)
        wait_s = self._queue.next_in()
        if wait_s is not None and not self._pumping:
            self._pumping = True
            self._context.timers.set(max(wait_s, TOGETHER_S), self._pump_again)

    def _pump_again(self, _: object) -> None:
        self._pumping = False
        self._pump()

    def _keep_waiting(self, connection: Connection, hello: Hello) -> None:
        self._context.timers.cancel(connection.timer)  # it has said hello
        connection.timer = self._context.timers.set(LONGEST_S, self._waited_too_long, connection)
        self._hold(hello, LONGEST_S)

    def _waited_too_long(self, connection: Connection) -> None:
        connection.timer = None
        hello, _ = self._hellos.pop(connection)
        self._queue.forget(connection)
        wait_s = self._queue.turn(self._context.timers.now(), returning=_returns(hello))
        self._send_away(connection, hello, wait_s)

    # --- being sent away ---

    def _send_away(self, connection: Connection, hello: Hello, wait_s: float) -> None:
        self._metrics.realtime_hellos_refused_total += 1
        self._hold(hello, wait_s)
        last = encode_event(Overloaded(ceil(wait_s * 1000)), self._context.clock.now_ms())
        connection.waiting = None
        connection.close(Close.OVERLOADED, "too many at once: come back", last)

    def _hold(self, hello: Hello, wait_s: float) -> None:
        """Its session must not run out while we keep it waiting. That is asked for by the session's own user only."""
        wanted = hello.resume.session if hello.resume else None
        if wanted is None:
            return
        session = self._context.registry.sessions.get(wanted)
        if session is None:
            if incarnation_of(wanted) != self._sessions.incarnation:
                self._hold_elsewhere(hello, wanted, wait_s)
        elif self._sessions.ends_within(session, wait_s + SOON_S) and self._handshake.user_of(hello) == session.key:
            self._sessions.prolong(session, wait_s)

    def _hold_elsewhere(self, hello: Hello, wanted: str, wait_s: float) -> None:
        if (key := self._handshake.user_of(hello)) is not None:
            node = Topic("node", "", incarnation_of(wanted))
            self._bus.publish(node, HoldSession(wanted, *key, round(wait_s * 1000)))

    def held(self, topic: Topic, message: HoldSession) -> None:
        """Another node has sent away somebody whose session is here."""
        session = self._context.registry.sessions.get(message.session)
        wait_s = message.wait_ms / 1000
        if session is None or session.key != (message.tenant, message.user):
            return
        if self._sessions.ends_within(session, wait_s + SOON_S):
            self._sessions.prolong(session, wait_s)


def _returns(hello: Hello) -> bool:
    return hello.resume is not None and hello.resume.session is not None
