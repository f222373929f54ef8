"""Admission of hellos: which are admitted now, which wait a moment, and when the rest should return.

The queue limits hellos per second and hellos under way. A limited number of hellos wait in the queue. When the queue is
full, a client is sent away with a turn, which is its own time to return. Turns follow one another a little slower than
the rate of admission, so clients that were sent away together return evenly. Returning clients are admitted before new
ones, because watchers may still see their sessions as online.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import inf
from sys import maxsize
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)

SHARE = 0.8  # share of the rate that is given away in turns; the rest is for clients that were not sent away before


class HelloQueue(Generic[T]):
    """Queue of hellos.

    Times are monotonic seconds. With `rate` None, only `at_once` limits hellos, and none is sent away.
    """

    def __init__(self, rate: float | None, at_once: int, waiting: int) -> None:
        self.under_way = 0  # admitted, and not ended yet
        self._rate = rate
        self._at_once = at_once
        self._most = waiting  # longest queue of returning clients, and of new clients
        self._level = rate or 0.0  # hellos that may be admitted now; at most those of one second
        self._updated = -inf
        self._returning: dict[T, None] = {}
        self._new: dict[T, None] = {}
        self._given = [-inf, -inf]  # time of the last turn given to a new client, and to a returning one

    @property
    def waiting(self) -> int:
        return len(self._returning) + len(self._new)

    def enter(self, now: float) -> bool:
        """Admit a hello at once, ahead of `ask` and `admit`; return False if it has to wait. It lasts until `ended`."""
        if self._returning or self._new or self.under_way >= self._at_once:
            return False
        if self._rate is not None:
            self._refill(self._rate, now)
            if self._level < 1.0:
                return False
        self.under_way += 1
        self._level -= 1.0
        return True

    def ask(self, who: T, now: float, *, returning: bool) -> float:
        """Queue a hello for `admit` and return 0, or return the seconds after which the client should return."""
        queue = self._returning if returning else self._new
        if self._rate is not None and len(queue) >= self._most:
            return self.turn(now, returning=returning)
        queue[who] = None
        return 0.0

    def turn(self, now: float, *, returning: bool) -> float:
        """Return the seconds after which a client that cannot wait here should return. No two clients get the same."""
        rate = self._rate or float(self._at_once)
        free = now + self.waiting / rate
        first = max(free, self._given[True]) if returning else max(free, *self._given)
        self._given[returning] = first + 1 / (rate * SHARE)
        return self._given[returning] - now

    def admit(self, now: float, most: int = maxsize) -> list[T]:
        """Take out and return the hellos to admit now, `most` at most. Each is under way until `ended`."""
        if self._rate is not None:
            self._refill(self._rate, now)
            most = min(most, int(self._level))
        most = min(most, self._at_once - self.under_way)
        admitted: list[T] = []
        while most > 0 and (queue := self._returning or self._new):
            who = next(iter(queue))
            del queue[who]
            admitted.append(who)
            self.under_way += 1
            self._level -= 1.0
            most -= 1
        return admitted

    def ended(self) -> None:
        """Count the end of an admitted hello."""
        self.under_way -= 1

    def forget(self, who: T) -> bool:
        """Remove a waiting hello; return whether it was waiting."""
        if who in self._returning:
            del self._returning[who]
            return True
        return self._new.pop(who, 0) is None

    def next_in(self) -> float | None:
        """Return the seconds until the rate admits another hello, as of the last `admit`.

        None if no hello waits, or if the rate is not the reason for the wait.
        """
        if self._rate is None or not self.waiting or self.under_way >= self._at_once:
            return None
        return max(0.0, (1.0 - self._level) / self._rate)

    def _refill(self, rate: float, now: float) -> None:
        self._level = min(rate, self._level + (now - max(self._updated, now - 1.0)) * rate)
        self._updated = now
