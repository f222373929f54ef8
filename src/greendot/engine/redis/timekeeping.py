"""The engine's time, as this node has it.

It is Redis' clock plus a correction kept in each partition, so that it goes on evenly when a server's clock is set or
another server takes over: lingers last as long as they should and versions never go back. The node carries the time on
by its own monotonic clock; a verb that would run at quite another time is refused, and the correction mended first.
"""

from __future__ import annotations

from greendot.clock import Clock

JUMP_MS = 2_500  # half of what a verb bears (lua/record.lua): mended before it can be refused
_OURS_S = 60.0  # a node whose correction is replaced by another's within this was wrong itself
_NONE = "0"


class EngineTime:
    """Unknown until the first server has told."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.learning = False  # while a node starts, whoever is there already knows the time better
        self._offset_ms: float | None = None
        self._wrote: dict[int, tuple[str, float]] = {}  # by partition, the correction that is ours, and since when

    @property
    def known(self) -> bool:
        return self._offset_ms is not None

    def now(self) -> int:
        """Milliseconds; 0 while unknown."""
        return 0 if self._offset_ms is None else int(self._clock.monotonic() * 1000 + self._offset_ms)

    def text(self) -> str:
        """As verbs take it."""
        return "" if self._offset_ms is None else str(int(self._clock.monotonic() * 1000 + self._offset_ms))

    def heard(self, told_ms: int, partition: int = 0, correction: str = _NONE) -> int:
        """What time it is in a partition. Answers by how much its correction must change; 0: our own was adapted."""
        off = told_ms - self.now()
        believed = self.learning or self._contradicted(partition, correction)
        if self._offset_ms is None or abs(off) <= JUMP_MS or believed:
            self._offset_ms = told_ms - self._clock.monotonic() * 1000
            return 0
        return -off

    def _contradicted(self, partition: int, correction: str) -> bool:
        """Whether another node has just replaced what this one wrote. (None at all is a loss, not a contradiction.)"""
        wrote, at = self._wrote.get(partition, (correction, 0.0))
        return correction not in (wrote, _NONE) and self._clock.monotonic() - at < _OURS_S

    def mended(self, partition: int, correction: str) -> None:
        """This correction was written there by us."""
        self._wrote[partition] = correction, self._clock.monotonic()

    def shift(self, ms: int) -> None:
        """Follow a correction somebody made on purpose."""
        if self._offset_ms is not None:
            self._offset_ms += ms
