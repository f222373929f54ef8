"""Detection of a connection on which pub/sub messages no longer arrive."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from greendot.engine.redis.primary import Primary
from greendot.engine.redis.watchdog import BUSY_PIECES, BUSY_S, DEAF_S, Watchdog


def deaf(server: Primary, now: float, *, late: bool = False) -> bool:
    return Watchdog._is_deaf(Watchdog.__new__(Watchdog), server, now, late)


@pytest.fixture
def server() -> Any:
    """Stand-in with the fields that the watchdog reads: a beat was sent at 0 and did not come back."""
    pushes = SimpleNamespace(received=0)
    return SimpleNamespace(unheard=deque([(1, 0.0)]), beat_heard=0, pushes=pushes, received=0)


def test_a_beat_that_does_not_come_back_in_time_shows_a_deaf_connection(server: Any) -> None:
    assert not deaf(server, DEAF_S - 0.1)
    assert deaf(server, DEAF_S)


def test_a_beat_that_came_back_shows_a_good_one(server: Any) -> None:
    server.beat_heard = 1
    assert not deaf(server, 100.0)


def test_a_beat_behind_a_flood_has_more_time_but_not_for_ever(server: Any) -> None:
    for second in range(1, round(BUSY_S)):
        server.pushes.received += BUSY_PIECES + 1
        assert not deaf(server, float(second))
    server.pushes.received += BUSY_PIECES + 1
    assert deaf(server, BUSY_S)


def test_some_traffic_does_not_hide_a_deaf_connection(server: Any) -> None:
    server.pushes.received += BUSY_PIECES
    assert deaf(server, DEAF_S)


def test_a_process_that_was_stopped_listens_before_it_judges(server: Any) -> None:
    assert not deaf(server, 100.0, late=True)
