"""Overload of a node: measured continuously, and acted upon by its services.

Measured are the lag of the loop, the writes that wait, and the time from publishing to receiving on the bus.
`limits.overload_model` decides the level. Hub, admission, dispatch and the engine (which publishes it to other nodes)
are called when it changes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from time import monotonic, thread_time

from greendot.engine.port import Engine
from greendot.errors import Refused
from greendot.limits.overload_model import Level, Load, OverloadLevels
from greendot.node.hub import Hub
from greendot.protocol.codes import Err
from greendot.telemetry import log_events
from greendot.telemetry.log import log
from greendot.telemetry.metrics import Metrics

EVERY_S = 0.05  # between two measurements
WORST_S = 15.0  # the worst lag of the last 15 to 30 s is reported
BUSY_MS = (1_000, 3_000)  # range of the random time until a retry of refused work


class OverloadMonitor:
    """Overload monitor of one node. `start` begins measuring; a test calls `measure` instead."""

    def __init__(self, levels: OverloadLevels, engine: Engine, hub: Hub, metrics: Metrics) -> None:
        self.listeners: list[Callable[[Level], None]] = []  # called with the level when it changes
        self._levels = levels
        self._engine = engine
        self._hub = hub
        self._metrics = metrics
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0  # time of the next measurement
        self._worked = 0.0  # CPU seconds of the loop's thread, since the start
        self._load = Load()
        self._worst = [0.0, 0.0]  # lag in this period and in the one before
        self._period_ends = 0.0
        self._passed = (0, 0)  # socket writes and bus messages up to the end of the last period
        self._multiplier = 0.0

    @property
    def level(self) -> Level:
        return self._levels.level

    @property
    def trouble(self) -> str | None:
        """Return the reason why new work is refused; None while it is not."""
        return f"overloaded: {self._levels.reason}" if self.level is Level.REFUSING else None

    def check(self) -> None:
        """Raise Refused while this node refuses new work."""
        if self.level is Level.REFUSING:
            raise self.refusal("this node is overloaded; retry after the given delay")

    def refusal(self, why: str) -> Refused:
        """Return a refusal with a random time to wait, so that clients do not return at the same moment."""
        self._metrics.realtime_overload_refused_total += 1
        return Refused(Err.UNAVAILABLE, why, retry_in_ms=random.randint(*BUSY_MS))

    # --- measuring ---

    def start(self) -> None:
        self._arm()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        self._due = monotonic() + EVERY_S
        self._timer = asyncio.get_running_loop().call_later(EVERY_S, self._measure)

    def _measure(self) -> None:
        now, worked = monotonic(), thread_time()
        lag_s, worked_s, self._worked = max(0.0, now - self._due), worked - self._worked, worked
        self.measure(Load(lag_s, self._hub.backlog, self._engine.lag_s, worked_s), now)
        self._arm()

    def measure(self, load: Load, now: float) -> None:
        """Update the level and the metrics from a measurement."""
        self._load = load
        self._metrics.loop_lag.observe(load.lag_s)
        if now >= self._period_ends:
            self._worst, self._period_ends = [0.0, self._worst[0]], now + WORST_S
            self._multiply()
        self._worst[0] = max(self._worst[0], load.lag_s)
        before = self.level
        level = self._levels.update(load, now)
        if level is not before:
            self._changed(before, level)

    def _multiply(self) -> None:
        """Compute the number of socket writes per bus message in the last period."""
        now = self._metrics.realtime_socket_send_total, self._metrics.realtime_pubsub_received_total
        sent, heard = (after - before for after, before in zip(now, self._passed, strict=True))
        self._passed, self._multiplier = now, sent / heard if heard else 0.0

    def _changed(self, before: Level, level: Level) -> None:
        if level is Level.NORMAL:
            log(log_events.OVERLOAD_OVER)
        elif level > before:
            sheds = "low-priority signals, such as typing, are dropped"
            does = sheds if level is Level.SHEDDING else "new work is refused"
            log(log_events.OVERLOAD_BEGAN, reason=self._levels.reason, outcome=does)
        else:
            log(log_events.OVERLOAD_EASED)
        self._hub.shedding = level >= Level.SHEDDING
        self._engine.level = level
        for notify in self.listeners:
            notify(level)

    def gauges(self) -> Iterator[tuple[str, float]]:
        yield "realtime_overload_level", int(self.level)
        yield "realtime_loop_lag_ms", round(self._load.lag_s * 1000)
        yield "realtime_loop_lag_worst_ms", round(max(self._worst) * 1000)
        yield "realtime_send_backlog", self._hub.backlog
        yield "realtime_fanout_multiplier", round(self._multiplier, 2)
        yield "realtime_bus_lag_ms", round(self._load.bus_lag_s * 1000)
