"""Metrics of the process, read from the operating system."""

from __future__ import annotations

import os
import time

from greendot.admin.metrics import _start_time, process_metrics


def test_process_metrics_match_the_operating_system() -> None:
    found = dict(process_metrics())
    assert time.time() - 86_400 * 365 < found["process_start_time_seconds"] <= time.time() + 1
    assert found["process_resident_memory_bytes"] > 1_000_000
    assert 3 <= found["process_open_fds"] <= found["process_max_fds"]
    with open(os.devnull), open(os.devnull):
        assert dict(process_metrics())["process_open_fds"] == found["process_open_fds"] + 2


def test_the_start_time_is_read_for_each_process_and_equal_on_each_read() -> None:
    assert _start_time(os.getpid()) == _start_time(os.getpid())
    assert _start_time(1) <= _start_time(os.getpid())
