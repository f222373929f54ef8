"""What operators are shown: aligned columns, and times as people say them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import click

NOTHING = "–"
_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they must be, two spaces between them."""
    lines = [head, *([printable(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], empty: str) -> None:
    """Print a table; without rows the sentence `empty`."""
    click.echo(table(head, rows) if rows else empty)


def printable(text: str) -> str:
    """Names and texts are other people's: what could command a terminal is not passed on to it."""
    return "".join(mark if mark.isprintable() else "\N{REPLACEMENT CHARACTER}" for mark in text)


def ago(at: int | None, now: int) -> str:
    """When something was: how long ago on the same day, else the local date and time."""
    if at is None:
        return NOTHING
    if now - at >= 86_400_000:
        return datetime.fromtimestamp(at / 1000).astimezone().isoformat(" ", "seconds")
    return "now" if now - at < 1_000 else f"{duration(now - at)} ago"


def left(ms: int | None) -> str:
    """How long something still takes."""
    return NOTHING if ms is None else duration(ms) if ms > 0 else "ended"


def duration(ms: int) -> str:
    """In the largest unit there is one of; less than a second is said with a decimal."""
    for size, unit in _UNITS:
        if ms >= size:
            return f"{ms // size} {unit}"
    return f"{max(ms, 0) / 1000:.1f} s"


def several(count: int, one: str) -> str:
    """`1 session`, `2 sessions`."""
    return f"{count} {one}" if count == 1 else f"{count} {one}s"


def shortened(text: str, most: int) -> str:
    """Cut a text to so many characters; the last one says that there is more."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
