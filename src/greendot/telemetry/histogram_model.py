"""How long things take, or how many there are, counted in buckets.

What is measured a thousand times a second is remembered in a dozen integers. Where the buckets end is decided once; a
value belongs to the first bucket whose end it does not exceed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

LATENCY_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SHORT_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5)  # round trips


class Histogram:
    """One distribution. Adding a value is a search among a few numbers and two additions."""

    __slots__ = ("_counts", "bounds", "total")

    def __init__(self, bounds: Sequence[float] = LATENCY_S) -> None:
        self.bounds = tuple(bounds)
        self.total = 0.0  # of all values
        self._counts = [0] * (len(self.bounds) + 1)  # by bucket; the last has no end

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def add(self, value: float, many: int) -> None:
        """The same value many times."""
        self._counts[bisect_left(self.bounds, value)] += many
        self.total += value * many

    @property
    def count(self) -> int:
        return sum(self._counts)

    def buckets(self) -> Iterator[tuple[float, int]]:
        """The end of each bucket that has one, and how many values do not exceed it."""
        reached = 0
        for bound, count in zip(self.bounds, self._counts, strict=False):
            reached += count
            yield bound, reached
