"""What happens, for those who look at it live: collected only while somebody does, and never more than a little.

An event names ids; what somebody wrote is in it only where the node allows it (`bodies`). Each of those who look has a
line of their own, which is taken every second or so. A line that is full, or a node with too much to do, drops what
comes and counts it: the tail is the first thing to be shed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Literal, NamedTuple

from msgspec import Struct, structs

EventKind = Literal["connects", "presence", "rooms", "typing", "notifications", "errors"]
KINDS: tuple[EventKind, ...] = ("connects", "presence", "rooms", "typing", "notifications", "errors")
MOST = 100  # events in a line, until it is taken
HOLD_S = 5.0  # a line that nobody asks for ends
BODY = 400  # characters of a body
ALL = ""  # in the place of a tenant: every tenant's


class RecordedEvent(Struct, frozen=True, omit_defaults=True):
    """Something that happened on one node."""

    at: int  # milliseconds UTC
    kind: EventKind
    what: str  # in a word or two
    tenant: str
    user: str | None = None
    room: str | None = None
    session: str | None = None
    number: int | None = None  # of a record, or a close code
    detail: str | None = None  # a word of ours: a state, a device, a kind
    body: str | None = None  # in dev mode only


class TailKey(NamedTuple):
    """Whose line it is."""

    asker: str  # the node that asks
    tenant: str  # whose events; ALL for everybody's


class EventFilter(Struct, frozen=True):
    """Which events are wanted, of the kinds that are: those of a user, of a room, or both."""

    user: str | None = None
    room: str | None = None

    def fits(self, event: RecordedEvent) -> bool:
        return self.user in (None, event.user) and self.room in (None, event.room)


EVERYTHING = EventFilter()


class Taken(NamedTuple):
    """What was collected, and how much was not."""

    events: list[RecordedEvent]
    skipped: int


class _Line:
    """What waits for one of those who look."""

    __slots__ = ("ends_at", "events", "kinds", "only", "skipped")

    def __init__(self) -> None:
        self.kinds: frozenset[str] = frozenset()
        self.only = EVERYTHING
        self.events: deque[RecordedEvent] = deque()
        self.skipped = 0
        self.ends_at = 0.0


class EventTail:
    """One for each node. Whoever has something to tell asks `open` first: it is False nearly always."""

    def __init__(self, *, bodies: bool = False) -> None:
        self.open = False
        self.shedding = False  # while the node has too much to do
        self._bodies = bodies
        self._lines: dict[TailKey, _Line] = {}

    def take(self, name: TailKey, kinds: Collection[str], now: float, only: EventFilter = EVERYTHING) -> Taken:
        """What was collected since the last time; from now on, events of these kinds are, if they fit `only`."""
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
        """Forget lines that nobody asked for."""
        for name in [name for name, line in self._lines.items() if line.ends_at <= now]:
            del self._lines[name]
        self.open = bool(self._lines)

    def record(self, event: RecordedEvent, body: bytes = b"") -> None:
        """It happened."""
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
