"""How much one connection may ask for."""

from __future__ import annotations

FLOOD_FACTOR = 10  # times the limit …
FLOOD_SECONDS = 10  # … in each of so many seconds on end closes the connection


class CommandLimit:
    """A token bucket, and a watch on those who keep ignoring it.

    `admit` is called for every frame. It costs two comparisons while a client stays within its rate.
    """

    __slots__ = ("_burst", "_flooded", "_level", "_next_second", "_rate", "_seen", "_updated")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._level = burst
        self._updated = now
        self._next_second = int(now) + 1  # when the current one is over
        self._seen = 0  # frames in the current second
        self._flooded = 0  # whole seconds on end with FLOOD_FACTOR times the rate

    @property
    def rate(self) -> float:
        return self._rate

    def change(self, rate: float, burst: float) -> None:
        """Other numbers from now on; what was used stays used."""
        self._level += burst - self._burst
        self._rate = rate
        self._burst = burst

    def admit(self, now: float) -> float:
        """0.0 if the frame is within the limit, else the seconds to wait before the next would be."""
        if now >= self._next_second:
            self._turn(int(now))
        self._seen += 1
        level = self._level + (now - self._updated) * self._rate
        if level > self._burst:
            level = self._burst
        self._updated = now
        if level >= 1.0:
            self._level = level - 1.0
            return 0.0
        self._level = level
        return (1.0 - level) / self._rate

    @property
    def flooding(self) -> bool:
        """Whether the client has sent ten times its rate for ten seconds on end."""
        return self._flooded >= FLOOD_SECONDS

    def _turn(self, second: int) -> None:
        unbroken = second == self._next_second and self._seen >= self._rate * FLOOD_FACTOR
        self._flooded = self._flooded + 1 if unbroken else 0
        self._next_second = second + 1
        self._seen = 0
