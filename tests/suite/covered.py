"""Line and branch coverage of the source, measured during the tests and merged from all their processes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from slipcover import FileMatcher, ImportManager, Slipcover, merge_coverage

SOURCE = Path(__file__).parents[2] / "src" / "greendot"


@contextmanager
def measured(folder: Path) -> Iterator[None]:
    """Measure the coverage of modules imported in this context. Write it to a file of this process in `folder`."""
    sources = [str(SOURCE)]
    coverage = Slipcover(branch=True, source=sources)
    with ImportManager(coverage, FileMatcher(sources=sources)):
        yield
    (folder / f"{os.getpid()}.json").write_text(json.dumps(coverage.get_coverage()))


def merged(folder: Path) -> dict[str, Any]:
    """Merge the coverage of all processes."""
    found: dict[str, Any] = {}
    for path in sorted(folder.glob("*.json")):
        part = json.loads(path.read_text())
        found = merge_coverage(found, part) if found else part
    return found


def report(coverage: dict[str, Any], write_to: Path) -> tuple[float, list[str]]:
    """Return the covered percentage, and the files by number of uncovered lines. Write their details to a file."""
    total = coverage["summary"]
    rows = []
    for name, file in coverage["files"].items():
        missing = len(file["missing_lines"]) + len(file.get("missing_branches", []))
        if missing:
            rows.append((missing, file["summary"]["percent_covered"], name, uncovered(file)))
    rows.sort(key=lambda row: (-row[0], row[2]))
    write_to.parent.mkdir(parents=True, exist_ok=True)
    write_to.write_text("".join(f"{name}: {percent:.0f} %\n  {lines}\n" for _, percent, name, lines in rows))
    return total["percent_covered"], [f"{missing:5}  {percent:3.0f} %  {name}" for missing, percent, name, _ in rows]


def uncovered(file: dict[str, Any]) -> str:
    """Format uncovered lines as ranges, and uncovered branches as pairs of lines."""
    ranges: list[list[int]] = []
    for line in file["missing_lines"]:
        if ranges and line == ranges[-1][1] + 1:
            ranges[-1][1] = line
        else:
            ranges.append([line, line])
    lines = [str(first) if first == last else f"{first}-{last}" for first, last in ranges]
    return ", ".join([*lines, *(f"{start}->{end}" for start, end in file.get("missing_branches", []))])
