"""Virtual time, and processes that run in it: each has an event loop of its own, which a trial can pause or kill.

Nothing here reads a clock, a socket or random numbers of the system. The order of all events follows from their times
and from the order in which they were set, so a trial can be repeated exactly.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio import events
from collections.abc import Callable, Coroutine
from typing import Any

from greendot.testing.clock import START_MS

INFINITY = float("inf")
MOST_TURNS = 20_000  # of a loop at one time
TICK_S = 1e-6  # distance of two events that were set for one time: they happen in the order in which they were set


class Sleeper:
    """Selector without sockets. It never waits."""

    def select(self, timeout: float | None = None) -> list[Any]:
        return []

    def close(self) -> None:
        pass


class Process(asyncio.BaseEventLoop):
    """Event loop of one node. It runs only when the universe lets it run."""

    def __init__(self, universe: Universe) -> None:
        super().__init__()
        self._universe = universe
        self._selector = Sleeper()
        self._clock_resolution = 1e-9
        self.is_paused = self.is_dead = False
        self.set_exception_handler(universe.failed)

    def time(self) -> float:
        return self._universe.now

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def due(self) -> float:
        """Return the time of the next callback; infinity without one."""
        if self.is_paused or self.is_dead:
            return INFINITY
        if self._ready:  # type: ignore[attr-defined]
            return self._universe.now
        scheduled = self._scheduled  # type: ignore[attr-defined]
        while scheduled and scheduled[0]._cancelled:
            self._timer_cancelled_count -= 1  # type: ignore[attr-defined]
            heapq.heappop(scheduled)._scheduled = False
        return float(scheduled[0]._when) if scheduled else INFINITY

    def turn(self) -> None:
        """Run until nothing is ready. The universe has set this process as the running loop."""
        for _ in range(MOST_TURNS):
            self._run_once()  # type: ignore[attr-defined]
            if not self._ready or self.is_paused or self.is_dead:  # type: ignore[attr-defined]
                return
        self.is_dead = True
        self._universe.failures.append("a node works without end, while no time passes")

    def do(self, call: Callable[..., object], *args: Any) -> None:
        """Call a function in this process now; nothing happens in a dead one."""
        if not self.is_dead:
            self.call_soon(call, *args)

    def kill(self) -> None:
        """Stop for ever, as after kill -9: no code of this process runs again."""
        self.is_dead = True


class Universe:
    """Time, and everything that happens in it."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.processes: list[Process] = []
        self.failures: list[str] = []  # unexpected exceptions of tasks and callbacks
        self._events: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._set = 0

    def process(self) -> Process:
        process = Process(self)
        self.processes.append(process)
        return process

    def at(self, when: float, call: Callable[..., object], *args: Any) -> None:
        self._set += 1
        heapq.heappush(self._events, (max(when, self.now), self._set, call, args))

    def after(self, delay_s: float, call: Callable[..., object], *args: Any) -> None:
        self.at(self.now + delay_s, call, *args)

    def run_until(self, end: float) -> None:
        """Let everything happen that is due up to `end`."""
        running: Process | None = None  # to set the running loop takes a call of the system, so it stays set
        try:
            while True:
                first, chosen = self._events[0][0] if self._events else INFINITY, None
                for process in self.processes:
                    if (due := process.due()) < first:
                        first, chosen = due, process
                if first > end:
                    self.now = max(self.now, end)
                    return
                if first > self.now:
                    self.now = first
                if chosen is None:
                    _, _, call, args = heapq.heappop(self._events)
                    call(*args)
                    continue
                if chosen is not running:
                    events._set_running_loop(chosen)
                    running = chosen
                chosen.turn()
        finally:
            events._set_running_loop(None)

    def finish(self, process: Process, work: Coroutine[Any, Any, Any], within_s: float = 60.0) -> None:
        """Run everything until some work of a process has ended. An exception of the work is raised."""
        task, end = process.create_task(work), self.now + within_s
        while not task.done() and self.now < end:
            self.run_until(min(end, self.now + 0.05))
        if not task.done():
            raise AssertionError(f"not done within {within_s} s: {work}")
        task.result()

    def failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not (isinstance(loop, Process) and loop.is_dead) and "exception" in context:
            self.failures.append(f"{context['message']}: {context['exception']!r}")


class Clock:
    """Clock of one machine. Its wall clock may be wrong by `skew_s`."""

    def __init__(self, universe: Universe) -> None:
        self._universe = universe
        self.skew_s = 0.0

    def monotonic(self) -> float:
        return self._universe.now

    def now_ms(self) -> int:
        return START_MS + round((self._universe.now + self.skew_s) * 1000)
