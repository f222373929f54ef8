"""Native frames as Pusher clients get them: converted once, unchanged the second time, without foreign ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from greendot.compat.pusher.dialect import TYPED_S, PusherDialect
from greendot.compat.pusher.frames import as_body, as_data
from greendot.errors import Refused
from greendot.protocol.codec import encode_error, encode_event, encode_reply, pong_frame
from greendot.protocol.codes import Err
from greendot.protocol.events import (
    Drain,
    Event,
    HeartbeatAck,
    InboxBadge,
    RoomCount,
    RoomEntered,
    RoomLeft,
    RoomMessage,
    Signal,
    TypingStarted,
    TypingStopped,
)
from greendot.protocol.replies import Reply
from greendot.protocol.versions import split_frames

ROOM = "presence-a"


def shown(dialect: PusherDialect, *events: Event) -> list[dict[str, Any]]:
    frames = dialect.read(b"".join(encode_event(event, 1) for event in events)).frames
    assert dialect.read(frames).frames == frames
    return [json.loads(frame[at:]) for frame, at in split_frames(frames)]


def message(user: str, body: bytes, **more: Any) -> RoomMessage:
    return RoomMessage(ROOM, 1, "m1", user, None, Raw(body), 5, **more)


@pytest.fixture
def dialect() -> PusherDialect:
    return PusherDialect(lambda: 100.0)


def test_messages_of_the_app_are_its_events_and_others_are_messages(dialect: PusherDialect) -> None:
    body = b'{"event":"sold","data":{"n":1}}'
    (sold,) = shown(dialect, message("system", body))
    assert sold == {"event": "sold", "data": '{"n":1}', "channel": ROOM}
    (plain,) = shown(dialect, message("ann", body))
    assert (plain["event"], json.loads(plain["data"])["user"]) == ("message", "ann")
    (internal,) = shown(dialect, message("system", b'{"event":"pusher:error","data":1}'))
    assert internal["event"] == "message"
    (edited,) = shown(dialect, message("system", body, ref=1, op="edit"))
    assert edited["event"] == "message"


def test_members_are_shown_in_presence_channels_only(dialect: PusherDialect) -> None:
    added, removed = shown(dialect, RoomEntered(ROOM, "ann", "Ann"), RoomLeft(ROOM, "ann"))
    assert json.loads(added["data"]) == {"user_id": "ann", "user_info": {"name": "Ann"}}
    assert (removed["event"], json.loads(removed["data"])) == ("pusher_internal:member_removed", {"user_id": "ann"})
    assert shown(dialect, RoomEntered("private-a", "ann"), RoomLeft("news", "ann"), RoomCount(ROOM, 200)) == []


def test_signals_of_users_are_client_events(dialect: PusherDialect) -> None:
    (event,) = shown(dialect, Signal("ann", None, "wave", ROOM, Raw(b"[1]")))
    assert event == {"event": "client-wave", "data": [1], "channel": ROOM, "user_id": "ann"}
    (anonymous,) = shown(dialect, Signal(None, None, "wave", "private-a"))
    assert anonymous == {"event": "client-wave", "data": None, "channel": "private-a"}
    (of_the_app,) = shown(dialect, Signal("system", None, "sold", "a+cb", Raw(b'"text"')))
    assert of_the_app == {"event": "sold", "data": "text", "channel": "a,b"}


def test_typing_that_came_as_a_client_event_is_not_repeated() -> None:
    now = [100.0]
    dialect = PusherDialect(lambda: now[0])
    typing = TypingStarted(ROOM, "ann", "Ann", 5_000)
    assert [frame["event"] for frame in shown(dialect, typing)] == ["client-typing"]
    assert len(shown(dialect, Signal("ann", None, "typing", ROOM, Raw(b"{}")))) == 1
    assert shown(dialect, TypingStarted(ROOM, "ann", "Ann", 4_999), TypingStopped(ROOM, "ann")) == []
    assert len(shown(dialect, TypingStarted(ROOM, "bob", None, 5_000))) == 1
    now[0] += TYPED_S
    (stopped,) = shown(dialect, TypingStopped(ROOM, "cleo"))
    assert stopped["event"] == "client-typing-stopped"
    assert shown(dialect, TypingStarted("news", "ann", None, 5_000)) == []


def test_frames_of_native_clients_are_left_out(dialect: PusherDialect) -> None:
    assert shown(dialect, HeartbeatAck(), Drain(1), InboxBadge(1, 1), Signal("ann", None, "x")) == []
    assert dialect.read(encode_reply(1, Reply()) + encode_error(Refused(Err.FORBIDDEN, "no"))).frames == b""
    assert dialect.read(pong_frame(b'{"type":"x"')).frames == pong_frame(b'{"type":"x"')


@pytest.mark.parametrize(
    "text", ["", "x", '"x"', "{}", "[1, 2]", "-1", "1 ", " 1", "true", "nul", "{", "\ud7ff", "tru e"]
)
def test_data_of_an_event_keeps_its_text(text: str) -> None:
    assert json.loads(bytes(as_data(bytes(as_body(text))))) == text
