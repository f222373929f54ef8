"""Tail of a node's events for live readers: filled only while there is a reader, and bounded.

An event names ids. Content that users wrote is in an event only if the node allows it (`bodies`). Each reader has its
own queue, which it takes about every second. If the queue is full or the node is overloaded, new events are dropped and
counted. The tail is the first work that overload ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Literal, NamedTuple

from msgspec import Struct, structs

EventKind = Literal["connects", "presence", "rooms", "typing", "notifications", "errors"]
KINDS: tuple[EventKind, ...] = ("connects", "presence", "rooms", "typing", "notifications", "errors")
MOST = 100  # maximum number of events in a queue
HOLD_S = 5.0  # a queue ends if it is not taken for this time
BODY = 400  # maximum number of characters of a body that are kept
ALL = ""  # as tenant: events of all tenants


class RecordedEvent(Struct, frozen=True, omit_defaults=True):
    """Event on one node."""

    at: int  # milliseconds UTC
    kind: EventKind
    what: str  # one or two words
    tenant: str
    user: str | None = None
    room: str | None = None
    session: str | None = None
    number: int | None = None  # number of a record, or a close code
    detail: str | None = None  # a word of the server: a state, a device, a kind
    body: str | None = None  # in dev mode only


class TailKey(NamedTuple):
    """Reader of a tail."""

    asker: str  # the node that asks
    tenant: str  # tenant whose events are read; ALL for all tenants


class EventFilter(Struct, frozen=True):
    """Filter of events by user, by room, or both. None matches all."""

    user: str | None = None
    room: str | None = None

    def fits(self, event: RecordedEvent) -> bool:
        return self.user in (None, event.user) and self.room in (None, event.room)


EVERYTHING = EventFilter()


class Taken(NamedTuple):
    """Collected events, and the number of dropped ones."""

    events: list[RecordedEvent]
    skipped: int


class _Line:
    """Queue of one reader."""

    __slots__ = ("ends_at", "events", "kinds", "only", "skipped")

    def __init__(self) -> None:
        self.kinds: frozenset[str] = frozenset()
        self.only = EVERYTHING
        self.events: deque[RecordedEvent] = deque()
        self.skipped = 0
        self.ends_at = 0.0


class EventTail:
    """Queues of all readers of a node.

    Callers check `open` before they make an event: it is False nearly always.
    """

    def __init__(self, *, bodies: bool = False) -> None:
        self.open = False
        self.shedding = False  # while the node is overloaded
        self._bodies = bodies
        self._lines: dict[TailKey, _Line] = {}

    def take(self, name: TailKey, kinds: Collection[str], now: float, only: EventFilter = EVERYTHING) -> Taken:
        """Return the events since the last call; from now on, collect events of `kinds` that fit `only`.

        Without kinds, the reader's queue ends.
        """
        self.expire(now)
        if not kinds:
            self._lines.pop(name, None)
            self.open = bool(self._lines)
            return Taken([], 0)
        line = self._lines.setdefault(name, _Line())
        line.kinds, line.only, line.ends_at = frozenset(kinds), only, now + HOLD_S
        taken = Taken([*line.events], line.skipped)
        line.events.clear()
        line.skipped = 0
        self.open = True
        return taken

    def expire(self, now: float) -> None:
        """Drop queues that were not taken in time."""
        for name in [name for name, line in self._lines.items() if line.ends_at <= now]:
            del self._lines[name]
        self.open = bool(self._lines)

    def record(self, event: RecordedEvent, body: bytes = b"") -> None:
        """Add the event to every queue that wants it."""
        if body and self._bodies and event.kind in ("rooms", "notifications"):
            text = body.decode(errors="replace")
            event = structs.replace(event, body=text if len(text) <= BODY else text[: BODY - 1] + "…")
        for name, line in self._lines.items():
            if event.kind not in line.kinds or name.tenant not in (ALL, event.tenant) or not line.only.fits(event):
                continue
            if self.shedding or len(line.events) >= MOST:
                line.skipped += 1
            else:
                line.events.append(event)
