"""Failed name lookups of attempts that were given up are not logged; other lost errors are."""

from __future__ import annotations

import asyncio
import logging
import socket

import pytest

from greendot.cli.event_loop import new_event_loop


def logged(error: Exception, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the log lines about an error that no task receives."""

    async def lose() -> None:
        asyncio.get_running_loop().create_future().set_exception(error)  # no reference is left

    with caplog.at_level(logging.ERROR), asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(lose())
    return [record.getMessage() for record in caplog.records]


def test_a_lookup_that_fails_after_its_time_limit_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert logged(socket.gaierror(-3, "Temporary failure in name resolution"), caplog) == []


def test_another_error_that_no_task_receives_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    (line,) = logged(OSError("no route"), caplog)
    assert "never retrieved" in line
