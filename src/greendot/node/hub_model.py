"""Which topics are written to most: counted only while somebody looks, and forgotten soon after."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

PERIOD_S = 0.8  # counts are of at least so long: several who look at one node see the same
HOLD_S = 5.0  # nobody has looked for so long: it ends
MOST = 20_000  # topics counted in one period; those beyond are left out

K = TypeVar("K", bound=Hashable)


class HotTopics(Generic[K]):
    """Counts of the period under way, and those of the one before, which are shown."""

    def __init__(self, now: float) -> None:
        self.ends_at = now + HOLD_S
        self._began = now
        self._counts: dict[K, int] = {}
        self._before: dict[K, int] = {}
        self._lasted_s = 1.0  # the period before

    def add(self, key: K, count: int) -> None:
        counts = self._counts
        if key in counts:
            counts[key] += count
        elif len(counts) < MOST:
            counts[key] = count

    def per_s(self, now: float) -> dict[K, float]:
        """How much there was a second, of each that had any."""
        self.ends_at = now + HOLD_S
        if now - self._began >= PERIOD_S:
            self._before, self._lasted_s = self._counts, now - self._began
            self._counts, self._began = {}, now
        return {key: count / self._lasted_s for key, count in self._before.items()}


BURST_S = 0.05  # what was not used lately may be used at once


class WriteThrottle:
    """What was taken is paid for by waiting afterwards, so that a large piece need not be cut."""

    __slots__ = ("_level", "_per_s", "_updated")

    def __init__(self, per_s: float, now: float) -> None:
        self._per_s = per_s
        self._level = per_s * BURST_S
        self._updated = now

    def take(self, count: int) -> None:
        self._level -= count

    def wait_s(self, now: float) -> float:
        """How long nothing more may be taken; 0.0 if something may."""
        self._level = min(self._per_s * BURST_S, self._level + (now - self._updated) * self._per_s)
        self._updated = now
        return 0.0 if self._level > 0 else (1.0 - self._level) / self._per_s
