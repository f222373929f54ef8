"""One of several pytest processes that share a queue of test files: `python lane.py QUEUE RESULTS PYTEST-ARGUMENT…`.

A lane takes the next file when it has no test left, so that all lanes end at about the same time. It collects only the
files it runs. QUEUE holds the paths of the files, one per line. RESULTS is a file descriptor that gets a line of JSON
for each file and for each test that failed or was skipped.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from _pytest.runner import collect_one_node

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent


class Lane:
    """Pytest plugin that collects and runs one file of the queue after another."""

    def __init__(self, queue: Path, results: IO[str]) -> None:
        self._queue = queue
        self._results = results
        self._file = ""
        self._counts = {"passed": 0, "failed": 0, "skipped": 0}
        self._since = (time.monotonic(), processor_s())
        self._collected = 0

    # --- hooks ---

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool:
        session.items = []  # collected file by file, in the loop
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = self._items(session)
        item = next(items, None)
        while item is not None:
            if (file := item.nodeid.partition("::")[0]) != self._file:
                self._end_file()
                self._file = file
                self._tell(began=file)
            following = next(items, None)  # read before the teardown of this one, which keeps shared fixtures
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            item = following
        self._end_file()
        session.testscollected = self._collected
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._counts["failed"] += 1
            self._tell(failed=report.nodeid if report.when == "call" else f"{report.nodeid} ({report.when})")
        elif report.skipped:
            self._counts["skipped"] += 1
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self._tell(skipped=report.nodeid, reason=reason.removeprefix("Skipped: "))
        elif report.when == "call":
            self._counts["passed"] += 1

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._tell(failed=f"{report.nodeid} (collection)")

    # --- the queue ---

    def _items(self, session: pytest.Session) -> Iterator[pytest.Item]:
        # The folders are walked once, so that their fixtures are kept. A file is imported when it is taken.
        folder = session.config.hook.pytest_collect_directory(path=TESTS, parent=session)
        files = {str(node.path.relative_to(ROOT)): node for node in modules([folder])}
        while file := take(self._queue):
            found = [*session.genitems(files[file])]
            session.config.hook.pytest_collection_modifyitems(session=session, config=session.config, items=found)
            self._collected += len(found)
            yield from found

    # --- results ---

    def _end_file(self) -> None:
        now = (time.monotonic(), processor_s())
        wall, processor = (round(new - old, 3) for new, old in zip(now, self._since, strict=True))
        if self._file:
            self._tell(file=self._file, **self._counts, wall=wall, processor=processor)
        self._counts = dict.fromkeys(self._counts, 0)
        self._since = now

    def _tell(self, **event: Any) -> None:
        self._results.write(json.dumps(event) + "\n")
        self._results.flush()


def modules(nodes: Iterable[pytest.Item | pytest.Collector]) -> Iterator[pytest.Collector]:
    """Yield the test files below these folders."""
    for node in nodes:
        if isinstance(node, pytest.Directory):
            report = collect_one_node(node)
            if report.failed:
                node.ihook.pytest_collectreport(report=report)
            yield from modules(report.result or ())
        elif isinstance(node, pytest.Collector):
            yield node


def take(queue: Path) -> str | None:
    """Take the first line of the queue, which other lanes take from as well."""
    with queue.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        first, *rest = file.read().split("\n")
        file.seek(0)
        file.write("\n".join(rest))
        file.truncate()
    return first or None


def processor_s() -> float:
    """Return the processor time of this process, its ended children and the forked servers."""
    forking: Any = sys.modules.get("e2e.forking")
    spent = os.times()
    return sum(spent[:4]) + (forking.processor_s() if forking else 0.0)


def main() -> int:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores SIGINT in background jobs
    queue, results, *arguments = sys.argv[1:]
    sys.path[0] = str(TESTS)  # as `pythonpath` in pyproject.toml
    if folder := os.environ.pop("COVERAGE_FOLDER", None):
        from suite.covered import measured

        arguments += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # SlipCover is loaded before pytest
        with measured(Path(folder)):
            return run(Path(queue), int(results), arguments)
    return run(Path(queue), int(results), arguments)


def run(queue: Path, results: int, arguments: list[str]) -> int:
    gc.set_threshold(20_000, 20, 20)  # the loaded modules are many, and stay
    with os.fdopen(results, "w") as file:
        lane = Lane(queue, file)
        code = int(pytest.main([str(TESTS), *arguments], plugins=[lane]))
        lane._tell(over=True, processor=processor_s())
        return code


if __name__ == "__main__":
    sys.exit(main())
