"""What a job is to the scheduler."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from greendot.jobs.model import Plan
from greendot.jobs.run import Run


class Job(Protocol):
    """Something that is done now and then. It may be cut short anywhere, and is then begun again where it last called
    `run.step`: what it did since, it does again."""

    name: str

    async def work(self, run: Run) -> str:
        """Do it; says what was done, for people."""
        ...


class Planned(NamedTuple):
    """A job and when it runs."""

    job: Job
    plan: Plan
    schedule: str  # the same in words
