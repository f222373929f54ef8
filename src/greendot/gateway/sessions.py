"""The life of sessions: hello, resume, idle, linger, leave."""

from __future__ import annotations

from hashlib import blake2b

from msgspec import Struct

from greendot.core.grants import Grants
from greendot.core.leaving import Cause, Graces, grace_s
from greendot.core.presence import Ref
from greendot.engine.base import PresenceEngine
from greendot.gateway.connection import Connection
from greendot.gateway.session import Session
from greendot.gateway.shared import Shared
from greendot.gateway.statuses import Statuses
from greendot.ids import new_session_id
from greendot.protocol.codes import Close
from greendot.protocol.commands import Hello

HELLO_S = 10.0  # a connection that has not said hello by then is closed


class Periods(Struct, frozen=True):
    """Seconds, from the settings."""

    dead_after: float
    idle: float
    graces: Graces


class Sessions:
    """Opens sessions on connections and ends them; the one place that tells the engine who is there."""

    def __init__(
        self,
        incarnation: str,
        engine: PresenceEngine,
        statuses: Statuses,
        shared: Shared,
        periods: Periods,
    ) -> None:
        self._incarnation = incarnation
        self._engine = engine
        self._statuses = statuses
        self._registry = shared.registry
        self._clock = shared.clock
        self._timers = shared.timers
        self._tasks = shared.tasks
        self._periods = periods
        self._numbers = 0

    # --- coming ---

    async def open(self, connection: Connection, grants: Grants, hello: Hello) -> tuple[Session, bool]:
        """The session of this connection, and whether it is one that was there before."""
        session = self._resumable(grants, hello)
        resumed = session is not None
        if session is None:
            session = Session(new_session_id(self._incarnation), grants, hello.device, hello.client)
            self._registry.add(session)
        self._numbers += 1
        session.ref = Ref(session.id, self._incarnation, self._numbers)
        session.grants = grants
        session.connection = connection
        session.connected_at = self._clock.now_ms()
        session.ip_hash = _hash_ip(connection)
        connection.session = session
        if not resumed:
            session.active_at = self._timers.now()
        # A client that comes back by itself is not a person doing something: it stays as idle as it was. We say so,
        # because the engine has forgotten it if another session of the device came back first.
        touched = await self._engine.touch(*session.key, session.ref, session.device, session.idle, grants.name)
        if not touched.status_known:
            await self._statuses.copy(session.key)
        self._arm(connection)
        return session, resumed

    def _resumable(self, grants: Grants, hello: Hello) -> Session | None:
        wanted = hello.resume.session if hello.resume else None
        session = self._registry.sessions.get(wanted) if wanted else None
        if session is None or session.key != (grants.tenant, grants.user):
            return None
        if session.connection is not None:
            old, session.connection = session.connection, None
            old.close(Close.REPLACED, "replaced by a resume")
        self._timers.cancel(session.leave_timer)
        session.leave_timer = None
        return session

    # --- being there ---

    def active(self, session: Session, now: float) -> None:
        """The person did something."""
        session.active_at = now
        if session.idle:
            session.idle = False
            self.rearm(session)
            self._tasks.spawn(self._show_idle(session))

    def expect_hello(self, connection: Connection) -> None:
        connection.timer = self._timers.set(HELLO_S, self._check, connection)

    def _arm(self, connection: Connection) -> None:
        """Set the connection's one timer to whatever comes first. What moves a date later need not touch it."""
        session = connection.session
        if session is None or connection.closing:
            return
        now = self._timers.now()
        dates = [
            connection.heard + self._periods.dead_after,
            now + (session.grants.expires_at - self._clock.now_ms()) / 1000,
        ]
        if not session.idle:
            dates.append(session.active_at + self._periods.idle)
        self._timers.cancel(connection.timer)
        connection.timer = self._timers.set(max(0.0, min(dates) - now), self._check, connection)

    def rearm(self, session: Session) -> None:
        """A date may have come to be earlier: idle counts again, or a refreshed token ends sooner."""
        if session.connection is not None:
            self._arm(session.connection)

    def _check(self, connection: Connection) -> None:
        session, now = connection.session, self._timers.now()
        if session is None:
            connection.close(Close.PROTOCOL_ERROR, "no hello within 10 s")
        elif now >= connection.heard + self._periods.dead_after:
            connection.close(Close.HEARTBEAT_LOST, "heartbeat lost")
        elif self._clock.now_ms() >= session.grants.expires_at:
            connection.close(Close.TOKEN_EXPIRED, "token expired")
        else:
            if not session.idle and now >= session.active_at + self._periods.idle:
                session.idle = True
                self._tasks.spawn(self._show_idle(session))
            self._arm(connection)

    async def _show_idle(self, session: Session) -> None:
        if session.connection is not None:
            await self._engine.touch(*session.key, session.ref, session.device, session.idle, None)

    # --- going ---

    def lost(self, connection: Connection, cause: Cause, code: int) -> None:
        """The connection is gone: its session lingers, unless it has moved on to another connection."""
        session = connection.session
        if session is None or session.connection is not connection:
            return
        session.connection = None
        silent_s = self._timers.now() - connection.heard
        session.last_heard = self._clock.now_ms() - round(silent_s * 1000)
        grace = grace_s(cause, code, self._periods.graces)
        self._tasks.spawn(self._linger(session, session.ref, round(grace * 1000), round(silent_s * 1000)))

    async def _linger(self, session: Session, ref: Ref, grace_ms: int, silent_ms: int) -> None:
        remaining = await self._engine.linger(*session.key, ref, grace_ms, silent_ms)
        self._remains(session, ref, remaining)

    def _remains(self, session: Session, ref: Ref, remaining: int | None) -> None:
        if session.ref is not ref:  # it came back meanwhile
            return
        if not remaining:
            self._registry.remove(session)
            if not self._registry.sessions_of(*session.key):
                self._statuses.forget(session.key)
        else:
            session.leave_timer = self._timers.set(remaining / 1000, self._linger_over, session)

    def _linger_over(self, session: Session) -> None:
        session.leave_timer = None
        self._tasks.spawn(self._leave(session, session.ref))

    async def _leave(self, session: Session, ref: Ref) -> None:
        self._remains(session, ref, await self._engine.leave(*session.key, ref))


def _hash_ip(connection: Connection) -> str | None:
    peer = connection.transport.underlying_transport.get_extra_info("peername")
    return blake2b(str(peer[0]).encode(), digest_size=8).hexdigest() if peer else None
