"""Numbered streams with subscribers on this node: messages of a room, notifications of an inbox.

The node forwards only the next number. An entry that comes early waits for the entries before it. If these do not come
within GAP_S, the gap is read from the store, once for all subscribers. A hint is a number without its content; then the
gap is read at once. The head is the last number of a stream. Heads are compared with the store periodically, so that an
entry whose message was lost is found although no other entry follows.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from greendot.errors import StoreUnavailable
from greendot.node.context import NodeContext
from greendot.node.stream_model import Sequencer
from greendot.node.timer_model import Timer
from greendot.telemetry import log_events
from greendot.telemetry.log import log

GAP_S = 0.05  # wait for a missing entry before the entry is read from the store
AGAIN_S = 1.0  # longest wait after a failed read of the store
AT_ONCE = 1_000  # heads compared in one read
# Maximum number of missed entries sent to a returning client. If more are missing, the client fetches them.
RECOVER = 300
RECOVER_BYTES = 4 * 1024 * 1024  # maximum bytes of these entries, which wait in memory until the client reads

T = TypeVar("T")


class LocalStream(Sequencer[T]):
    """Stream as far as it was forwarded to the subscribers on this node, and the state of its gap."""

    __slots__ = ("closed", "gap_timer", "hinted", "reading")

    def __init__(self) -> None:
        super().__init__()
        self.hinted = 0  # newest number announced without its content
        self.gap_timer: Timer | None = None  # set while a read of the gap is scheduled
        self.reading: asyncio.Future[None] | None = None  # done when the read of the gap has ended
        self.closed = False  # the last subscriber has left

    def hint(self, seq: int) -> None:
        """Record that the store has an entry whose content does not come by the bus."""
        self.hinted = max(self.hinted, seq)

    @property
    def is_behind(self) -> bool:
        return self.gap or self.hinted > self.cursor


class LocalOwner(Protocol):
    """Local room or inbox."""

    stream: LocalStream[Any]


L = TypeVar("L", bound=LocalOwner)


class StreamFollower(ABC, Generic[L]):
    """All local streams of one kind. Subclasses implement reads and forwarding."""

    def __init__(self, context: NodeContext, kind: str, compare_s: float) -> None:
        self._context = context
        self._kind = kind  # plural, for the log
        self._compare_s = compare_s  # seconds between two comparisons of all heads
        self._compare_timer: Timer | None = None

    @abstractmethod
    async def _read_gap(self, local: L) -> None:
        """Forward the entries that the store has after the cursor. Entries may arrive during the read."""

    @abstractmethod
    def _next_read_s(self, stream: LocalStream[Any], *, done: bool, moved: bool, hinted: bool) -> float | None:
        """Return the seconds until the next gap read; None if nothing is missing.

        `done`, `moved` and `hinted` describe the last read: whether it succeeded, whether the cursor moved, and whether
        a hint came that the read may not contain.
        """

    @abstractmethod
    async def _followed(self) -> Sequence[L]:
        """Return the streams to compare with the store."""

    @abstractmethod
    async def _compare_heads(self, some: Sequence[L]) -> None:
        """Read the heads of some streams together. Schedule a gap read for streams that are behind the store."""

    @abstractmethod
    def _log_gap(self, local: L, error: StoreUnavailable) -> None:
        """Log that a gap will be read later."""

    # --- gaps ---

    def _schedule_if_behind(self, local: L) -> None:
        """Schedule a gap read if entries are missing: at once for a hint or if many entries wait, else after GAP_S."""
        stream = local.stream
        if stream.is_behind:
            self._schedule(local, 0.0 if stream.hinted > stream.cursor or stream.overflown else GAP_S)

    def _schedule(self, local: L, wait_s: float) -> None:
        """Schedule a gap read, unless one is scheduled or under way."""
        stream = local.stream
        if stream.gap_timer is None and stream.reading is None and not stream.closed:
            stream.gap_timer = self._context.timers.set(wait_s, self._on_gap_timer, local)

    def _on_gap_timer(self, local: L) -> None:
        local.stream.gap_timer = None
        if local.stream.is_behind:
            self._context.tasks.spawn(self.fill_quietly(local))

    async def fill_quietly(self, local: L) -> None:
        """Read the gap, unless a read is under way. A failure is logged, and retried later."""
        if local.stream.reading is not None:
            return
        try:
            await self._fill(local)
        except StoreUnavailable as error:
            self._log_gap(local, error)

    async def _fill(self, local: L) -> None:
        """Read the gap, or wait for the read under way. Entries that arrive during the read are sorted by number."""
        stream = local.stream
        if stream.reading is not None:
            await asyncio.shield(stream.reading)
            return
        stream.reading, cursor, hinted = asyncio.get_running_loop().create_future(), stream.cursor, stream.hinted
        done = False
        try:
            await self._read_gap(local)
            done = True
        finally:
            stream.reading.set_result(None)
            stream.reading = None
            moved, is_new = stream.cursor > cursor, stream.hinted > max(hinted, stream.cursor)
            if (wait_s := self._next_read_s(stream, done=done, moved=moved, hinted=is_new)) is not None:
                self._schedule(local, wait_s)

    def drop(self, local: L) -> None:
        """Stop following the stream, because its last subscriber has left."""
        local.stream.closed = True
        self._context.timers.cancel(local.stream.gap_timer)

    # --- heads ---

    def _set_compare_timer(self) -> None:
        """Schedule the next comparison of heads, if none is scheduled."""
        if self._compare_timer is None:
            wait_s = self._compare_s * random.uniform(0.8, 1.0)
            self._compare_timer = self._context.timers.set(wait_s, self._on_compare_timer)

    def _on_compare_timer(self, _: None) -> None:
        self._compare_timer = None
        self._context.tasks.spawn(self._compare_quietly())

    async def _compare_quietly(self) -> None:
        if not (streams := await self._followed()):
            return
        self._set_compare_timer()
        try:
            await self._compare(streams)
        except StoreUnavailable as error:
            log(log_events.WORK_LATER, work=f"comparing {self._kind}", reason=error)

    async def _compare(self, streams: Sequence[L]) -> None:
        """Compare the heads of streams with the store, AT_ONCE at a time."""
        for at in range(0, len(streams), AT_ONCE):
            await self._compare_heads(streams[at : at + AT_ONCE])


def retry_s() -> float:
    """Return the seconds until a failed read is retried, different for each stream."""
    return AGAIN_S * random.uniform(0.5, 1)
