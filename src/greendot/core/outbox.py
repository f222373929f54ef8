"""What waits for one connection while its socket does not keep up.

Two lanes. Records and replies wait in order, up to a number of bytes; beyond it the client is too slow and must
reconnect and recover. Signals wait by key, the latest only, up to a number of keys and of bytes; beyond it they are
dropped. Records go first. There is no outbox while the socket keeps up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

MAX_RECORD_BYTES = 1024 * 1024
MAX_SIGNAL_KEYS = 1_000
MAX_SIGNAL_BYTES = 1024 * 1024


class Outbox:
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

    def drop(self, of: Callable[[object], bool]) -> None:
        """Forget what waits with a key that is `of` something the client may not see any more."""
        self._signals = {key: frame for key, frame in self._signals.items() if not of(key)}
        self._records = deque(item for item in self._records if not of(item[1]))
        self.record_bytes = sum(len(frame) for frame, _ in self._records)
        self.signal_bytes = sum(len(frame) for frame in self._signals.values())

    @property
    def pressed(self) -> bool:
        """Whether a lane is at least half full: worth a warning."""
        return (
            2 * self.record_bytes >= MAX_RECORD_BYTES
            or 2 * self.signal_bytes >= MAX_SIGNAL_BYTES
            or 2 * len(self._signals) >= MAX_SIGNAL_KEYS
        )

    def drain(self, most: int = 64 * 1024) -> bytes:
        """Take out about `most` bytes, records first; empty when nothing waits."""
        taken: list[bytes] = []
        size = 0
        while self._records and size < most:
            frame, _ = self._records.popleft()
            self.record_bytes -= len(frame)
            taken.append(frame)
            size += len(frame)
        while self._signals and size < most:
            frame = self._signals.pop(next(iter(self._signals)))
            self.signal_bytes -= len(frame)
            taken.append(frame)
            size += len(frame)
        return b"".join(taken)

    def __len__(self) -> int:
        return len(self._records) + len(self._signals)
