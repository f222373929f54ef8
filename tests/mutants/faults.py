"""`make faults`: plants faults in Lua and SQL, one at a time, and checks that the suites find them.

`faults.toml` lists faults by file: the text in the source, its replacement, and the tests that must fail. Faults
without tests use those of the file's folder. A text that is not exactly once in the source is an error. So is a fault
that no test finds, and a suite that fails without a fault.

Each fault has a fork. Lua is replaced in memory after the tests were collected. SQL is in constants that other modules
import, so all modules are imported again with the fault.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import time
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from .__main__ import load, silence
from .trying import ARGUMENTS, FAILED, PASSED, ROOT, Planted, SameExamples, Unusable

SOURCES = ROOT / "src" / "greendot"
LISTED = Path(__file__).with_name("faults.toml")
LIMIT_S = 600.0


class Fault(NamedTuple):
    """Replacement of a text in a file. Without a file there is no fault, and the suite must pass."""

    file: str
    old: str
    new: str
    tests: str  # arguments of pytest

    def __str__(self) -> str:
        if not self.file:
            return f"no fault: {self.tests}"
        return f"{self.file}: {' '.join(self.old.split())} → {' '.join(self.new.split()) or '(nothing)'}"


def listed() -> list[Fault]:
    """Return all faults. Raise ValueError if one cannot be planted."""
    given = tomllib.loads(LISTED.read_text())
    suites: dict[str, str] = given.pop("suites")
    faults = []
    for file, entries in given.items():
        usual = next(tests for folder, tests in suites.items() if file.startswith(folder))
        text = (SOURCES / file).read_text()
        for entry in entries:
            fault = Fault(file, entry["old"], entry["new"], entry.get("tests", usual))
            if text.count(fault.old) != 1:
                raise ValueError(f"the text is in the source {text.count(fault.old)} times, not once: {fault}")
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

    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.default_int_handler)
    print(f"→ {len(faults)} faults", flush=True)
    found: dict[Fault, bool] = {}
    try:
        with given_or_own_server() as url:
            os.environ["GREENDOT_TEST_POSTGRES"] = url
            run([fault for fault in faults if not fault.file.endswith(".lua")], asked.jobs, start, found)
        for tests in dict.fromkeys(fault.tests for fault in faults if fault.file.endswith(".lua")):
            run_collected(tests, [fault for fault in faults if fault.tests == tests], asked.jobs, found)
    except KeyboardInterrupt:
        print("\n→ stopped")
        return 130
    except Unusable as error:
        print(error, file=sys.stderr)
        return 2
    return report(found)


def arguments() -> Any:
    parser = argparse.ArgumentParser(prog="make faults", description="Plant faults in Lua and SQL, and run the suites.")
    parser.add_argument("words", nargs="*", help="only faults with these words in their description")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="faults at a time (%(default)s)")
    return parser.parse_args()


def run(faults: list[Fault], jobs: int, begin: Callable[[Fault], int], found: dict[Fault, bool]) -> None:
    """Try all faults, `jobs` at a time, after their suites without a fault."""
    waiting = [Fault("", "", "", tests) for tests in dict.fromkeys(fault.tests for fault in faults)] + faults
    running: dict[int, tuple[Fault, float]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                fault = waiting.pop(0)
                running[begin(fault)] = fault, time.monotonic()
            time.sleep(0.02)
            for child, (fault, begun) in [*running.items()]:
                ended, status = os.waitpid(child, os.WNOHANG)
                if not ended:
                    if time.monotonic() - begun > LIMIT_S:
                        os.killpg(child, signal.SIGKILL)
                    continue
                del running[child]
                settle(fault, os.waitstatus_to_exitcode(status), time.monotonic() - begun, found)
    finally:
        for child in running:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)


def settle(fault: Fault, ended: int, took_s: float, found: dict[Fault, bool]) -> None:
    if not fault.file:
        if ended != PASSED:
            raise Unusable(f"fails without any fault: {fault.tests}")
        print(f"     {took_s:5.1f} s passes  {fault}", flush=True)
        return
    found[fault] = ended != PASSED
    print(f"{len(found):4} {took_s:5.1f} s {'found' if found[fault] else 'NOT FOUND'}  {fault}", flush=True)


def forked(trial: Callable[[], int]) -> int:
    """Run a trial in a fork that is alone in its process group. Return the fork's process id."""
    child = os.fork()
    if child == 0:
        ended = 9
        try:
            os.setpgid(0, 0)
            silence()
            ended = trial()
        finally:
            os._exit(ended)
    return child


def start(fault: Fault) -> int:
    """Import all modules with the fault and run its tests."""

    def trial() -> int:
        for name in [name for name, module in sys.modules.items() if is_ours(module)]:
            del sys.modules[name]  # starting PostgreSQL has imported some of the sources
        plant(fault)
        words = shlex.split(fault.tests)
        chosen = Chosen([word[1:] for word in words if word.startswith("@")])
        return int(pytest.main([*ARGUMENTS, *(word for word in words if not word.startswith("@"))], plugins=[chosen]))

    return forked(trial)


def is_ours(module: object) -> bool:
    """Return whether a module belongs to the sources or the tests, except for this package."""
    path = Path(getattr(module, "__file__", None) or "/")
    return (path.is_relative_to(ROOT / "src") or path.is_relative_to(ROOT / "tests")) and path.parent != LISTED.parent


class Chosen(SameExamples):
    """Selection of tests from a class made of many suites, by `@inbox_suite` among the arguments of pytest."""

    def __init__(self, suites: list[str]) -> None:
        self._modules = {f"greendot.testing.{suite}" for suite in suites}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self._modules:
            items[:] = [item for item in items if getattr(item, "function", item).__module__ in self._modules]


def run_collected(tests: str, faults: list[Fault], jobs: int, found: dict[Fault, bool]) -> None:
    """Collect the Lua tests once and try each fault in a fork."""
    collected = Collected(faults, jobs, found)
    pytest.main([*ARGUMENTS, *shlex.split(tests)], plugins=[collected])
    if collected.problem is not None:
        raise collected.problem


class Collected(SameExamples):
    """Runner of collected tests, once for each fault."""

    def __init__(self, faults: list[Fault], jobs: int, found: dict[Fault, bool]) -> None:
        self._faults = faults
        self._jobs = jobs
        self._found = found
        self.problem: BaseException | None = Unusable("the tests of Lua cannot be collected")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.problem = None
        session.items[:] = [item for item in session.items if "valkey" not in item.nodeid]
        try:
            run(self._faults, self._jobs, lambda fault: forked(partial(self._tests, fault, session)), self._found)
        except BaseException as error:
            self.problem = error
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            os._exit(FAILED)

    def _tests(self, fault: Fault, session: pytest.Session) -> int:
        from greendot.engine.redis import scripts

        if fault.file:
            plant(fault)
            for name, script in scripts._load().items():
                scripts.SCRIPTS[name].source, scripts.SCRIPTS[name].sha = script.source, script.sha
        for item, following in zip(session.items, [*session.items[1:], None], strict=True):
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        return PASSED


def plant(fault: Fault) -> None:
    """Make all readers in this process get the fault instead of the source."""
    if not fault.file:
        return
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
