"""A node's page of numbers: all that is counted here, read at once when somebody asks.

What would cost something while nobody looks (who does not keep up, how many sessions users have, whether the store
answers) is looked at now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from greendot import __version__
from greendot.core.histogram import Histogram
from greendot.errors import StoreUnavailable
from greendot.gateway import views
from greendot.gateway.parts import Parts
from greendot.metrics.counters import WHYS
from greendot.metrics.exposition import Sample
from greendot.metrics.process import of_this_process
from greendot.protocol.codes import Close
from greendot.protocol.events import Presence, Signal, TypingStarted

STORE_S = 1.0  # a store that takes longer counts as away: who asks must not wait for it
_SIGNALS = (Presence.type, TypingStarted.type, Signal.type)  # most of what may be dropped
_SESSIONS = (1.0, 2.0, 3.0, 5.0, 10.0, 20.0)  # of a user


async def scrape(parts: Parts) -> list[Sample]:
    """Everything, for whoever collects it."""
    store = await _store(parts)
    tenants = await views.tenant_metrics(parts) if parts.settings.server.tenant_metrics else []
    # What did not happen yet is 0: of something that begins with 1 nobody can tell that it was more.
    closes = dict.fromkeys(Close, 0) | parts.registry.closes
    dropped = {(kind, why): 0 for kind in _SIGNALS for why in WHYS} | parts.metrics.dropped
    return [
        *(Sample(name, value) for name, value in (*views.metrics(parts), *store, *_output(parts), *of_this_process())),
        *(Sample("ws_closed_total", count, {"code": str(code)}) for code, count in sorted(closes.items())),
        *(
            Sample("realtime_dropped_total", count, {"type": kind, "reason": why})
            for (kind, why), count in sorted(dropped.items())
        ),
        *(Sample(name, values) for name, values in (*parts.metrics.histograms(), *parts.engine.histograms().items())),
        Sample("ws_sessions_per_user", _sessions(parts)),
        Sample("greendot_info", 1, {"version": __version__}),
        *(Sample(name, value, {"tenant": tenant}) for name, tenant, value in tenants),
    ]


async def _store(parts: Parts) -> list[tuple[str, float]]:
    begun = parts.clock.monotonic()
    try:
        async with asyncio.timeout(STORE_S):
            await parts.store.ping()
    except (StoreUnavailable, TimeoutError):
        return [("store_up", 0)]
    return [("store_up", 1), ("store_latency_ms", round((parts.clock.monotonic() - begun) * 1000, 2))]


def _output(parts: Parts) -> Iterator[tuple[str, float]]:
    waiting = [outbox for it in parts.registry.connections.values() if (outbox := it.waits()) is not None]
    yield "realtime_outbox_connections", len(waiting)
    yield "realtime_outbox_frames", sum(len(outbox) for outbox in waiting)
    yield "realtime_outbox_bytes", sum(outbox.record_bytes + outbox.signal_bytes for outbox in waiting)


def _sessions(parts: Parts) -> Histogram:
    found = Histogram(_SESSIONS)
    for many, users in parts.registry.sizes.items():
        found.add(many, users)
    return found
