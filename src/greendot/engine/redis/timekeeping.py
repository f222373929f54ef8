"""The engine's time, as this node has it.

It is Redis' clock plus a correction kept in each partition, so that it goes on evenly when a server's clock is set or
another server takes over: lingers last as long as they should and versions never go back. The node carries the time on
by its own monotonic clock; a verb that would run at quite another time is refused, and the correction mended first.
"""

from __future__ import annotations

from greendot.clock import Clock

JUMP_MS = 2_500  # half of what a verb bears (lua/record.lua): mended before it can be refused
_MEND_EVERY_S = 60.0  # a node that is contradicted within this was wrong itself


class EngineTime:
    """Unknown until the first server has told."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_ms: float | None = None
        self._mended_at = float("-inf")

    @property
    def known(self) -> bool:
        return self._offset_ms is not None

    def now(self) -> int:
        """Milliseconds; 0 while unknown."""
        return 0 if self._offset_ms is None else int(self._clock.monotonic() * 1000 + self._offset_ms)

    def text(self) -> str:
        """As verbs take it."""
        return "" if self._offset_ms is None else str(int(self._clock.monotonic() * 1000 + self._offset_ms))

    def heard(self, told_ms: int) -> int:
        """A server says what time it is there. Answers by how much that must be corrected; 0: our own was adapted."""
        off = told_ms - self.now()
        now = self._clock.monotonic()
        if self._offset_ms is None or abs(off) <= JUMP_MS or now - self._mended_at < _MEND_EVERY_S:
            self._offset_ms = told_ms - now * 1000
            return 0
        return -off

    def mended(self) -> None:
        """A correction was written."""
        self._mended_at = self._clock.monotonic()

    def shift(self, ms: int) -> None:
        """Follow a correction somebody made on purpose."""
        if self._offset_ms is not None:
            self._offset_ms += ms
