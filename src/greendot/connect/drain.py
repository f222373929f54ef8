"""Drain: sending all clients of a stopping node to other nodes.

Clients are sent away evenly, if possible no faster than another node admits hellos. If half of the time to drain is too
short for this, they are sent away faster, and their times to return are spread further.

Each client gets its own time to return, and has no connection until then. Its session stays online meanwhile and
continues on another node, so watchers notice nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from greendot.clock import Clock
from greendot.node.session import Connection
from greendot.node.tasks import Tasks
from greendot.protocol.codec import encode_event
from greendot.protocol.codes import Close
from greendot.protocol.events import Drain
from greendot.telemetry import log_events
from greendot.telemetry.log import log

SOONEST_MS = 500  # shortest time to return; after this time, a proxy has noticed that the node no longer listens
SPREAD_MS = 500  # shortest span of times to return: even a few clients must not return at the same moment
STEP_S = 0.02  # between two checks for clients to send away
AT_ONCE = 200  # clients that are sent away in one turn of the event loop
FAREWELL_S = 1.0  # time for the answers to the last close frames
LEAST_FAREWELL_S = 0.25  # shortest time for these answers, even if the loop was late and the time to drain is over
WHY = "this node is stopping; reconnect"


def drain_frame(over_s: float, grace_s: float, now_ms: int) -> bytes:
    """Return a `drain` event with a random time to return.

    Times are spread evenly over `over_s`, or over half of the grace if that is shorter. So no session ends before its
    client returns.
    """
    spread_ms = max(SPREAD_MS, min(round(over_s * 1000), round(grace_s * 500)))
    return encode_event(Drain(SOONEST_MS + random.randint(0, spread_ms)), now_ms)


class DrainPace(NamedTuple):
    """Pace of a drain, from the settings."""

    hellos_per_s: int
    grace_s: float


async def _each(connections: Sequence[Connection], end: Callable[[Connection], None]) -> None:
    """End these connections, some in each turn of the event loop."""
    for number, connection in enumerate(connections, 1):
        end(connection)
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)
    await asyncio.sleep(0)


class Drainer:
    """Drain of one node. After `run` has begun, new sockets are sent away by `turn_away`."""

    def __init__(self, connections: Mapping[str, Connection], clock: Clock, tasks: Tasks, pace: DrainPace) -> None:
        self.begun = False
        self._connections = connections
        self._clock = clock
        self._tasks = tasks
        self._pace = pace
        self._rest_s = 0.0  # seconds over which times to return are spread, because sending away had to be faster
        self._gone: asyncio.Future[None] | None = None  # done when the next socket has closed

    async def run(self, within_s: float) -> None:
        """Send all clients away and wait until their sockets are closed. Abort the remaining ones after `within_s`."""
        loop = asyncio.get_running_loop()
        self.begun, began, many = True, loop.time(), len(self._connections)
        # Sending away takes half of the time at most. The other half is for commands under way and close frames.
        span_s = min(many / self._pace.hellos_per_s, within_s / 2)
        self._rest_s = many / self._pace.hellos_per_s - span_s
        if many:
            log(log_events.NODE_DRAINS, clients=many, within_s=span_s)
        busy = await self._send_away(span_s, began + max(within_s - FAREWELL_S, within_s / 2))
        await self._see_gone(min(max(began + within_s - loop.time(), LEAST_FAREWELL_S), FAREWELL_S))
        left = [*self._connections.values()]
        await _each(left, lambda connection: connection.abort())
        if many:
            log(log_events.NODE_DRAINED, clients=many, took_s=loop.time() - began, cut_off=len(left), waiting=busy)

    async def _send_away(self, span_s: float, end: float) -> int:
        """Close connections evenly over `span_s`. Busy ones are closed after their replies, but not later than `end`.

        Return the number of connections that were closed before their reply was sent.
        """
        loop = asyncio.get_running_loop()
        waiting, began = deque(self._connections.values()), loop.time()
        many, sent, busy = len(waiting), 0, deque[Connection]()
        while waiting or busy:
            now = loop.time()
            due = many if now >= began + span_s else int(many * (now - began) / span_s)
            for _ in range(min(due - sent, AT_ONCE)):
                sent += 1
                self._unless_busy(waiting.popleft(), busy)
            for _ in range(len(busy)):
                self._unless_busy(busy.popleft(), busy)
            if now >= end:
                break
            if waiting or busy:
                await asyncio.sleep(0 if due - sent > 0 else STEP_S)
        await _each((*busy, *waiting), self.turn_away)
        return len(busy)

    def _unless_busy(self, connection: Connection, busy: deque[Connection]) -> None:
        # A connection whose hello is under way is busy, too. Its session may have moved here from another node, and
        # only the welcome carries the new id. So the connection is closed after the welcome.
        if connection.waiting is None:
            self.turn_away(connection)
        elif not connection.closing:
            busy.append(connection)

    def turn_away(self, connection: Connection) -> None:
        """Close the connection with a `drain` event that states when to return."""
        connection.close(Close.DRAINING, WHY, drain_frame(self._rest_s, self._pace.grace_s, self._clock.now_ms()))

    async def _see_gone(self, within_s: float) -> None:
        """Wait until all sockets are closed, at most for `within_s`.

        A step that takes too long, because the loop is late, is still counted as one step. Answers that arrived during
        this step are read in the next step.
        """
        loop, spent_s = asyncio.get_running_loop(), 0.0
        while self._connections and spent_s < within_s:
            began, self._gone = loop.time(), loop.create_future()
            await asyncio.wait([self._gone], timeout=STEP_S)
            spent_s += min(loop.time() - began, STEP_S)

    def gone(self) -> None:
        """Wake the drain, because a socket has closed."""
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    def disconnect_all(self, code: int, reason: str, tenant: str | None) -> int:
        """Close all clients, or only those of one tenant, in batches. Return their number."""
        theirs = [
            connection
            for connection in self._connections.values()
            if connection.tenant is not None and tenant in (None, connection.tenant)
        ]
        log(log_events.CLIENTS_ENDED, clients=len(theirs), code=code, tenant=tenant)
        self._tasks.spawn(self._disconnect(theirs, code, reason))
        return len(theirs)

    async def _disconnect(self, connections: list[Connection], code: int, reason: str) -> None:
        over_s = len(connections) / self._pace.hellos_per_s

        def end(connection: Connection) -> None:
            last = None
            if code == Close.DRAINING:
                last = drain_frame(over_s, self._pace.grace_s, self._clock.now_ms())
            connection.close(code, reason, last)

        await _each(connections, end)
