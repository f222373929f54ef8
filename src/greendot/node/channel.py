"""The local listeners of one topic, and what is on its way to them."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from greendot.engine.messages import Topic

if TYPE_CHECKING:
    from greendot.node.session import Connection

_NEVER = 1 << 62


class RoomKey(NamedTuple):
    """The key of a room's signal or record. It names the room, so that what waits can be taken back from a member."""

    room: str
    what: object  # equal for signals that replace each other; never a text, so that it equals no other topic's key


class ReplyKey(NamedTuple):
    """What a reply with something of a room in it is of: the command that asked for it."""

    id: str | int


MISSED = object()  # what a message is of that a client had missed when it came


class Pending(NamedTuple):
    """A frame for a topic's listeners, waiting to be written."""

    frame: bytes
    record: bool
    key: object
    skip: Collection[Connection]  # listeners that must not get it
    joins: int  # of listeners, when it was offered: it is not for those that came later


class Channel:
    """See the module. `queued` while it is written some listeners at a time, or waits for its turn."""

    __slots__ = ("listeners", "pending", "queued", "run", "topic")

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.listeners: dict[Connection, int] = {}  # with the number of their arrival, in that order
        self.pending: list[Pending] = []
        self.queued = False
        self.run: ChannelWrite | None = None  # under way

    def take(self) -> list[Pending]:
        pending, self.pending = self.pending, []
        return pending

    def merge(self) -> list[bytes]:
        """Keep only the latest of signals with one key. Returns the frames that were replaced."""
        kept: dict[object, Pending] = {}
        replaced: list[bytes] = []
        for number, item in enumerate(self.pending):
            key = number if item.record or item.key is None else (item.key,)
            if (older := kept.pop(key, None)) is not None:
                replaced.append(older.frame)
            kept[key] = item
        self.pending = [*kept.values()]
        return replaced

    def unwritten(self, connection: Connection) -> list[Pending]:
        """What was offered while it listened and has not been written to it."""
        arrival = self.listeners.get(connection, _NEVER)
        run = self.run
        under_way = run.pending if run is not None and connection in run.todo[run.at :] else []
        return [i for i in (*under_way, *self.pending) if arrival <= i.joins and connection not in i.skip]

    @property
    def waiting(self) -> int:
        """Writes to be made."""
        under_way = max(0, len(self.run.todo) - self.run.at) if self.run is not None else 0
        return under_way + (len(self.listeners) if self.pending else 0)


class ChannelWrite:
    """One write to all listeners of a channel: the frames, joined, and who gets only some of them."""

    __slots__ = ("_listeners", "at", "data", "pending", "special", "todo")

    def __init__(self, channel: Channel, pending: list[Pending]) -> None:
        self._listeners = channel.listeners
        self.pending = pending
        self.data = pending[0].frame if len(pending) == 1 else b"".join([item.frame for item in pending])
        self.special = {connection for item in pending for connection in item.skip}
        self.todo: list[Connection] = []
        self.at = 0  # those before have been written
        for connection in reversed(channel.listeners):  # latest first: hardly ever is there one that came in between
            if channel.listeners[connection] <= pending[0].joins:
                break
            self.special.add(connection)

    def is_for(self, connection: Connection) -> bool:
        """Whether it listens still, and did when the last of it was offered."""
        return self._listeners.get(connection, _NEVER) <= self.pending[-1].joins

    def offer_each(self, connection: Connection) -> None:
        arrival = self._listeners.get(connection, _NEVER)
        for item in self.pending:
            if arrival <= item.joins and connection not in item.skip:
                connection.send(item.frame, record=item.record, key=item.key)
