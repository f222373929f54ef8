"""When a job is due: after it ran, after it failed, after it was planned otherwise.

A run counts from when it began. What was missed is made up for once, however often it was: the next run is planned from
the one that was made, not from those that were not. A run that failed does not count: it is tried again soon.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

FIRST_PAUSE_MS = 30_000
LONGEST_PAUSE_MS = 3_600_000


class Timetable(Protocol):
    """The times a job is to run at."""

    def after(self, at: int) -> int:
        """The first that comes after this one."""
        ...


class Every(NamedTuple):
    """The same time between any two."""

    ms: int

    def after(self, at: int) -> int:
        return at + self.ms


class JobPlan(NamedTuple):
    """A timetable, and how much later than it says a run may begin: not all that is due at three begins at three."""

    timetable: Timetable
    jitter_ms: int = 0

    def first(self, now: int, ran_at: int | None, chance: float) -> int:
        """When a job runs that is planned for the first time, or otherwise than before. `chance`, here and below, is
        from 0 to 1."""
        return self.timetable.after(now if ran_at is None else ran_at) + self._late(chance)

    def following(self, started_at: int, chance: float) -> int:
        """When it runs again. If a run took longer than the interval, that is past, and it runs at once."""
        return self.timetable.after(started_at) + self._late(chance)

    def again(self, now: int, failures: int, chance: float) -> int:
        """When it is tried again, after so many failures in a row: after half a minute, twice as long each time up to
        an hour, half of it by lot; but no later than it would run anyway."""
        pause = min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * (1 << min(max(failures, 1) - 1, 20)))
        return min(now + round(pause * (0.5 + chance / 2)), self.timetable.after(now))

    def _late(self, chance: float) -> int:
        return round(self.jitter_ms * chance)
