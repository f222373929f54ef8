"""Consumers of a client's events: iterators and callbacks, and the cursors of their progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from weakref import WeakSet, finalize

from greendot.client.callbacks import Callback, Callbacks
from greendot.client.codec import EVENT_TYPES, StateChanged
from greendot.client.records import Cursors, Records
from greendot.client.storage import CursorStorage, Keeping
from greendot.client.stream import EventStream
from greendot.protocol.events import Event, NotificationCreated, RoomMessage
from greendot.protocol.spelling import unknown

CALLBACKS_END_S = 1.0  # seconds that closing waits for async callbacks

Numbers = Mapping[str, int]  # stream → the number before the oldest record


class Consumers:
    """Consumers of one client's events. With a storage, their progress is loaded and saved."""

    def __init__(self, records: Records, storage: CursorStorage | None) -> None:
        self._records = records
        self._storage = storage
        self._keeping: Keeping | None = None  # None without a storage, and before `begin`
        self._callbacks = Callbacks(self.moved)
        self._streams: WeakSet[EventStream] = WeakSet()
        # Keeps events before the first call of `events()`: a message may follow the reply to a join at once.
        self._early: EventStream | None = EventStream(self.moved)
        self._left: Numbers = {}  # records that waited in the last iterator when it was dropped

    def begin(self) -> None:
        """Continue at the saved cursors of an earlier program, if there is a storage."""
        if self._storage is not None and self._keeping is None:
            if (kept := self._storage.load()) is not None:
                self._records.begin(kept)
            self._keeping = Keeping(self._storage, self._handled)

    async def finish(self, *, handled: bool) -> None:
        """Wait for callbacks and save the cursors; no event follows.

        `handled`: the program has finished the records it holds.
        """
        await self._callbacks.finish(CALLBACKS_END_S)
        if self._keeping is not None:
            self._keeping.close(self._kept([]) if handled else self._handled())

    # Registration and delivery

    def add(self, kind: str, callback: Callback) -> Callable[[], None]:
        """See `Client.on`."""
        if kind not in EVENT_TYPES:
            raise ValueError(unknown("event", kind, sorted(EVENT_TYPES)))
        return self._callbacks.add(kind, callback)

    def stream(self) -> EventStream:
        """See `Client.events`."""
        stream, self._early = self._early or EventStream(self.moved), None
        self._streams.add(stream)
        self._left = {}
        if self._storage is not None:
            finalize(stream, self._leave, stream.waiting).atexit = False
        return stream

    def _leave(self, waiting: Numbers) -> None:
        # A loop ended while records waited. The next program receives them, unless this program opens another iterator.
        self._left = dict(waiting)

    def publish(self, event: Event, end: Exception | None) -> None:
        """Deliver `event` to all consumers.

        The event that the client is closed ends all iterators, with the error `end` unless the program closed the
        client.
        """
        self._callbacks.deliver(event)
        if self._callbacks.takes(event.type):
            self.moved()
        streams = [*self._streams, self._early] if self._early else [*self._streams]
        for stream in streams:
            stream.put(event)
            if isinstance(event, StateChanged) and event.state == "closed":
                stream.end(end)

    # Progress

    def moved(self) -> None:
        """Schedule a save: a consumer finished a record, or a room was joined or left."""
        if self._keeping is not None:
            self._keeping.moved()

    def cursors(self) -> Cursors:
        """See `Client.cursors`."""
        return self._records.cursors(self._waiting())

    def _waiting(self) -> list[Numbers]:
        waiting = [stream.waiting for stream in self._streams] + self._callbacks.waiting()
        # Before the first call of `events()`, waiting records count as not received, unless callbacks receive them.
        if self._early is not None and not self._callbacks.takes(RoomMessage.type, NotificationCreated.type):
            waiting.append(self._early.waiting)
        return waiting

    def _handled(self) -> Cursors:
        """Return the cursors without the records that consumers hold."""
        return self._kept([stream.holding for stream in self._streams] + self._callbacks.holding())

    def _kept(self, holding: list[Numbers]) -> Cursors:
        return self._records.cursors([*self._waiting(), *holding, self._left])
