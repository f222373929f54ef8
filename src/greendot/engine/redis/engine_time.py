"""The engine's time, as this node has it.

It is Redis' clock plus a correction kept in each partition, so that it goes on evenly when a server's clock is set or
another server takes over: lingers last as long as they should and versions never go back. The node carries the time on
by its own monotonic clock; a verb that would run at quite another time is refused, and the correction mended first.
"""

from __future__ import annotations

from greendot.clock import Clock

JUMP_MS = 2_500  # half of what a verb bears (lua/record.lua): mended before it can be refused
_OURS_S = 60.0  # a node whose correction is replaced by another's within this was wrong itself
_YOUNG_S = 5.0  # so long those who were there before a node know the time better: it leaves corrections to them,
_DOUBT_S = 1.5  # and if they let a time stand that differs from its own for so long, it was told a wrong one first
_NONE = "0"


class EngineTime:
    """Unknown until the first server has told."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.learning = False  # while a node starts it believes what it is told
        self._young_until = float("-inf")
        self._doubts_since = float("inf")
        self._offset_ms: float | None = None
        self._wrote: dict[int, tuple[str, float]] = {}  # by partition, the correction that is ours, and since when
        self._right: dict[int, str] = {}  # by partition, the last correction under which the time was as we have it

    @property
    def known(self) -> bool:
        return self._offset_ms is not None

    def now(self) -> int:
        """Milliseconds; 0 while unknown."""
        return 0 if self._offset_ms is None else int(self._clock.monotonic() * 1000 + self._offset_ms)

    def text(self) -> str:
        """As verbs take it."""
        return "" if self._offset_ms is None else str(int(self._clock.monotonic() * 1000 + self._offset_ms))

    def observe(self, told_ms: int, partition: int = 0, correction: str = _NONE) -> int:
        """What time it is in a partition. Answers by how much its correction must change; 0: our own was adapted."""
        off = told_ms - self.now()
        now = self._clock.monotonic()
        fits = self._offset_ms is None or abs(off) <= JUMP_MS
        if fits:
            if self._right.get(partition, correction) != correction:
                # Another node has mended a later jump, and the time is as we have it: in no partition is a correction
                # that replaces an older one of ours a contradiction.
                self._wrote.clear()
            self._right[partition] = correction
        if not fits and now < self._young_until:
            self._doubts_since = min(self._doubts_since, now)
            if now - self._doubts_since < _DOUBT_S:
                return 0
            fits = True
        if fits or self.learning or self._contradicted(partition, correction):
            self._offset_ms = told_ms - now * 1000
            self._doubts_since = float("inf")
            return 0
        return -off

    def learnt(self, *, alone: bool) -> None:
        """The node has started, with nobody or others there."""
        self.learning = False
        self._young_until = float("-inf") if alone else self._clock.monotonic() + _YOUNG_S

    def _contradicted(self, partition: int, correction: str) -> bool:
        """Whether another node has just replaced what this one wrote. (None at all is a loss, not a contradiction.)"""
        wrote, at = self._wrote.get(partition, (correction, 0.0))
        return correction not in (wrote, _NONE) and self._clock.monotonic() - at < _OURS_S

    def mended(self, partition: int, correction: str) -> None:
        """This correction was written there by us."""
        self._wrote[partition] = correction, self._clock.monotonic()
        self._right[partition] = correction

    def shift(self, ms: int) -> None:
        """Follow a correction somebody made on purpose."""
        if self._offset_ms is not None:
            self._offset_ms += ms
