"""How much a node can still take on: a state machine fed with measurements.

    NORMAL ──too much for a moment─────► SHEDDING ──far too much, still──► REFUSING
       ◄───────well for a while──────────            ◄──better for a while──

Shedding drops what is worth least; only if that does not help is new work refused. A level is left when things have
been well for a while, and for longer each time it had to be taken again soon after: what was shed would only come back.
"""

from __future__ import annotations

from enum import IntEnum
from math import inf
from typing import NamedTuple

RISE_S = 0.3  # of too much, until the next level
STEP_S = 0.2  # what one measurement counts for, unless the node worked for longer: being stopped is not a flood
CALM = 0.5  # of what is too much is well
LONGEST = 3.0  # times the hold, for a level that is taken again and again
RELAPSE_S = 10.0  # a level taken within so long after it was left is taken again


class Level(IntEnum):
    """What a node does about its load."""

    NORMAL = 0
    SHEDDING = 1  # signals of low priority are dropped
    REFUSING = 2  # and new work is refused


class Load(NamedTuple):
    """Measured just now."""

    lag_s: float = 0.0  # how late the loop is
    backlog: int = 0  # writes that wait
    bus_lag_s: float = 0.0  # how long what is published takes to be heard
    worked_s: float = inf  # of the processor's time, since the last measurement


class OverloadBounds(NamedTuple):
    """From here on it is too much, and `far` times that far too much."""

    load: Load
    far: float


class OverloadLevels:
    """See the module. `look` is told of every measurement, at times in monotonic seconds."""

    def __init__(self, bounds: OverloadBounds, hold_s: float) -> None:
        self.level = Level.NORMAL
        self.reason = ""  # of the level, for a person
        self._bounds = bounds
        self._hold_s = hold_s
        self._looked_at = inf
        self._hot_topics = 0.0  # seconds of too much for the level, as far as they count
        self._calm = 0.0  # seconds of what is well
        self._left_at = -inf  # when the node was last found to be normal again
        self._times = 1.0  # the hold, for this time

    def update(self, load: Load, now: float) -> Level:
        """The level from now on."""
        passed = max(0.0, min(now - self._looked_at, max(STEP_S, load.worked_s)))
        self._looked_at = now
        strain, reason = self._strain(load)
        above = strain / self._bounds.far if self.level else strain
        self._hot_topics = min(RISE_S, self._hot_topics + passed) if above >= 1 else max(0.0, self._hot_topics - passed)
        here = strain / self._bounds.far if self.level is Level.REFUSING else strain
        if here >= 1:
            self._calm = 0.0
        elif here < CALM:
            self._calm += passed
        if self._hot_topics >= RISE_S and self.level is not Level.REFUSING:
            self._rise(reason, now)
        elif self.level and self._calm >= self._held_for():
            self._fall(now)
        return self.level

    def _strain(self, load: Load) -> tuple[float, str]:
        """The worst of the measurements, as a part of what is too much, in words."""
        bounds = self._bounds.load
        # A loop that is late because the machine does something else has not too much to do itself.
        late_s = min(load.lag_s, load.worked_s)
        return max(
            (late_s / bounds.lag_s, f"the loop is {load.lag_s * 1000:.0f} ms late"),
            (load.backlog / bounds.backlog, f"{load.backlog} writes wait"),
            (load.bus_lag_s / bounds.bus_lag_s, f"the bus is {load.bus_lag_s * 1000:.0f} ms late"),
        )

    def _held_for(self) -> float:
        return self._hold_s * (self._times if self.level is Level.SHEDDING else 1.0)

    def _rise(self, reason: str, now: float) -> None:
        if self.level is Level.NORMAL:
            again = now - self._left_at < RELAPSE_S
            self._times = min(LONGEST, self._times * 2) if again else 1.0
        self.level = Level(self.level + 1)
        self.reason = reason
        self._hot_topics = self._calm = 0.0

    def _fall(self, now: float) -> None:
        self.level = Level(self.level - 1)
        self._hot_topics = self._calm = 0.0
        if self.level is Level.NORMAL:
            self.reason = ""
            self._left_at = now
