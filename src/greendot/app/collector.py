"""Garbage collection of a server without long pauses (docs/adr/0058).

Reference counts free most objects at once. The garbage collector of Python finds reference cycles, and needs about
0.3 µs for each object that it visits. A node with 400,000 watched users has 2.6 million objects. So objects that have
survived two collections are frozen: later collections do not visit them. Reference counts still free them. Only cycles
of frozen objects stay, and if memory grows because of them, everything is collected once.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from time import perf_counter

from greendot.admin.metrics import resident_bytes
from greendot.app.collector_model import MemoryGrowth, NodeLoad
from greendot.telemetry import log_events
from greendot.telemetry.log import log

# Objects before a collection of the young ones. Other collections are made only by time.
THRESHOLDS = (5_000, 1_000_000, 1_000_000)
# Python subtracts freed objects from the number of new ones, also old objects. While a crowd leaves, new objects would
# not be visited for minutes, and then in one long collection. So there are collections by time, too.
YOUNG_S = 0.05
SECOND = 10_000  # objects that survived a collection, before they are visited once more and frozen: 2 to 6 ms
COMPARED = 200  # collections by time before memory and load are compared again


class Collector:
    """Garbage collection of this process, for a node with this load."""

    def __init__(self, load: Callable[[], NodeLoad], memory: Callable[[], int | None] = resident_bytes) -> None:
        self._load = load
        self._memory = memory
        self._collections = 0  # by time
        self._second = 0  # objects in the second generation, at most
        self._growth: MemoryGrowth | None = None  # None where the system does not report the memory of a process

    def start(self) -> None:
        """Freeze all present objects, and from now on those that survive."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(*THRESHOLDS)
        if (memory := self._memory()) is not None:  # otherwise nothing would show that frozen cycles pile up
            gc.callbacks.append(self._collected)
            self._growth = MemoryGrowth(memory, self._load())
            self._arm()

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        """Count young objects before their collection. Freeze the objects that survived a second one.

        In Python 3.14, each collection that Python starts by itself counts as a second one.
        """
        if phase == "stop" and info["generation"] > 0:
            self._second = 0
            gc.freeze()
        elif phase == "start" and info["generation"] == 0:
            self._second += len(gc.get_objects(generation=0))

    def _arm(self) -> None:
        asyncio.get_running_loop().call_later(YOUNG_S, self._on_timer)

    def _on_timer(self) -> None:
        self._arm()
        self._collections += 1
        gc.collect(0 if self._second < SECOND else 1)
        if self._collections % COMPARED == 0:
            self.check()

    def check(self) -> None:
        """Collect everything if the memory has grown without a reason."""
        memory, load = self._memory(), self._load()
        if memory is None or self._growth is None or not self._growth.is_unexplained(memory, load):
            return
        began = perf_counter()
        gc.unfreeze()
        found = gc.collect()
        after = self._memory() or memory
        self._growth = MemoryGrowth(after, load)
        log(
            log_events.NODE_COLLECTED,
            took_s=round(perf_counter() - began, 3),
            objects=found,
            before_mb=memory // 1_000_000,
            after_mb=after // 1_000_000,
        )
