"""Dialect of Centrifuge clients: native frames become pushes, once for all clients that read the same."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Raw, Struct

from greendot.compat.centrifuge.channel_model import Namespaces
from greendot.compat.centrifuge.codec_model import error_frame
from greendot.compat.centrifuge.codes_model import error_of
from greendot.compat.centrifuge.push_model import Pushes
from greendot.errors import Refused
from greendot.protocol.decoding import decoder
from greendot.protocol.versions import TEXT, Dialect, Reading, frame_head, split_frames

_NATIVE = b'{"type":'  # the beginning of every native frame, and of none of ours
_ERROR = b'{"type":"error",'


class _Event(Struct):
    data: Raw


class _Error(Struct):
    id: str | int | None
    code: str
    message: str


_read_event = decoder(_Event)
_read_error = decoder(_Error)


class CentrifugeDialect(Dialect):
    """Conversion for the clients of a tenant. Those that ask for it get joins and leaves."""

    __slots__ = ("_pushes",)

    shared: ClassVar[bool] = True

    def __init__(self, namespaces: Namespaces, *, join_leave: bool = False) -> None:
        super().__init__(straight=True)
        self._pushes = Pushes(namespaces, join_leave=join_leave)

    def _put(self, frames: bytes) -> Reading:
        return Reading(b"".join([self._converted(frame, at) for frame, at in split_frames(frames)]))

    def _converted(self, frame: bytes, at: int) -> bytes:
        if frame[0] != TEXT or not frame.startswith(_NATIVE, at):
            return frame  # a control frame, or one of this protocol
        kind, version = frame_head(frame, at)
        if version:
            return self._pushes.of(kind, _read_event(frame[at:]).data)
        if not frame.startswith(_ERROR, at):
            return b""
        # The node withdraws a reply with data of a room that the user has lost, and sends an error in its place.
        error = _read_error(frame[at:])
        return error_frame(error.id, error_of(Refused(error.code, error.message))) if type(error.id) is int else b""
