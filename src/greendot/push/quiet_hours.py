"""Quiet hours in the user's local time."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Struct

_DAY_MINUTES = 1_440


class Quiet(Struct, frozen=True):
    """Quiet hours in minutes since midnight of the user's local time. They span midnight if `ends` is less."""

    begins: int
    ends: int
    zone: str = "UTC"


def quiet_until(quiet: Quiet, now: int) -> int | None:
    """Return the end of the quiet hours that include `now`; None outside of them.

    Local time counts, also across changes of the clock.
    """
    if quiet.begins == quiet.ends:
        return None
    zone = _zone(quiet.zone)
    local = datetime.fromtimestamp(now / 1000, zone)
    minute = local.hour * 60 + local.minute
    since = (minute - quiet.begins) % _DAY_MINUTES
    if since >= (quiet.ends - quiet.begins) % _DAY_MINUTES:
        return None
    day = local.date() + timedelta(days=1 if quiet.ends <= minute else 0)
    ends = datetime(day.year, day.month, day.day, quiet.ends // 60, quiet.ends % 60, tzinfo=zone)
    return max(now + 1, round(ends.timestamp() * 1000))


def is_zone(name: str) -> bool:
    """Return whether this machine knows the time zone."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def _zone(name: str) -> ZoneInfo:
    """Return the time zone, or UTC if this machine does not know it: the user must not lose all pushes."""
    return ZoneInfo(name) if is_zone(name) else ZoneInfo("UTC")
