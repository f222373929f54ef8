"""A room with listeners on this node, and what is known of it here."""

from __future__ import annotations

import asyncio
from collections import deque

from greendot.engine.messages import Deliver, MembersChanged
from greendot.node.channel import Channel
from greendot.node.stream import RECOVER, RECOVER_BYTES, LocalStream
from greendot.node.subscriptions import TopicSubscription
from greendot.rooms.occupancy import RoomOccupancy
from greendot.rooms.typing import RoomTyping
from greendot.store.rooms import MemberState, Record, Room


class Recent:
    """The newest records of a room without a gap, kept so that many who return at once share one read."""

    __slots__ = ("_bytes", "_records", "last")

    def __init__(self, last: int) -> None:
        self._records: deque[Record] = deque()
        self._bytes = 0
        self.last = last  # everything up to here was looked at

    def add(self, records: list[Record]) -> None:
        """What comes next."""
        for record in records:
            self._records.append(record)
            self._bytes += len(record.body)
            self.last = record.seq
        while len(self._records) > RECOVER or (self._bytes > RECOVER_BYTES and self._records):
            self._bytes -= len(self._records.popleft().body)

    def after(self, seq: int) -> list[Record] | None:
        """Everything after `seq`; None if that is not all kept."""
        first = self._records[0].seq if self._records else self.last + 1
        if seq + 1 < first:
            return None
        return [record for record in self._records if record.seq > seq]


class LocalRoom(TopicSubscription):
    """A room with listeners on this node."""

    __slots__ = (
        "checking",
        "members_rev",
        "present",
        "recent",
        "removals",
        "returning",
        "roles",
        "room",
        "stream",
        "typing",
        "unchecked",
    )

    def __init__(self, channel: Channel, typing: RoomTyping, present: RoomOccupancy) -> None:
        super().__init__(channel)
        self.typing = typing
        self.present = present
        self.stream: LocalStream[bytes] = LocalStream()  # the messages, as offered to the listeners
        self.recent: Recent | None = None  # made when somebody first returns
        self.returning = asyncio.Lock()  # held while `recent` is read
        self.room: Room | None = None  # as of `members_rev`; its head may be behind the cursor
        self.members_rev = 0  # the newest revision of who may be in it that this node acted on
        self.roles: dict[str, MemberState] = {}  # of those who asked, as of `members_rev`; the marker is not looked at
        # What waits while the members are looked up: records, and news that they have changed again.
        self.unchecked: list[Deliver | MembersChanged] | None = None
        self.checking: asyncio.Future[None] | None = None  # done when they were looked up
        self.removals = 0  # how often somebody was removed while it was local

    @property
    def cursor(self) -> int:
        """The number of the newest message offered to the listeners."""
        return self.stream.cursor
