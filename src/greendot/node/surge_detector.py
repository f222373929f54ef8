"""Surge detector: whether many clients are connecting or joining rooms at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from greendot.clock import Clock

RATE = 200.0  # arrivals per second: more than a node gets in normal operation
CHANCE = 8  # arrivals at a time that are no surge: one client with many rooms, or chance


class SurgeDetector:
    """Counter of arrivals under way that came too fast. An arrival is counted until it is complete.

    If all arrivals under way were counted, arrivals that wait because of a surge would make the surge last for ever.
    """

    def __init__(self, clock: Clock) -> None:
        self._now = clock.monotonic
        self._level = 0.0  # recent arrivals minus those that RATE allows; bounded, so that a surge is soon forgotten
        self._level_at = 0.0
        self._crowd = 0  # arrivals under way that came too fast

    @property
    def are_many(self) -> bool:
        """Return whether a surge is under way: many arrivals now, or two now and many shortly before.

        Arrivals that are admitted evenly are never many at once.
        """
        return self._crowd >= CHANCE or (self._crowd > 1 and self._leveled(self._now()) > CHANCE)

    @contextmanager
    def one(self) -> Iterator[None]:
        """Count one arrival while the context lasts."""
        now = self._now()
        self._level = min(max(0.0, self._leveled(now)) + 1, 2 * CHANCE)
        self._level_at = now
        too_fast = self._level > CHANCE
        self._crowd += too_fast
        try:
            yield
        finally:
            self._crowd -= too_fast

    def _leveled(self, now: float) -> float:
        return self._level - (now - self._level_at) * RATE
