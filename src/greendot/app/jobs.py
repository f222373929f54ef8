"""Jobs from the settings, to run in a server, in a worker, or by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from greendot.config import Settings
from greendot.config.jobs import JobTimes
from greendot.engine.messages import InboxChanged, Topic
from greendot.engine.port import Bus, Engine
from greendot.jobs.cleanup import DAY_MS, CleanupTokens, Retention, RetentionPeriods, Sweep
from greendot.jobs.job import Job, Planned
from greendot.jobs.model import JobPlan
from greendot.jobs.room_deletion import DeleteRooms
from greendot.jobs.timetable import in_words, timetable
from greendot.jobs.unread_reminder import Notify, Reminding, UnreadReminder
from greendot.store.inbox import InboxStore, Notice
from greendot.store.port import Store


class JobServices(Struct, frozen=True):
    """Services that jobs use besides store and engine."""

    notify: Notify
    pushes: Callable[[str], bool]  # whether a tenant pushes
    pruned: Callable[[int], None] | None = None


def make_jobs(settings: Settings, store: Store, engine: Engine, around: JobServices) -> list[Planned]:
    """Return the enabled jobs. Raise ConfigError if a timetable is not valid."""
    found = all_jobs(settings, store, engine, around)
    return [one for one in found if settings.jobs.enabled and _times(settings, one.job.name).enabled]


def all_jobs(settings: Settings, store: Store, engine: Engine, around: JobServices) -> list[Planned]:
    """Return all jobs, including those that run only by hand."""
    jobs, reminder = settings.jobs, settings.jobs.unread_reminder
    reminding = Reminding(around.pushes, round(reminder.after_s * 1000), reminder.text)
    every: list[Job] = [
        UnreadReminder(store, engine, around.notify, reminding),
        CleanupTokens(store, round(jobs.cleanup_tokens.unused_days * DAY_MS)),
        Retention(
            store,
            engine,
            RetentionPeriods(
                round(settings.inbox.keep_days * DAY_MS),
                round(settings.push.keep_s * 1000),
                round(settings.presence.last_seen_days * DAY_MS),
                round(settings.audit.keep_days * DAY_MS),
            ),
            around.pruned,
        ),
        Sweep(engine),
        DeleteRooms(store),
    ]
    return [planned(job, _times(settings, job.name)) for job in every]


def planned(job: Job, times: JobTimes) -> Planned:
    setting = f"jobs.{_key(job.name)}"
    table = timetable(setting, times.every_s, times.cron, times.zone)
    words = in_words(times.every_s, times.cron, times.zone)
    return Planned(job, JobPlan(table, round(times.jitter_s * 1000)), words)


def check_timetables(settings: Settings) -> None:
    """Raise ConfigError if a timetable is not valid."""
    for name in JOBS:
        times = _times(settings, name)
        timetable(f"jobs.{_key(name)}", times.every_s, times.cron, times.zone)


def plainly(store: InboxStore, bus: Bus) -> Notify:
    """Return a `Notify` for processes without a node: it stores notifications and publishes the changed inboxes."""

    async def notify(notices: Sequence[Notice]) -> None:
        await store.notify(notices)
        for notice in notices:
            bus.publish(Topic("user", notice.tenant, notice.user), InboxChanged())

    return notify


JOBS = (UnreadReminder.name, CleanupTokens.name, Retention.name, Sweep.name, DeleteRooms.name)


def _key(name: str) -> str:
    return name.replace("-", "_")


def _times(settings: Settings, name: str) -> JobTimes:
    found: JobTimes = getattr(settings.jobs, _key(name))
    return found
