"""Runner of jobs, from the claim of a run to its end."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Sequence
from socket import gethostname

from greendot.clock import Clock
from greendot.errors import GreendotError, StoreUnavailable
from greendot.ids import new_message_id, storable
from greendot.jobs.job import LEASE_S, Lost, Planned, ProgressReport, RunningJob, Stopped
from greendot.store.jobs import JobEnd, JobOutcome, JobState, JobStore
from greendot.telemetry import log_events
from greendot.telemetry.log import log

MOST_NOTE = 300  # characters


class Runner:
    """Runner of one process."""

    def __init__(self, store: JobStore, clock: Clock, lease_s: float = LEASE_S) -> None:
        self.runs: dict[str, RunningJob] = {}  # runs under way, by job name
        self.ended: dict[tuple[str, JobOutcome], int] = {}  # number of ended runs, by job name and outcome
        self._store = store
        self._clock = clock
        self._lease_s = lease_s
        self._holder = f"{gethostname()}-{os.getpid()}-{new_message_id()}"  # operators can find the process by it

    async def time(self) -> int:
        """Return the time of the store minus the time of the clock, in milliseconds."""
        own = self._clock.now_ms()
        return await self._store.job_time(own) - own

    async def plan(self, planned: Sequence[Planned]) -> None:
        """Register the jobs. A job whose schedule has changed is planned anew, from its last run on."""
        now = self._clock.now_ms() + await self.time()
        known = {state.name: state for state in await self._store.jobs()}
        for one in planned:
            before = known.get(one.job.name)
            if before is None or before.schedule != one.schedule:
                ran_at = None if before is None else before.ran_at
                next_at = one.plan.first(now, ran_at, random.random())
                await self._store.plan_job(one.job.name, one.schedule, next_at)

    async def run(
        self, planned: Planned, *, early: bool = False, telling: ProgressReport | None = None
    ) -> JobEnd | None:
        """Run the job if it is due (or `early`) and no other process runs it.

        None if the job was not run, or if the run was lost.
        """
        name, offset_ms = planned.job.name, await self.time()
        now = self._clock.now_ms() + offset_ms
        claimed = await self._store.claim_job(name, self._holder, now, round(self._lease_s * 1000), early=early)
        if claimed is None:
            return None
        run = self.runs[name] = RunningJob(self._store, claimed, self._clock, offset_ms, self._lease_s)
        run.progress = telling or run.progress
        try:
            return await self._whole(planned, claimed, run, now)
        finally:
            del self.runs[name]

    async def _whole(self, planned: Planned, claimed: JobState, run: RunningJob, started_at: int) -> JobEnd | None:
        outcome, note = await self._worked(planned, run)
        self.ended[run.name, outcome] = self.ended.get((run.name, outcome), 0) + 1
        if outcome == "lost":
            log(log_events.JOB_LOST, job=run.name)
            return None
        now, failures, chance = run.now_ms(), claimed.failures, random.random()
        if outcome == "ok":
            next_at, failures = planned.plan.following(started_at, chance), 0
        elif outcome == "failed":
            failures += 1
            next_at = planned.plan.again(now, failures, chance)
        else:
            next_at = min(claimed.next_at, now)  # due at once: another process continues the job
        ended = JobEnd(outcome, now, next_at, failures, run.done, storable(note[:MOST_NOTE]))
        if not await self._store.end_job(run.name, claimed.fence, ended):
            log(log_events.JOB_LOST, job=run.name)
            return None
        event = log_events.JOB_FAILED if outcome == "failed" else log_events.JOB_ENDED
        log(event, job=run.name, outcome=outcome, took_s=(now - started_at) / 1000, note=note)
        return ended

    async def _worked(self, planned: Planned, run: RunningJob) -> tuple[JobOutcome, str]:
        keeping = asyncio.get_running_loop().create_task(run.keep_on())
        try:
            return "ok", await planned.job.work(run)
        except Stopped:
            return "stopped", f"stopped after {run.done} items"
        except Lost:
            return "lost", ""
        except GreendotError as error:
            await self._keep(run)
            return "failed", str(error)
        except Exception as error:
            log(log_events.WORK_FAILED, error, work=f"job {run.name}")
            await self._keep(run)
            return "failed", f"{type(error).__name__}: {error}"
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

    async def _keep(self, run: RunningJob) -> None:
        """Record the progress of a failed run: the retry continues there."""
        try:
            await run.keep()
        except StoreUnavailable:
            pass
