"""Something is away: said when it is lost, and when it is back."""

from __future__ import annotations

import logging

import pytest

from greendot.logs.absence import Absence
from greendot.logs.events import STORE_BACK, STORE_LOST
from greendot.testing import ManualClock


def test_it_is_said_once_that_it_is_lost_and_once_that_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    absence = Absence(STORE_LOST, STORE_BACK, clock.monotonic)
    absence.ended()
    assert caplog.messages == []
    for _ in range(5):
        absence.began("refused")
        clock.advance(12.5)
    assert absence.is_away
    for _ in range(5):
        absence.ended()
    assert caplog.messages == [
        "the store cannot be reached: refused; it is tried again",
        "the store answers again after 62.5 s",
    ]
