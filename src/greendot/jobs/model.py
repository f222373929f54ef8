"""Due times of jobs: after a run, after a failure, after a change of the plan.

The next run is planned from the start of the last run. However many runs were missed, one run makes up for them. A
failed run does not count and is retried soon.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

FIRST_PAUSE_MS = 30_000
LONGEST_PAUSE_MS = 3_600_000


class Timetable(Protocol):
    """Times at which a job runs."""

    def after(self, at: int) -> int:
        """Return the first time after `at`."""
        ...


class Every(NamedTuple):
    """Fixed interval between two runs."""

    ms: int

    def after(self, at: int) -> int:
        return at + self.ms


class JobPlan(NamedTuple):
    """Timetable with jitter: a run begins up to `jitter_ms` late, so that jobs due together do not start together."""

    timetable: Timetable
    jitter_ms: int = 0

    def first(self, now: int, ran_at: int | None, chance: float) -> int:
        """Return when a job runs that has a new plan: after its last run, or after `now` if it never ran.

        `chance`, here and below, is a random number from 0 to 1.
        """
        return self.timetable.after(now if ran_at is None else ran_at) + self._late(chance)

    def following(self, started_at: int, chance: float) -> int:
        """Return when the job runs next. If the run took longer than the interval, that is past: it runs at once."""
        return self.timetable.after(started_at) + self._late(chance)

    def again(self, now: int, failures: int, chance: float) -> int:
        """Return when the job is retried after `failures` failures in a row, never later than its next regular time.

        The pause is half a minute, doubled with each failure up to an hour; half of it is random.
        """
        pause = min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * (1 << min(max(failures, 1) - 1, 20)))
        return min(now + round(pause * (0.5 + chance / 2)), self.timetable.after(now))

    def _late(self, chance: float) -> int:
        return round(self.jitter_ms * chance)
