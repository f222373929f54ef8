"""A store, a clock that tests move, and jobs that tests control."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from greendot.errors import EngineUnavailable
from greendot.jobs.job import Planned, RunningJob
from greendot.jobs.model import Every, JobPlan
from greendot.jobs.scheduler import Scheduler
from greendot.store.sqlite import SqliteStore
from greendot.testing import ManualClock

EVERY_S = 600.0
STEP_S = 5.0


class Counting:
    """Job of `steps` steps that records each. `before` is called before a step, and `fails` makes a step fail."""

    name = "counting"

    def __init__(self, steps: int = 1) -> None:
        self.steps = steps
        self.begun = 0
        self.ended = 0
        self.made: list[int] = []
        self.fails = False
        self.before: Callable[[int], None] = lambda number: None
        self.held: asyncio.Event | None = None  # the steps wait for this event

    async def work(self, run: RunningJob) -> str:
        self.begun += 1
        for number in range(int(run.cursor or 0), self.steps):
            self.before(number)
            if self.held is not None:
                await self.held.wait()
            if self.fails:
                raise EngineUnavailable("nobody answers")
            self.made.append(number)
            await run.step(1, str(number + 1))
        self.ended += 1
        return f"{self.steps} steps"


class Site(NamedTuple):
    """Two nodes that share a store."""

    store: SqliteStore
    clock: ManualClock
    job: Counting
    one: Scheduler
    two: Scheduler

    async def pass_time(self, seconds: float, *nodes: Scheduler) -> None:
        """Advance the clock in steps. After each, let these nodes run their due jobs; both nodes if none is given."""
        for _ in range(round(seconds / STEP_S)):
            self.clock.advance(STEP_S)
            for node in nodes or (self.one, self.two):
                await node.turn()
                await node.settle()

    async def outcomes(self) -> list[str]:
        """Return the outcomes of all runs, oldest first."""
        return [run.outcome for run in await self.store.job_runs(None, 1_000)][::-1]


def planned(job: Counting, every_s: float = EVERY_S) -> Planned:
    return Planned(job, JobPlan(Every(round(every_s * 1000))), f"every {every_s:g} s")


@asynccontextmanager
async def site(steps: int = 1) -> AsyncIterator[Site]:
    store, clock, job = SqliteStore(":memory:"), ManualClock(), Counting(steps)
    await store.start()
    nodes = [Scheduler(store, [planned(job)], clock) for _ in range(2)]
    try:
        yield Site(store, clock, job, *nodes)
    finally:
        for node in nodes:
            await node.close()
        await store.close()
