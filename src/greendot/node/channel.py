"""Local listeners of one topic, and the frames that wait for them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

from greendot.engine.messages import Topic

if TYPE_CHECKING:
    from greendot.node.session import Connection
    from greendot.protocol.versions import Dialect

_NEVER = 1 << 62


class RoomKey(NamedTuple):
    """Key of a room's signal or record.

    The key names the room, so that waiting frames can be withdrawn from a removed member.
    """

    room: str
    what: object  # equal for signals that replace each other; never a str, as keys of other topics are


class ReplyKey(NamedTuple):
    """Key of a reply that contains data of a room: the id of its command."""

    id: str | int


class SentKey(NamedTuple):
    """Key of a signal that a user sent.

    The key names the sender, so that waiting signals can be withdrawn when the sender hides.
    """

    sender: str
    what: object  # equal for signals of the sender that replace each other


def sender_of(key: object) -> str | None:
    """Return the user who sent the signal with this key; None for all other frames."""
    what = key.what if isinstance(key, RoomKey) else key
    return what.sender if isinstance(what, SentKey) else None


MISSED = object()  # key `what` of messages that a client missed and gets at its return


class Pending(NamedTuple):
    """Frame that waits to be written to a topic's listeners."""

    frame: bytes
    record: bool
    key: object
    skip: Collection[Connection]  # listeners that must not get the frame
    joins: int  # number of joins when the frame was offered: later listeners do not get the frame


class Channel:
    """Topic with its listeners. `queued` is True while the channel waits for, or is in, a write over several turns."""

    __slots__ = ("listeners", "mixed", "pending", "queued", "run", "topic")

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.listeners: dict[Connection, int] = {}  # in the order of joins, each with the number of its join
        self.pending: list[Pending] = []
        self.mixed = False  # a listener has, or had, a dialect whose frames the hub converts
        self.queued = False
        self.run: ChannelWrite | None = None  # the write under way

    def take(self) -> list[Pending]:
        pending, self.pending = self.pending, []
        return pending

    def listeners_changed(self) -> None:
        """Note that a listener came or left, for the write under way."""
        if self.run is not None:
            self.run.outdated = True

    def merge(self) -> list[bytes]:
        """Drop signals that a later signal of the same key replaces; return the dropped frames."""
        kept: dict[object, Pending] = {}
        replaced: list[bytes] = []
        for number, item in enumerate(self.pending):
            key = number if item.record or item.key is None else (item.key,)
            if (older := kept.pop(key, None)) is not None:
                replaced.append(older.frame)
            kept[key] = item
        self.pending = [*kept.values()]
        return replaced

    def withdraw(self, of: Callable[[object], bool]) -> None:
        """Drop waiting signals whose key matches `of`, also those of the write under way."""
        self.pending = [item for item in self.pending if item.record or not of(item.key)]
        if self.run is not None:
            self.run.withdraw(of)

    def unwritten(self, connection: Connection) -> list[Pending]:
        """Return the frames that were offered while the connection listened and are not yet written to its socket."""
        arrival = self.listeners.get(connection, _NEVER)
        run = self.run
        under_way = run.pending if run is not None and connection in run.todo[run.at :] else []
        return [i for i in (*under_way, *self.pending) if arrival <= i.joins and connection not in i.skip]

    @property
    def waiting(self) -> int:
        """Return the number of writes still to make."""
        under_way = max(0, len(self.run.todo) - self.run.at) if self.run is not None else 0
        return under_way + (len(self.listeners) if self.pending else 0)


class ChannelWrite:
    """Write of joined frames to all listeners of a channel. `special` connections get only some of the frames."""

    __slots__ = ("_listeners", "apart", "at", "converted", "data", "mixed", "outdated", "pending", "special", "todo")

    def __init__(self, channel: Channel, pending: list[Pending]) -> None:
        self._listeners = channel.listeners
        self.mixed = channel.mixed
        self.apart = channel.topic.kind != "room"  # frames are converted for each foreign connection by itself
        self.pending = pending
        self.data = pending[0].frame if len(pending) == 1 else b"".join([item.frame for item in pending])
        self.converted: dict[Dialect, tuple[bytes, list[Pending]]] = {}  # for foreign protocols, once for all listeners
        self.special = {connection for item in pending for connection in item.skip}
        self.todo: list[Connection] = []
        self.outdated = False  # whether `todo` may have listeners that have left, or have joined again
        self.at = 0  # index in `todo` of the next connection to write to
        for connection in reversed(channel.listeners):  # latest first: a join after the offer is rare
            if channel.listeners[connection] <= pending[0].joins:
                break
            self.special.add(connection)

    def as_read_by(self, dialect: Dialect) -> tuple[bytes, list[Pending]]:
        """Return the frames as clients of a dialect read them, joined and one by one."""
        found = self.converted.get(dialect)
        if found is None:
            pending = [item._replace(frame=dialect.read(item.frame).frames) for item in self.pending]
            pending = [item for item in pending if item.frame]
            found = self.converted[dialect] = b"".join([item.frame for item in pending]), pending
        return found

    def is_for(self, connection: Connection) -> bool:
        """Return whether the connection still listens, and joined before the last frame was offered."""
        return self._listeners.get(connection, _NEVER) <= self.pending[-1].joins

    def withdraw(self, of: Callable[[object], bool]) -> None:
        """Leave out signals whose key matches `of` for the connections that are still to be written to."""
        kept = [item for item in self.pending if item.record or not of(item.key)]
        if len(kept) < len(self.pending):
            self.pending, self.data = kept, b"".join([item.frame for item in kept])
            self.converted.clear()
        if not kept:
            self.at = len(self.todo)

    @property
    def has_senders(self) -> bool:
        """Return whether a frame is a signal of a user, which may be withdrawn without the other frames."""
        return any(sender_of(item.key) is not None for item in self.pending)

    def offer_each(self, connection: Connection) -> None:
        arrival = self._listeners.get(connection, _NEVER)
        for item in self.pending:
            if arrival <= item.joins and connection not in item.skip:
                connection.send(item.frame, record=item.record, key=item.key)
