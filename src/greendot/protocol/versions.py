"""Which versions of events there are, and how each is made for the clients that read it.

The frame that is made once, and goes between nodes, is version 1: it is what a client reads that says nothing else, and
what a node of an earlier release can pass on. A newer version is made from it where a client asked for it, once for all
that did. A client that reads no version there is gets nothing of that event but, now and then, `refresh`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple
from weakref import WeakValueDictionary

import msgspec
from msgspec import UNSET, Raw, Struct

from greendot.errors import Unreadable
from greendot.protocol.codec import encode_event
from greendot.protocol.events import (
    EVENTS,
    Drain,
    Event,
    HeartbeatAck,
    InboxBadge,
    NotificationCreated,
    NotificationUpdated,
    NotificationUpdatedV1,
    Overloaded,
    Refresh,
    Resync,
    Welcome,
)

TEXT = 0x81  # how a whole text frame begins
KEPT, KEPT_BYTES = 8, 64 * 1024  # frames a dialect remembers how it put, and the longest: those of one tick

_read_updated = msgspec.json.Decoder(NotificationUpdatedV1).decode
_read_refresh = msgspec.json.Decoder(Refresh).decode


def _updated(data: Raw) -> Event:
    """All up to a number are named by the number: it is short however many they are, and leaves none out."""
    told = _read_updated(data)
    if told.through is UNSET:
        return NotificationUpdated(told.state, ids=told.ids)
    return NotificationUpdated(told.state, through=told.through)


# Event type → newer version → how it is made of version 1's data.
_MADE: dict[str, dict[int, Callable[[Raw], Event]]] = {NotificationUpdated.type: {2: _updated}}

VERSIONS: dict[str, tuple[int, ...]] = {kind: (1, *_MADE.get(kind, ())) for kind in EVENTS}

# Without these there is no talking with a client: it would not know that it is welcome, or what it does not hear of.
ESSENTIAL = frozenset(kind.type for kind in (Welcome, HeartbeatAck, Resync, Refresh, Drain, Overloaded))

# Said to each device by itself. Everything else may be among bytes that are written to many sockets as they are.
_APART = frozenset(kind.type for kind in (NotificationCreated, NotificationUpdated, InboxBadge))


class Reading(NamedTuple):
    """What a client is sent in place of a frame."""

    frames: bytes  # may be empty
    unread: tuple[str, ...] = ()  # types of what it cannot be shown


class _Envelope(Struct):
    ts: int
    data: Raw
    trace: str | None = None
    traceparent: str | None = None


_decode = msgspec.json.Decoder(_Envelope).decode
_HEAD = re.compile(rb'\{"type":"([a-z.]+)","v":([0-9]+),')  # as encode_event begins every event


class Dialect:
    """What some clients read otherwise than the others do: event type → version, 0 for none there is."""

    __slots__ = ("__weakref__", "_kept", "_versions", "straight")

    def __init__(self, versions: Mapping[str, int]) -> None:
        self._versions = versions
        self.straight = versions.keys() <= _APART  # whether what many are sent needs no other words
        self._kept: dict[bytes, Reading] = {}  # how the last frames were put

    def read(self, frames: bytes) -> Reading:
        """The same as these clients read it, made once for all of them. What was put before stays as it is."""
        if len(frames) > KEPT_BYTES:
            return self._put(frames)
        found = self._kept.get(frames)
        if found is None:
            found = self._put(frames)
            if len(self._kept) >= KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[frames] = found
        return found

    def _put(self, frames: bytes) -> Reading:
        put: list[bytes] = []
        unread: dict[str, None] = {}
        for frame, at in _split(frames):
            kind, version = _head(frame, at)
            wanted = self._versions.get(kind, version)
            if kind == Refresh.type:
                # It stands for what version 1 could not say, and a newer one can.
                of = _read_refresh(_decode(frame[at:]).data).of
                if self._versions.get(of, 1) <= 1:
                    put.append(frame)
            elif wanted == version:
                put.append(frame)
            elif wanted:
                envelope = _decode(frame[at:])
                made = _MADE[kind][wanted](envelope.data)
                put.append(encode_event(made, envelope.ts, envelope.trace, envelope.traceparent))
            else:
                unread[kind] = None
        joined = b"".join(put)
        return Reading(frames if joined == frames else joined, tuple(unread))


class Dialects:
    """The dialects spoken now: clients of one make are of one dialect, so that things are put once for all of them."""

    def __init__(self) -> None:
        self._spoken: WeakValueDictionary[frozenset[tuple[str, int]], Dialect] = WeakValueDictionary()

    def of(self, supports: Mapping[str, Sequence[int]]) -> Dialect | None:
        """How to talk with a client that says this of itself; None: as with most. Raises Unreadable.

        It gets the newest version that it reads and we have. What it does not name it reads in version 1. Events and
        versions we do not know are for other servers.
        """
        versions = {
            kind: max({*read}.intersection(VERSIONS[kind]), default=0)
            for kind, read in supports.items()
            if kind in VERSIONS
        }
        for kind in sorted(ESSENTIAL):
            if versions.get(kind) == 0:
                has = " and ".join(map(str, VERSIONS[kind]))
                raise Unreadable(f"this server has version {has} of {kind}, which this client does not read")
        other = {kind: version for kind, version in versions.items() if version != 1}
        if not other:
            return None
        return self._spoken.setdefault(frozenset(other.items()), Dialect(other))


def _split(frames: bytes) -> Iterator[tuple[bytes, int]]:
    """Each of some frames of ours, joined as they may be, and where in it its payload begins."""
    start = 0
    while start < len(frames):
        size, at = frames[start + 1], 2  # the server's frames are not masked
        if size > 125:
            at = 4 if size == 126 else 10
            size = int.from_bytes(frames[start + 2 : start + at], "big")
        end = start + at + size
        yield frames[start:end], at
        start = end


def _head(frame: bytes, at: int) -> tuple[str, int]:
    """Type and version, without reading the rest. What is no event has version 0."""
    # A pong holds what the client likes, which may look like an event.
    found = _HEAD.match(frame, at) if frame[0] == TEXT else None
    return (found[1].decode(), int(found[2])) if found else ("", 0)
