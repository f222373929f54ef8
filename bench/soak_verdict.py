"""Verdict of the soak test: series of figures, their trend over days, and the tolerated rise.

Clients live in days, so most figures rise and fall every day. The trend therefore compares only samples of the same
phase of different days. A fault disturbs single samples, so medians are compared:

1. Each day has `PHASES` phases. A phase of a day has the median of its samples.
2. The trend is the median of the slopes between all pairs of days, each within a phase.
3. The rise is the trend times the judged time, or the difference between the last and the first quarter of the days, if
   that is greater. The second figure notices a rise that begins late.

A series is flat if its rise is at most the tolerated one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

PHASES = 12
HOUR_S = 3600.0
Points = Sequence[tuple[float, float]]  # seconds since the start, and a value


@dataclass(frozen=True)
class Tolerance:
    """Tolerated rise: a share of the level, but at least `floor`. With a `ceiling`, values up to it are flat."""

    share: float
    floor: float
    ceiling: float = 0.0


@dataclass(frozen=True)
class Trend:
    """Trend of one series over the judged days."""

    name: str
    first: float  # level of the first quarter of the days
    last: float  # level of the last quarter
    highest: float
    per_hour: float
    rise: float
    allowed: float
    days: int

    @property
    def is_flat(self) -> bool:
        return self.rise <= self.allowed


class TooShort(Exception):
    """Series with less than two days to compare."""


def by_day(points: Points, day_s: float) -> dict[int, dict[int, float]]:
    """Return the median of each phase of each day: phase → day → value."""
    found: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for at, value in points:
        day, rest = divmod(at, day_s)
        found[int(rest / day_s * PHASES)][int(day)].append(value)
    return {phase: {day: median(values) for day, values in days.items()} for phase, days in found.items()}


def trend(name: str, points: Points, day_s: float, tolerance: Tolerance) -> Trend:
    """Return the trend of a series; raise TooShort without two days that have samples of a common phase."""
    phases = by_day(points, day_s)
    slopes = [
        (days[later] - days[earlier]) / (later - earlier)
        for days in phases.values()
        for earlier, later in combinations(sorted(days), 2)
    ]
    if not slopes:
        raise TooShort(name)
    quarters = [_quarters(days) for days in phases.values() if len(days) > 1]
    known = sorted({day for days in phases.values() for day in days})
    slope = median(slopes)
    highest = max(value for _, value in points)
    allowed = max(tolerance.floor, tolerance.share * median(value for _, value in points))
    if highest <= tolerance.ceiling:
        allowed = max(allowed, tolerance.ceiling)
    moved = median(late - early for early, late in quarters)
    return Trend(
        name=name,
        first=median(early for early, _ in quarters),
        last=median(late for _, late in quarters),
        highest=highest,
        per_hour=slope / day_s * HOUR_S,
        rise=max(slope * (known[-1] - known[0]), moved),
        allowed=allowed,
        days=len(known),
    )


def _quarters(days: Mapping[int, float]) -> tuple[float, float]:
    """Return the levels of the first and of the last quarter of the days of a phase."""
    values = [days[day] for day in sorted(days)]
    count = max(1, len(values) // 4)
    return median(values[:count]), median(values[-count:])


def judge(
    series: Mapping[str, Points], tolerances: Mapping[str, Tolerance], day_s: float, warm_up_s: float
) -> tuple[list[Trend], list[str]]:
    """Return the trends of all series with a tolerance, and the names of those that are too short to judge.

    The tolerance of a series is that of the longest name in `tolerances` with which the name of the series begins.
    """
    trends, unjudged = [], []
    for name, points in series.items():
        known = [start for start in tolerances if name.startswith(start)]
        if not known:
            continue
        try:
            judged = [point for point in points if point[0] >= warm_up_s]
            trends.append(trend(name, judged, day_s, tolerances[max(known, key=len)]))
        except TooShort:
            unjudged.append(name)
    return trends, unjudged
