"""Tables of figures and targets, for the terminal and for RESULTS.md."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median

from measure import Rounds
from serverd import Trouble

BEGIN = "<!-- figures: begin (written by bench/run.py) -->"
END = "<!-- figures: end -->"

HEADINGS = ("figure", "median", "lowest–highest", "server's core", "target", "")


@dataclass(frozen=True)
class Row:
    figure: str
    median: str
    spread: str = ""
    core: str = ""
    target: str = ""
    verdict: str = ""

    def cells(self) -> tuple[str, ...]:
        return (self.figure, self.median, self.spread, self.core, self.target, self.verdict)


def rate(figure: str, rounds: Rounds, unit: str, target: int | None = None) -> Row:
    middle, low, high = median(rounds.values), min(rounds.values), max(rounds.values)
    gap = "" if unit.startswith("/") else " "
    return Row(
        figure,
        f"{middle:,.0f}{gap}{unit}",
        f"{low:,.0f}–{high:,.0f}",
        f"{median(rounds.server_cpu):.0%}",
        "" if target is None else f"≥ {target:,}{gap}{unit}",
        "" if target is None else verdict(middle >= target),
    )


def verdict(met: bool) -> str:
    return "met" if met else "**missed**"


def table(rows: Sequence[Row]) -> str:
    return grid(HEADINGS, [row.cells() for row in rows])


def grid(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table, padded to be readable in a terminal."""
    lines = [headings, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    texts = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines]
    texts.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(texts)


def machine(pinned: bool, peers: Mapping[str, str]) -> str:
    cores = f"{os.cpu_count()} cores, {'server on one, generator on another' if pinned else 'nothing pinned'}"
    versions = ", ".join(f"{package} {_version(package)}" for package in ("greendot", "picows", "uvloop"))
    return (
        f"{datetime.now(UTC):%Y-%m-%d}. {_cpu_model()}, {cores}; Linux {platform.release()}; "
        f"Python {platform.python_version()}, {versions}."
        + (f" Peers: {', '.join(f'{name} {number}' for name, number in peers.items())}." if peers else "")
    )


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed)"


def write(path: Path, figures: str, begin: str = BEGIN, end: str = END) -> None:
    """Replace the text between the markers of the file at `path` by `figures`."""
    text = path.read_text() if path.exists() else ""
    if begin not in text or end not in text:
        raise Trouble(
            f"{path.name} has no markers, so the figures were not written. Restore the lines {begin!r} and {end!r}."
        )
    before, after = text.partition(begin)[0], text.partition(end)[2]
    path.write_text(f"{before}{begin}\n{figures}\n{end}{after}")
