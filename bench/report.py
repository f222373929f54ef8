"""The figures beside their targets, as one table for the terminal and for RESULTS.md."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median

from measure import Idle, Rounds
from server import Trouble

BEGIN = "<!-- figures: begin (written by bench/run.py) -->"
END = "<!-- figures: end -->"

RATIO_TARGET = 0.6  # of raw C, one message in flight
DELIVERIES_TARGET = 600_000  # per second, sixteen in flight
CONNECT_TARGET = 1_500  # per second
MEMORY_TARGET_BYTES = 12_000  # per idle connection
CPU_TARGET = 0.08  # of a core, for the heartbeats of all idle connections

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


def broadcast_rows(results: dict[tuple[str, int], Rounds], subscribers: int) -> list[Row]:
    rows = []
    for k in sorted({k for _, k in results}):
        ours, raw = results["greendot", k], results["raw", k]
        # Round by round, because neighbours in time share the machine's mood.
        ratios = [a / b for a, b in zip(ours.values, raw.values, strict=True)]
        what = f"broadcast to {subscribers:,}, {k} in flight"
        rows.append(rate(f"{what}: raw C", raw, "deliveries/s"))
        rows.append(rate(f"{what}: Greendot", ours, "deliveries/s", DELIVERIES_TARGET if k == 16 else None))
        rows.append(
            Row(
                f"{what}: Greendot ÷ raw C",
                f"{median(ratios):.2f}",
                f"{min(ratios):.2f}–{max(ratios):.2f}",
                target=f"≥ {RATIO_TARGET}" if k == 1 else "",
                verdict=verdict(median(ratios) >= RATIO_TARGET) if k == 1 else "",
            )
        )
    return rows


def connect_rows(rounds: Rounds) -> list[Row]:
    return [rate("connect, hello, welcome, bye", rounds, "/s", CONNECT_TARGET)]


def idle_rows(idle: Idle) -> list[Row]:
    what = f"{idle.connections:,} idle connections"
    return [
        Row(
            f"{what}: resident memory each",
            f"{idle.bytes_per_connection / 1000:.1f} KB",
            target=f"≤ {MEMORY_TARGET_BYTES // 1000} KB",
            verdict=verdict(idle.bytes_per_connection <= MEMORY_TARGET_BYTES),
        ),
        Row(
            f"{what}: CPU for {idle.heartbeats_per_s:.0f} heartbeats/s",
            f"{idle.cpu:.1%} of a core",
            target=f"≤ {CPU_TARGET:.0%}",
            verdict=verdict(idle.cpu <= CPU_TARGET),
        ),
    ]


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
    """A Markdown table, padded so that it reads as well in a terminal."""
    lines = [HEADINGS, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    texts = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines]
    texts.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(texts)


def machine(pinned: bool) -> str:
    cores = f"{os.cpu_count()} cores, {'server on one, generator on another' if pinned else 'nothing pinned'}"
    versions = ", ".join(f"{package} {_version(package)}" for package in ("greendot", "picows", "uvloop"))
    return (
        f"{datetime.now(UTC):%Y-%m-%d}. {_cpu_model()}, {cores}; Linux {platform.release()}; "
        f"Python {platform.python_version()}, {versions}."
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


def write(path: Path, figures: str) -> None:
    """Put `figures` between the markers of the file at `path`; the prose around them stays."""
    text = path.read_text() if path.exists() else ""
    if BEGIN not in text or END not in text:
        raise Trouble(f"{path.name} has lost its markers, so the figures were not written.")
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    path.write_text(f"{before}{BEGIN}\n{figures}\n{END}{after}")
