"""The order of one stream of records: whatever way they come, they go out as 1, 2, 3 …, each once.

Records are numbered when they are committed, but two nodes may publish in another order, the bus may lose one or bring
it twice. What is next goes through, what was there is dropped, what is early is held. A gap that stays is read from the
store by the owner of the line, once for all listeners.
"""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")
MOST_HELD = 300  # records held back; beyond it the gap is read at once and what was held is read with it


class Sequencer(Generic[T]):
    """One stream at one place. `cursor` is the number of the last record let through."""

    __slots__ = ("_held", "cursor")

    def __init__(self, cursor: int = 0) -> None:
        self.cursor = cursor
        self._held: dict[int, T] | None = (
            None  # made on first use: there is a line for every user, and few miss anything
        )

    def offer(self, seq: int, record: T) -> list[T]:
        """What may go out now that this record is here, in order; empty if it is early or was there already."""
        if seq != self.cursor + 1:
            if seq > self.cursor and not self.overflown:
                if self._held is None:
                    self._held = {}
                self._held.setdefault(seq, record)
            return []
        through = [record]
        self.cursor = seq
        # Most of the time nothing is held, and this is all there is to do.
        while self._held and (early := self._held.pop(self.cursor + 1, None)) is not None:
            through.append(early)
            self.cursor += 1
        return through

    @property
    def gap(self) -> bool:
        """Whether something is missing before what is held."""
        return bool(self._held)

    @property
    def overflown(self) -> bool:
        return self._held is not None and len(self._held) >= MOST_HELD

    def skip_to(self, head: int) -> list[T]:
        """Give up everything up to `head`; what was held beyond it may go out."""
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
