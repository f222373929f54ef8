"""Timetables as operators write them: an interval, or a cron expression with a time zone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from greendot.errors import ConfigError
from greendot.jobs.model import Every, Timetable

MOST_CRON = 200  # characters


class Cron(NamedTuple):
    """Cron expression by the wall clock of a time zone.

    When the clock is set forward, a time in the gap runs after the gap. When it is set back, a fixed hour runs once.
    """

    expression: str
    zone: str = "UTC"

    def after(self, at: int) -> int:
        begin = datetime.fromtimestamp(at / 1000, UTC).astimezone(_zone(self.zone))
        found = next(CronSim(self.expression, begin))
        return round(found.timestamp() * 1000)


def timetable(setting: str, every_s: float, cron: str, zone: str) -> Timetable:
    """Return the timetable of the job with settings at `setting`. ConfigError if zone or expression is invalid."""
    if not cron:
        return Every(round(every_s * 1000))
    made = Cron(cron, zone)
    try:
        _zone(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(
            f"{setting}.zone is {zone!r} but must be the name of a time zone, such as Europe/Berlin."
        ) from None
    try:
        if len(cron) > MOST_CRON or len(cron.split()) != 5:
            raise CronSimError("five fields are needed")
        made.after(0)
    except (CronSimError, StopIteration) as error:
        raise ConfigError(
            f"{setting}.cron is {cron[:MOST_CRON]!r}, which is not valid: {_lower(str(error)) or 'it is never due'}. "
            "Write minute, hour, day, month and weekday, such as `30 3 * * *` for 03:30 every day."
        ) from None
    return made


def in_words(every_s: float, cron: str, zone: str) -> str:
    """Describe the plan for operators; different plans have different texts."""
    return f"cron {cron} {zone}" if cron else f"every {every_s:g} s"


def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
