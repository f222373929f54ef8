"""Order of one stream of records: out as 1, 2, 3 …, each once, however the records arrive.

Records are numbered when they are committed. But two nodes may publish in another order, and the bus may lose or repeat
a record. The next record passes, and a known record is dropped. An early record is held, which means that it waits for
the records before it. If these do not arrive, the owner of the stream reads the gap from the store.
"""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")
MOST_HELD = 300  # maximum number of held records; then the gap is read at once, and further early records are dropped


class Sequencer(Generic[T]):
    """Sequencer of one stream on one node. `cursor` is the number of the last record that passed."""

    __slots__ = ("_held", "cursor")

    def __init__(self, cursor: int = 0) -> None:
        self.cursor = cursor
        self._held: dict[int, T] | None = None  # made on first use: every user has a sequencer, and few have a gap

    def offer(self, seq: int, record: T) -> list[T]:
        """Return the records that may pass now, in order: this record and held ones; none if it is early or known."""
        if seq != self.cursor + 1:
            if seq > self.cursor and not self.overflown:
                if self._held is None:
                    self._held = {}
                self._held.setdefault(seq, record)
            return []
        through = [record]
        self.cursor = seq
        # Usually nothing is held, and the loop does not run.
        while self._held and (early := self._held.pop(self.cursor + 1, None)) is not None:
            through.append(early)
            self.cursor += 1
        return through

    @property
    def gap(self) -> bool:
        """Return whether a record is missing before the held ones."""
        return bool(self._held)

    @property
    def overflown(self) -> bool:
        return self._held is not None and len(self._held) >= MOST_HELD

    def skip_to(self, head: int) -> list[T]:
        """Skip all records up to `head`; return the held records that directly follow `head`."""
        if head <= self.cursor:
            return []
        self.cursor = head
        if self._held is None:
            return []
        self._held = {seq: record for seq, record in self._held.items() if seq > head}
        first = self._held.pop(head + 1, None)
        if first is None:
            return []
        return self.offer(head + 1, first)
