"""Frames to typed values and commands to frames, as a client sees them."""

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
    """Made by the client itself: how it stands with the server. `code` and `reason` are those of the last close.

    `retry_in_s` is there while it waits for the next attempt: how long.
    """

    type = "state"

    state: ClientState
    code: int | None = None
    reason: str = ""
    retry_in_s: float | None = None


class Truncated(Event, frozen=True):
    """Made by the client itself: so much was missed of a stream (`room:NAME` or `inbox`) that it is not told.

    What comes next is behind number `head`; what lies between `after` and it can be read page by page. With a `head`
    below `after` the server has lost records, and numbers again from there.
    """

    type = "truncated"

    stream: str
    after: int
    head: int


class Reminder(NotificationCreated, frozen=True):
    """A notification sent again because nobody has acknowledged it, and new to this program: told out of its turn."""


class Failure(Event, frozen=True):
    """An error frame. One that answers no waiting call is delivered as an event."""

    type = "error"

    id: CommandId | None
    code: str
    message: str
    retry: bool
    retry_in_ms: int | None


class Answer(Struct, frozen=True, gc=False):
    """A reply whose data is read by whoever knows what was asked."""

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

# What a program can listen to; acknowledged heartbeats are between client and server.
EVENT_TYPES = frozenset({*EVENTS, StateChanged.type, Truncated.type, Failure.type}) - {HeartbeatAck.type}


def decode(payload: bytes) -> Answer | Event | None:
    """What a text frame says; None for an event this version does not know. Raises msgspec.DecodeError."""
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
    """The data of an answer as `kind`. Raises msgspec.DecodeError."""
    reply: R = _reply_decoder(kind)(data)
    return reply


def encode(command: Command) -> bytes:
    return _encode(command)


def raw(body: Any) -> Raw:
    """`body` as it goes into a command; anything msgspec can write as JSON."""
    return Raw(_encode(body))


def body_of(event: RoomMessage | Signal | NotificationCreated | InboxEntry) -> Any:
    """The body of a message, a signal or a notification as Python values; None where a signal has none.

    msgspec.DecodeError if it is nested deeper than the stack has room for, which servers do not let through.
    """
    return None if event.body is UNSET else _decode_body(event.body)
