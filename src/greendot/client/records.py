"""Positions in record streams: each record is delivered once, in order. Pure: no sockets, no tasks.

A stream has its wire name: `room:NAME`, or `inbox`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypedDict

from greendot.client.codec import Reminder, Truncated
from greendot.protocol.events import NotificationCreated, RoomMessage

INBOX = "inbox"
ROOM = "room:"
MOST_EARLY = 1_000  # records held while earlier ones are fetched; records beyond are fetched as well
MOST_FETCHED = 3_000  # a program further behind gets Truncated instead: it may not want to read so many

Record = RoomMessage | NotificationCreated


class Cursors(TypedDict):
    """Number up to which a program has each stream. Plain values, to be kept as JSON or in any other form."""

    rooms: dict[str, int]
    inbox: int | None


def room_stream(room: str) -> str:
    return ROOM + room


def span(event: object) -> tuple[str, int, int] | None:
    """Return an event's stream, the number before it and the number it leads to; None if it moves no cursor."""
    match event:
        case Reminder():
            return None
        case RoomMessage():
            return room_stream(event.room), event.seq - 1, event.seq
        case NotificationCreated():
            return INBOX, event.seq - 1, event.seq
        case Truncated():
            return event.stream, event.after, event.head
    return None


def held(event: object) -> dict[str, int]:
    """Return stream → the number before `event`, for a consumer that still holds it; empty if it moves no cursor."""
    of = span(event)
    return {} if of is None else {of[0]: of[1]}


class RecordCursor:
    """Cursor of one stream: the last delivered number, and records that arrived early."""

    __slots__ = ("_again", "_early", "behind", "last")

    def __init__(self, last: int) -> None:
        self.last = last
        self.behind = False  # records are missing, and later ones wait until they are fetched
        self._again = False  # the current fetch will not bring all missing records
        self._early: dict[int, Record] = {}

    def offer(self, record: Record) -> bool:
        """Return whether to deliver `record` now. A record that is early is held."""
        if record.seq <= self.last:
            return False
        if self.behind or record.seq != self.last + 1:
            self.behind = True
            if len(self._early) < MOST_EARLY:
                self._early[record.seq] = record
            else:
                self._again = True
            return False
        self.last = record.seq
        return True

    def miss(self) -> None:
        """Mark the stream as behind: the server left out records."""
        self._again = self.behind
        self.behind = True

    def target(self, head: int) -> int:
        """Return the number to fetch up to, if the newest record is `head`.

        A held record proves that the record before it exists, even if `head` is lower.
        """
        return max(head, min(self._early, default=0) - 1)

    def fetched(self, record: Record) -> bool:
        """Return whether to deliver the fetched `record`. Skipped numbers are of records that no longer exist."""
        if record.seq <= self.last:
            return False
        self.last = record.seq
        return True

    def next(self) -> Record | None:
        """Advance to the next number and return its record, if it arrived early; else return None."""
        record = self._early.pop(self.last + 1, None)
        if record is not None:
            self.last = record.seq
        return record

    def skip(self, head: int) -> None:
        """Advance to `head`: records up to that number need no delivery. The cursor never goes back."""
        self.last = max(self.last, head)

    def settle(self) -> None:
        """End a fetch after all missing and held records are delivered. Stay behind if more were missed meanwhile."""
        self._early = {seq: record for seq, record in self._early.items() if seq > self.last}
        self.behind = self._again or bool(self._early)
        self._again = False


