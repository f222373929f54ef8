"""Delivery of numbered streams to the subscribers on this node, in order and without gaps.

A stream is the messages of a room, or the notifications of an inbox. Its entries are numbered 1, 2, 3 and so on. The
store keeps the entries. New entries come from other nodes by the bus. An entry may come late, before an earlier entry,
or not at all.

- Cursor: the number of the last entry that the node has forwarded to its subscribers. The node forwards entry 8 only
  after entry 7.
- Gap: the missing entries after the cursor. If entry 8 comes before entry 7, entry 8 waits. If entry 7 does not come
  within GAP_S, the node reads the gap from the store, once for all subscribers.
- Hint: the number of a new entry in the store, without the content of the entry. A room, or a kind of
  notification, may have the setting `bus = "hint"`, so that its content does not pass through Redis. For its entries,
  the bus carries only hints. The node then reads the gap from the store at once.
- Head: the last number of a stream in the store. The node compares its cursors with the heads periodically. So the node
  also finds a lost entry that no other entry follows.
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

GAP_S = 0.05  # seconds to wait for a missing entry before it is read from the store
AGAIN_S = 1.0  # longest wait after a failed read of the store
AT_ONCE = 1_000  # heads compared in one read
# Maximum number of missed entries sent to a returning client. If more entries are missing, the client fetches them.
RECOVER = 300
# Maximum total size of the missed entries sent to a returning client, in bytes. The node keeps these entries in memory
# until the client has read them.
RECOVER_BYTES = 4 * 1024 * 1024

T = TypeVar("T")


class LocalStream(Sequencer[T]):
    """Stream with subscribers on this node: its cursor, its waiting entries, and the state of its gap."""

    __slots__ = ("closed", "gap_timer", "hinted", "reading")

    def __init__(self) -> None:
        super().__init__()
        self.hinted = 0  # highest number of a hint; the store has entries up to this number
        self.gap_timer: Timer | None = None  # set while a read of the gap is scheduled
        self.reading: asyncio.Future[None] | None = None  # done when the read of the gap has ended
        self.closed = False  # the last subscriber has left

    def hint(self, seq: int) -> None:
        """Record a hint: the store has the entry `seq`."""
        self.hinted = max(self.hinted, seq)

    @property
    def is_behind(self) -> bool:
        return self.gap or self.hinted > self.cursor


class LocalOwner(Protocol):
    """Room or inbox with subscribers on this node."""

    stream: LocalStream[Any]


L = TypeVar("L", bound=LocalOwner)


class StreamFollower(ABC, Generic[L]):
    """All streams of one kind on this node: rooms, or inboxes. Subclasses read the store and forward entries."""

    def __init__(self, context: NodeContext, kind: str, compare_s: float) -> None:
        self._context = context
        self._kind = kind  # for the log, such as "inboxes"
        self._compare_s = compare_s  # seconds between two comparisons of all heads
        self._compare_timer: Timer | None = None

    @abstractmethod
    async def _read_gap(self, local: L) -> None:
        """Read the entries after the cursor from the store, and forward them. Meanwhile the bus may bring more."""

    @abstractmethod
    def _next_read_s(self, stream: LocalStream[Any], *, done: bool, moved: bool, hinted: bool) -> float | None:
        """Return the seconds until the next gap read; None if nothing is missing.

        The arguments describe the last gap read. `done`: the read succeeded. `moved`: the cursor moved. `hinted`: a
        hint came during the read, so the read may have missed the entry of the hint.
        """

    @abstractmethod
    async def _followed(self) -> Sequence[L]:
        """Return the streams to compare with the store."""

    @abstractmethod
    async def _compare_heads(self, some: Sequence[L]) -> None:
        """Read the heads of these streams from the store. Schedule a gap read if a cursor is below its head."""

    @abstractmethod
    def _log_gap(self, local: L, error: StoreUnavailable) -> None:
        """Log that the store failed, and that the gap will be read later."""

    # --- gaps ---

    def _schedule_if_behind(self, local: L) -> None:
        """Schedule a gap read if entries are missing.

        The read starts at once if there was a hint, or if too many entries wait. Otherwise the read starts after GAP_S:
        the missing entries may still come by the bus.
        """
        stream = local.stream
        if stream.is_behind:
            self._schedule(local, 0.0 if stream.hinted > stream.cursor or stream.overflown else GAP_S)

    def _schedule(self, local: L, wait_s: float) -> None:
        """Schedule a gap read, unless one is already scheduled or running."""
        stream = local.stream
        if stream.gap_timer is None and stream.reading is None and not stream.closed:
            stream.gap_timer = self._context.timers.set(wait_s, self._on_gap_timer, local)

    def _on_gap_timer(self, local: L) -> None:
        local.stream.gap_timer = None
        if local.stream.is_behind:
            self._context.tasks.spawn(self.fill_quietly(local))

    async def fill_quietly(self, local: L) -> None:
        """Read the gap, unless a gap read is running. If the store fails, log this and try again later."""
        if local.stream.reading is not None:
            return
        try:
            await self._fill(local)
        except StoreUnavailable as error:
            self._log_gap(local, error)

    async def _fill(self, local: L) -> None:
        """Read the gap. If a gap read is already running, only wait for its end."""
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
        if local.stream.gap_timer is not None:
            self._context.timers.cancel(local.stream.gap_timer)

    # --- heads ---

    def _set_compare_timer(self) -> None:
        """Schedule the next comparison of cursors with heads, if none is scheduled."""
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
        """Compare the cursors of streams with their heads in the store. One read has at most AT_ONCE streams."""
        for at in range(0, len(streams), AT_ONCE):
            await self._compare_heads(streams[at : at + AT_ONCE])


def retry_s() -> float:
    """Return the seconds until a failed read is tried again: a new random time in each call.

    So the reads of many streams that failed together are not tried again together.
    """
    return AGAIN_S * random.uniform(0.5, 1)
