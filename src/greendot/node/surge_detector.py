"""Surge detector: whether many clients are connecting or joining rooms at once."""

from __future__ import annotations

from types import TracebackType

from greendot.clock import Clock

RATE = 200.0  # arrivals per second: more than a node gets in normal operation
CHANCE = 8  # arrivals at a time that are no surge: one client with many rooms, or chance


class Arrival:
    """Context of an arrival. With a detector, the arrival came too fast and is counted until the context ends."""

    __slots__ = ("_detector",)

    def __init__(self, detector: SurgeDetector | None) -> None:
        self._detector = detector

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._detector is not None:
            self._detector.ended()


_UNCOUNTED = Arrival(None)


class SurgeDetector:
    """Counter of arrivals under way that came too fast. An arrival is counted until it is complete.

    If all arrivals under way were counted, arrivals that wait because of a surge would make the surge last for ever.
    """

    def __init__(self, clock: Clock) -> None:
        self._now = clock.monotonic
        self._level = 0.0  # recent arrivals minus those that RATE allows; bounded, so that a surge is soon forgotten
        self._level_at = 0.0
        self._crowd = 0  # arrivals under way that came too fast
        self._counted = Arrival(self)  # one object for all: it has no state of its own

    @property
    def are_many(self) -> bool:
        """Return whether a surge is under way: many arrivals now, or two now and many shortly before.

        Arrivals that are admitted evenly are never many at once.
        """
        return self._crowd >= CHANCE or (self._crowd > 1 and self._leveled(self._now()) > CHANCE)

    def one(self) -> Arrival:
        """Count one arrival, from this call to the end of the returned context."""
        now = self._now()
        self._level = min(max(0.0, self._leveled(now)) + 1, 2 * CHANCE)
        self._level_at = now
        if self._level <= CHANCE:
            return _UNCOUNTED
        self._crowd += 1
        return self._counted

    def ended(self) -> None:
        """Stop counting an arrival that came too fast."""
        self._crowd -= 1

    def _leveled(self, now: float) -> float:
        return self._level - (now - self._level_at) * RATE
