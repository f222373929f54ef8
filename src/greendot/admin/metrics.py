"""Metrics page of a node: all counters, read when requested.

Figures that would cost something between requests are measured at a request: slow clients, sessions per user, the
store's latency. Requests are public and unlimited, so expensive measurements are shared by all requests within a
second.
"""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import Iterator
from functools import cache

from greendot import __version__
from greendot.admin import stats
from greendot.admin.stats import NodeSources
from greendot.errors import StoreUnavailable
from greendot.node.timer_model import has_come
from greendot.protocol.codes import Close
from greendot.protocol.events import Presence, Signal, TypingStarted
from greendot.telemetry.metrics import WHYS
from greendot.telemetry.metrics_model import Histogram, MetricSample

KEEP_S = 1.0  # lifetime of a measurement
STORE_S = 1.0  # a store that takes longer counts as away: requests must not wait for it
_SIGNALS = (Presence.type, TypingStarted.type, Signal.type)  # most of the events that may be dropped
_SESSIONS = (1.0, 2.0, 3.0, 5.0, 10.0, 20.0)  # sessions of a user: bounds of the histogram
Numbers = list[tuple[str, float]]
_AWAY: Numbers = [("store_up", 0)]


class MetricsPage:
    """Metrics page of one node."""

    def __init__(self, sources: NodeSources) -> None:
        self._sources = sources
        self._measurement: asyncio.Task[Numbers] | None = None  # the last one, done or under way
        self._again_at = 0.0
        self._ping: asyncio.Task[Numbers] | None = None  # the last ping; it may take longer than its measurement

    async def scrape(self) -> list[MetricSample]:
        """Return all metrics."""
        return await _page(self._sources, await self._measured())

    async def _measured(self) -> Numbers:
        now = self._sources.clock.monotonic()
        if self._measurement is None or has_come(self._again_at, now):
            self._again_at = now + KEEP_S
            self._measurement = self._sources.tasks.begin(self._measure())
        return await asyncio.shield(self._measurement)  # a cancelled request must not cancel it for others

    async def _measure(self) -> Numbers:
        return [*await self._store(), *_output(self._sources)]

    async def _store(self) -> Numbers:
        """Measure the store.

        A slow ping is not cancelled, which would cost the store a connection. The next measurement waits for the same
        ping.
        """
        if self._ping is None or self._ping.done():
            self._ping = self._sources.tasks.begin(_ping(self._sources))
        await asyncio.wait([self._ping], timeout=STORE_S)
        return self._ping.result() if self._ping.done() else _AWAY


async def _ping(sources: NodeSources) -> Numbers:
    begun = sources.clock.monotonic()
    try:
        await sources.store.ping()
    except StoreUnavailable:
        return _AWAY
    return [("store_up", 1), ("store_latency_ms", round((sources.clock.monotonic() - begun) * 1000, 2))]


async def _page(sources: NodeSources, looked: Numbers) -> list[MetricSample]:
    tenants = await stats.tenant_metrics(sources) if sources.tenant_metrics else []
    # Counters that were never increased are 0: for a counter that first appears with 1, the increase is not visible.
    closes = dict.fromkeys(Close, 0) | sources.registry.closes
    coalesced = dict.fromkeys(_SIGNALS, 0) | sources.metrics.coalesced
    dropped = {(kind, why): 0 for kind in _SIGNALS for why in WHYS} | sources.metrics.dropped
    return [
        *(MetricSample(name, value) for name, value in (*stats.metrics(sources), *looked, *process_metrics())),
        *(MetricSample("ws_closed_total", count, {"code": str(code)}) for code, count in sorted(closes.items())),
        *(
            MetricSample("realtime_dropped_total", count, {"type": kind, "reason": why})
            for (kind, why), count in sorted(dropped.items())
        ),
        *(MetricSample("room_reactions_total", count, {"op": op}) for op, count in sources.rooms.reactions.items()),
        *(MetricSample("realtime_coalesced_total", count, {"type": kind}) for kind, count in sorted(coalesced.items())),
        *(
            MetricSample(name, values)
            for name, values in (*sources.metrics.histograms(), *sources.engine.histograms().items())
        ),
        MetricSample("ws_sessions_per_user", _sessions(sources)),
        MetricSample("greendot_info", 1, {"version": __version__}),
        *(MetricSample(name, value, {"tenant": tenant}) for name, tenant, value in tenants),
    ]


def _output(sources: NodeSources) -> Iterator[tuple[str, float]]:
    waiting = [outbox for it in sources.registry.connections.values() if (outbox := it.waits()) is not None]
    yield "realtime_outbox_connections", len(waiting)
    yield "realtime_outbox_frames", sum(len(outbox) for outbox in waiting)
    yield "realtime_outbox_bytes", sum(outbox.record_bytes + outbox.signal_bytes for outbox in waiting)


def _sessions(sources: NodeSources) -> Histogram:
    found = Histogram(_SESSIONS)
    for many, users in sources.registry.sizes.items():
        found.add(many, users)
    return found


def process_metrics() -> Iterator[tuple[str, float]]:
    """Yield names and values of this process' metrics, without those that the system does not have.

    The collector of `prometheus_client` lists the directory of open files, which takes 40 ms with 20,000 sockets, and
    cannot add the label `node`.
    """
    yield "process_start_time_seconds", _start_time(os.getpid())
    yield "process_cpu_seconds_total", round(time.process_time(), 2)
    yield "process_max_fds", resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    try:
        if (memory := resident_bytes()) is not None:
            yield "process_resident_memory_bytes", memory
        # Newer kernels report the number of open files as the directory's size.
        yield "process_open_fds", os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd"))
    except OSError:  # not Linux
        return


def resident_bytes() -> int | None:
    """Return the resident memory of this process, or None if the system does not report it."""
    try:
        with open("/proc/self/statm") as pages:
            return int(pages.read().split()[1]) * resource.getpagesize()
    except OSError:  # not Linux
        return None


@cache
def _start_time(pid: int) -> float:
    """Return the start time of a process. It is cached by process id, because a worker is a copy of its parent."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            ticks = int(stat.read().rpartition(")")[2].split()[19])
        booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    except (OSError, AttributeError):  # not Linux
        return time.time() - time.process_time()
    return round(booted + ticks / os.sysconf("SC_CLK_TCK"), 2)
