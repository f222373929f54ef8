"""Shutdown of tasks: all of them end, within the time limit."""

from __future__ import annotations

import subprocess
import sys

import pytest

from greendot.node.tasks import all_ended

STUCK = """
import time
from greendot.node.tasks import end_by
end_by({within_s})
time.sleep({takes_s})
"""


# The case: the reader of the log has stopped, and a thread waits to write to it.
LOG_IS_HELD = """
import logging, sys, time
from greendot.node.tasks import end_by
logging.basicConfig(stream=sys.stderr)
logging.getLogger().handlers[0].acquire()
end_by(0.1)
time.sleep(100)
"""


def run(within_s: float, takes_s: float) -> subprocess.CompletedProcess[str]:
    words = STUCK.format(within_s=within_s, takes_s=takes_s)
    return subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, timeout=50)


def test_a_stuck_process_is_ended_with_a_message() -> None:
    ended = run(within_s=0.1, takes_s=100)
    assert ended.returncode == 1
    assert "shutdown did not finish within 0.1 s" in ended.stderr


def test_a_process_that_is_stuck_at_its_log_is_ended_without_a_word() -> None:
    ended = subprocess.run([sys.executable, "-c", LOG_IS_HELD], capture_output=True, text=True, timeout=50)
    assert (ended.returncode, ended.stderr) == (1, "")


def test_a_process_that_ends_in_time_does_not_wait_for_the_limit() -> None:
    ended = run(within_s=100, takes_s=0)
    assert (ended.returncode, ended.stderr) == (0, "")


async def test_what_fails_is_logged_and_the_others_end(caplog: pytest.LogCaptureFixture) -> None:
    ended = []

    async def good() -> None:
        ended.append("good")

    async def bad() -> None:
        raise OSError("a wire was cut")

    await all_ended(bad(), good())
    assert ended == ["good"]
    assert "a wire was cut" in caplog.text
