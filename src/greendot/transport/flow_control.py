"""Fair shares of the loop: frames of one connection in one turn of it, and pauses for connections that flood.

A connection that has sent more than its share is not read until the loop has done something else. If it is over its
limit as well, it is not read for longer: no faster than is needed to see whether it goes on.
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
    """Count frames and pause reading. `go_on` is called in the next turn for connections that wait for it."""

    def __init__(self, go_on: Callable[[C], None], now: Callable[[], float], metrics: Metrics) -> None:
        self._go_on = go_on
        self._now = now
        self._metrics = metrics
        self._current: C | None = None  # whose frames came last in this turn
        self._frames = 0  # of it, on end
        self._waiting: list[C] = []
        self._paused: list[C] = []
        self._scheduled = False

    def count(self, connection: C) -> bool:
        """Count a frame; False if the connection has had its share of this turn."""
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
        """Go on with what the connection has sent in the next turn."""
        self._waiting.append(connection)
        if not self._scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._scheduled = True
        asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        enter(None)  # this turn may have been scheduled in the course of a trace, which ends here
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
