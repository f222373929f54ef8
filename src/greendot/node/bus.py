"""Dispatch of bus messages by one table, merged from the tables of all capabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from greendot.engine.messages import Message, Topic
from greendot.telemetry import log_events
from greendot.telemetry.log import log
from greendot.telemetry.metrics import Metrics
from greendot.telemetry.spans import span
from greendot.telemetry.traceparent import read

BusHandler = Callable[[Topic, Any], None]
BusTable = Mapping[type, BusHandler]


class BusDispatcher:
    """Dispatcher that passes each message to the one handler of its type."""

    def __init__(self, metrics: Metrics, *tables: BusTable) -> None:
        self._metrics = metrics
        self._handlers: dict[type, BusHandler] = {}
        for table in tables:
            twice = self._handlers.keys() & table.keys()
            assert not twice, f"two handlers for {twice}"
            self._handlers.update(table)

    @property
    def handled(self) -> set[type]:
        return {*self._handlers}

    def receive(self, topic: Topic, message: Message) -> None:
        self._metrics.realtime_pubsub_received_total += 1
        self._handlers[type(message)](topic, message)


@contextmanager
def traced(topic: Topic, traceparent: str, seq: int | None) -> Iterator[None]:
    """Continue the trace in which a record was published."""
    with span("bus.receive", read(traceparent), kind=topic.kind):
        log(log_events.RECORD_RECEIVED, seq=seq, tenant=topic.tenant, channel=topic.name)
        yield
