"""So much per second, for what can wait."""

from __future__ import annotations

BURST_S = 0.05  # what was not used lately may be used at once


class Throttle:
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
