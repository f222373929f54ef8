"""Tests are coroutines where they need to be: each runs on a loop of its own, uvloop as in production."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import settings

import limited
from postgres_server import given_or_own_server
from wire_described import listening

LIMIT_S, SPARE_S = 50.0, 10.0  # a test that says how long it may take ends so much before

# Servers that tests start keep what they compile; else each would compile all modules again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Node.js from its wheel is here if the machine has none, or an old one (scripts/ensure-node): so it comes first.
if (node := Path(sys.prefix, "node")).exists():
    os.environ["PATH"] = f"{node}{os.pathsep}{os.environ['PATH']}"

# These machines are busy at times: how long one example takes proves nothing.
settings.register_profile("greendot", deadline=None)
settings.load_profile("greendot")


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a PostgreSQL that all tests share. Each takes a schema of its own there."""
    with given_or_own_server() as url:
        yield url


@pytest.fixture(scope="session", autouse=True)
def what_clients_are_told_is_as_the_document_says() -> Iterator[None]:
    with listening():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Nothing is skipped in CI: there, what a test lacks is a failure."""
    report = yield
    if os.environ.get("CI") and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome, report.longrepr = "failed", f"skipped, which nothing is in CI: {reason}"
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in wanted if name in pyfuncitem.funcargs}
    mark = pyfuncitem.get_closest_marker("timeout")
    capture = pyfuncitem.config.pluginmanager.getplugin("capturemanager")

    def give_up(report: str) -> NoReturn:
        capture.suspend_global_capture(in_=True)
        print(f"{pyfuncitem.nodeid} cannot be ended.\n{report}", file=sys.stderr, flush=True)
        os._exit(3)

    limited.run(lambda: pyfuncitem.obj(**arguments), mark.args[0] - SPARE_S if mark else LIMIT_S, give_up)
    return True
