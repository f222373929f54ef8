"""What waits for one connection while its socket does not keep up.

Two lanes. Records and replies wait in order, up to a number of bytes; beyond it the client is too slow and must
reconnect and recover. Signals wait by key, the latest only, up to a number of keys and of bytes; beyond it they are
dropped. Records go first. There is no outbox while the socket keeps up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

MAX_RECORD_BYTES = 1024 * 1024
MAX_SIGNAL_KEYS = 1_000
MAX_SIGNAL_BYTES = 1024 * 1024
PART_BYTES = 64 * 1024  # written at a time


class BufferedFrame(NamedTuple):
    """A frame that waits, or is taken out to be written."""

    frame: bytes
    record: bool
    key: object


class SendBuffer:
    """The two lanes of one slow connection."""

    __slots__ = ("_records", "_signals", "record_bytes", "signal_bytes", "warned")

    def __init__(self) -> None:
        self._records: deque[tuple[bytes, object]] = deque()  # with their keys
        self._signals: dict[object, bytes] = {}
        self.record_bytes = 0
        self.signal_bytes = 0
        self.warned = False  # that it is half full; once is enough

    def offer_record(self, frame: bytes, key: object = None) -> bool:
        """Queue a frame that must arrive, in order. False: the client is too slow, close it."""
        # One frame may be larger than all that may wait: the answer to a large question.
        if self._records and self.record_bytes + len(frame) > MAX_RECORD_BYTES:
            return False
        self.keep(frame, key)
        return True

    def keep(self, frame: bytes, key: object = None) -> None:
        """Queue a frame that was let in before it was known that it has to wait."""
        self._records.append((frame, key))
        self.record_bytes += len(frame)

    def offer_signal(self, frame: bytes, key: object = None) -> bool:
        """Keep the latest frame of `key` (each frame its own where `key` is None). False: dropped."""
        if key is None:
            key = object()
        # The latest value takes the last place too: what it replaces must not make it jump the queue.
        if (older := self._signals.pop(key, None)) is not None:
            self.signal_bytes -= len(older)
        if len(self._signals) >= MAX_SIGNAL_KEYS or self.signal_bytes + len(frame) > MAX_SIGNAL_BYTES:
            return False
        self._signals[key] = frame
        self.signal_bytes += len(frame)
        return True

    def signal(self, key: object) -> bytes | None:
        """Return the signal that waits under `key`, which the next one of that key replaces."""
        return self._signals.get(key)

    def drop(self, of: Callable[[object], bool]) -> list[object]:
        """Forget what waits with a key that is `of` something the client may not see any more; the keys, in order."""
        waiting = self.take(self.record_bytes + self.signal_bytes)
        self.put_back(item for item in waiting if not of(item.key))
        return [item.key for item in waiting if of(item.key)]

    @property
    def pressed(self) -> bool:
        """Whether a lane is at least half full: worth a warning."""
        return (
            2 * self.record_bytes >= MAX_RECORD_BYTES
            or 2 * self.signal_bytes >= MAX_SIGNAL_BYTES
            or 2 * len(self._signals) >= MAX_SIGNAL_KEYS
        )

    def take(self, most: int = PART_BYTES) -> list[BufferedFrame]:
        """Take out frames of about `most` bytes, records first; none when nothing waits."""
        taken: list[BufferedFrame] = []
        size = 0
        while self._records and size < most:
            frame, key = self._records.popleft()
            self.record_bytes -= len(frame)
            taken.append(BufferedFrame(frame, True, key))
            size += len(frame)
        while self._signals and size < most:
            key = next(iter(self._signals))
            frame = self._signals.pop(key)
            self.signal_bytes -= len(frame)
            taken.append(BufferedFrame(frame, False, key))
            size += len(frame)
        return taken

    def put_back(self, taken: Iterable[BufferedFrame]) -> None:
        """What was taken out and not written is first again."""
        records: list[tuple[bytes, object]] = []
        signals: dict[object, bytes] = {}
        for frame, record, key in taken:
            if record:
                records.append((frame, key))
                self.record_bytes += len(frame)
            else:
                signals[key] = frame
                self.signal_bytes += len(frame)
        self._records.extendleft(reversed(records))
        self._signals = signals | self._signals if signals else self._signals

    def __len__(self) -> int:
        return len(self._records) + len(self._signals)
