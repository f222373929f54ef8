"""Frames of the Pusher protocol, as clients send them and as they get them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw, Struct

from greendot.protocol.codec import text_frame
from greendot.protocol.decoding import Json, decoder

_encode = msgspec.json.encode
PONG = text_frame(b'{"event":"pusher:pong","data":{}}')


class ClientFrame(Struct, frozen=True):
    """Frame of a client."""

    event: str
    data: Raw = Raw(b"null")
    channel: str | None = None


class SubscribeData(Struct, frozen=True):
    """Data of `pusher:subscribe`."""

    channel: str
    auth: str | None = None
    channel_data: str | None = None


class UnsubscribeData(Struct, frozen=True):
    """Data of `pusher:unsubscribe`."""

    channel: str


class SigninData(Struct, frozen=True):
    """Data of `pusher:signin`."""

    auth: str
    user_data: str


class MemberData(Struct, frozen=True):
    """Channel data of a presence channel. Laravel sends numbers as ids."""

    user_id: str | int
    user_info: Raw = Raw(b"null")


class UserData(Struct, frozen=True):
    """User data of a sign-in."""

    id: str | int
    user_info: Raw = Raw(b"null")
    watchlist: list[str | int] = []


read_frame = decoder(ClientFrame)
read_subscribe = decoder(SubscribeData)
read_unsubscribe = decoder(UnsubscribeData)
read_signin = decoder(SigninData)
read_member = decoder(MemberData)
read_user = decoder(UserData)
read_object = decoder(dict[str, Any])


def event_frame(event: str, data: Raw, channel: str | None = None, user: str | None = None) -> bytes:
    """Return a frame with data that is encoded already."""
    frame: dict[str, object] = {"event": event, "data": data}
    if channel is not None:
        frame["channel"] = channel
    if user is not None:
        frame["user_id"] = user
    return text_frame(_encode(frame))


def quoted(data: bytes) -> Raw:
    """Return JSON as a JSON string, because the protocol sends the server's data as strings."""
    return Raw(_encode(data.decode()))


def internal_frame(event: str, data: Any, channel: str | None = None) -> bytes:
    """Return a frame of the protocol itself, with its data in a string."""
    return event_frame(event, quoted(_encode(data)), channel)


def established(socket_id: str, activity_timeout: int) -> bytes:
    data = {"socket_id": socket_id, "activity_timeout": activity_timeout}
    return internal_frame("pusher:connection_established", data)


def error_frame(code: int | None, message: str) -> bytes:
    return event_frame("pusher:error", Raw(_encode({"code": code, "message": message})))


def subscription_error(channel: str, kind: str, message: str, status: int) -> bytes:
    data = {"type": kind, "error": message, "status": status}
    return event_frame("pusher:subscription_error", Raw(_encode(data)), channel)


def subscribed(channel: str, data: Any = None) -> bytes:
    return internal_frame("pusher_internal:subscription_succeeded", data or {}, channel)


def cache_miss(channel: str) -> bytes:
    return text_frame(_encode({"event": "pusher:cache_miss", "channel": channel}))


def signed_in(user_data: str) -> bytes:
    return event_frame("pusher:signin_success", Raw(_encode({"user_data": user_data})))


def watchlist(name: str, users: list[str]) -> bytes:
    return internal_frame("pusher_internal:watchlist_events", {"events": [{"name": name, "user_ids": users}]})


# --- events of the app, as signals and messages of a room ---


class AppEvent(Struct, frozen=True):
    """Event of the app, as the body of a message in a room."""

    event: str
    data: Raw = Raw(b"null")


read_app_event = decoder(AppEvent)


def as_body(data: str) -> Raw:
    """Return the data of an event as JSON for native clients.

    Data that is JSON becomes this JSON, unless it is a JSON string. Other data becomes a JSON string.
    """
    if data and data[0] in "{[-0123456789tfn" and data[-1:].strip():
        raw = data.encode(errors="replace")
        try:
            read_any(raw)
        except msgspec.DecodeError:
            return Raw(_encode(data))
        return Raw(raw)
    return Raw(_encode(data))


def as_data(body: bytes) -> Raw:
    """Return the data of an event from the JSON of `as_body`: the same text, in a JSON string."""
    return Raw(body) if body.startswith(b'"') else quoted(body)


read_any: Callable[[Json], Any] = decoder(object)
