"""Log lines of an outage: one at the loss, and one at the return."""

from __future__ import annotations

import logging

import pytest

from greendot.telemetry.log import fields_of
from greendot.telemetry.log_events import REDIS_BACK, REDIS_LOST, STORE_BACK, STORE_LOST
from greendot.telemetry.log_repeats import Outage
from greendot.testing import ManualClock


def test_an_outage_is_logged_once_when_it_begins_and_once_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    absence = Outage(STORE_LOST, STORE_BACK, clock.monotonic)
    absence.ended()
    assert caplog.messages == []
    for _ in range(5):
        absence.began("refused")
        clock.advance(12.5)
    assert absence.is_away
    for _ in range(5):
        absence.ended()
    assert caplog.messages == [
        "store unreachable: refused; retrying",
        "store reachable again after 62.5 s",
    ]


def test_how_long_it_was_away_is_a_field_in_milliseconds_beside_those_that_name_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    times = [100.0, 101.23456]
    absence = Outage(REDIS_LOST, REDIS_BACK, lambda: times.pop(0), server="a:6379")
    absence.began("refused")
    absence.ended()
    assert [fields_of(record) for record in caplog.records] == [
        {"reason": "refused", "server": "a:6379"},
        {"away_s": 1.235, "server": "a:6379"},
    ]


def test_it_is_away_from_when_it_is_lost_until_it_answers() -> None:
    absence = Outage(STORE_LOST, STORE_BACK, ManualClock().monotonic)
    assert absence.is_away is False
    absence.began("refused")
    assert absence.is_away is True
    absence.ended()
    assert absence.is_away is False
