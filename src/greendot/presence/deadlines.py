"""Deadlines of a connection: hello, silence, end of the token, idle user. One timer serves all of them."""

from __future__ import annotations

from collections.abc import Callable

from greendot.node.context import NodeContext
from greendot.node.session import Connection, Session
from greendot.node.timer_model import has_come
from greendot.presence.grace_model import SessionPeriods
from greendot.protocol.codes import Close

HELLO_S = 10.0  # seconds after which a connection without hello is closed


class ConnectionDeadlines:
    """Timers of the connections on this node. `became_idle` is called with a session without activity."""

    def __init__(self, context: NodeContext, periods: SessionPeriods, became_idle: Callable[[Session], None]) -> None:
        self._clock = context.clock
        self._timers = context.timers
        self._periods = periods
        self._became_idle = became_idle
        self._due = self._check  # one bound method, shared by the timers of all connections

    def expect_hello(self, connection: Connection) -> None:
        connection.timer = self._timers.set(HELLO_S, self._due, connection)

    def expect_frames(self, connection: Connection) -> None:
        """Set the timer of a connection with a foreign protocol. Some of them never get a session."""
        due_in = self._periods.ping_or_close_in(connection.received_at, self._timers.now())
        connection.timer = self._timers.set(due_in, self._due, connection)

    def arm(self, connection: Connection) -> None:
        """Set the connection's only timer to the earliest of its deadlines: dead, token expired, idle, or ping due.

        If the present timer fires earlier, keep it, and `_check` sets the next one. So a later deadline costs nothing.
        """
        session = connection.session
        if session is None or connection.closing:
            return
        now, periods, timer = self._timers.now(), self._periods, connection.timer
        due_in = connection.received_at - now + periods.dead_after
        expires_in = (session.grants.expires_at - self._clock.now_ms()) / 1000 + periods.leeway
        if expires_in < due_in:
            due_in = expires_in
        if not session.idle and (idle_in := session.active_at - now + periods.idle) < due_in:
            due_in = idle_in
        if connection.foreign is not None:
            due_in = min(due_in, periods.ping_or_close_in(connection.received_at, now))
        if timer is not None:
            if timer.due <= now + due_in:
                return
            self._timers.cancel(timer)
        connection.timer = self._timers.set(max(0.0, due_in), self._due, connection)

    def rearm(self, session: Session) -> None:
        """Set the timer again, because the session became active or has a new token: a deadline may be earlier now."""
        if session.connection is not None:
            self.arm(session.connection)

    def _check(self, connection: Connection) -> None:
        """Close a connection whose deadline has passed. Otherwise set the timer to the next deadline."""
        session, now = connection.session, self._timers.now()
        connection.timer = None
        if session is None and connection.foreign is None:
            if connection.waiting is None:
                connection.close(Close.PROTOCOL_ERROR, f"no hello within {HELLO_S:g} s; send hello first")
            else:  # the node is still answering the hello of this connection
                self.expect_hello(connection)
        elif has_come(connection.received_at + self._periods.dead_after, now):
            connection.close(
                Close.HEARTBEAT_LOST, "no frame received in time (presence.dead_after_s); reconnect and send heartbeats"
            )
        elif session is None:
            self._ping(connection)
            self.expect_frames(connection)
        elif self._clock.now_ms() >= session.grants.expires_at + round(self._periods.leeway * 1000):
            connection.close(Close.TOKEN_EXPIRED, "the token has expired; reconnect with a new token")
        else:
            if not session.idle and has_come(session.active_at + self._periods.idle, now):
                self._became_idle(session)
            self._ping(connection)
            self.arm(connection)

    def _ping(self, connection: Connection) -> None:
        """Send a ping to a client of a foreign protocol if the client is silent."""
        ping_at = self._periods.ping_at(connection.received_at)
        if connection.foreign is not None and has_come(ping_at, self._timers.now()):
            connection.foreign.ping(connection)
