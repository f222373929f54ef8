"""Calls for a key, at most one in each period."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from greendot.node.timers import Timers

K = TypeVar("K")


class Coalescer(Generic[K]):
    """Coalescer of calls: `act` is called at once, and again at the end of the period if `soon` was called in it."""

    def __init__(self, timers: Timers, every_s: float, act: Callable[[K], None]) -> None:
        self._timers = timers
        self._every_s = every_s
        self._act = act
        self._again: dict[K, bool] = {}  # keys in their period, and whether to call again at its end

    def soon(self, key: K) -> bool:
        """Call `act` with the key, now or at the end of the key's period; return False if the call joins another."""
        if key not in self._again:
            self._begin(key)
            return True
        is_first, self._again[key] = not self._again[key], True
        return is_first

    def _begin(self, key: K) -> None:
        self._again[key] = False
        self._timers.set(self._every_s, self._over, key)
        self._act(key)

    def _over(self, key: K) -> None:
        if self._again.pop(key):
            self._begin(key)
