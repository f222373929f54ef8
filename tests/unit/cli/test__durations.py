from __future__ import annotations

import click
import pytest

from greendot.cli._durations import Duration


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("90d", 7_776_000_000),
        ("24h", 86_400_000),
        ("30min", 1_800_000),
        ("30m", 1_800_000),
        ("45 s", 45_000),
        ("0s", 0),
        ("3650d", 315_360_000_000),
    ],
)
def test_a_duration_is_a_number_and_a_unit(text: str, ms: int) -> None:
    assert Duration().convert(text, None, None) == ms


@pytest.mark.parametrize("text", ["", "90", "d", "-1d", "1.5h", "1w", "1d2h", "٣d", "1d\n", "9" * 50 + "d", "3651d"])
def test_anything_else_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Duration().convert(text, None, None)


def test_an_invalid_duration_is_refused_with_the_reason() -> None:
    with pytest.raises(click.BadParameter, match=r"^'1w' is not a duration\. Write a number and d, h, min or s: "):
        Duration().convert("1w", None, None)
    with pytest.raises(click.BadParameter, match=r"^'3651d' is longer than ten years\.$"):
        Duration().convert("3651d", None, None)


def test_a_default_is_in_milliseconds_already() -> None:
    assert Duration().convert(1_500, None, None) == 1_500
