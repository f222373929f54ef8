"""End of quiet hours."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greendot.push.quiet_hours import Quiet, is_zone, quiet_until

T, HOUR_MS = 1_800_000_000_000, 3_600_000
NIGHT = Quiet(22 * 60, 7 * 60, "Europe/Berlin")


def berlin(*wall: int, fold: int = 0) -> int:
    zone = ZoneInfo("Europe/Berlin")
    return round(datetime(*wall, tzinfo=zone, fold=fold).timestamp() * 1000)  # type: ignore[arg-type]


def test_quiet_hours_end_by_the_users_own_clock() -> None:
    assert quiet_until(NIGHT, berlin(2026, 1, 10, 21, 59)) is None
    assert quiet_until(NIGHT, berlin(2026, 1, 10, 22, 0)) == berlin(2026, 1, 11, 7, 0)
    assert quiet_until(NIGHT, berlin(2026, 1, 11, 6, 59)) == berlin(2026, 1, 11, 7, 0)
    assert quiet_until(NIGHT, berlin(2026, 1, 11, 7, 0)) is None
    noon = Quiet(12 * 60, 13 * 60 + 30)
    assert quiet_until(noon, T - T % 86_400_000 + 12 * HOUR_MS) == T - T % 86_400_000 + 13 * HOUR_MS + HOUR_MS // 2
    assert quiet_until(Quiet(60, 60), T) is None


def test_quiet_hours_over_a_change_of_clocks_end_at_the_local_time() -> None:
    spring, autumn = berlin(2026, 3, 28, 23, 0), berlin(2026, 10, 24, 23, 0)
    assert quiet_until(NIGHT, spring) == berlin(2026, 3, 29, 7, 0) == spring + 7 * HOUR_MS
    assert quiet_until(NIGHT, autumn) == berlin(2026, 10, 25, 7, 0) == autumn + 9 * HOUR_MS


@given(
    st.integers(0, 1439),
    st.integers(0, 1439),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe"]),
    st.integers(T - 400 * 86_400_000, T),
)
def test_quiet_hours_end_within_a_day_and_a_change_of_the_clocks(begins: int, ends: int, zone: str, now: int) -> None:
    until = quiet_until(Quiet(begins, ends, zone), now)
    assert until is None or now < until <= now + 25 * HOUR_MS


def test_quiet_hours_begin_and_end_at_any_minute() -> None:
    quiet = Quiet(22 * 60 + 30, 23 * 60 + 59, "Europe/Berlin")
    ends = berlin(2026, 1, 10, 23, 59)
    assert quiet_until(quiet, berlin(2026, 1, 10, 22, 29)) is None
    assert quiet_until(quiet, berlin(2026, 1, 10, 22, 30)) == ends
    assert quiet_until(quiet, berlin(2026, 1, 10, 23, 58)) == ends
    assert quiet_until(quiet, ends) is None


def test_hours_that_end_in_an_hour_the_wall_shows_twice_end_at_once_the_second_time() -> None:
    quiet = Quiet(0, 2 * 60 + 30, "Europe/Berlin")
    first, again = berlin(2026, 10, 25, 2, 10), berlin(2026, 10, 25, 2, 10, fold=1)
    assert quiet_until(quiet, first) == berlin(2026, 10, 25, 2, 30)
    assert quiet_until(quiet, again) == again + 1


@pytest.mark.parametrize("zone", ["", "Europe/Berlinn", "../../etc/passwd", "/etc/passwd", "a\x00b"])
def test_a_zone_that_is_not_known_here_is_none_and_its_quiet_hours_go_by_utc(zone: str) -> None:
    assert is_zone(zone) is False
    noon = T - T % (24 * HOUR_MS) + 12 * HOUR_MS
    assert quiet_until(Quiet(12 * 60, 13 * 60, zone), noon) == noon + HOUR_MS
    assert quiet_until(Quiet(12 * 60, 13 * 60, zone), noon - 1) is None


def test_a_zone_that_is_known_here_is_one() -> None:
    assert is_zone("Europe/Berlin") is True
