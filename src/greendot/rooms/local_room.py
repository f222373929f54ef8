"""State of a room with listeners on this node."""

from __future__ import annotations

import asyncio
from collections import deque

from greendot.engine.messages import Deliver, MembersChanged
from greendot.node.channel import Channel
from greendot.node.stream import RECOVER, RECOVER_BYTES, LocalStream
from greendot.node.subscriptions import TopicSubscription
from greendot.node.timer_model import Timer
from greendot.rooms.members_model import MemberChanges
from greendot.rooms.occupancy import RoomOccupancy
from greendot.rooms.typing import RoomTyping
from greendot.store.rooms import MemberState, Record, Room


class Recent:
    """Newest records of a room without a gap, kept so that many clients that return at once share one read."""

    __slots__ = ("_bytes", "_records", "erasures", "last")

    def __init__(self, last: int, erasures: int = 0) -> None:
        self._records: deque[Record] = deque()
        self._bytes = 0
        self.last = last  # number of the last record that was read
        # Number of erasures in the room before the first read. The records may have content that was erased later.
        self.erasures = erasures

    def add(self, records: list[Record]) -> None:
        """Append the records that follow `last`, and drop the oldest ones beyond the limits of a recovery."""
        for record in records:
            self._records.append(record)
            self._bytes += len(record.body)
            self.last = record.seq
        while len(self._records) > RECOVER or (self._bytes > RECOVER_BYTES and self._records):
            self._bytes -= len(self._records.popleft().body)

    def after(self, seq: int) -> list[Record] | None:
        """Return the records after `seq`; None if some of them are no longer kept."""
        first = self._records[0].seq if self._records else self.last + 1
        if seq + 1 < first:
            return None
        return [record for record in self._records if record.seq > seq]


class LocalRoom(TopicSubscription):
    """Room with listeners on this node."""

    __slots__ = (
        "changes",
        "checking",
        "members_rev",
        "missing_timer",
        "present",
        "reading_members",
        "recent",
        "removals",
        "returning",
        "roles",
        "room",
        "skipped",
        "stream",
        "typing",
        "unchecked",
    )

    def __init__(self, channel: Channel, typing: RoomTyping, present: RoomOccupancy) -> None:
        super().__init__(channel)
        self.typing = typing
        self.present = present
        self.stream: LocalStream[bytes] = LocalStream()  # the messages, up to the last one offered to the listeners
        self.recent: Recent | None = None  # None until a client returns
        self.returning = asyncio.Lock()  # held while records for `recent` are read
        self.room: Room | None = None  # as of `members_rev`; the head may be behind the cursor
        self.members_rev = 0  # newest revision of the members that this node has applied
        self.roles: dict[str, MemberState] = {}  # roles read so far, as of `members_rev`; markers are not used
        self.changes = MemberChanges()  # changes of members that were announced and are not applied yet
        self.missing_timer: Timer | None = None  # set while an announcement of a change is missing
        self.reading_members = False  # a read of members is under way
        # Records, and announcements of further changes, that wait until the members are known. None: they are known.
        self.unchecked: list[Deliver | MembersChanged] | None = None
        self.checking: asyncio.Future[None] | None = None  # done when the members are known
        # Messages that a connection of a foreign protocol must not get: number → connection id; None without any.
        self.skipped: dict[int, str] | None = None
        self.removals = 0  # grows with each removal of a user while the room is local

    def is_another(self, room: Room | None) -> bool:
        """Return whether the room was deleted, or deleted and created again, since this node read it."""
        return room is None or (self.room is not None and self.room.epoch != room.epoch)

    def concerns(self, user: str) -> bool:
        """Return whether the user is in the room, types there, or listens on this node."""
        present, typing = self.present, self.typing
        return present.is_counted or user in present.users or user in typing.users or present.is_viewer(user)

    @property
    def cursor(self) -> int:
        """Return the number of the newest message offered to the listeners."""
        return self.stream.cursor
