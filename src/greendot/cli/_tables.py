"""Tables and times in the output for operators."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import click

NOTHING = "–"
_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return aligned columns, as narrow as possible, with two spaces between them."""
    lines = [head, *([printable(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], empty: str) -> None:
    """Print a table, or without rows the sentence `empty`."""
    click.echo(table(head, rows) if rows else empty)


def printable(text: str) -> str:
    """Replace characters that could control a terminal: names and texts come from users."""
    return "".join(mark if mark.isprintable() else "\N{REPLACEMENT CHARACTER}" for mark in text)


def ago(at: int | None, now: int) -> str:
    """Return how long ago `at` was if less than 24 hours, else the local date and time."""
    if at is None:
        return NOTHING
    if now - at >= 86_400_000:
        return datetime.fromtimestamp(at / 1000).astimezone().isoformat(" ", "seconds")
    return "now" if now - at < 1_000 else f"{duration(now - at)} ago"


def left(ms: int | None) -> str:
    """Return the time left: `ended` if there is none, a dash for None."""
    return NOTHING if ms is None else duration(ms) if ms > 0 else "ended"


def duration(ms: int) -> str:
    """Return a duration in the largest unit that fits; below a second with a decimal."""
    for size, unit in _UNITS:
        if ms >= size:
            return f"{ms // size} {unit}"
    return f"{max(ms, 0) / 1000:.1f} s"


def several(count: int, one: str) -> str:
    """Return a count with its noun: `1 session`, `2 sessions`."""
    return f"{count} {one}" if count == 1 else f"{count} {one}s"


def shortened(text: str, most: int) -> str:
    """Cut a text to `most` characters; the last one is … if anything was cut off."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
