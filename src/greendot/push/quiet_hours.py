"""Quiet hours, by the clock on the user's wall."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Struct

_DAY_MINUTES = 1_440


class Quiet(Struct, frozen=True):
    """Hours in which nothing rings, in the user's own time: minutes since midnight. Over midnight if `ends` is less."""

    begins: int
    ends: int
    zone: str = "UTC"


def quiet_until(quiet: Quiet, now: int) -> int | None:
    """When the quiet hours end that it is in now; None if it is in none. Where the clocks change, by the wall."""
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
    """Whether this machine knows the time there."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def _zone(name: str) -> ZoneInfo:
    """One that was known once, and is not here, must not cost the user all pushes."""
    return ZoneInfo(name) if is_zone(name) else ZoneInfo("UTC")
