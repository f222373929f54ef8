"""Timetables in the syntax of the settings."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from greendot.errors import ConfigError
from greendot.jobs.model import Every
from greendot.jobs.timetable import MOST_CRON, Cron, in_words, timetable


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def runs(cron: Cron, begin: str, count: int) -> list[str]:
    at, found = ms(begin), []
    for _ in range(count):
        at = cron.after(at)
        found.append(datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="minutes"))
    return found


def test_an_interval_is_an_interval() -> None:
    assert timetable("jobs.sweep", 90, "", "UTC").after(1_000) == 91_000


def test_cron_goes_by_the_clock_of_its_zone() -> None:
    berlin = Cron("30 3 * * *", "Europe/Berlin")
    assert runs(berlin, "2026-01-10T00:00+00:00", 2) == ["2026-01-10T02:30+00:00", "2026-01-11T02:30+00:00"]
    assert runs(berlin, "2026-07-10T00:00+00:00", 1) == ["2026-07-10T01:30+00:00"]


def test_the_time_itself_is_not_after_it() -> None:
    cron = Cron("0 3 * * *")
    assert cron.after(ms("2026-01-10T03:00+00:00")) == ms("2026-01-11T03:00+00:00")


def test_when_clocks_are_changed_a_job_at_night_runs_once() -> None:
    berlin = Cron("30 2 * * *", "Europe/Berlin")
    forward = runs(berlin, "2026-03-27T12:00+00:00", 3)  # 02:30 does not exist on the 29th
    assert [day[:10] for day in forward] == ["2026-03-28", "2026-03-29", "2026-03-30"]
    back = runs(berlin, "2026-10-23T12:00+00:00", 3)  # 02:30 exists twice on the 25th
    assert [day[:10] for day in back] == ["2026-10-24", "2026-10-25", "2026-10-26"]


@pytest.mark.parametrize(
    "cron", ["never", "* * *", "61 * * * *", "* * * * * *", "0 0 30 2 *", "@daily", "0 3 * * 9", "* " * 300, "\x00"]
)
def test_a_bad_expression_is_refused_with_what_to_write(cron: str) -> None:
    with pytest.raises(ConfigError, match=r"jobs\.sweep\.cron is .* Write minute, hour, day, month and weekday"):
        timetable("jobs.sweep", 60, cron, "UTC")


@pytest.mark.parametrize("zone", ["Europe/Berlinn", "", "../../etc/passwd", "/etc/passwd", "CET+9x", "a\x00b"])
def test_an_unknown_time_zone_is_refused(zone: str) -> None:
    with pytest.raises(ConfigError, match=r"jobs\.sweep\.zone is .* but must be the name of a time zone"):
        timetable("jobs.sweep", 60, "0 3 * * *", zone)


def test_settings_make_a_timetable_and_its_description_in_words() -> None:
    assert timetable("jobs.sweep", 1.5, "", "UTC") == Every(1_500)
    assert timetable("jobs.sweep", 1.5, "30 3 * * *", "UTC") == Cron("30 3 * * *", "UTC")
    assert in_words(1.5, "", "UTC") == "every 1.5 s"
    assert in_words(1.5, "30 3 * * *", "UTC") == "cron 30 3 * * * UTC"


def test_a_cron_expression_has_a_maximum_length_and_five_fields() -> None:
    longest = "0 " + ",".join(["3"] * 200)
    longest = longest[: MOST_CRON - 6].rstrip(",") + " * * *"
    longest = longest + " " * (MOST_CRON - len(longest))
    assert timetable("jobs.sweep", 1, longest, "UTC").after(0) == 3 * 3_600_000
    for wrong in (longest + " ", "0 3 * *", "0 0 3 * * *"):
        with pytest.raises(ConfigError, match="five fields"):
            timetable("jobs.sweep", 1, wrong, "UTC")


@pytest.mark.parametrize(
    ("cron", "reason"),
    [
        ("61 * * * *", "bad minute"),
        ("0 3 * * 9", "bad day-of-week"),
        ("0 3 * *", "five fields are needed"),
    ],
)
def test_the_error_of_an_invalid_cron_expression_names_the_reason(cron: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        timetable("jobs.sweep", 60, cron, "UTC")
    assert str(caught.value).startswith(
        f"jobs.sweep.cron is {cron!r}, which is not valid: {reason}. Write minute, hour, day, month"
    )
