"""Who may say hello now, who waits a moment, and when the rest should come back.

So many per second, so many at once. A few wait; those beyond are given a turn each: the turns follow one another at the
rate at which hellos are taken, so a crowd that is sent away returns evenly and not as the crowd it was. Whoever comes
back to a session goes before those who are new: others may still see them as being there.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import inf
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)

SHARE = 0.8  # of the rate is given away in turns; the rest is for those who were not sent away before


class HelloQueue(Generic[T]):
    """Times are monotonic seconds. `rate` None: no limit but `at_once`, and nobody is sent away."""

    def __init__(self, rate: float | None, at_once: int, waiting: int) -> None:
        self.under_way = 0  # admitted, and not ended yet
        self._rate = rate
        self._at_once = at_once
        self._most = waiting  # of those who return, and as many who are new
        self._level = rate or 0.0  # a second's worth may come together
        self._updated = -inf
        self._returning: dict[T, None] = {}
        self._new: dict[T, None] = {}
        self._given = [-inf, -inf]  # when the last turn is that was given to somebody new, and who returns

    @property
    def waiting(self) -> int:
        return len(self._returning) + len(self._new)

    def ask(self, who: T, now: float, *, returning: bool) -> float:
        """0 if it may wait for `admit` to name it, else the seconds after which to come back."""
        queue = self._returning if returning else self._new
        if self._rate is not None and len(queue) >= self._most:
            return self.turn(now, returning=returning)
        queue[who] = None
        return 0.0

    def turn(self, now: float, *, returning: bool) -> float:
        """How long one who cannot wait here should stay away; no two are given the same."""
        rate = self._rate or float(self._at_once)
        free = now + self.waiting / rate
        first = max(free, self._given[True]) if returning else max(free, *self._given)
        self._given[returning] = first + 1 / (rate * SHARE)
        return self._given[returning] - now

    def admit(self, now: float) -> list[T]:
        """Those who may come in now. Each is under way until `ended`."""
        self._refill(now)
        admitted: list[T] = []
        while self.waiting and self.under_way < self._at_once and (self._rate is None or self._level >= 1.0):
            queue = self._returning or self._new
            who = next(iter(queue))
            del queue[who]
            self.under_way += 1
            self._level -= 1.0
            admitted.append(who)
        return admitted

    def ended(self) -> None:
        """One that was admitted is done."""
        self.under_way -= 1

    def forget(self, who: T) -> bool:
        """It does not wait any more; whether it did."""
        if who in self._returning:
            del self._returning[who]
            return True
        return self._new.pop(who, 0) is None

    def next_in(self) -> float | None:
        """Seconds until the rate lets another in, as of the last `admit`; None if that is not what keeps them."""
        if self._rate is None or not self.waiting or self.under_way >= self._at_once:
            return None
        return max(0.0, (1.0 - self._level) / self._rate)

    def _refill(self, now: float) -> None:
        if self._rate is not None:
            self._level = min(self._rate, self._level + (now - max(self._updated, now - 1.0)) * self._rate)
            self._updated = now
