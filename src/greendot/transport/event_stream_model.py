"""Translation between WebSocket frames and Server-Sent Events.

A connection writes WebSocket frames. For a client that reads an event stream, each text frame becomes one event, and
the close frame becomes the last event. Frames of a broadcast are converted once for all streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from greendot.protocol.versions import TEXT, split_frames

KEPT, KEPT_BYTES = 16, 64 * 1024  # cached conversions, and the longest input cached: the frames of one tick
MAX_PADDING = 32 * 1024  # bytes that a client may ask for behind each write
FIRST_PADDING = 16 * 1024  # most bytes behind the first event, which strangers get
PADDING_STEP = 4096  # sizes are multiples of it, so that streams share a few objects
_CLOSE = 0x88  # first byte of a close frame
_ZERO_MASK = bytes(4)  # a mask that changes nothing: the frames do not travel
_encode = msgspec.json.encode


class Events(NamedTuple):
    """Server-Sent Events made of frames."""

    data: bytes  # may be empty
    is_end: bool = False  # the last event is `close`


def events_of(frames: bytes) -> Events:
    """Return the events for one or more joined frames of the server."""
    return _cached(frames) if len(frames) <= KEPT_BYTES else _convert(frames)


def _convert(frames: bytes) -> Events:
    events: list[bytes] = []
    is_end = False
    for frame, at in split_frames(frames):
        if frame[0] == TEXT:
            events.append(b"data: %b\n\n" % _one_line(frame[at:]))
        elif frame[0] == _CLOSE:
            code, reason = int.from_bytes(frame[at : at + 2], "big"), frame[at + 2 :].decode()
            events.append(b"event: close\ndata: %b\n\n" % _encode({"code": code, "reason": reason}))
            is_end = True
        # A pong answers no ping of an event stream.
    return Events(b"".join(events), is_end)


_cached = lru_cache(maxsize=KEPT)(_convert)


def _one_line(text: bytes) -> bytes:
    """Return JSON on one line. A line break in JSON is white space, because strings contain none."""
    if b"\n" in text or b"\r" in text:
        return text.replace(b"\r", b" ").replace(b"\n", b" ")
    return text


def first_event(stream: str) -> bytes:
    """Return the first event of a stream, which names it."""
    return b'event: stream\ndata: {"stream":%b}\n\n' % _encode(stream)


@lru_cache(maxsize=MAX_PADDING // PADDING_STEP + 1)
def padding(size: int) -> bytes:
    """Return a comment of `size` bytes, which fills the buffer of a proxy. Browsers skip it."""
    return b":%b\n\n" % (b" " * (size - 3)) if size > 3 else b""


def padding_asked(query: bytes) -> int:
    """Return the padding that the query asks for, as `pad=4096`; 0 if it asks for none that is allowed.

    The size is rounded up to a multiple of `PADDING_STEP`.
    """
    for field in query.split(b"&"):
        name, _, value = field.partition(b"=")
        if name == b"pad" and value.isdigit() and len(value) < 6:
            return min(-(-int(value) // PADDING_STEP) * PADDING_STEP, MAX_PADDING)
    return 0


def client_frames(commands: Sequence[str], close: int | None) -> bytes:
    """Return the frames that a WebSocket client would send for these commands, and for a close with this code."""
    frames = [b"%b%b%b" % (_head(data := text.encode()), _ZERO_MASK, data) for text in commands]
    if close is not None:
        frames.append(b"\x88\x82%b%b" % (_ZERO_MASK, close.to_bytes(2, "big")))
    return b"".join(frames)


def _head(data: bytes) -> bytes:
    size = len(data)
    if size < 126:
        return b"\x81%c" % (0x80 | size)
    if size < 65_536:
        return b"\x81\xfe%b" % size.to_bytes(2, "big")
    return b"\x81\xff%b" % size.to_bytes(8, "big")
