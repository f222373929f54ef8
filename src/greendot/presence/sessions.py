"""Life of sessions: open, resume, become idle, linger, end.

- A session is one device's time online. A session may have several connections, one after the other.
- After the end of its connection, a session lingers: it counts as online for the grace, so that its client can return.
- The engine (Redis, for example) has a record of each session, written by its node. All nodes can read it.
- The store (the database) has the status that a user has set by hand, such as `busy`. The engine has a copy.
- An incarnation is a name of this node in the engine. A node that was declared dead continues under a new one.
- A session epoch (`ref`) names one connection of a session: id of the session, incarnation, number of the connection.
- If a client resumes a session of another node here, this node adopts the session. The session gets a new id.
- A loss means that the engine has lost records. A node restores a session: it writes the complete record again.
- An audit ends sessions that the engine has for this node, but that the node does not have.
- A foreign protocol is the protocol of another product (package `compat`).

The engine may be away when a session is opened, resumed, becomes idle, lingers or ends. A failed write is not queued. A
retry writes the state that the session has at the time of the retry.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct

from greendot.auth.model import Grants
from greendot.engine.messages import Disconnect, Topic
from greendot.engine.port import Engine
from greendot.engine.results import Known
from greendot.errors import EngineUnavailable, StoreUnavailable
from greendot.ids import Key, new_session_id
from greendot.node.context import NodeContext
from greendot.node.session import Connection, Disconnection, Session
from greendot.presence.deadlines import ConnectionDeadlines
from greendot.presence.grace_model import EndCause, SessionPeriods, grace_s
from greendot.presence.model import ManualStatus, SessionEpoch
from greendot.presence.profiles import ProfileService
from greendot.presence.status import StatusService
from greendot.protocol.codes import Close
from greendot.protocol.commands import Hello

RETRY_S = 1.0  # minimum seconds between two attempts to write to the engine
# After an outage of the engine, a session lingers for this number of ms or more. If its whole grace is shorter, the
# session lingers for the whole grace. Clients that were refused during the outage try again sooner (`hello.RETRY_MS`).
RETURN_MS = 10_000
NOTICED_S = 2.0  # seconds within which all nodes notice a loss
MOST_IN_DOUBT = 1_000  # maximum number of sessions in doubt (see `_hold_in_doubt`); each failed resume may add one


class Opened(Struct, frozen=True):
    """Session on its connection, as returned by `open`."""

    session: Session
    resumed: bool  # whether the session existed before this connection
    status_known: bool  # whether the engine has the user's status; also True if the engine is away
    is_unread: bool  # True if this node does not know the user's status


class SessionService:
    """Service that opens and ends sessions, and writes them to the engine.

    When the grace of a session is over, the node calls `leave` of the engine, which ends the session in the engine.
    If the node has died, the next operation on the same user, or a periodic sweep of the engine, ends the session.
    """

    def __init__(
        self,
        engine: Engine,
        statuses: StatusService,
        profiles: ProfileService,
        context: NodeContext,
        periods: SessionPeriods,
        *,
        on_end: Callable[[Session], None],  # called when a session has ended
        on_left: Callable[[Key], None],  # called when a user's last session on this node has ended
    ) -> None:
        self.incarnation = ""  # changes after other nodes have declared this node dead
        self._engine = engine
        self._statuses = statuses
        self._profiles = profiles
        statuses.restore = self._restore_user
        self._on_end = on_end
        self._on_left = on_left
        self._registry = context.registry
        self._clock = context.clock
        self._timers = context.timers
        self._tasks = context.tasks
        self._recorder = context.recorder
        self._periods = periods
        self.deadlines = ConnectionDeadlines(context, periods, lambda session: self._set_idle(session, True))
        self._coming: set[str] = set()  # new ids of sessions that this node is adopting
        self._postponed: set[SessionEpoch] = set()  # sessions whose end waits: see `_may_write`
        self._in_doubt: set[str] = set()  # new ids of sessions that this node may have adopted: see `_hold_in_doubt`
        self.lost_at: float | None = None  # monotonic time at which this node last found a loss

    # --- opening ---

    async def open(self, connection: Connection, grants: Grants, hello: Hello) -> Opened:
        """Open or resume the session of a connection.

        If the engine does not have the user's status, other users see the user as offline until `show` is called.
        Otherwise other users see the user's new state at once. Raise EngineUnavailable if the engine is away and
        `accept_when_away` is False.
        """
        session = None
        if hello.resume is not None and (wanted := hello.resume.session) is not None:
            session = self._resumable(grants, wanted) or await self._from_elsewhere(grants, hello, wanted)
        resumed = session is not None
        if session is None:
            session = Session(new_session_id(self.incarnation), grants, hello.device, hello.client)
            session.active_at = session.state_at = self._timers.now()
        if session.id not in self._registry.sessions:
            self._statuses.inherit(session)
            self._registry.add(session)
        is_unread = session.manual is None
        self._attach(session, connection, grants)
        self.deadlines.arm(connection)
        try:
            if self._may_be_older(session):
                if resumed:
                    await self.restore(session)
                    return Opened(session, resumed, status_known=True, is_unread=is_unread)
                manual = self._statuses.learnt(session.key, await self._statuses.to_restore(session.key))
                await self._engine.set_status(*session.key, manual)
            # A reconnect is no activity, so an idle session stays idle. The engine may have ended the session, because
            # its device has opened another one meanwhile. Then the touch creates the session again, and needs `idle`.
            ref = session.ref
            touched = await self._engine.touch(*session.key, ref, session.device, session.idle, grants.name)
        except EngineUnavailable:
            if not self._periods.accept_when_away:
                self._refuse(session, connection, resumed)
                raise
            return Opened(session, resumed, status_known=True, is_unread=is_unread)  # the recovery writes the session
        # If the client has resumed meanwhile, `session.ref` is a newer epoch, which this touch does not confirm.
        session.confirmed = session.confirmed or session.ref is ref
        return Opened(session, resumed, touched.status_known, is_unread)

    def _may_be_older(self, session: Session) -> bool:
        """Return whether the engine may have an older status than this node. A `touch` would show it to others."""
        return session.manual is not None and self._engine.is_restoring(*session.key)

    async def show(self, opened: Opened, connection: Connection) -> None:
        """Make an opened session visible to other users, and apply the token's name and info.

        If the engine does not have the user's status, copy the status from the store to the engine. Otherwise, if this
        node does not know the status, read the status from the engine, or from the store if the engine is away. Raise
        EngineUnavailable as `open` does. Raise StoreUnavailable if the store is needed and does not answer.
        """
        session = opened.session
        try:
            if not opened.status_known:
                await self._statuses.copy(session.key)
            elif opened.is_unread:
                await self._statuses.learn(session.key)
        except EngineUnavailable:
            if not self._periods.accept_when_away:
                self._refuse(session, connection, opened.resumed)
                raise
            if opened.is_unread:
                await self._statuses.read_stored(session.key)
        await self._profiles.claim(session)

    async def renew(self, session: Session, before: Grants) -> None:
        """Apply the name and info of a new token. `before` has the old grants. Raise StoreUnavailable on failure."""
        if session.grants.name not in (None, before.name):
            with suppress(EngineUnavailable):  # the restore after the outage writes the name of the token
                name = session.grants.name
                await self._engine.touch(*session.key, session.ref, session.device, session.idle, name)
        await self._profiles.claim(session)

    def _attach(self, session: Session, connection: Connection, grants: Grants) -> None:
        if session.leave_timer is not None:
            self._timers.cancel(session.leave_timer)
            session.leave_timer = None
        session.ref, session.confirmed = self._next_ref(session), False
        session.grants = grants
        session.connection = connection
        session.held_until = 0.0
        session.connected_at = self._clock.now_ms()
        session.ip_hash = connection.ip_hash
        connection.session = session

    def _refuse(self, session: Session, connection: Connection, resumed: bool) -> None:
        """Drop a new session whose hello is refused. A resumed session stays, because its client is asked to return."""
        if not resumed and session.connection is connection:
            session.connection = connection.session = None
            self._forget(session)

    def _next_ref(self, session: Session) -> SessionEpoch:
        return SessionEpoch(session.id, self.incarnation, session.ref.conn + 1)

    def _resumable(self, grants: Grants, wanted: str) -> Session | None:
        """Return the wanted session if it is on this node and the client may resume it. Close its old connection."""
        session = self._registry.sessions.get(wanted)
        if session is None or session.key != (grants.tenant, grants.user) or session.revoked:
            return None
        if session.connection is not None:
            old, session.connection = session.connection, None
            old.close(Close.REPLACED, "session resumed elsewhere")
        return session

    async def _from_elsewhere(self, grants: Grants, hello: Hello, wanted: str) -> Session | None:
        """Adopt a session of another node under a new id. Return None if no session can be adopted."""
        if wanted in self._registry.sessions:
            return None  # the session is on this node, and `_resumable` has refused it
        ref = SessionEpoch(new_session_id(self.incarnation), self.incarnation, 1)
        was_reachable = self._engine.trouble is None
        self._coming.add(ref.session)
        try:
            adopted = await self._engine.adopt(grants.tenant, grants.user, wanted, ref)
        except EngineUnavailable:
            if not self._periods.accept_when_away:
                # If the engine was away already, nothing was sent, and nothing is in doubt.
                if was_reachable and len(self._in_doubt) < MOST_IN_DOUBT:
                    self._hold_in_doubt(grants, hello, ref)
                raise  # do not open a new session: it would end the old one, which the client can still resume
            return None
        finally:
            self._coming.discard(ref.session)
        if adopted is None:
            return None
        session = Session(ref.session, grants, hello.device, hello.client)
        session.ref, session.confirmed = ref, True
        self._statuses.inherit(session)
        self._registry.add(session)
        session.idle = adopted.idle
        session.active_at = session.state_at = self._timers.now()
        replaced = Disconnect(wanted, Close.REPLACED, "session resumed elsewhere", grants.tenant)
        self._engine.publish(Topic("node", "", adopted.incarnation), replaced)
        return session

    def _hold_in_doubt(self, grants: Grants, hello: Hello, ref: SessionEpoch) -> None:
        """Keep a session in doubt: the engine has not answered, and may or may not carry out the adoption.

        If the audit after the outage ended the session, the user would go offline. So `holds` returns True for a
        session in doubt. The recovery restores all sessions in the registry, but must not restore a session that was
        not adopted. So the session is added to the registry only when the engine has confirmed the adoption.
        """
        now = self._timers.now()
        session = Session(ref.session, grants, hello.device, hello.client)
        session.ref = ref
        session.leaving = Disconnection(now, round(self._periods.graces.lost * 1000), 0)
        session.active_at = session.state_at = now
        session.last_heard = self._clock.now_ms()
        self._in_doubt.add(session.id)
        self._later(self._settle_soon, session)

    def _settle_soon(self, session: Session) -> None:
        self._tasks.spawn_brief(self._settle_doubt(session))

    async def _settle_doubt(self, session: Session) -> None:
        """Let a session in doubt linger. If the engine has the session, add it to the registry; otherwise forget it."""
        assert session.leaving is not None
        session.leaving = session.leaving.with_least(self._timers.now(), RETURN_MS)
        left_ms, silent_ms = session.leaving.since(self._timers.now())
        try:
            remaining = await self._engine.linger(*session.key, session.ref, left_ms, silent_ms)
        except (EngineUnavailable, StoreUnavailable):
            self._later(self._settle_soon, session)
            return
        if remaining:
            session.confirmed = True
            self._statuses.inherit(session)
            self._registry.add(session)
            self._remains(session, session.ref, remaining)
        self._in_doubt.discard(session.id)

    # --- activity ---

    def active(self, session: Session, now: float) -> None:
        """Record activity of the user."""
        session.active_at = now
        if session.idle:
            self._set_idle(session, False)
            self.deadlines.rearm(session)

    def _set_idle(self, session: Session, idle: bool) -> None:
        session.idle, session.state_at = idle, self._timers.now()
        self._recorder.idled(session)
        self._tasks.spawn(self._show_idle(session))

    async def _show_idle(self, session: Session) -> None:
        if session.connection is None:
            return
        try:
            if self._may_be_older(session):
                await self.restore(session)
            else:
                await self._engine.touch(*session.key, session.ref, session.device, session.idle, None)
        except (EngineUnavailable, StoreUnavailable):
            if session.connection is not None:  # else the timer belongs to the end of the session
                self._later(lambda session: self._tasks.spawn(self._show_idle(session)), session)

    # --- ending ---

    def lost(self, connection: Connection, cause: EndCause, code: int) -> None:
        """Let the session of an ended connection linger, unless the session has another connection."""
        session = connection.session
        if session is None or session.connection is not connection:
            return
        session.connection = None
        now = self._timers.now()
        silent_s = now - connection.received_at
        session.last_heard = self._clock.now_ms() - round(silent_s * 1000)
        grace = grace_s(cause, code, self._periods.graces)
        if grace and session.held_until > now:
            grace = max(grace, session.held_until - now + self._periods.graces.lost)
        session.leaving = Disconnection(now, round(grace * 1000), round(silent_s * 1000))
        self._tasks.spawn_brief(self._linger(session, session.ref))

    async def _linger(self, session: Session, ref: SessionEpoch) -> None:
        """Write that the session lingers for the rest of its grace. If the grace is over, end the session."""
        if session.ref is not ref or session.leaving is None:
            return
        if not await self._may_write(session, ref):
            return
        left_ms, silent_ms = session.leaving.since(self._timers.now())
        if left_ms and not session.confirmed:
            # If the engine does not know this session epoch, it answers that the session has ended. So restore the
            # session first. `restore` uses `asyncio.timeout`, which needs a task. `spawn_brief` may not have made one.
            self._tasks.spawn(self._restore_lingering(session))
            return
        try:
            remaining = await self._engine.linger(*session.key, ref, left_ms, silent_ms)
        except (EngineUnavailable, StoreUnavailable):
            if session.connection is None:
                self._later(self._linger_again, session)
            return
        self._remains(session, ref, remaining)

    async def _may_write(self, session: Session, ref: SessionEpoch) -> bool:
        """Return whether the caller may write that the session lingers or has ended.

        While lost sessions of the user may be missing in the engine, the end of a session waits for `NOTICED_S`.
        Without this wait, a node that has not noticed the loss would show the user as offline, although the user may
        have another session. Return False if another call already waits, or if the client returns during the wait.
        """
        if session.leaving is None or session.leaving.since(self._timers.now())[0]:
            return True
        if ref in self._postponed:
            return False
        if not self._engine.is_restoring(*session.key):
            return True
        self._postponed.add(ref)
        try:
            await self._timers.sleep(NOTICED_S)
        finally:
            self._postponed.discard(ref)
        return session.ref is ref and session.connection is None

    async def _restore_lingering(self, session: Session) -> None:
        try:
            await self.restore(session)
        except (EngineUnavailable, StoreUnavailable):
            if session.connection is None:
                self._later(self._linger_again, session)
            return
        is_back = session.connection is not None
        if self._registry.sessions.get(session.id) is session and not session.confirmed and not is_back:
            self._later(self._linger_again, session)  # the grace ended before the restore: write the end

    def _linger_again(self, session: Session) -> None:
        """Repeat a failed write that the session lingers or has ended."""
        if session.connection is not None:
            return  # the client has returned meanwhile
        if session.leaving is not None:
            # The client could not return while the engine was away, and needs time for its next attempt.
            session.leaving = session.leaving.with_least(self._timers.now(), RETURN_MS)
        self._tasks.spawn_brief(self._linger(session, session.ref))

    def _remains(self, session: Session, ref: SessionEpoch, remaining: int | None) -> None:
        """Handle the engine's answer to a linger or a leave: `remaining`, the ms of the grace that remain.

        0: this linger has ended the session. None: it ended earlier or by this leave, or the engine does not know it.
        """
        if session.ref is not ref or session.connection is not None:  # the session has a new connection
            return
        if remaining is None and self._may_be_lost(session):
            session.confirmed = False
            self._tasks.spawn_brief(self._linger(session, ref))
            return
        if not remaining:
            self._forget(session)
            if remaining is None and not session.moved and self._engine.is_restoring(*session.key):
                self._tasks.spawn(self._end_lost(session, ref))
        else:
            self._timers.cancel(session.leave_timer)
            session.leave_timer = self._timers.set(remaining / 1000, self._linger_over, session)

    async def _end_lost(self, session: Session, ref: SessionEpoch) -> None:
        """Write a session that the engine may have lost, and end it again, so that watchers receive the end now."""
        await self._timers.sleep(NOTICED_S)  # see `_may_write`
        try:
            manual = self._statuses.learnt(session.key, await self._statuses.to_restore(session.key))
            await self._engine.restore(*session.key, ref, self._known(session, manual))
            _, silent_ms = session.leaving.since(self._timers.now()) if session.leaving is not None else (0, 0)
            await self._engine.linger(*session.key, ref, 0, silent_ms)
        except (EngineUnavailable, StoreUnavailable):
            pass  # watchers receive the end when all nodes have restored their sessions

    def _may_be_lost(self, session: Session) -> bool:
        """Return whether the engine may have lost a session that is missing there. If not, the session has ended."""
        if session.moved or session.leaving is None or not session.leaving.since(self._timers.now())[0]:
            return False
        return self._engine.is_restoring(*session.key)

    def _forget(self, session: Session) -> None:
        if session.leave_timer is not None:
            self._timers.cancel(session.leave_timer)
            session.leave_timer = None
        self._registry.remove(session)
        self._on_end(session)
        self._recorder.gone(session)
        if not self._registry.sessions_of(*session.key):
            self._statuses.forget(session.key)
            self._on_left(session.key)

    def may_end_within(self, session: Session, seconds: float) -> bool:
        """Return whether the session may end within `seconds`. A connected one may: after `bye` the grace is 0."""
        if session.connection is not None:
            return True
        return session.leaving is not None and session.leaving.since(self._timers.now())[0] < seconds * 1000

    def prolong(self, session: Session, seconds: float) -> None:
        """Keep a session for `seconds` plus the grace of a lost connection, counted from this call.

        Call this if the client has to wait for its resume, because a node is busy or has refused the hello. If the
        session still has its old connection, `lost` prolongs the grace when this connection ends, unless it is 0.
        """
        if session.connection is not None:
            session.held_until = self._timers.now() + seconds
            return
        session.set_grace(self._timers.now(), seconds + self._periods.graces.lost)
        self._tasks.spawn_brief(self._linger(session, session.ref))

    def end(self, session: Session) -> None:
        """End a lingering session now."""
        if session.connection is None:
            session.set_grace(self._timers.now(), 0)
            self._tasks.spawn_brief(self._linger(session, session.ref))

    def moved(self, session: Session) -> None:
        """Record that another node has adopted the session under another id. If the session lingers, end it here."""
        session.moved = True
        if session.connection is None:
            self._timers.cancel(session.leave_timer)
            self._linger_over(session)

    def _linger_over(self, session: Session) -> None:
        session.leave_timer = None
        is_deadline_doubtful = not session.confirmed or self._engine.is_restoring(*session.key)
        if is_deadline_doubtful and session.is_over(self._timers.now()):
            # A leave ends a session only after the deadline that a linger has written. After a loss, the engine may
            # have an older record of the session, without this deadline.
            self.end(session)
        else:
            self._tasks.spawn_brief(self._leave(session, session.ref))

    async def _leave(self, session: Session, ref: SessionEpoch) -> None:
        if not await self._may_write(session, ref):
            return
        try:
            remaining = await self._engine.leave(*session.key, ref)
        except EngineUnavailable:
            if session.ref is not ref or session.leaving is None:
                return
            # Retry with a linger of length 0 (see `_linger_over`). If the session has ended, it changes nothing.
            session.set_grace(self._timers.now(), 0)
            self._later(self._linger_again, session)
            return
        self._remains(session, ref, remaining)

    def _later(self, again: Callable[[Session], None], session: Session) -> None:
        self._timers.cancel(session.leave_timer)
        session.leave_timer = self._timers.set(RETRY_S * random.uniform(1, 2), again, session)

    def write_ends(self) -> None:
        """Write the ends of connections and sessions whose write has failed or waits, because this node stops.

        Otherwise the engine would keep these sessions until the node's end, and take this time for their last-seen.
        """
        for session in self.here():
            timer = session.leave_timer
            if session.ref in self._postponed or (timer is not None and timer.call == self._linger_again):
                self._tasks.spawn_brief(self._write_end(session))

    async def _write_end(self, session: Session) -> None:
        assert session.leaving is not None
        left_ms, silent_ms = session.leaving.since(self._timers.now())
        if self._engine.is_restoring(*session.key):
            left_ms = max(left_ms, round(NOTICED_S * 1000))  # see `_may_write`; the engine ends the session
        with suppress(EngineUnavailable, StoreUnavailable):
            await self._engine.linger(*session.key, session.ref, left_ms, silent_ms)

    # --- after a loss in the engine ---

    def here(self) -> list[Session]:
        return [*self._registry.sessions.values()]

    def holds(self, ref: SessionEpoch) -> bool:
        """Return whether this node has the session, is adopting it, or has it in doubt. Audits end all others."""
        return any(ref.session in ids for ids in (self._registry.sessions, self._coming, self._in_doubt))

    async def restore(self, session: Session, stored: ManualStatus | None = None, *, after_loss: bool = False) -> None:
        """Write the complete current state of a session to the engine.

        `stored` is the user's status, if the caller has just read it from the store. With `after_loss`, a state from
        before the latest loss gets a new version; so it does while sessions may be missing in the engine. Raise
        EngineUnavailable if the engine is away. Raise StoreUnavailable if the store is away and this node does not know
        the status.
        """
        manual = stored or await self._statuses.to_restore(session.key)
        if self._registry.sessions.get(session.id) is not session:
            return
        manual = self._statuses.learnt(session.key, manual)
        if session.is_over(self._timers.now()):
            # The grace is over, and `_linger` or `_leave` writes the end. Until then, the engine may show the session
            # with an old status: after a failover, a Redis replica has older records. So write only the status.
            session.confirmed = False  # see `_linger_over`
            await self._engine.set_status(*session.key, manual)
            return
        if session.ref.incarnation != self.incarnation:
            session.ref, session.confirmed = self._next_ref(session), False
        ref = session.ref
        await self._engine.restore(*session.key, ref, self._known(session, manual, after_loss=after_loss))
        session.confirmed = session.confirmed or session.ref is ref
        if session.connection is None:
            await self._linger(session, ref)

    def _known(self, session: Session, manual: ManualStatus, *, after_loss: bool = False) -> Known:
        now, lost_ms = self._timers.now(), None
        if self.lost_at is not None and (after_loss or self._engine.is_restoring(*session.key)):
            lost_ms = round((now - self.lost_at) * 1000)
        age_ms = round((now - self._statuses.since(session.key, manual, session.state_at)) * 1000)
        return Known(session.device, session.idle, session.grants.name, age_ms, manual, lost_ms)

    async def _restore_user(self, key: Key) -> None:
        """Restore a user's sessions before those of others, because this user has just set a status."""
        for session in self._registry.sessions_of(*key):
            try:
                await self.restore(session)
            except (EngineUnavailable, StoreUnavailable):
                return  # the recovery restores the session
