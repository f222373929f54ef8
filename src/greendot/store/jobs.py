"""The part of the store port for jobs: when each is due, who runs it, how far it came, what became of it.

A run is claimed, and gets a number higher than all before it: its fence. While it goes on it is kept, again and again;
one that is not kept for a lease is another's to claim. Whatever a run writes here carries its number, and is refused
once there is a higher one: who stood still and goes on afterwards changes nothing.

Who runs jobs may be on machines whose clocks are apart. They go by `job_time`, which is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from msgspec import Struct

if TYPE_CHECKING:  # the whole port includes this part of it
    from greendot.ids import Key

JobOutcome = Literal["running", "ok", "failed", "stopped", "lost"]  # lost: it was not heard of any more
RUNS_KEPT = 500  # of each job
REMINDER = "unread_reminder"  # the kind of notification that reminds of others, and never of itself
MOST_COUNTED = 100  # unread ones of a user; beyond it the inbox's own counter is near enough


class JobState(Struct, frozen=True):
    """How it stands with a job."""

    name: str
    schedule: str  # in words: another one is another plan
    next_at: int
    fence: int = 0  # the number of the last run
    holder: str | None = None  # who runs it; None: nobody
    until: int = 0  # how long the holder may be silent
    failures: int = 0  # in a row
    ran_at: int | None = None  # when the last run that succeeded began
    cursor: str | None = None  # where the next run goes on; None: at the beginning


class JobRun(Struct, frozen=True):
    """One run of a job."""

    name: str
    fence: int
    holder: str
    started_at: int
    ended_at: int | None = None
    outcome: JobOutcome = "running"
    done: int = 0  # of whatever the job goes through
    note: str = ""  # what it did, or what went wrong


class JobEnd(Struct, frozen=True):
    """What became of a run. Only one that is `ok` counts as run, and forgets the cursor."""

    outcome: JobOutcome
    at: int
    next_at: int
    failures: int = 0
    done: int = 0
    note: str = ""


class Unread(NamedTuple):
    """A user, and what waits in their inbox, reminders left out."""

    tenant: str
    user: str
    unread: int
    oldest_at: int | None  # None: nothing waits
    reminded_at: int | None


class JobStore(Protocol):
    """All jobs, and what they need that nobody else does."""

    async def job_time(self, own: int) -> int:
        """What time it is for all who share the store. Where they are on one machine that is their `own`."""
        ...

    async def plan_job(self, name: str, schedule: str, next_at: int) -> None:
        """Make the job known. One that is known keeps its plan, unless that was by another schedule."""
        ...

    async def jobs(self) -> list[JobState]:
        """By name."""
        ...

    async def claim_job(
        self, name: str, holder: str, now: int, lease_ms: int, *, early: bool = False
    ) -> JobState | None:
        """Begin a run, if the job is due (or `early`) and nobody else runs it. The answer has the run's number.

        A run that was lost is noted as such, and as a failure.
        """
        ...

    async def keep_job(self, name: str, fence: int, until: int, done: int, cursor: str | None) -> bool:
        """The run goes on, and has come so far. False: it is another's now."""
        ...

    async def end_job(self, name: str, fence: int, ended: JobEnd) -> bool:
        """The run is over. False: it is another's now, and nothing was written."""
        ...

    async def job_runs(self, name: str | None, limit: int) -> list[JobRun]:
        """The newest first, of one job or of all. Of each at most `RUNS_KEPT` are kept."""
        ...

    async def unread_users(self, after: Key, limit: int) -> list[Unread]:
        """The next users behind this one, by tenant and name, whether anything waits for them or not."""
        ...

    async def put_reminded(self, users: Sequence[Key], at: int) -> None:
        """They were reminded."""
        ...
