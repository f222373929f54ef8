"""Time that processes waited for a processor because other programs on the machine used it."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

KNOWN = Path("/proc/self/schedstat").exists()  # some kernels lack it; then waiting time is 0


def waited_s(*pids: int) -> float:
    """Return the seconds that the main threads of these processes waited for a processor, in total."""
    if not KNOWN:
        return 0.0
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) for pid in pids) / 1e9


def waited_by_threads_s(pid: int) -> float:
    """Return the seconds that all threads of a process waited for a processor."""
    if not KNOWN:
        return 0.0
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[1]) for thread in threads) / 1e9


class Lap:
    """Elapsed time without the time that these processes and this one waited for a processor.

    For a process that has ended, the value of the last read of `seconds` counts.
    """

    def __init__(self, *pids: int) -> None:
        self._began = time.monotonic()
        self._before = {pid: waited_s(pid) for pid in (*pids, os.getpid())}
        self._waited = dict.fromkeys(self._before, 0.0)

    @property
    def seconds(self) -> float:
        for pid, before_s in self._before.items():
            with suppress(OSError):
                self._waited[pid] = waited_s(pid) - before_s
        return time.monotonic() - self._began - max(self._waited.values())
