"""Settings of periodic jobs, and their checks. `greendot.jobs` parses the cron expressions."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import fields

from greendot.config.fields import Mistakes, about

Interval = Annotated[
    float, Meta(ge=1, le=366 * 86_400), about("time from the start of one run to the start of the next")
]
Jitter = Annotated[float, Meta(ge=0, le=86_400), about("longest random delay of a run")]


class JobTimes(Struct, frozen=True, forbid_unknown_fields=True):
    """Schedule of a job: an interval or a cron expression."""

    enabled: Annotated[bool, about("whether this job runs")] = True
    every_s: Interval = 600.0
    cron: Annotated[str, about("replaces `every_s`: minute, hour, day, month, weekday")] = ""
    zone: Annotated[str, about("time zone of the cron expression")] = "UTC"
    jitter_s: Jitter = 30.0


class ReminderJob(JobTimes, frozen=True, forbid_unknown_fields=True):
    """Settings of the job `unread-reminder`."""

    every_s: Interval = 7_200.0
    jitter_s: Jitter = 60.0
    after_s: Annotated[
        float, Meta(gt=0, le=366 * 86_400), about("how long a notification must be unread, and its user not reminded")
    ] = 7_200.0
    text: Annotated[str, Meta(max_length=500), about("text that devices show; empty: the app provides the text")] = (
        "Unread: {unread}"
    )


class CleanupJob(JobTimes, frozen=True, forbid_unknown_fields=True):
    """Settings of the job `cleanup-tokens`."""

    every_s: Interval = 86_400.0
    jitter_s: Jitter = 600.0
    unused_days: Annotated[float, Meta(gt=0, le=3_650), about("devices that are unused for this time are removed")] = (
        60.0
    )


class DeletionJob(JobTimes, frozen=True, forbid_unknown_fields=True):
    """Settings of the job `delete-rooms`. A deletion makes the job due at once, so the interval rarely matters."""

    every_s: Interval = 60.0
    jitter_s: Jitter = 5.0


class Jobs(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of all jobs. A job's section has the job's name, with _ for -."""

    enabled: Annotated[bool, about("whether this process runs jobs; if not, other processes do")] = True
    lease_s: Annotated[
        float, Meta(ge=1, le=3_600), about("a run whose process is silent for this time passes to another process")
    ] = 60.0
    unread_reminder: ReminderJob = ReminderJob()
    cleanup_tokens: CleanupJob = CleanupJob()
    retention: JobTimes = JobTimes()
    sweep: JobTimes = JobTimes()
    delete_rooms: DeletionJob = DeletionJob()


def check_jobs(jobs: Jobs) -> Mistakes:
    """Yield the mistakes in `[jobs]`."""
    for field in fields(Jobs):
        job, at = getattr(jobs, field.name), f"jobs.{field.name}"
        if not isinstance(job, JobTimes):
            continue
        if not job.cron and job.jitter_s > job.every_s:
            yield f"{at}.jitter_s ({job.jitter_s:g}) must not exceed {at}.every_s ({job.every_s:g}). Lower jitter_s."
        if job.zone != "UTC" and not job.cron:
            yield f"{at}.zone is set but {at}.cron is not; an interval has no time zone. Set both, or neither."