class Records:
    """Streams that a client follows: its rooms, and the inbox once its position is known."""

    def __init__(self, cursors: Cursors | None = None) -> None:
        self._lines: dict[str, RecordCursor] = {}
        self._untold: list[range] = []  # numbers of notifications that this program did not receive
        self._reminded: set[int] = set()  # numbers among them that were delivered late
        if cursors is not None:
            self.begin(cursors)

    def begin(self, cursors: Cursors) -> None:
        """Continue at the cursors of an earlier program."""
        for room, last in cursors["rooms"].items():
            self.follow(room_stream(room), last)
        if cursors["inbox"] is not None:
            self.follow(INBOX, cursors["inbox"])

    @property
    def rooms(self) -> dict[str, int]:
        """Return room → the number of its last delivered message."""
        return {name.removeprefix(ROOM): line.last for name, line in self._lines.items() if name != INBOX}

    @property
    def inbox(self) -> int | None:
        line = self._lines.get(INBOX)
        return None if line is None else line.last

    def line(self, stream: str) -> RecordCursor | None:
        return self._lines.get(stream)

    def follow(self, stream: str, last: int) -> RecordCursor:
        """Follow `stream` after number `last`. A stream that is followed already keeps its cursor."""
        if stream == INBOX and INBOX not in self._lines:
            self._untold.append(range(last + 1))
        return self._lines.setdefault(stream, RecordCursor(last))

    def leave(self, stream: str) -> None:
        self._lines.pop(stream, None)

    def restart(self) -> None:
        """Drop held records after a lost link: the next link brings all records after the last delivered one."""
        for stream, line in self._lines.items():
            self._lines[stream] = RecordCursor(line.last)

    def accept(self, record: Record) -> bool:
        """Return whether to deliver `record` now: not a duplicate, and no earlier record is missing."""
        if record.seq <= 0 or isinstance(record, Reminder):  # of a kind that is not kept, or redelivered out of order
            return True
        if isinstance(record, NotificationCreated):
            line = self.follow(INBOX, record.seq - 1)
        elif (known := self._lines.get(room_stream(record.room))) is None:
            return True  # not a followed room: no cursor to compare or to move
        else:
            line = known
        return line.offer(record)

    def remind(self, record: NotificationCreated) -> bool:
        """Return whether `record` is unacknowledged, out of order, and was never delivered to this program.

        Return True only once per number.
        """
        if not record.ack or record.seq in self._reminded:
            return False
        # Until the position of the inbox is known, new and redelivered notifications cannot be distinguished.
        if INBOX in self._lines and not any(record.seq in numbers for numbers in self._untold):
            return False
        self._reminded.add(record.seq)
        return True

    def missed(self, stream: str) -> bool:
        """Mark `stream` as behind: the server left out records. Return whether the client follows the stream."""
        line = self._lines.get(stream)
        if line is not None:
            line.miss()
        return line is not None

    def unread(self, kind: str) -> bool:
        """Mark the streams of an event type that the server could not send; return whether there are any.

        Their missing records will be fetched.
        """
        match kind:
            case NotificationCreated.type:
                streams = [stream for stream in self._lines if stream == INBOX]
            case RoomMessage.type:
                streams = [stream for stream in self._lines if stream != INBOX]
            case _:
                return False
        for stream in streams:
            self.missed(stream)
        return bool(streams)

    def reach(self, stream: str, head: int, since: int | None = None) -> Truncated | None:
        """Take `head` as the newest number; missing records before it are fetched, unless there are too many.

        If there are too many, the stream continues at its head, and the caller publishes the returned Truncated.
        `since` is the number delivered last when the head was requested (None: no record was delivered meanwhile). A
        reply may be older than records that arrived before it. Only a head below `since` shows that the server lost
        records and numbers again from there. Compared with the old cursor, every new record would be dropped as a
        duplicate.
        """
        line = self.follow(stream, head)
        if (line.last if since is None else since) <= head <= line.last + MOST_FETCHED:
            line.behind = line.behind or line.last < head
            return None
        skipped = Truncated(stream, line.last, head)
        if stream == INBOX:
            self._untold.append(range(line.last + 1, head + 1))
        line.last = head
        return skipped

    def behind(self) -> str | None:
        """Return a stream with records to fetch; None if there is none."""
        return next((stream for stream, line in self._lines.items() if line.behind), None)

    def cursors(self, waiting: Iterable[Mapping[str, int]]) -> Cursors:
        """Return how far the program has come, given its waiting records: stream → the number before the oldest."""
        at = {stream: line.last for stream, line in self._lines.items()}
        for numbers in waiting:
            at |= {stream: min(number, at[stream]) for stream, number in numbers.items() if stream in at}
        rooms = {stream.removeprefix(ROOM): number for stream, number in at.items() if stream != INBOX}
        return Cursors(rooms=rooms, inbox=at.get(INBOX))
