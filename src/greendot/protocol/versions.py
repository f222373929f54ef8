"""Versions of events, and their conversion for clients that read another version.

Every frame is encoded once, as version 1, and nodes exchange version 1. A client that declares no versions reads it,
and a node of an earlier release can forward it. Newer versions are made from version 1 for clients that asked for them,
once for all such clients. A client that reads no existing version of an event gets only an occasional `refresh`
instead.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple
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

TEXT = 0x81  # first byte of a complete text frame
KEPT, KEPT_BYTES = 8, 64 * 1024  # cached conversions of a dialect, and the longest input cached: the frames of one tick

_read_updated = msgspec.json.Decoder(NotificationUpdatedV1).decode
_read_refresh = msgspec.json.Decoder(Refresh).decode


def _updated(data: Raw) -> Event:
    """Convert version 1 to version 2.

    If there is a `through`, it replaces the ids: it is short and names every notification.
    """
    told = _read_updated(data)
    if told.through is UNSET:
        return NotificationUpdated(told.state, ids=told.ids)
    return NotificationUpdated(told.state, through=told.through)


# Event type → newer version → conversion from version 1's data.
_MADE: dict[str, dict[int, Callable[[Raw], Event]]] = {NotificationUpdated.type: {2: _updated}}

VERSIONS: dict[str, tuple[int, ...]] = {kind: (1, *_MADE.get(kind, ())) for kind in EVENTS}

# A client needs these events to know that it is welcome and what it does not receive.
ESSENTIAL = frozenset(kind.type for kind in (Welcome, HeartbeatAck, Resync, Refresh, Drain, Overloaded))

# Sent to each device separately. All other events may be in bytes that are written to many sockets unchanged.
_APART = frozenset(kind.type for kind in (NotificationCreated, NotificationUpdated, InboxBadge))


class Reading(NamedTuple):
    """Result of converting frames for a client."""

    frames: bytes  # may be empty
    unread: tuple[str, ...] = ()  # types of omitted events, which the client cannot read


class _Envelope(Struct):
    ts: int
    data: Raw
    trace: str | None = None
    traceparent: str | None = None


_decode = msgspec.json.Decoder(_Envelope).decode
_HEAD = re.compile(rb'\{"type":"([a-z.]+)","v":([0-9]+),')  # the beginning of every event by encode_event


class Dialect(ABC):
    """Conversion of frames for a group of clients that do not read version 1 of all events.

    Each of the joined frames is converted by itself, so the conversion of joined frames is the join of the conversions.
    """

    __slots__ = ("__weakref__", "_kept", "straight")

    shared: ClassVar[bool] = False  # whether the hub converts frames for many subscribers, and writes them itself

    def __init__(self, *, straight: bool) -> None:
        self.straight = straight  # whether the hub may write frames for many subscribers itself
        self._kept: dict[bytes, Reading] = {}  # recent conversions

    @abstractmethod
    def _put(self, frames: bytes) -> Reading:
        """Convert frames. Frames that are converted already stay unchanged."""

    def read(self, frames: bytes) -> Reading:
        """Return frames as these clients read them, converted once for all of them.

        Frames converted before stay unchanged.
        """
        if len(frames) > KEPT_BYTES:
            return self._put(frames)
        found = self._kept.get(frames)
        if found is None:
            found = self._put(frames)
            if len(self._kept) >= KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[frames] = found
        return found


class EventVersions(Dialect):
    """Event versions of a group of clients that differ from version 1: event type → version, 0 if none is supported."""

    __slots__ = ("_versions",)

    def __init__(self, versions: Mapping[str, int]) -> None:
        super().__init__(straight=versions.keys() <= _APART)
        self._versions = versions

    def _put(self, frames: bytes) -> Reading:
        put: list[bytes] = []
        unread: dict[str, None] = {}
        for frame, at in split_frames(frames):
            kind, version = frame_head(frame, at)
            wanted = self._versions.get(kind, version)
            if kind == Refresh.type:
                # `refresh` replaces content that version 1 cannot express and a newer version can.
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
    """Dialects in use.

    Clients that support the same versions share one dialect, so that a frame is converted once for all.
    """

    def __init__(self) -> None:
        self._spoken: WeakValueDictionary[frozenset[tuple[str, int]], EventVersions] = WeakValueDictionary()

    def of(self, supports: Mapping[str, Sequence[int]]) -> EventVersions | None:
        """Return the dialect for a client's declared versions, or None for plain version 1.

        The client gets the newest version that both sides support, and version 1 of events that it does not declare.
        Unknown events and versions are meant for other servers and ignored. Raise Unreadable if an essential event has
        no common version.
        """
        if not supports:
            return None
        versions = {
            kind: max({*read}.intersection(VERSIONS[kind]), default=0)
            for kind, read in supports.items()
            if kind in VERSIONS
        }
        for kind in sorted(ESSENTIAL):
            if versions.get(kind) == 0:
                has = " and ".join(map(str, VERSIONS[kind]))
                raise Unreadable(
                    f"this client does not support version {has} of {kind}, which this server sends; update the client"
                )
        other = {kind: version for kind, version in versions.items() if version != 1}
        if not other:
            return None
        return self._spoken.setdefault(frozenset(other.items()), EventVersions(other))


def split_frames(frames: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield each of the server's joined frames with the offset of its payload."""
    start = 0
    while start < len(frames):
        size, at = frames[start + 1], 2  # frames of a server are not masked
        if size > 125:
            at = 4 if size == 126 else 10
            size = int.from_bytes(frames[start + 2 : start + at], "big")
        end = start + at + size
        yield frames[start:end], at
        start = end


def frame_head(frame: bytes, at: int) -> tuple[str, int]:
    """Return type and version without decoding the rest. Frames that are no events have version 0."""
    # A pong carries bytes chosen by the client, which may resemble an event.
    found = _HEAD.match(frame, at) if frame[0] == TEXT else None
    return (found[1].decode(), int(found[2])) if found else ("", 0)
