"""Scheduler of jobs. Every node has one; the node that claims a due job first runs it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from greendot.clock import Clock
from greendot.errors import StoreUnavailable
from greendot.jobs.job import LEASE_S, Planned
from greendot.jobs.runner import Runner
from greendot.store.jobs import JobEnd, JobStore
from greendot.telemetry import log_events
from greendot.telemetry.log import log

CHECK_S = 10.0  # longest time between two checks: another node may have run a job, or died running it
SOON_S = 0.05  # shortest time between two checks
AWAY_S = 5.0  # between two checks while the store is unavailable
FINISH_S = 5.0  # time for runs to reach their next step at `close`


class Scheduler:
    """Scheduler of one process, from `start` to `close`. Jobs run in parallel, each of them once at a time."""

    def __init__(self, store: JobStore, planned: Sequence[Planned], clock: Clock, lease_s: float = LEASE_S) -> None:
        self._store = store
        self._planned = {one.job.name: one for one in planned}
        self._runner = Runner(store, clock, lease_s)
        self._clock = clock
        self._running: dict[str, asyncio.Task[object]] = {}
        self._is_planned = False
        self._due: dict[str, int] = {}  # job name → due time by the store's clock, as last read
        self._offset_ms = 0  # store's clock minus own clock
        self._failing = 0  # jobs whose last run failed
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._planned:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stop running jobs at their next step; another process continues them."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        tasks = [*self._running.values()]
        for run in self._runner.runs.values():
            run.stop()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=FINISH_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def turn(self) -> float:
        """Start the due jobs; return the seconds until the next check. `settle` waits for the jobs."""
        if not self._is_planned:
            await self._plan()
        offset_ms = await self._runner.time()
        self._running = {name: task for name, task in self._running.items() if not task.done()}
        now, soonest = self._clock.now_ms() + offset_ms, CHECK_S
        states = [state for state in await self._store.jobs() if state.name in self._planned]
        self._offset_ms, self._failing = offset_ms, sum(state.failures > 0 for state in states)
        for state in states:
            due_at = state.next_at if state.holder is None else max(state.next_at, state.until)
            self._due[state.name] = due_at
            if state.name in self._running:
                continue
            if due_at <= now:
                work = self._one(self._planned[state.name])
                self._running[state.name] = asyncio.get_running_loop().create_task(work)
            else:
                soonest = min(soonest, (due_at - now) / 1000)
        return max(soonest, SOON_S)

    async def settle(self) -> None:
        """Wait for the running jobs."""
        await asyncio.gather(*self._running.values())

    async def run(self, name: str) -> JobEnd | None:
        """Run a job now, due or not. None if another process runs it, or if the run was lost."""
        planned = self._planned[name]
        if not self._is_planned:
            await self._plan()
        return await self._runner.run(planned, early=True)

    def items(self) -> dict[str, float]:
        """Return the metrics: overdue and failing jobs, and the outcomes of this node's runs."""
        ended = {f"jobs_{outcome}_total": 0 for outcome in ("ok", "failed", "stopped", "lost")} | self._ended()
        return {"jobs_overdue_s": self._overdue_s(), "jobs_failing": self._failing} | ended

    def _overdue_s(self) -> float:
        """Return the delay of the most overdue job that no process runs; it grows while the store is unavailable."""
        now = self._clock.now_ms() + self._offset_ms
        waiting = (due_at for name, due_at in self._due.items() if name not in self._running)
        return max(0.0, round((now - min(waiting, default=now)) / 1000, 1))

    def _ended(self) -> dict[str, float]:
        counted: dict[str, float] = {}
        for (_, outcome), count in self._runner.ended.items():
            key = f"jobs_{outcome}_total"
            counted[key] = counted.get(key, 0) + count
        return counted

    async def _run(self) -> None:
        while True:
            pause = AWAY_S
            try:
                pause = await self.turn()
            except StoreUnavailable as error:
                log(log_events.WORK_LATER, work="scheduling jobs", reason=error)
            except Exception as error:
                log(log_events.WORK_FAILED, error, work="scheduling jobs")
            if self._running:
                await asyncio.wait([*self._running.values()], timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.sleep(pause)

    async def _plan(self) -> None:
        await self._runner.plan([*self._planned.values()])
        self._is_planned = True

    async def _one(self, planned: Planned) -> None:
        try:
            await self._runner.run(planned)
        except StoreUnavailable as error:
            log(log_events.WORK_LATER, work=f"job {planned.job.name}", reason=error)
