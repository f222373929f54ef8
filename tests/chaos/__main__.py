"""Chaos on real processes: `python -m chaos --minutes 30`. See docs/faults.md.

Exit status: 0 if every promise was kept, 1 if the checker found something, 2 for wrong options, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import msgspec
import uvloop

from chaos import namespaces
from chaos.families import FAMILIES, impossible
from chaos.runner import Figures, Options, Report, Run
from chaos.story import Story

BUILD = Path(__file__).parents[2] / "build" / "chaos"


def main() -> int:
    options, families, out = _options()
    namespaces.enter()
    if namespaces.isolated():
        namespaces.raise_loopback()
    else:
        print(
            "no namespaces: the families dns and disk are left out, and servers use ports of this machine", flush=True
        )
    signal.signal(signal.SIGTERM, _end)
    os.environ["PATH"] = f"{Path(sys.prefix, 'node')}{os.pathsep}{os.environ['PATH']}"  # of scripts/ensure-node
    out.mkdir(parents=True, exist_ok=True)
    chosen = []
    for family in families:
        if reason := impossible(family, options.engine) if family in FAMILIES else None:
            print(f"{family} is left out: {reason}", flush=True)
        else:
            chosen.append(family)
    each = msgspec.structs.replace(options, minutes=options.minutes / max(1, len(chosen)))
    print(
        f"{len(chosen)} families, {each.minutes:.1f} minutes each, seed {options.seed}, engine {options.engine}",
        flush=True,
    )
    all_figures: list[Figures] = []
    broken: list[str] = []
    command = f"make chaos MINUTES={options.minutes:g} SEED={options.seed}"
    command += f' FAMILY="{" ".join(families)}"' if families != [*FAMILIES] else ""
    report = Report(time.strftime("%Y-%m-%d"), _commit(), _machine(), command, all_figures, broken)
    for family in chosen:
        try:
            all_figures.append(_run(family, each, out))
        except Exception:
            traceback.print_exc()
            broken.append(family)
        (out / "figures.json").write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    _report(all_figures, options)
    if broken:
        print(f"these families were not completed, because of a mistake of this program: {', '.join(broken)}")
    return int(bool(broken) or any(figures.findings for figures in all_figures))


def _options() -> tuple[Options, list[str], Path]:
    parser = argparse.ArgumentParser(prog="chaos", description="Cause faults on real processes, with a checker.")
    parser.add_argument("--minutes", type=float, default=30.0, help="time for all families together")
    parser.add_argument("--family", default="", help=f"families, separated by commas: {', '.join(FAMILIES)}, mix")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=120)
    parser.add_argument("--engine", choices=("cluster", "sentinel"), default="cluster")
    parser.add_argument("--faults", type=int, default=0, help="end a family after this number of faults")
    parser.add_argument("--out", type=Path, default=BUILD, help="folder for figures and stories")
    parser.add_argument("--no-javascript", action="store_true", help="run without the JavaScript client")
    given = parser.parse_args()
    families = given.family.replace(",", " ").split() or [*FAMILIES]
    if unknown := [family for family in families if family not in FAMILIES and family != "mix"]:
        parser.error(f"unknown family {', '.join(unknown)}; choose from {', '.join(FAMILIES)}, mix")
    if given.minutes <= 0 or given.clients < 8:
        parser.error("--minutes must be above 0, and --clients at least 8")
    has_javascript = not given.no_javascript
    options = Options(given.minutes, given.seed, given.clients, given.engine, given.faults, has_javascript)
    return options, families, given.out.absolute()


def _commit() -> str:
    """Return the commit of the code, with a mark if files differ from it."""
    git = ["git", "-c", "safe.directory=*", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    return subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()


def _machine() -> str:
    cpu = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    name = platform.machine() if cpu is None else cpu[1]
    return f"{name}, {os.cpu_count()} cores; Linux {platform.release()}; Python {platform.python_version()}"


def _run(family: str, options: Options, out: Path) -> Figures:
    file = out / f"{family}.story"
    file.unlink(missing_ok=True)
    story = Story(file)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="greendot-chaos-", ignore_cleanup_errors=True) as folder,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            figures = runner.run(Run(family, options, Path(folder), story).run())
        row = figures.summary()
        story.show("RUN", f"{family}: {row['faults']} faults, {row['wrong']} findings; the story is in {file}")
        if figures.findings:
            first = figures.findings[0]
            print(f"\nStory before the first finding ({first.invariant}, {first.at:.2f} s, seed {options.seed}):")
            print(story.before(first.at, 15.0))
        return figures
    finally:
        story.close()


def _report(all_figures: list[Figures], options: Options) -> None:
    head = ("family", "faults", "detected s", "healed s", "wrong", "allowed", "lost", "away s", "late s")
    rows = [[*figures.summary().values()] for figures in all_figures]
    print(f"\nseed {options.seed}, {time.strftime('%Y-%m-%d')}; times are median / longest")
    for row in [list(head), *rows]:
        print(
            "  ".join(
                f"{_cell(value):<{width}}" for value, width in zip(row, (12, 6, 12, 13, 5, 7, 5, 6, 6), strict=True)
            )
        )
    for figures in all_figures:
        for why, count in figures.allowed.items():
            print(f"{figures.family}: seen {count} times, and allowed: {why}")
        for finding in figures.findings[:20]:
            print(f"{figures.family} {finding.at:8.2f} {finding.invariant}: {finding.text[:600]}")


def _cell(value: object) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def _end(*_: object) -> None:
    """End as after Ctrl-C: the event loop cancels the run, and the run ends its servers."""
    signal.raise_signal(signal.SIGINT)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)
