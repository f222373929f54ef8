"""How far each stream of records was told to the program: every record once, in order. Pure: no sockets, no tasks.

A stream goes by the name the wire has for it: `room:NAME`, or `inbox`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypedDict

from greendot.client.codec import Reminder, Truncated
from greendot.protocol.events import NotificationCreated, RoomMessage

INBOX = "inbox"
ROOM = "room:"
MOST_EARLY = 1_000  # records held while what comes before them is fetched; more are fetched, too
MOST_FETCHED = 3_000  # a program further behind is told so instead: it may not want to read all that

Record = RoomMessage | NotificationCreated


class Cursors(TypedDict):
    """Up to which number a program has each stream. Plain, to be kept as JSON or in whatever a program keeps."""

    rooms: dict[str, int]
    inbox: int | None


def room_stream(room: str) -> str:
    return ROOM + room


def span(event: object) -> tuple[str, int, int] | None:
    """The stream an event belongs to, and where it takes its reader: from which number to which."""
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
    """What is not handled while `event` is in somebody's hands: stream → the number before it."""
    of = span(event)
    return {} if of is None else {of[0]: of[1]}


class RecordCursor:
    """One stream: the number told last, and what came before its turn."""

    __slots__ = ("_again", "_early", "behind", "last")

    def __init__(self, last: int) -> None:
        self.last = last
        self.behind = False  # something is missing, and nothing goes out before it is fetched
        self._again = False  # what is being fetched will not be all
        self._early: dict[int, Record] = {}

    def offer(self, record: Record) -> bool:
        """Whether `record` is to be told now. If its turn has not come it is held."""
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
        """The server has left something out."""
        self._again = self.behind
        self.behind = True

    def target(self, head: int) -> int:
        """Up to where to fetch, if the newest record is `head`. What is held proves that there was one before it."""
        return max(head, min(self._early, default=0) - 1)

    def fetched(self, record: Record) -> bool:
        """Whether `record`, which was fetched, is to be told. Numbers left out are of records that are gone."""
        if record.seq <= self.last:
            return False
        self.last = record.seq
        return True

    def next(self) -> Record | None:
        """What came early and is next, told one at a time."""
        record = self._early.pop(self.last + 1, None)
        if record is not None:
            self.last = record.seq
        return record

    def skip(self, head: int) -> None:
        """Everything up to `head` is in the program's hands."""
        self.last = max(self.last, head)

    def settle(self) -> None:
        """All that was missing was told, and what was held behind it; unless more was missed meanwhile."""
        self._early = {seq: record for seq, record in self._early.items() if seq > self.last}
        self.behind = self._again or bool(self._early)
        self._again = False


class Records:
    """The streams a client follows: the rooms it is in, and the inbox once it is known where that stands."""

    def __init__(self, cursors: Cursors | None = None) -> None:
        self._lines: dict[str, RecordCursor] = {}
        self._untold: list[range] = []  # numbers of the inbox this program was not told
        self._reminded: set[int] = set()  # those of them it was told late
        if cursors is not None:
            self.begin(cursors)

    def begin(self, cursors: Cursors) -> None:
        """Go on where the program was that left these."""
        for room, last in cursors["rooms"].items():
            self.follow(room_stream(room), last)
        if cursors["inbox"] is not None:
            self.follow(INBOX, cursors["inbox"])

    @property
    def rooms(self) -> dict[str, int]:
        """Room → number of its last message told."""
        return {name.removeprefix(ROOM): line.last for name, line in self._lines.items() if name != INBOX}

    @property
    def inbox(self) -> int | None:
        line = self._lines.get(INBOX)
        return None if line is None else line.last

    def line(self, stream: str) -> RecordCursor | None:
        return self._lines.get(stream)

    def follow(self, stream: str, last: int) -> RecordCursor:
        """Tell what comes after `last`. A stream that is followed already goes on where it is."""
        if stream == INBOX and INBOX not in self._lines:
            self._untold.append(range(last + 1))
        return self._lines.setdefault(stream, RecordCursor(last))

    def leave(self, stream: str) -> None:
        self._lines.pop(stream, None)

    def restart(self) -> None:
        """The link is lost: the next one brings what is behind the last record told, so nothing else is kept."""
        for stream, line in self._lines.items():
            self._lines[stream] = RecordCursor(line.last)

    def accept(self, record: Record) -> bool:
        """Whether `record` is to be told now: not if it was before, nor while an earlier one is missing."""
        if record.seq <= 0 or isinstance(record, Reminder):  # of a kind that is not kept, or in nobody's turn
            return True
        if isinstance(record, NotificationCreated):
            line = self.follow(INBOX, record.seq - 1)
        elif (known := self._lines.get(room_stream(record.room))) is None:
            return True  # not a room of ours: nothing to compare with, nothing to remember
        else:
            line = known
        return line.offer(record)

    def remind(self, record: NotificationCreated) -> bool:
        """Whether one that nobody has acknowledged comes out of its turn, and this program was never told of it."""
        if not record.ack or record.seq in self._reminded:
            return False
        # Before it is known where the inbox stands, what is new cannot be told from what is sent again.
        if INBOX in self._lines and not any(record.seq in numbers for numbers in self._untold):
            return False
        self._reminded.add(record.seq)
        return True

    def missed(self, stream: str) -> bool:
        """The server has left out some of `stream`. Whether that is one of ours, and will be fetched."""
        line = self._lines.get(stream)
        if line is not None:
            line.miss()
        return line is not None

    def unread(self, kind: str) -> bool:
        """The server could not show an event of this kind. Whether it was a record, which will be fetched."""
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
        """The newest record is `head`, and what lies before it was not sent: it is fetched, unless it is too much.

        Then the stream goes on at its head, which is what the program is to be told. `since` is the number told last
        when the head was asked for (None: nothing was told meanwhile). An answer may be older than records that came
        before it; only a head behind `since` shows that the server lost records and numbers again from there. Held
        against the old cursor every new one would be dropped as seen.
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
        """A stream of which something is to be fetched."""
        return next((stream for stream, line in self._lines.items() if line.behind), None)

    def cursors(self, waiting: Iterable[Mapping[str, int]]) -> Cursors:
        """How far the program has come, given what waits for it: stream → the number before the oldest."""
        at = {stream: line.last for stream, line in self._lines.items()}
        for numbers in waiting:
            at |= {stream: min(number, at[stream]) for stream, number in numbers.items() if stream in at}
        rooms = {stream.removeprefix(ROOM): number for stream, number in at.items() if stream != INBOX}
        return Cursors(rooms=rooms, inbox=at.get(INBOX))
