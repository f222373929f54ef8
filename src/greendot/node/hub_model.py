"""Rates of the hub's writes: the topics with most writes, counted only while a reader asks, and the write throttle."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

PERIOD_S = 0.8  # shortest period of counting: several readers of one node get the same counts
HOLD_S = 5.0  # counting ends if the counts are not read for this time
MOST = 10_000  # topics counted in one period; further topics are left out. Reading them takes 4 ms

K = TypeVar("K", bound=Hashable)


class HotTopics(Generic[K]):
    """Counts of the current period, and of the last period. The counts of the last period are reported."""

    def __init__(self, now: float) -> None:
        self.ends_at = now + HOLD_S
        self._began = now
        self._counts: dict[K, int] = {}
        self._before: dict[K, int] = {}
        self._lasted_s = 1.0  # length of the last period

    def add(self, key: K, count: int) -> None:
        counts = self._counts
        if key in counts:
            counts[key] += count
        elif len(counts) < MOST:
            counts[key] = count

    def per_s(self, now: float) -> dict[K, float]:
        """Return each topic's writes per second in the last period. Start a new period after PERIOD_S."""
        self.ends_at = now + HOLD_S
        if now - self._began >= PERIOD_S:
            self._before, self._lasted_s = self._counts, now - self._began
            self._counts, self._began = {}, now
        return {key: count / self._lasted_s for key, count in self._before.items()}


BURST_S = 0.05  # writes that were not used in this time may be made at once


class WriteThrottle:
    """Bound on writes per second. The wait comes after a group of writes, so that a large group need not be cut."""

    __slots__ = ("_level", "_per_s", "_updated")

    def __init__(self, per_s: float, now: float) -> None:
        self._per_s = per_s
        self._level = per_s * BURST_S
        self._updated = now

    def take(self, count: int) -> None:
        self._level -= count

    def wait_s(self, now: float) -> float:
        """Return the seconds until writes are allowed again; 0.0 if they are now."""
        self._level = min(self._per_s * BURST_S, self._level + (now - self._updated) * self._per_s)
        self._updated = now
        return 0.0 if self._level > 0 else (1.0 - self._level) / self._per_s
