"""Counters of dropped frames by type and reason."""

from __future__ import annotations

import pytest

from greendot.protocol.codec import encode_event, pong_frame
from greendot.protocol.events import Signal, TypingStarted
from greendot.telemetry.metrics import Metrics, type_of
from greendot.telemetry.metrics_catalogue import CATALOGUE


@pytest.mark.parametrize("size", [1, 300, 70_000])
def test_the_type_of_a_frame_is_found_however_long_it_is(size: int) -> None:
    signal = Signal("ann", None, "cursor", body={"text": "x" * size, "type": "room.message"}, key=None)
    assert type_of(encode_event(signal, 1_700_000_000_000)) == "signal"


def test_what_is_no_event_has_a_name_too() -> None:
    assert type_of(pong_frame(b'{"type":"x"}')[:2]) == "pong"
    assert type_of(b'\x81\x05{"type":"') == ""


def test_what_is_dropped_is_counted_by_type_and_reason_and_in_the_sums() -> None:
    metrics, typing = Metrics(), encode_event(TypingStarted("club", "ann", None, 5_000), 0)
    metrics.drop(typing, "slow")
    metrics.drop(typing, "crowded")
    metrics.drop(typing, "shed")
    metrics.drop(typing, "shed")
    assert metrics.dropped == {
        ("typing.started", "slow"): 1,
        ("typing.started", "crowded"): 1,
        ("typing.started", "shed"): 2,
    }
    assert (metrics.realtime_dropped_ephemeral_total, metrics.realtime_shed_total) == (2, 2)


def test_what_is_replaced_is_counted_by_type_and_is_not_dropped() -> None:
    metrics = Metrics()
    for _ in range(2):
        metrics.coalesce(encode_event(TypingStarted("club", "ann", None, 5_000), 0))
    assert metrics.coalesced == {"typing.started": 2}
    assert (metrics.dropped, metrics.realtime_dropped_ephemeral_total) == ({}, 0)


def test_all_that_is_counted_is_described() -> None:
    metrics = Metrics()
    assert {name for name, _ in (*metrics.items(), *metrics.histograms())} <= CATALOGUE.keys()
