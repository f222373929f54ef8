"""Freshness: whether this node may show users by the visibility facts that it knows.

A change of visibility waits until each node has applied it. A node that hangs cannot answer. After a time the others
wait no longer (`node.cluster_rpc`), because each node keeps a promise: it is fresh while it knows all changes up to
FRESH_S ago, and while it is not fresh it shows no user.

Two things prove that a node is fresh. A beat, a message of the node to itself, came back through every server of the
bus: all earlier messages have come, too. Or the node has read the changes since its last revision from the store. So a
node that was stopped, or was cut off from the bus, reads the changes before it shows users again. Messages from the
bus wait meanwhile.

A node that can reach neither the bus nor the store continues to show users: without the store there are no changes.

Removals from rooms wait for every node with sessions of the user, but not for a node that is declared dead. So a node
whose last beat is older than half a lease may have missed removals. It then reads the members of its rooms, too, before
messages from the bus are delivered. If the store does not answer, only the records of rooms wait until it does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from greendot.engine.messages import Message, Topic
from greendot.errors import StoreUnavailable
from greendot.node.context import NodeContext
from greendot.node.time_slices import STEP
from greendot.telemetry import log_events
from greendot.telemetry.log import log

FRESH_S = 2.5  # a beat is sent each second
LONGEST_S = 3.0  # longest time for which messages wait for a read, and then for a review

Changed = Mapping[str, set[str]]  # by tenant: users whose facts are different


class VisibilityFreshness:
    """Freshness of one node. `heard_at` returns the time up to which all messages on the bus have arrived.

    Other nodes declare the node dead when its last renewal is older than `lease_s`. A node renews at least twice in a
    lease. So its last beat is then older than half a lease.
    """

    def __init__(self, heard_at: Callable[[], float], context: NodeContext, lease_s: float = 15.0) -> None:
        self._heard_at = heard_at
        self._awaited_s = lease_s / 2
        self._now = context.timers.now
        self._tasks = context.tasks
        self._slices = context.slices
        self.doubts = 0  # times that this node was not fresh: what it knew before may have changed
        self._until = float("-inf")  # the node is fresh until this time, without a further look
        self._read_at = float("-inf")  # start of the last read of changes
        self._beat_at = self._now()  # time of the newest known beat, or of the start
        self._members_at = float("-inf")  # start of the last read of members
        self._must_read_members = False
        self._is_stale = False  # changes must be read
        self._is_reading = False
        self._is_applying = False  # changes are being applied, then messages that wait are delivered
        self._changed: dict[str, set[str]] = {}  # users to review
        self._known: asyncio.Future[None] | None = None  # done when changes were read
        self._held = deque[tuple[Topic, Message]]()  # messages that wait
        # Set by `RoomService`: read the members of rooms, and remove listeners who may not stay.
        self.read_members: Callable[[], Awaitable[None]] | None = None
        # Set by `VisibilityUpdates` and the node: read changes, apply them, deliver a message.
        self.read: Callable[[], Awaitable[Changed]]
        self.review: Callable[[Changed], Coroutine[Any, Any, None]]
        self.deliver: Callable[[Topic, Message], None]

    def is_fresh(self) -> bool:
        """Return whether the facts include all changes up to FRESH_S ago. Begin to read the changes if not."""
        return self._now() < self._until or self._is_proven()

    def _is_proven(self) -> bool:
        if self._is_reading:
            return False
        self._until = max(self._read_at, self._heard_at()) + FRESH_S
        if self._now() < self._until:
            return True
        # During a long outage, the members are read less often than the changes.
        is_due = self._now() >= self._members_at + self._awaited_s
        self._doubt(may_miss_removals=is_due and self._is_unheard())
        return False

    def is_awaited(self) -> bool:
        """Return whether removals from rooms wait for this node, so that it knows all of them."""
        return not (self._must_read_members or self._is_reading or self._is_unheard())

    def _is_unheard(self) -> bool:
        """Return whether the last beat is so old that the node may have been declared dead."""
        if (now := self._now()) >= self._beat_at + self._awaited_s:
            self._beat_at = max(self._beat_at, self._heard_at())
        return now >= self._beat_at + self._awaited_s

    def doubt(self, *, was_dead: bool = False) -> None:
        """Read changes before users are shown again, because messages may have been missed.

        With `was_dead`, or if the last beat is old, read the members of rooms, too.
        """
        self._doubt(may_miss_removals=was_dead or self._is_unheard())

    def _doubt(self, *, may_miss_removals: bool) -> None:
        self.doubts += 1
        self._must_read_members = self._must_read_members or may_miss_removals
        self._until, self._is_stale = float("-inf"), True
        if not self._is_reading:
            self._is_reading = True
            self._tasks.spawn(self._read())

    async def known(self) -> None:
        """Wait until changes were read, if the node is not fresh."""
        if not self.is_fresh():
            if self._known is None:
                self._known = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._known)

    def receive(self, topic: Topic, message: Message) -> None:
        """Deliver a message from the bus, now or when the node is fresh. Messages to nodes do not wait."""
        if (not self._is_applying and self.is_fresh()) or topic.kind == "node":
            self.deliver(topic, message)
        else:
            self._held.append((topic, message))

    async def _read(self) -> None:
        """Read changes, then apply them. If this takes too long, it continues while the node shows users again."""
        try:
            while self._is_stale:
                self._is_stale, began = False, self._now()
                self._read_at = began if await self._within(self._read_all()) else self._now()
        finally:
            self._is_reading = self._is_stale = False
            known, self._known = self._known, None
            if known is not None and not known.done():
                known.set_result(None)
            self._begin_applying()

    async def _read_all(self) -> None:
        """Read changes and, if removals may be missed, members. A failure of one does not affect the other."""
        members = self.read_members
        if not self._must_read_members or members is None:
            self._must_read_members = False
            await self._read_changes()
            return
        self._must_read_members, self._members_at = False, self._now()
        await asyncio.gather(self._read_changes(), self._read_members(members))

    async def _read_changes(self) -> None:
        try:
            changed = await self.read()
        except StoreUnavailable as error:
            log(log_events.WORK_LATER, work="refresh of visibility", reason=error)
            return
        for tenant, users in changed.items():
            self._changed.setdefault(tenant, set()).update(users)
        if not self._is_reading:  # it took too long
            self._begin_applying()

    @staticmethod
    async def _read_members(read: Callable[[], Awaitable[None]]) -> None:
        try:
            await read()
        except StoreUnavailable as error:
            log(log_events.WORK_LATER, work="reading the members of rooms", reason=error)

    async def _within(self, work: Coroutine[Any, Any, None]) -> bool:
        """Return whether the work has ended in time. It is not cancelled."""
        task = self._tasks.begin(work)
        await asyncio.wait([task], timeout=LONGEST_S)
        if not task.done():
            log(log_events.WORK_LATER, work="refresh of visibility", reason="the store is slow")
        return task.done()

    def _begin_applying(self) -> None:
        if not self._is_applying:
            self._is_applying = True
            self._tasks.spawn(self._apply())

    async def _apply(self) -> None:
        """Review changed users, then deliver the messages that wait, in slices."""
        try:
            while (self._changed or self._held) and not self._is_reading:
                changed, self._changed = self._changed, {}
                await self._within(self.review(changed))
                while self._held and not self._changed and not self._is_reading:
                    await self._slices.turn()
                    for _ in range(min(STEP, len(self._held))):
                        self._deliver(*self._held.popleft())
        finally:
            self._is_applying = False

    def _deliver(self, topic: Topic, message: Message) -> None:
        try:
            self.deliver(topic, message)
        except Exception as error:  # one failing message must not stop the others
            log(log_events.WORK_FAILED, error, work="a message from the bus")
