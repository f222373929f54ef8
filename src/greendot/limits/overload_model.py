"""Overload levels of a node: a state machine fed with measurements.

    NORMAL ──overloaded for a moment───► SHEDDING ──still far overloaded──► REFUSING
       ◄───────calm for a while──────────            ◄──calmer for a while──

Shedding drops signals of low priority. Only if that does not help is new work refused. A level is left after a time of
calm. The time grows with each level that is entered again soon after it was left: the shed load would only come back.
"""

from __future__ import annotations

from enum import IntEnum
from math import inf
from typing import NamedTuple

RISE_S = 0.3  # of overload until the next level
# Longest time that one measurement counts for, unless the node worked longer: a stopped process is no overload.
STEP_S = 0.2
CALM = 0.5  # load below this part of the bound is calm
LONGEST = 3.0  # largest factor of the hold, for a level that is entered repeatedly
RELAPSE_S = 10.0  # a level entered within so long after it was left counts as repeated


class Level(IntEnum):
    """Reaction of a node to its load."""

    NORMAL = 0
    SHEDDING = 1  # signals of low priority are dropped
    REFUSING = 2  # new work is refused too


class Load(NamedTuple):
    """Measured load."""

    lag_s: float = 0.0  # lag of the loop
    backlog: int = 0  # writes that wait
    bus_lag_s: float = 0.0  # time from publishing to receiving
    worked_s: float = inf  # CPU time since the last measurement


class OverloadBounds(NamedTuple):
    """Load from which a node sheds, and the factor from which it refuses."""

    load: Load
    far: float


class OverloadLevels:
    """State machine of the level. `update` gets every measurement, with its time in monotonic seconds."""

    def __init__(self, bounds: OverloadBounds, hold_s: float) -> None:
        self.level = Level.NORMAL
        self.reason = ""  # reason of the level, for operators
        self._bounds = bounds
        self._hold_s = hold_s
        self._looked_at = inf
        self._hot_s = 0.0  # seconds of overload for the next level, up to RISE_S
        self._calm = 0.0  # seconds of calm
        self._left_at = -inf  # time of the last return to NORMAL
        self._times = 1.0  # factor of the hold this time

    def update(self, load: Load, now: float) -> Level:
        """Return the level after a measurement."""
        passed = max(0.0, min(now - self._looked_at, max(STEP_S, load.worked_s)))
        self._looked_at = now
        strain, reason = self._strain(load)
        above = strain / self._bounds.far if self.level else strain
        self._hot_s = min(RISE_S, self._hot_s + passed) if above >= 1 else max(0.0, self._hot_s - passed)
        here = strain / self._bounds.far if self.level is Level.REFUSING else strain
        if here >= 1:
            self._calm = 0.0
        elif here < CALM:
            self._calm += passed
        if self._hot_s >= RISE_S and self.level is not Level.REFUSING:
            self._rise(reason, now)
        elif self.level and self._calm >= self._held_for():
            self._fall(now)
        return self.level

    def _strain(self, load: Load) -> tuple[float, str]:
        """Return the worst measurement as a part of its bound, and its description."""
        bounds = self._bounds.load
        # A loop that is late because the machine runs other processes has not too much work itself.
        late_s = min(load.lag_s, load.worked_s)
        return max(
            (late_s / bounds.lag_s, f"the event loop lags by {load.lag_s * 1000:.0f} ms"),
            (load.backlog / bounds.backlog, f"{load.backlog} socket writes are pending"),
            (load.bus_lag_s / bounds.bus_lag_s, f"the bus lags by {load.bus_lag_s * 1000:.0f} ms"),
        )

    def _held_for(self) -> float:
        return self._hold_s * (self._times if self.level is Level.SHEDDING else 1.0)

    def _rise(self, reason: str, now: float) -> None:
        if self.level is Level.NORMAL:
            again = now - self._left_at < RELAPSE_S
            self._times = min(LONGEST, self._times * 2) if again else 1.0
        self.level = Level(self.level + 1)
        self.reason = reason
        self._hot_s = self._calm = 0.0

    def _fall(self, now: float) -> None:
        self.level = Level(self.level - 1)
        self._hot_s = self._calm = 0.0
        if self.level is Level.NORMAL:
            self.reason = ""
            self._left_at = now
