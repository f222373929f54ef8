from __future__ import annotations

import click
import pytest

from greendot.cli.durations import Duration


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("90d", 7_776_000_000),
        ("24h", 86_400_000),
        ("30min", 1_800_000),
        ("30m", 1_800_000),
        ("45 s", 45_000),
        ("0s", 0),
    ],
)
def test_a_duration_is_a_number_and_a_unit(text: str, ms: int) -> None:
    assert Duration().convert(text, None, None) == ms


@pytest.mark.parametrize("text", ["", "90", "d", "-1d", "1.5h", "1w", "1d2h", "٣d", "1d\n", "9" * 50 + "d", "3651d"])
def test_anything_else_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Duration().convert(text, None, None)
