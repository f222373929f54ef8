"""Cleanup after connections have ended, a few milliseconds at a time.

When a cable is pulled, thousands of sockets end in one turn of the event loop. The cleanup of one socket is short. The
cleanup of all is long, and connected clients must not wait for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter

from greendot.node.event_recorder import EventRecorder
from greendot.node.session import Connection, log_fields
from greendot.presence.grace_model import EndCause, shown_code
from greendot.presence.sessions import SessionService
from greendot.presence.watch import WatchService
from greendot.rooms.service import RoomService
from greendot.telemetry import log_events
from greendot.telemetry.log import log

SLICE_S = 0.005  # time for cleanup in each turn of the loop


class DisconnectCleanup:
    """Queue of ended connections.

    The cleanup ends watches, rooms and the session's connection. It is done at once while few connections end.
    """

    def __init__(
        self, sessions: SessionService, watching: WatchService, rooms: RoomService, recorder: EventRecorder
    ) -> None:
        self._sessions = sessions
        self._watching = watching
        self._rooms = rooms
        self._recorder = recorder
        self._waiting: deque[Connection] = deque()
        self._spent = 0.0  # seconds in this turn
        self._turn_set = self._working = False

    def add(self, connection: Connection) -> None:
        """Clean up in this turn, or in a later one if many connections have ended."""
        self._waiting.append(connection)
        if not self._working:
            self._work()

    def leave(self, connection: Connection) -> None:
        """Clean up now, if the connection has ended. A second call has no effect."""
        if connection.ended_by is None:
            return
        cause, code = connection.ended_by
        connection.ended_by = None
        session = connection.session
        if log_events.CONNECTION_ENDED.is_wanted:
            log(log_events.CONNECTION_ENDED, outcome=cause.name, code=code or "", **log_fields(session))
        if self._recorder.tail.open:
            self._recorder.ended(session, shown_code(cause, code))
        self._watching.forget(connection)
        self._rooms.forget(connection, said_bye=cause is EndCause.BYE)
        self._sessions.lost(connection, cause, code)

    def _work(self) -> None:
        self._working = True
        while self._waiting and self._spent < SLICE_S:
            began = perf_counter()
            self.leave(self._waiting.popleft())
            self._spent += perf_counter() - began
        self._working = False
        if not self._turn_set:
            self._turn_set = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn_set, self._spent = False, 0.0
        if self._waiting:
            self._work()
