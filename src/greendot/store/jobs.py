"""Port for jobs: when each is due, which process runs it, its progress and its past runs.

A process claims a run and gets a fence, a number higher than that of all earlier runs. The run renews its lease with
`keep_job`. When a lease ends without renewal, another process may claim the job. Every write of a run carries its fence
and is refused once a higher one exists: a process that stalled and continues later changes nothing.

Processes may run on machines whose clocks differ. They use `job_time`, which is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from msgspec import Struct

if TYPE_CHECKING:  # `port` imports this module
    from greendot.ids import Key

JobOutcome = Literal["running", "ok", "failed", "stopped", "lost"]  # lost: its lease ended without renewal
RUNS_KEPT = 500  # of each job
REMINDER = "unread_reminder"  # kind of the reminder notification, which never counts as unread itself
MOST_COUNTED = 100  # unread notifications counted exactly per user; above it the inbox counter is close enough


class JobState(Struct, frozen=True):
    """State of a job."""

    name: str
    schedule: str  # in words; a different text is a different plan
    next_at: int
    fence: int = 0  # number of the last run
    holder: str | None = None  # process that runs the job; None: not running
    until: int = 0  # end of the holder's lease
    failures: int = 0  # in a row
    ran_at: int | None = None  # start of the last successful run
    cursor: str | None = None  # where the next run continues; None: at the beginning


class JobRun(Struct, frozen=True):
    """Run of a job."""

    name: str
    fence: int
    holder: str
    started_at: int
    ended_at: int | None = None
    outcome: JobOutcome = "running"
    done: int = 0  # items processed
    note: str = ""  # summary of the result, or the error


class JobEnd(Struct, frozen=True):
    """End of a run. Only the outcome `ok` sets `ran_at` and clears the cursor."""

    outcome: JobOutcome
    at: int
    next_at: int
    failures: int = 0
    done: int = 0
    note: str = ""


class Unread(NamedTuple):
    """Unread notifications of a user, without reminders."""

    tenant: str
    user: str
    unread: int
    oldest_at: int | None  # None: nothing is unread
    reminded_at: int | None


class JobStore(Protocol):
    """Port for jobs, with the reads and writes that only jobs need."""

    async def job_time(self, own: int) -> int:
        """Return the time that all processes on this store share. If all are on one machine, that is `own`."""
        ...

    async def plan_job(self, name: str, schedule: str, next_at: int) -> None:
        """Register the job. A job that is registered with the same schedule keeps its `next_at`."""
        ...

    async def jobs(self) -> list[JobState]:
        """Return all jobs, ordered by name."""
        ...

    async def claim_job(
        self, name: str, holder: str, now: int, lease_ms: int, *, early: bool = False
    ) -> JobState | None:
        """Begin a run and return the state with its fence; None if the job is not due or another process runs it.

        With `early` the job need not be due. An earlier run whose lease ended is recorded as lost and as a failure.
        """
        ...

    async def keep_job(self, name: str, fence: int, until: int, done: int, cursor: str | None) -> bool:
        """Renew the lease of a run and record its progress; return False if another process has the job now."""
        ...

    async def end_job(self, name: str, fence: int, ended: JobEnd) -> bool:
        """End the run; return False, with nothing written, if another process has the job now."""
        ...

    async def job_runs(self, name: str | None, limit: int) -> list[JobRun]:
        """Return runs of one job or of all, newest first. The store keeps `RUNS_KEPT` runs of each job."""
        ...

    async def unread_users(self, after: Key, limit: int) -> list[Unread]:
        """Return the next users after `after`, ordered by tenant and user, including users with nothing unread."""
        ...

    async def put_reminded(self, users: Sequence[Key], at: int) -> None:
        """Record when these users were reminded; the time never goes back."""
        ...
