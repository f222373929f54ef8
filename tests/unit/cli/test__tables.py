"""Columns of tables, and times in words."""

from __future__ import annotations

from datetime import datetime

import pytest

from greendot.cli._tables import ago, left, several, table

NOW = 1_800_000_000_000


def test_columns_are_as_wide_as_they_must_be_and_lines_end_where_their_text_does() -> None:
    assert table(("USER", "NOTE"), [("al", "–"), ("bernadette", "")]) == "USER        NOTE\nal          –\nbernadette"


def test_what_could_command_a_terminal_is_not_passed_on() -> None:
    assert table(("NAME",), [("\x1b[31mé\n\x9b2J",)]).splitlines() == ["NAME", "�[31mé��2J"]


@pytest.mark.parametrize(
    ("age_ms", "said"),
    [
        (-5, "now"),
        (999, "now"),
        (1_000, "1 s ago"),
        (59_999, "59 s ago"),
        (60_000, "1 min ago"),
        (3_600_000, "1 h ago"),
        (86_399_999, "23 h ago"),
    ],
)
def test_a_time_of_today_is_shown_as_an_age(age_ms: int, said: str) -> None:
    assert ago(NOW - age_ms, NOW) == said


def test_what_was_before_has_a_local_date_that_can_be_read_back() -> None:
    said = ago(NOW - 86_400_000, NOW)
    assert datetime.fromisoformat(said).timestamp() * 1000 == NOW - 86_400_000


def test_what_is_not_known_is_a_dash() -> None:
    assert (ago(None, NOW), left(None)) == ("–", "–")


@pytest.mark.parametrize(
    ("ms", "said"),
    [(-1, "ended"), (0, "ended"), (400, "0.4 s"), (12_000, "12 s"), (90_000, "1 min"), (2 * 86_400_000, "2 d")],
)
def test_the_remaining_time_is_shown_in_one_unit(ms: int, said: str) -> None:
    assert left(ms) == said


def test_one_is_not_several() -> None:
    assert (several(0, "user"), several(1, "user"), several(2, "user")) == ("0 users", "1 user", "2 users")
