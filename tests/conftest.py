"""Pytest setup: each coroutine test runs on its own uvloop event loop, as in production."""

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

LIMIT_S, SPARE_S = 50.0, 10.0  # a test with its own timeout is cancelled SPARE_S before that timeout

# Let servers that tests start write bytecode. Without it each server would compile all modules again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# scripts/ensure-node installs Node.js into this prefix if the machine has none or an old one. Put it first in PATH.
if (node := Path(sys.prefix, "node")).exists():
    os.environ["PATH"] = f"{node}{os.pathsep}{os.environ['PATH']}"

# The machines are busy at times, so the duration of one example proves nothing.
settings.register_profile("greendot", deadline=None)
settings.load_profile("greendot")


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Yield the URL of a PostgreSQL server that all tests share. Each test uses its own schema."""
    with given_or_own_server() as url:
        yield url


@pytest.fixture(scope="session", autouse=True)
def what_clients_are_told_is_as_the_document_says() -> Iterator[None]:
    with listening():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn skips into failures in CI: a missing tool must not hide a test."""
    report = yield
    if os.environ.get("CI") and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome, report.longrepr = "failed", f"skipped, but CI allows no skips: {reason}"
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
