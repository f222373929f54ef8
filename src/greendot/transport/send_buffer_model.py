"""Send buffer of one connection: frames that wait while its socket does not keep up.

The buffer has two lanes. Records and replies wait in order, up to a number of bytes. If this lane is full, the client
is too slow and must reconnect and recover. Signals wait by key, and only the latest of each key, up to a number of keys
and of bytes. If this lane is full, new signals are dropped. Records are sent first. There is no send buffer while the
socket keeps up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

MAX_RECORD_BYTES = 1024 * 1024
MAX_SIGNAL_KEYS = 1_000
MAX_SIGNAL_BYTES = 1024 * 1024
PART_BYTES = 64 * 1024  # bytes per write


class BufferedFrame(NamedTuple):
    """Frame that waits, or was taken out to be written."""

    frame: bytes
    record: bool
    key: object


class SendBuffer:
    """Two lanes of one slow connection."""

    __slots__ = ("_records", "_signals", "record_bytes", "signal_bytes", "warned")

    def __init__(self) -> None:
        self._records: deque[tuple[bytes, object]] = deque()  # frames with their keys
        self._signals: dict[object, bytes] = {}
        self.record_bytes = 0
        self.signal_bytes = 0
        self.warned = False  # the owner was notified once that the buffer is half full

    def offer_record(self, frame: bytes, key: object = None) -> bool:
        """Queue a frame that must arrive, in order. Return False if the client is too slow and must be closed."""
        # A single frame may be larger than the limit: the reply to a large request.
        if self._records and self.record_bytes + len(frame) > MAX_RECORD_BYTES:
            return False
        self.keep(frame, key)
        return True

    def keep(self, frame: bytes, key: object = None) -> None:
        """Queue a frame that was accepted before it had to wait, even if the lane is full."""
        self._records.append((frame, key))
        self.record_bytes += len(frame)

    def offer_signal(self, frame: bytes, key: object = None) -> bool:
        """Store the latest frame of `key`. Frames with `key` None never replace each other. Return False if dropped."""
        if key is None:
            key = object()
        # The latest frame goes to the end. It must not take the earlier place of the frame that it replaces.
        if (older := self._signals.pop(key, None)) is not None:
            self.signal_bytes -= len(older)
        if len(self._signals) >= MAX_SIGNAL_KEYS or self.signal_bytes + len(frame) > MAX_SIGNAL_BYTES:
            return False
        self._signals[key] = frame
        self.signal_bytes += len(frame)
        return True

    def signal(self, key: object) -> bytes | None:
        """Return the waiting signal of `key`, which the next signal of `key` replaces."""
        return self._signals.get(key)

    def drop(self, of: Callable[[object], bool]) -> list[object]:
        """Drop waiting frames whose key matches `of`; return the keys in order.

        The client may no longer see these frames.
        """
        waiting = self.take(self.record_bytes + self.signal_bytes)
        self.put_back(item for item in waiting if not of(item.key))
        return [item.key for item in waiting if of(item.key)]

    @property
    def pressed(self) -> bool:
        """Return whether a lane is at least half full, which is worth a warning."""
        return (
            2 * self.record_bytes >= MAX_RECORD_BYTES
            or 2 * self.signal_bytes >= MAX_SIGNAL_BYTES
            or 2 * len(self._signals) >= MAX_SIGNAL_KEYS
        )

    def take(self, most: int = PART_BYTES) -> list[BufferedFrame]:
        """Take out frames of about `most` bytes, records first; return an empty list if nothing waits."""
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
        """Put back frames that were taken out and not written, at the front."""
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
