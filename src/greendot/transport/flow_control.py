"""Fair shares of the event loop: a limit of frames per connection and turn, and pauses for connections that flood.

A turn is one pass of the event loop. A connection that has sent more than its share is not read until the next turn. If
it also exceeds its rate limit, the pause is longer. Frames are then read only often enough to detect the end of the
flood.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from greendot.telemetry.metrics import Metrics
from greendot.telemetry.traceparent import enter
from greendot.transport.connection import SocketConnection
from greendot.transport.websocket import FLOOD

SHARE = 64  # frames of one connection in one turn of the loop


C = TypeVar("C", bound=SocketConnection)


class FlowControl(Generic[C]):
    """Counter of frames that pauses reading. `go_on` is called in the next turn for connections passed to `wait`."""

    def __init__(self, go_on: Callable[[C], None], now: Callable[[], float], metrics: Metrics) -> None:
        self._go_on = go_on
        self._now = now
        self._metrics = metrics
        self._current: C | None = None  # connection of the last frame in this turn
        self._frames = 0  # consecutive frames of `_current`
        self._waiting: list[C] = []
        self._paused: list[C] = []
        self._scheduled = False

    def count(self, connection: C) -> bool:
        """Count a frame; return False if the connection has used its share of this turn."""
        if connection is not self._current:
            self._current, self._frames = connection, 1
            return True
        self._frames += 1
        if self._frames <= SHARE:
            if not self._scheduled:
                self._schedule()
            return True
        if self._frames == SHARE + 1:
            connection.pause_reading(FLOOD)
            self._paused.append(connection)
        return False

    def wait(self, connection: C) -> None:
        """Call `go_on` for the connection in the next turn."""
        self._waiting.append(connection)
        if not self._scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._scheduled = True
        asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        enter(None)  # the trace in which this turn was scheduled ends here
        self._scheduled = False
        self._current = None
        paused, self._paused = self._paused, []
        for connection in paused:
            pause_s = 0.0 if connection.limit is None or connection.closing else connection.limit.pause_s()
            if pause_s:
                self._metrics.realtime_reading_paused_total += 1
                asyncio.get_running_loop().call_later(pause_s, self._resume, connection, self._now())
            else:
                connection.resume_reading(FLOOD)
        waiting, self._waiting = self._waiting, []
        for connection in waiting:
            self._go_on(connection)

    def _resume(self, connection: C, since: float) -> None:
        if connection.limit is not None:
            connection.limit.paused(self._now() - since)
        connection.resume_reading(FLOOD)
