from __future__ import annotations

from typing import Any

import pytest

from greendot.engine.messages import Audit, StatusChanged, Topic
from greendot.node.bus import BusDispatcher, traced
from greendot.telemetry.metrics import Metrics
from greendot.telemetry.traceparent import current

TOPIC = Topic("user", "t1", "ann")


def test_a_message_goes_to_the_handler_of_its_type_and_is_counted() -> None:
    received: list[Any] = []
    metrics = Metrics()
    bus = BusDispatcher(
        metrics,
        {Audit: lambda topic, message: received.append("audit")},
        {StatusChanged: lambda topic, message: received.append((topic, message))},
    )
    bus.receive(TOPIC, StatusChanged())
    bus.receive(TOPIC, Audit())
    assert received == [(TOPIC, StatusChanged()), "audit"]
    assert metrics.realtime_pubsub_received_total == 2


def test_two_handlers_for_one_message_are_a_mistake() -> None:
    with pytest.raises(AssertionError, match="Audit"):
        BusDispatcher(Metrics(), {Audit: print}, {Audit: print})


def test_what_a_traced_message_causes_is_in_its_trace() -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    with traced(TOPIC, f"00-{trace}-b7ad6b7169203331-01", 7):
        inside = current()
    assert inside is not None
    assert trace in str(inside)
    assert current() is None
