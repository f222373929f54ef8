"""What the system knows of a process."""

from __future__ import annotations

import os
import time

from greendot.telemetry.prometheus import _started, of_this_process


def test_it_is_what_the_system_says() -> None:
    found = dict(of_this_process())
    assert time.time() - 86_400 * 365 < found["process_start_time_seconds"] <= time.time() + 1
    assert found["process_resident_memory_bytes"] > 1_000_000
    assert 3 <= found["process_open_fds"] <= found["process_max_fds"]
    with open(os.devnull), open(os.devnull):
        assert dict(of_this_process())["process_open_fds"] == found["process_open_fds"] + 2


def test_when_it_started_is_said_alike_each_time_and_of_each_process_by_itself() -> None:
    assert _started(os.getpid()) == _started(os.getpid())
    assert _started(1) <= _started(os.getpid())
