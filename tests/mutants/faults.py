"""`make faults`: plants faults in Lua and SQL, one at a time, and looks whether the suites find them.

`faults.toml` lists them by file: text in the source, what is there instead, and the tests that have to fail; without
tests those of the file's folder. A text that is not in the source exactly once is an error. So is a fault that no test
finds.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import time
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from .__main__ import load
from .trying import ARGUMENTS, PASSED, ROOT, Planted, SameExamples

SOURCES = ROOT / "src" / "greendot"
LISTED = Path(__file__).with_name("faults.toml")
LIMIT_S = 300.0


class Fault(NamedTuple):
    """One text instead of another in a file."""

    file: str
    old: str
    new: str
    tests: tuple[str, ...]  # what pytest is called with, one call each

    def __str__(self) -> str:
        return f"{self.file}: {' '.join(self.old.split())} → {' '.join(self.new.split()) or '(nothing)'}"


def listed() -> list[Fault]:
    """All faults. ValueError if one cannot be planted."""
    given = tomllib.loads(LISTED.read_text())
    suites: dict[str, list[str]] = given.pop("suites")
    faults = []
    for file, entries in given.items():
        usual = next(tests for folder, tests in suites.items() if file.startswith(folder))
        text = (SOURCES / file).read_text()
        for entry in entries:
            fault = Fault(file, entry["old"], entry["new"], tuple(entry.get("tests", usual)))
            if text.count(fault.old) != 1:
                raise ValueError(f"its text is in the source {text.count(fault.old)} times: {fault}")
            faults.append(fault)
    return faults


def main() -> int:
    asked = arguments()
    try:
        faults = [fault for fault in listed() if all(word in str(fault) for word in asked.words)]
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    load()
    from postgres_server import given_or_own_server

    print(f"→ {len(faults)} faults", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with given_or_own_server() as url:
            os.environ["GREENDOT_TEST_POSTGRES"] = url
            return report(run(faults, asked.jobs))
    except KeyboardInterrupt:
        print("\n→ stopped")
        return 130


def arguments() -> Any:
    parser = argparse.ArgumentParser(prog="make faults", description="Plant faults in Lua and SQL, and look for them.")
    parser.add_argument("words", nargs="*", help="only faults with these words in their description")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at a time (%(default)s)")
    return parser.parse_args()


def run(faults: list[Fault], jobs: int) -> dict[Fault, bool]:
    """Try all of them, some at a time; which were found."""
    waiting, running, found = [*faults], dict[int, tuple[Fault, float]](), dict[Fault, bool]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                fault = waiting.pop(0)
                running[start(fault)] = fault, time.monotonic()
            time.sleep(0.02)
            for child, (fault, begun) in [*running.items()]:
                ended, status = os.waitpid(child, os.WNOHANG)
                if not ended:
                    if time.monotonic() - begun > LIMIT_S:
                        os.killpg(child, signal.SIGKILL)
                    continue
                del running[child]
                found[fault] = os.waitstatus_to_exitcode(status) != PASSED
                took = f"{time.monotonic() - begun:5.1f} s"
                print(f"{len(found):4} {took} {'found' if found[fault] else 'NOT FOUND'}  {fault}", flush=True)
    finally:
        for child in running:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return found


def start(fault: Fault) -> int:
    """Run a fault's tests in a fork that has it planted, until one fails."""
    child = os.fork()
    if child:
        return child
    os.setpgid(0, 0)
    ended = 9
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        plant(fault)
        ended = max(tried(call) for call in fault.tests)
    finally:
        os._exit(ended)


def tried(call: str) -> int:
    """How one call of pytest ended. One that failed is the end of it all."""
    child = os.fork()
    if child == 0:
        ended = 9
        try:
            ended = int(pytest.main([*ARGUMENTS, *shlex.split(call)], plugins=[SameExamples()]))
        finally:
            os._exit(ended)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if ended != PASSED:
        os._exit(1)
    return PASSED


def plant(fault: Fault) -> None:
    """Let everybody in this process read the fault instead of the source."""
    path = SOURCES / fault.file
    text = path.read_text().replace(fault.old, fault.new)
    if path.suffix == ".py":
        name = ".".join(["greendot", *Path(fault.file).with_suffix("").parts])
        sys.meta_path.insert(0, Planted(name, path, text))
        return
    read = Path.read_text

    def read_text(self: Path, *args: Any, **named: Any) -> str:
        return text if self == path else read(self, *args, **named)

    Path.read_text = read_text  # type: ignore[method-assign]


def report(found: dict[Fault, bool]) -> int:
    missed = [fault for fault, was in found.items() if not was]
    print(f"\n{len(found) - len(missed)} found, {len(missed)} not")
    for fault in missed:
        print(f"  {fault}")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
