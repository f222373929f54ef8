"""Lines of text for users, in any language."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from greendot.client import SeenWords, TypingWords, seen_text, typing_text

from .wire import a_presence

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["Alice"], "Alice is typing…"),
        (["Alice", "Bob"], "Alice and Bob are typing…"),
        (["Alice", "Bob", "Carol"], "several people are typing…"),
        (["{0.__class__}"], "{0.__class__} is typing…"),  # a name is never used as a template
    ],
)
def test_the_typing_line(names: list[str], text: str) -> None:
    assert typing_text(names) == text


@pytest.mark.parametrize(("count", "text"), [(0, ""), (1, "1 person is typing…"), (7, "7 people are typing…")])
def test_the_line_of_a_large_room_counts(count: int, text: str) -> None:
    assert typing_text([], count=count) == text


def polish(number: int) -> str:
    if number == 1:
        return "one"
    few = number % 10 in (2, 3, 4) and number % 100 not in (12, 13, 14)
    return "few" if few else "many"


POLISH = TypingWords(
    one="{0} pisze…",
    two="{0} i {1} piszą…",
    several="kilka osób pisze…",
    counted={"one": "{n} osoba pisze…", "few": "{n} osoby piszą…", "other": "{n} osób pisze…"},
    plural=polish,
)


@pytest.mark.parametrize(
    ("count", "text"), [(1, "1 osoba pisze…"), (3, "3 osoby piszą…"), (12, "12 osób pisze…"), (22, "22 osoby piszą…")]
)
def test_other_languages_have_other_forms(count: int, text: str) -> None:
    assert typing_text([], count=count, words=POLISH) == text
    assert typing_text(["Ala", "Ola"], words=POLISH) == "Ala i Ola piszą…"


@pytest.mark.parametrize(
    ("age", "text"),
    [
        (-5 * MINUTE, "last seen just now"),  # the clocks differ
        (0, "last seen just now"),
        (MINUTE - 1, "last seen just now"),
        (MINUTE, "last seen 1 minute ago"),
        (5 * MINUTE, "last seen 5 minutes ago"),
        (HOUR - 1, "last seen 59 minutes ago"),
        (HOUR, "last seen 1 hour ago"),
        (DAY - 1, "last seen 23 hours ago"),
        (DAY, "last seen 1 day ago"),
        (400 * DAY, "last seen 400 days ago"),
    ],
)
def test_the_age_of_the_last_seen_grows_with_time(age: int, text: str) -> None:
    gone = replace(a_presence(state="offline"), last_seen=1_000 * DAY)
    assert seen_text(gone, 1_000 * DAY + age) == text


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"state": "online"}, "online"),
        ({"state": "idle"}, "away"),
        ({"state": "busy"}, "busy"),
        ({"state": "offline"}, "offline"),  # unknown, or hidden
        ({"mode": "poll", "recently_active": True}, "recently active"),
        ({"mode": "poll", "recently_active": False}, "offline"),
    ],
)
def test_the_text_for_a_presence_state(changes: dict[str, Any], text: str) -> None:
    assert seen_text(replace(a_presence(), **changes), 0) == text


def test_other_words_can_be_given() -> None:
    words = SeenWords(now="gerade eben", minutes={"one": "vor {n} Minute", "other": "vor {n} Minuten"})
    gone = replace(a_presence(state="offline"), last_seen=0)
    assert [seen_text(gone, age, words) for age in (0, MINUTE, 2 * MINUTE)] == [
        "gerade eben",
        "vor 1 Minute",
        "vor 2 Minuten",
    ]
