"""Interface of a job, and its run with lease and progress."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Protocol

from greendot.clock import Clock
from greendot.errors import StoreUnavailable
from greendot.jobs.model import JobPlan
from greendot.store.jobs import JobState, JobStore
from greendot.telemetry import log_events
from greendot.telemetry.log import log

LEASE_S = 60.0
KEPT = 6  # renewals in the time of a lease
REPORT_S = 10.0  # seconds between two progress reports of a long run


class Stopped(Exception):
    """End of a run on request; the recorded progress stays."""


class Lost(Exception):
    """End of a run because another process has the job."""


def log_progress(name: str, done: int) -> None:
    log(log_events.JOB_GOES_ON, job=name, done=done)


class ProgressReport(NamedTuple):
    """Callback for the progress of a long run, and its interval."""

    report: Callable[[str, int], None] = log_progress
    every_s: float = REPORT_S


class RunningJob:
    """Run of a job, which the job works with. `offset_ms`: time of the store minus time of the clock."""

    def __init__(self, store: JobStore, claimed: JobState, clock: Clock, offset_ms: int, lease_s: float) -> None:
        self.name = claimed.name
        self.cursor = claimed.cursor  # where the run continues
        self.started_at = clock.now_ms() + offset_ms
        self.done = 0
        self.progress = ProgressReport()
        self._store = store
        self._fence = claimed.fence
        self._clock = clock
        self._offset_ms = offset_ms
        self._lease_s = lease_s
        self._keep_s = lease_s / KEPT
        self._kept_at = self._reported_at = clock.monotonic()
        self._stopping = False
        self._is_lost = False
        self._keeping = asyncio.Lock()

    def now_ms(self) -> int:
        """Return the time of the store."""
        return self._clock.now_ms() + self._offset_ms

    def stop(self) -> None:
        """End the run at its next step."""
        self._stopping = True

    async def step(self, done: int, cursor: str | None = None) -> None:
        """Add `done` items to the progress; a later run may continue at `cursor`. Raises Stopped or Lost."""
        self.done += done
        self.cursor = cursor
        now = self._clock.monotonic()
        if now - self._reported_at >= self.progress.every_s:
            self._reported_at = now
            self.progress.report(self.name, self.done)
        if self._stopping:
            await self.keep()
            raise Stopped
        if now - self._kept_at >= self._keep_s:
            await self.keep()
        if self._is_lost:
            raise Lost

    async def keep(self) -> None:
        """Renew the lease and record the progress. If the store is unavailable, a later call does it.

        The run is lost when another process has the job, or when no renewal succeeded for a whole lease.
        """
        async with self._keeping:
            if self._is_lost:
                return
            asked_at = self._clock.monotonic()
            until = self.now_ms() + round(self._lease_s * 1000)
            try:
                self._is_lost = not await self._store.keep_job(self.name, self._fence, until, self.done, self.cursor)
            except StoreUnavailable:
                if asked_at - self._kept_at >= self._lease_s:
                    self._is_lost = True  # another process may have claimed the job
                return
            self._kept_at = asked_at

    async def keep_on(self) -> None:
        """Renew the lease until cancelled or lost, also while a step takes long."""
        while not self._is_lost:
            await asyncio.sleep(self._keep_s)
            if self._clock.monotonic() - self._kept_at >= self._keep_s:
                await self.keep()


class Job(Protocol):
    """Periodic work.

    A run may be interrupted at any point. The next run continues at the last `run.step` and repeats later work.
    """

    name: str

    async def work(self, run: RunningJob) -> str:
        """Do the work; return a summary for operators."""
        ...


class Planned(NamedTuple):
    """Job with its plan."""

    job: Job
    plan: JobPlan
    schedule: str  # the plan in words
