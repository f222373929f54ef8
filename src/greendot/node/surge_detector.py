"""Those who are just coming in: clients that say hello or join a room. Whether they are a crowd."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from greendot.clock import Clock

RATE = 200.0  # a second: more than come to a node when nothing is the matter
CHANCE = 8  # so many at a time are one client with many rooms, or by chance


class SurgeDetector:
    """Only those who came too fast make a crowd, until they are in. Were all counted who are on their way, those who
    wait because there is a crowd would make it last for ever."""

    def __init__(self, clock: Clock) -> None:
        self._now = clock.monotonic
        self._level = 0.0  # who came, less what the rate lets through; bounded, so that a crowd is soon forgotten
        self._level_at = 0.0
        self._crowd = 0  # on their way, of those who came too fast

    @property
    def are_many(self) -> bool:
        """Many are on their way, or two and many before them: those who are let in evenly are never many at once."""
        return self._crowd >= CHANCE or (self._crowd > 1 and self._leveled(self._now()) > CHANCE)

    @contextmanager
    def one(self) -> Iterator[None]:
        """One comes in, as long as this lasts."""
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
