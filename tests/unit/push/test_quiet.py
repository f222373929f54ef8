"""When quiet hours end."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from greendot.push.quiet import Quiet, quiet_until

T, HOUR_MS = 1_800_000_000_000, 3_600_000
NIGHT = Quiet(22 * 60, 7 * 60, "Europe/Berlin")


def berlin(*wall: int) -> int:
    return round(datetime(*wall, tzinfo=ZoneInfo("Europe/Berlin")).timestamp() * 1000)  # type: ignore[arg-type]


def test_quiet_hours_end_by_the_users_own_clock() -> None:
    assert quiet_until(NIGHT, berlin(2026, 1, 10, 21, 59)) is None
    assert quiet_until(NIGHT, berlin(2026, 1, 10, 22, 0)) == berlin(2026, 1, 11, 7, 0)
    assert quiet_until(NIGHT, berlin(2026, 1, 11, 6, 59)) == berlin(2026, 1, 11, 7, 0)
    assert quiet_until(NIGHT, berlin(2026, 1, 11, 7, 0)) is None
    noon = Quiet(12 * 60, 13 * 60 + 30)
    assert quiet_until(noon, T - T % 86_400_000 + 12 * HOUR_MS) == T - T % 86_400_000 + 13 * HOUR_MS + HOUR_MS // 2
    assert quiet_until(Quiet(60, 60), T) is None


def test_a_night_in_which_the_clocks_change_ends_when_the_wall_says_so() -> None:
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
