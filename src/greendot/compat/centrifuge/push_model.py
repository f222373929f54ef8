"""Pushes to Centrifuge clients, made from native frames once for all clients that read the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from greendot.compat.centrifuge.channel_model import Namespaces, channel_of
from greendot.compat.centrifuge.codec_model import NULL, ClientInfo, Publication, compact, push_frame
from greendot.compat.centrifuge.codes_model import UNSUBSCRIBED
from greendot.ids import APP_USER
from greendot.protocol.decoding import decoder
from greendot.protocol.events import RoomMessage

SERVER = APP_USER  # author of what the app publishes by the server API; such publications have no `info`
PUBLICATION = "publication"  # kind of the signals that carry publications of channels without a history


class _Message(Struct):
    room: str
    seq: int
    user: str
    body: Raw
    ref: int | None = None
    op: str | None = None
    info: Raw | UnsetType = UNSET


class _Signal(Struct, rename={"sender": "from"}):
    kind: str
    sender: str | None = None
    room: str | UnsetType = UNSET
    body: Raw | UnsetType = UNSET


class _Occupant(Struct):
    room: str
    user: str
    info: Raw | UnsetType = UNSET


class _Changed(Struct):
    room: str
    removed: bool = False
    reason: str | None = None


_read_message = decoder(_Message)
_read_signal = decoder(_Signal)
_read_occupant = decoder(_Occupant)
_read_changed = decoder(_Changed)


def client_info(user: str, info: dict[str, Any] | Raw | UnsetType) -> ClientInfo:
    """Return a user in the form of a Centrifuge client. Each user is shown as one client."""
    if isinstance(info, dict):
        info = Raw(msgspec.json.encode(info))
    return ClientInfo(user, user, info if isinstance(info, UnsetType) else compact(info))


def publication(message: RoomMessage | _Message) -> Publication:
    """Return a message of a room as a publication. A change of an earlier message has the tags `op` and `ref`."""
    tags: Mapping[str, str] | UnsetType = UNSET
    if message.op is not None:
        tags = {"op": message.op, "ref": str(message.ref)} if message.ref is not None else {"op": message.op}
    author = UNSET if message.user in ("", SERVER) else client_info(message.user, message.info)
    return Publication(compact(message.body), message.seq, author, tags)


class Pushes:
    """Conversion of native events to pushes, by the rules of a tenant's namespaces."""

    __slots__ = ("_makers", "_namespaces")

    def __init__(self, namespaces: Namespaces, *, join_leave: bool) -> None:
        self._namespaces = namespaces
        self._makers: dict[str, Any] = {
            "room.message": self._message,
            "signal": self._signal,
            "room.changed": self._changed,
        }
        if join_leave:
            self._makers |= {"room.entered": self._entered, "room.left": self._left}

    def of(self, kind: str, data: Raw | bytes) -> bytes:
        """Return the push for an event as a frame; empty if Centrifuge clients do not get such an event."""
        make = self._makers.get(kind)
        frame: bytes = b"" if make is None else make(data)
        return frame

    def _message(self, data: Raw) -> bytes:
        message = _read_message(data)
        return push_frame(channel_of(message.room), "pub", publication(message))

    def _signal(self, data: Raw) -> bytes:
        signal = _read_signal(data)
        if signal.kind != PUBLICATION or isinstance(signal.room, UnsetType):
            return b""
        body = NULL if isinstance(signal.body, UnsetType) else compact(signal.body)
        author = UNSET if signal.sender in (None, SERVER) else client_info(signal.sender or "", UNSET)
        return push_frame(channel_of(signal.room), "pub", Publication(body, info=author))

    def _entered(self, data: Raw) -> bytes:
        return self._occupant("join", data)

    def _left(self, data: Raw) -> bytes:
        return self._occupant("leave", data)

    def _occupant(self, kind: str, data: Raw) -> bytes:
        occupant = _read_occupant(data)
        channel = channel_of(occupant.room)
        rules = self._namespaces.rules(channel)
        if rules is None or not rules.join_leave:
            return b""
        return push_frame(channel, kind, {"info": client_info(occupant.user, occupant.info)})

    def _changed(self, data: Raw) -> bytes:
        changed = _read_changed(data)
        if not changed.removed:
            return b""
        reason = changed.reason or "unsubscribed by the server"
        return push_frame(channel_of(changed.room), "unsubscribe", {"code": UNSUBSCRIBED, "reason": reason})
