"""Native frames, as clients of the Pusher protocol get them. Each frame is converted once for all clients of an app.

Messages and signals of the app are events of the server. Their sender is `system`. No token is for this user, so no
user can send such events. Signals of users are client events. A native message becomes the event `message`, with the
message as data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from greendot.compat.pusher import frames
from greendot.compat.pusher.channel_model import channel_of
from greendot.ids import APP_USER
from greendot.protocol.decoding import decoder
from greendot.protocol.versions import TEXT, Dialect, Reading, frame_head, split_frames

APP = APP_USER  # author of messages and sender of signals that come from the app
TYPING = "typing"  # kind of the signal that `client-typing` is
TYPED_S = 6.0  # a native typing event is dropped, if the user's `client-typing` came within this time before
MOST_TYPISTS = 10_000
COUNT = "pusher:subscription_count"  # kind of the signal with the number of subscribers
PROTECTED = ("pusher:", "pusher_internal:")  # events of the protocol itself


class _Envelope(Struct):
    data: Raw


class _Message(Struct):
    room: str
    user: str
    body: Raw
    op: str | None = None


class _Signal(Struct):
    kind: str
    sender: str | None = field(name="from")
    room: str | UnsetType = UNSET
    body: Raw | UnsetType = UNSET


class _Person(Struct):
    room: str
    user: str
    name: str | None = None
    info: Raw | UnsetType = UNSET


class _Changed(Struct):
    room: str
    removed: bool = False
    reason: str | None = None


class Presence(Struct):
    """Presence of a user, in a native frame."""

    user: str
    state: str


class _Watched(Struct):
    presence: list[Presence]


_read = decoder(_Envelope)
_read_message = decoder(_Message)
_read_signal = decoder(_Signal)
_read_person = decoder(_Person)
_read_changed = decoder(_Changed)
_read_presence = decoder(Presence)
read_watched: Callable[[Any], _Watched] = decoder(_Watched)
_encode = msgspec.json.encode


class PusherDialect(Dialect):
    """Dialect of one app's clients."""

    __slots__ = ("_now", "_typed")

    shared = True

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__(straight=True)
        self._now = now
        self._typed: dict[tuple[str, str], float] = {}  # by room and user: time of the last `client-typing`

    def _put(self, frames: bytes) -> Reading:
        return Reading(b"".join([self._converted(frame, at) for frame, at in split_frames(frames)]))

    def _converted(self, frame: bytes, at: int) -> bytes:
        kind, _ = frame_head(frame, at)
        if kind:
            convert = _CONVERSIONS.get(kind)
            return b"" if convert is None else convert(self, _read(frame[at:]).data)
        # Errors and replies of native commands are not for these clients. Other frames are converted already.
        return b"" if frame[0] == TEXT and frame.startswith(b'{"type":', at) else frame

    def _message(self, data: Raw) -> bytes:
        message = _read_message(data)
        channel = channel_of(message.room)
        if message.user == APP and message.op is None and (event := app_event(message.body)) is not None:
            return frames.event_frame(event.event, frames.as_data(bytes(event.data)), channel)
        return frames.event_frame("message", frames.quoted(bytes(data)), channel)

    def _signal(self, data: Raw) -> bytes:
        signal = _read_signal(data)
        if isinstance(signal.room, UnsetType):
            return b""  # for one user: `personal_event`
        body = Raw(b"null") if isinstance(signal.body, UnsetType) else signal.body
        channel = channel_of(signal.room)
        if signal.sender == APP:
            if signal.kind == COUNT:
                return frames.event_frame("pusher_internal:subscription_count", frames.quoted(bytes(body)), channel)
            return b"" if signal.kind.startswith(PROTECTED) else server_event(signal.kind, body, channel)
        if signal.kind == TYPING and signal.sender is not None:
            self._note_typing(signal.room, signal.sender)
        user = signal.sender if channel.startswith("presence-") else None
        return frames.event_frame(f"client-{signal.kind}", body, channel, user)

    def _note_typing(self, room: str, user: str) -> None:
        if len(self._typed) >= MOST_TYPISTS:
            self._typed.clear()
        self._typed[room, user] = self._now()

    def _typing(self, data: Raw, event: str) -> bytes:
        """Convert typing of a native client. Typing of a Pusher client has arrived as its own client event."""
        typist = _read_person(data)
        if self._now() - self._typed.get((typist.room, typist.user), float("-inf")) < TYPED_S:
            return b""
        channel = channel_of(typist.room)
        if not channel.startswith(("private-", "presence-")):
            return b""  # public channels have no client events
        shown = Raw(_encode({"user": typist.user, "name": typist.name}))
        return frames.event_frame(event, shown, channel, typist.user if channel.startswith("presence-") else None)

    def _typing_started(self, data: Raw) -> bytes:
        return self._typing(data, "client-typing")

    def _typing_stopped(self, data: Raw) -> bytes:
        return self._typing(data, "client-typing-stopped")

    def _entered(self, data: Raw) -> bytes:
        member = _read_person(data)
        channel = channel_of(member.room)
        if not channel.startswith("presence-"):
            return b""
        shown = {"user_id": member.user, "user_info": member_info(member.name, member.info)}
        return frames.internal_frame("pusher_internal:member_added", shown, channel)

    def _left(self, data: Raw) -> bytes:
        member = _read_person(data)
        channel = channel_of(member.room)
        if not channel.startswith("presence-"):
            return b""
        return frames.internal_frame("pusher_internal:member_removed", {"user_id": member.user}, channel)

    def _changed(self, data: Raw) -> bytes:
        changed = _read_changed(data)
        if not changed.removed:
            return b""
        why = f"this user was removed from the channel: {changed.reason}"
        return frames.subscription_error(channel_of(changed.room), "AuthError", why, 403)


_CONVERSIONS: dict[str, Callable[[PusherDialect, Raw], bytes]] = {
    "room.message": PusherDialect._message,
    "room.entered": PusherDialect._entered,
    "room.left": PusherDialect._left,
    "room.changed": PusherDialect._changed,
    "signal": PusherDialect._signal,
    "typing.started": PusherDialect._typing_started,
    "typing.stopped": PusherDialect._typing_stopped,
}


def app_event(body: Raw | bytes) -> frames.AppEvent | None:
    """Return the event in the body of a message; None if the body has another form."""
    try:
        event = frames.read_app_event(body)
    except msgspec.DecodeError:
        return None
    return None if event.event.startswith(PROTECTED) else event


def server_event(event: str, body: Raw, channel: str) -> bytes:
    return frames.event_frame(event, frames.as_data(bytes(body)), channel)


def member_info(name: str | None, info: Any) -> Any:
    """Return the `user_info` of a member: the user's info, or else the name."""
    if isinstance(info, Raw):
        return info
    return {} if name is None else {"name": name}


def personal_event(frame: bytes, at: int, channel: str) -> bytes | None:
    """Return a signal of the app to one user as an event of the user's channel; None for signals of rooms and users."""
    signal = _read_signal(_read(frame[at:]).data)
    if not isinstance(signal.room, UnsetType) or signal.sender != APP:
        return None
    body = Raw(b"null") if isinstance(signal.body, UnsetType) else signal.body
    return server_event(signal.kind, body, channel)


def presence_in(frame: bytes, at: int) -> Presence:
    """Return the presence in a native frame `presence.changed`."""
    return _read_presence(_read(frame[at:]).data)
