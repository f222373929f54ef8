"""Model of metrics: rates from counters, sums, and histograms."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple


class Reading(NamedTuple):
    """Counters with the time of their reading."""

    at_ms: int  # on the clock of the counting node, which never jumps
    counts: Mapping[str, int]


def rates(before: Reading | None, now: Reading) -> dict[str, float]:
    """Return the rates per second since `before`, for counters in both readings; empty without an earlier reading.

    A counter below its earlier value restarted with its node: its whole value is new.
    """
    if before is None or now.at_ms <= before.at_ms:
        return {}
    passed_s = (now.at_ms - before.at_ms) / 1000
    found: dict[str, float] = {}
    for name, count in now.counts.items():
        if (earlier := before.counts.get(name)) is not None:
            found[name] = (count - earlier if count >= earlier else count) / passed_s
    return found


def summed(of: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the sums by name."""
    total: dict[str, float] = {}
    for one in of:
        for name, value in one.items():
            total[name] = total.get(name, 0) + value
    return total


def worst(of: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the maxima by name."""
    most: dict[str, float] = {}
    for one in of:
        for name, value in one.items():
            most[name] = max(most.get(name, value), value)
    return most


LATENCY_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SHORT_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5)  # for round trips


class Histogram:
    """Histogram of one distribution. Adding a value is a search among a few numbers and two additions."""

    __slots__ = ("_counts", "bounds", "total")

    def __init__(self, bounds: Sequence[float] = LATENCY_S) -> None:
        self.bounds = tuple(bounds)
        self.total = 0.0  # sum of all values
        self._counts = [0] * (len(self.bounds) + 1)  # by bucket; the last has no upper bound

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def add(self, value: float, many: int) -> None:
        """Add the same value `many` times."""
        self._counts[bisect_left(self.bounds, value)] += many
        self.total += value * many

    @property
    def count(self) -> int:
        return sum(self._counts)

    def buckets(self) -> Iterator[tuple[float, int]]:
        """Yield the upper bound of each bucket that has one, and the number of values up to it."""
        reached = 0
        for bound, count in zip(self.bounds, self._counts, strict=False):
            reached += count
            yield bound, reached


class MetricSample(NamedTuple):
    """Sample of one series: metric name, value, and the labels that distinguish the series."""

    name: str
    value: float | Histogram
    labels: Mapping[str, str] = {}
