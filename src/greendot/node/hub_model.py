"""Which topics are written to most: counted only while somebody looks, and forgotten soon after."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

PERIOD_S = 0.8  # counts are of at least so long: several who look at one node see the same
HOLD_S = 5.0  # nobody has looked for so long: it ends
MOST = 20_000  # topics counted in one period; those beyond are left out

K = TypeVar("K", bound=Hashable)


class Heat(Generic[K]):
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
