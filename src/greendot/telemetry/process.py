"""What the system knows of this process, by the names every Prometheus exporter gives it."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from functools import cache


def of_this_process() -> Iterator[tuple[str, float]]:
    """Names and values; one that cannot be had here is left out."""
    yield "process_start_time_seconds", _started(os.getpid())
    yield "process_cpu_seconds_total", round(time.process_time(), 2)
    yield "process_max_fds", resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    try:
        with open("/proc/self/statm") as pages:
            yield "process_resident_memory_bytes", int(pages.read().split()[1]) * resource.getpagesize()
        yield "process_open_fds", _open_files()
    except OSError:  # not Linux
        return


@cache
def _started(pid: int) -> float:
    """Once for each process: a worker is a copy of its parent, and was started later."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            ticks = int(stat.read().rpartition(")")[2].split()[19])
        began = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    except (OSError, AttributeError):  # not Linux
        return time.time() - time.process_time()
    return round(began + ticks / os.sysconf("SC_CLK_TCK"), 2)


def _open_files() -> int:
    """Newer kernels say how many; with older ones they are counted."""
    return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd"))
