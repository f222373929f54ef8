"""Engine's time, as this node keeps it.

The engine's time is Redis' clock plus a correction, which each partition stores. If a server's clock is set, or another
server takes over, the clock can jump. The nodes change the correction after a jump of more than JUMP_MS, and adopt a
smaller jump. So graces keep their length, except for jumps of up to JUMP_MS.

The node advances its own copy of the time by its monotonic clock. Each verb (Lua script) gets the node's time. If the
node's time differs too much from the partition's time, the verb is refused. The node then repairs the correction and
retries.
"""

from __future__ import annotations

from greendot.clock import Clock

# Greatest difference that is not repaired. It is half of the difference that verbs accept (OFF_MS in lua/record.lua),
# so that a repair usually precedes a refusal.
JUMP_MS = 2_500
_OURS_S = 60.0  # seconds; if another node replaces this node's correction within this time, this node's time was wrong
_YOUNG_S = 5.0  # seconds in which a new node leaves corrections to older nodes, which know the time better
_DOUBT_S = 1.5  # seconds; if a partition's time still differs after this time, a new node adopts the partition's time
_NONE = "0"


class EngineTime:
    """Engine's time. Unknown until the first Redis server has answered."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.learning = False  # True while the node starts: it then adopts the time of every partition that it reads
        self._young_until = float("-inf")
        self._doubts_since = float("inf")
        self._offset_ms: float | None = None
        self._wrote: dict[int, tuple[str, float]] = {}  # by partition: the correction this node wrote, and its time
        # By partition: the last correction with which the partition's time matched this node's time. A repair by this
        # node clears all older entries.
        self._right: dict[int, str] = {}

    @property
    def known(self) -> bool:
        return self._offset_ms is not None

    def now(self) -> int:
        """Return milliseconds; 0 while unknown."""
        return 0 if self._offset_ms is None else int(self._clock.monotonic() * 1000 + self._offset_ms)

    def text(self) -> str:
        """Return the time as an argument of verbs; empty while unknown."""
        return "" if self._offset_ms is None else str(int(self._clock.monotonic() * 1000 + self._offset_ms))

    def observe(self, told_ms: int, partition: int = 0, correction: str = _NONE) -> int:
        """Compare a partition's time with this node's. Return the milliseconds to add to the partition's correction.

        Return 0 if the node has adopted the partition's time instead, or if the node is new and leaves corrections to
        other nodes for now.
        """
        off = told_ms - self.now()
        now = self._clock.monotonic()
        fits = self._offset_ms is None or abs(off) <= JUMP_MS
        if fits:
            if self._right.get(partition, correction) != correction:
                # The correction is new, and the partition's time matches this node's time. So there was a new
                # jump after this node's last repair, and another node has repaired it correctly. Forget the corrections
                # that this node wrote. Other nodes now replace them because of the new jump. `_contradicted` must not
                # conclude from this that this node's time was wrong.
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
        """End the learning phase of a starting node. `alone` means that there are no other live nodes."""
        self.learning = False
        self._young_until = float("-inf") if alone else self._clock.monotonic() + _YOUNG_S

    def _contradicted(self, partition: int, correction: str) -> bool:
        """Return whether another node has replaced this node's correction because this node's time was wrong.

        This is so if this node wrote its correction less than `_OURS_S` ago, and the new one differs by more than
        JUMP_MS from all corrections in `_right`. These are this node's last repair, and the corrections that have
        matched since. A missing correction is a loss, not a conflict. Two nodes that repair a jump
        at the same time each write some of the partitions, and their corrections differ by milliseconds.
        """
        wrote, at = self._wrote.get(partition, (correction, 0.0))
        if correction in (wrote, _NONE) or self._clock.monotonic() - at >= _OURS_S:
            return False
        return all(abs(int(correction) - int(right)) > JUMP_MS for right in self._right.values())

    def mended(self, partition: int, correction: str) -> None:
        """Record that this node wrote the correction in the partition."""
        self._wrote[partition] = correction, self._clock.monotonic()
        self._right = {partition: correction}

    def shift(self, ms: int) -> None:
        """Move the node's time by `ms`. Only for tests."""
        if self._offset_ms is not None:
            self._offset_ms += ms
