"""What a job is to the scheduler."""

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
KEPT = 6  # times in a lease: so often the store is told
REPORT_S = 10.0  # between two lines of a long run


class Stopped(Exception):
    """The run was told to stop; what it noted stays."""


class Lost(Exception):
    """The run is another's now."""


def log_progress(name: str, done: int) -> None:
    log(log_events.JOB_GOES_ON, job=name, done=done)


class ProgressReport(NamedTuple):
    """How a long run is heard of."""

    report: Callable[[str, int], None] = log_progress
    every_s: float = REPORT_S


class RunningJob:
    """What a job works with. `offset_ms`: how far the time of the store is ahead of the clock's."""

    def __init__(self, store: JobStore, claimed: JobState, clock: Clock, offset_ms: int, lease_s: float) -> None:
        self.name = claimed.name
        self.cursor = claimed.cursor  # where it goes on
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
        """The time of the store."""
        return self._clock.now_ms() + self._offset_ms

    def stop(self) -> None:
        """It ends at its next step."""
        self._stopping = True

    async def step(self, done: int, cursor: str | None = None) -> None:
        """So much more was done, and a later run may go on at `cursor`. Raises what ends the run."""
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
        """Say to the store that it goes on, and how far it is. A store that is away is told later."""
        async with self._keeping:
            if self._is_lost:
                return
            asked_at = self._clock.monotonic()
            until = self.now_ms() + round(self._lease_s * 1000)
            try:
                self._is_lost = not await self._store.keep_job(self.name, self._fence, until, self.done, self.cursor)
            except StoreUnavailable:
                if asked_at - self._kept_at >= self._lease_s:
                    self._is_lost = True  # for all we know
                return
            self._kept_at = asked_at

    async def keep_on(self) -> None:
        """Until it is cancelled, also while a step takes long."""
        while not self._is_lost:
            await asyncio.sleep(self._keep_s)
            if self._clock.monotonic() - self._kept_at >= self._keep_s:
                await self.keep()


class Job(Protocol):
    """Something that is done now and then. It may be cut short anywhere, and is then begun again where it last called
    `run.step`: what it did since, it does again."""

    name: str

    async def work(self, run: RunningJob) -> str:
        """Do it; says what was done, for people."""
        ...


class Planned(NamedTuple):
    """A job and when it runs."""

    job: Job
    plan: JobPlan
    schedule: str  # the same in words
