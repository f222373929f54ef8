"""Codec of the client: frames to typed values, commands to frames."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct

from greendot.protocol.commands import Command, CommandId
from greendot.protocol.decoding import decoder
from greendot.protocol.events import EVENTS, Event, HeartbeatAck, NotificationCreated, RoomMessage, Signal
from greendot.protocol.replies import InboxEntry, Reply

R = TypeVar("R", bound=Reply)

ClientState = Literal["connecting", "connected", "reconnecting", "closed"]

_encode = msgspec.json.Encoder().encode


class StateChanged(Event, frozen=True):
    """Event made by the client: its connection state changed. `code` and `reason` are from the last close.

    `retry_in_s` is the delay before the next attempt; None unless the client waits for one.
    """

    type = "state"

    state: ClientState
    code: int | None = None
    reason: str = ""
    retry_in_s: float | None = None


class Truncated(Event, frozen=True):
    """Event made by the client: it missed too many records of a stream (`room:NAME` or `inbox`) to deliver them.

    The next record has a number above `head`. Records between `after` and `head` can be read page by page. A `head`
    below `after` means that the server lost records and numbers again from there.
    """

    type = "truncated"

    stream: str
    after: int
    head: int


class Reminder(NotificationCreated, frozen=True):
    """Unacknowledged notification that is redelivered and new to this program. It is delivered out of order."""


class Failure(Event, frozen=True):
    """Error frame. A frame that answers no waiting call is delivered as an event."""

    type = "error"

    id: CommandId | None
    code: str
    message: str
    retry: bool
    retry_in_ms: int | None


class Answer(Struct, frozen=True, gc=False):
    """Reply whose data is decoded later, by the caller that knows the type of the reply."""

    id: CommandId
    data: Raw


class _Frame(Struct, gc=False):
    type: str
    id: CommandId | None = None
    data: Raw = Raw(b"{}")
    code: str = ""
    message: str = ""
    retry: bool = False
    retry_in_ms: int | None = None


_decode_body = decoder(Any)
_decode_frame = decoder(_Frame)
_decode_event = {name: decoder(kind) for name, kind in EVENTS.items()}

# Events that a program can subscribe to. Heartbeat acknowledgements concern only client and server.
EVENT_TYPES = frozenset({*EVENTS, StateChanged.type, Truncated.type, Failure.type}) - {HeartbeatAck.type}


def decode(payload: bytes) -> Answer | Event | None:
    """Decode a text frame; return None for an event unknown to this version. Raise msgspec.DecodeError if malformed."""
    frame = _decode_frame(payload)
    if frame.type == "reply" and frame.id is not None:
        return Answer(frame.id, frame.data)
    if frame.type == "error":
        return Failure(frame.id, frame.code, frame.message, frame.retry, frame.retry_in_ms)
    read = _decode_event.get(frame.type)
    return read(frame.data) if read else None


@cache
def _reply_decoder(kind: type[R]) -> Callable[[Raw], R]:
    return decoder(kind)


def decode_reply(data: Raw, kind: type[R]) -> R:
    """Decode the data of a reply as `kind`. Raise msgspec.DecodeError if the data does not match."""
    reply: R = _reply_decoder(kind)(data)
    return reply


def encode(command: Command) -> bytes:
    return _encode(command)


def raw(body: Any) -> Raw:
    """Encode the body of a command: any value that msgspec can write as JSON."""
    return Raw(_encode(body))


def body_of(event: RoomMessage | Signal | NotificationCreated | InboxEntry) -> Any:
    """Return the body of a message, a signal or a notification as Python values; None for a signal without one.

    Raise msgspec.DecodeError if the body is nested deeper than the stack allows. Servers refuse such bodies.
    """
    return None if event.body is UNSET else _decode_body(event.body)
