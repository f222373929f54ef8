from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from greendot.errors import Refused
from greendot.ids import ID_RULE
from greendot.protocol import events
from greendot.protocol.codec import (
    BadCommand,
    decode_command,
    encode_error,
    encode_event,
    encode_reply,
    pong_frame,
    text_frame,
)
from greendot.protocol.codes import RETRYABLE, Err
from greendot.protocol.commands import RoomSend
from greendot.protocol.decoding import MAX_DEPTH
from greendot.protocol.events import EVENTS, Event
from greendot.protocol.replies import Reply, SendReply

NOW = 1_800_000_000_000
LIMITS = events.Limits(65_536, 50, 10_000, 500)
SAMPLES: list[Event] = [
    events.Welcome("s1", "ann", "default", "n1", False, 30.0, NOW, 0, LIMITS, {"r": events.RoomState(3, True, False)}),
    events.HeartbeatAck(),
    events.Presence("ann", "Ann", "online", NOW, None, 7),
    events.Presence("ann", None, "offline", NOW, NOW, 8, devices=[], status="busy", until=None, stale=True),
    events.Presence("ann", None, "offline", NOW, NOW, 8, mode="poll", recently_active=False),
    events.TypingStarted("lobby", "ann", "Ann", 5_000),
    events.TypingStopped("lobby", "ann"),
    events.TypingCount("lobby", 12, 5_000),
    events.RoomMessage("lobby", 1, "m1", "ann", "Ann", Raw(b'{"text":"h\xc3\xa9"}'), NOW),
    events.RoomEntered("lobby", "ann"),
    events.RoomLeft("lobby", "ann"),
    events.RoomProfile("lobby", "ann", "Ann", {"colour": "blue"}),
    events.RoomCount("lobby", 120),
    events.RoomReceipt("lobby", "alice", 7),
    events.RoomReceiptCount("lobby", 7, 120),
    events.RoomChanged("lobby", removed=True, reason="removed"),
    events.NotificationCreated(3, "3-aa", "mention", Raw(b'{"in": "lobby"}'), 1_800_000_000_000, ack=True),
    events.NotificationUpdated("read", ["3-aa"]),
    events.NotificationUpdated("seen", through=3),
    events.NotificationUpdatedV1("seen", ["3-aa"], through=3),
    events.InboxBadge(2, 1),
    events.Signal("ann", "Ann", "cursor", room="lobby", body=Raw(b"[1,2]"), key="k"),
    events.Signal("ann", None, "ping"),
    events.Refresh("signal"),
    events.Resync("rooms"),
    events.Drain(1_000),
    events.Overloaded(1_000),
]
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def payload(frame: bytes) -> bytes:
    """Read the payload of an unmasked, final text frame by the rules of RFC 6455, independently of our codec."""
    assert frame[0] == 0x81
    size, at = frame[1], 2
    assert size < 128, "a server must not mask frames"
    if size == 126:
        size, at = int.from_bytes(frame[2:4], "big"), 4
        assert size > 125, "the length must have its shortest form"
    elif size == 127:
        size, at = int.from_bytes(frame[2:10], "big"), 10
        assert size > 65_535, "the length must have its shortest form"
    assert len(frame) == at + size
    return frame[at:]


def bad(text: str | bytes) -> BadCommand:
    with pytest.raises(BadCommand) as caught:
        decode_command(text)
    return caught.value


# --- frames ---


@pytest.mark.parametrize(
    ("size", "header"),
    [
        (0, b"\x81\x00"),
        (125, b"\x81\x7d"),
        (126, b"\x81\x7e\x00\x7e"),
        (65_535, b"\x81\x7e\xff\xff"),
        (65_536, b"\x81\x7f\x00\x00\x00\x00\x00\x01\x00\x00"),
    ],
)
def test_a_header_has_the_shortest_form_that_holds_the_size(size: int, header: bytes) -> None:
    assert text_frame(b"x" * size) == header + b"x" * size


@given(st.binary(max_size=300))
def test_a_frame_holds_what_was_put_in(data: bytes) -> None:
    assert payload(text_frame(data)) == data


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_frames_may_be_joined(parts: list[bytes]) -> None:
    joined = b"".join(map(text_frame, parts))
    for part in parts:
        frame, joined = joined[: len(text_frame(part))], joined[len(text_frame(part)) :]
        assert payload(frame) == part
    assert joined == b""


@pytest.mark.parametrize("size", [0, 1, 125])
def test_a_pong_repeats_the_ping(size: int) -> None:
    assert pong_frame(b"p" * size) == bytes([0x8A, size]) + b"p" * size


# --- events, replies, errors ---


def test_there_is_a_sample_of_every_event() -> None:
    assert {sample.type for sample in SAMPLES} == EVENTS.keys()


@pytest.mark.parametrize("event", SAMPLES, ids=lambda event: event.type)
def test_an_event_comes_out_as_it_went_in(event: Event) -> None:
    envelope = msgspec.json.decode(payload(encode_event(event, NOW)), type=dict[str, Raw])
    assert envelope.keys() == {"type", "v", "ts", "data"}
    assert msgspec.json.decode(envelope["type"]) == event.type
    assert (msgspec.json.decode(envelope["v"]), msgspec.json.decode(envelope["ts"])) == (event.v, NOW)
    again = msgspec.json.decode(envelope["data"], type=EVENTS[event.type])
    assert msgspec.json.encode(again) == msgspec.json.encode(event)


def test_an_event_carries_the_trace_it_was_given() -> None:
    assert json.loads(payload(encode_event(events.HeartbeatAck(), NOW, "trace-1")))["trace"] == "trace-1"


def test_who_sent_a_signal_stands_under_from() -> None:
    data = json.loads(payload(encode_event(events.Signal("ann", None, "ping"), NOW)))["data"]
    assert data == {"from": "ann", "name": None, "kind": "ping"}


@given(st.text() | st.integers())
def test_a_reply_echoes_the_id(command_id: str | int) -> None:
    frame = payload(encode_reply(command_id, SendReply("m1", 7)))
    assert json.loads(frame) == {"type": "reply", "id": command_id, "data": {"id": "m1", "seq": 7}}


def test_a_reply_without_data_is_an_empty_object() -> None:
    assert json.loads(payload(encode_reply(1, Reply())))["data"] == {}


@pytest.mark.parametrize("code", Err)
def test_an_error_has_a_flag_whether_a_retry_helps(code: Err) -> None:
    frame = json.loads(payload(encode_error(Refused(code, "why"), "id-1")))
    assert frame == {"type": "error", "id": "id-1", "code": code.value, "message": "why", "retry": code in RETRYABLE}


def test_an_error_has_the_retry_time_where_it_is_known() -> None:
    frame = json.loads(payload(encode_error(Refused(Err.RATE_LIMITED, "why", retry_in_ms=250))))
    assert (frame["id"], frame["retry"], frame["retry_in_ms"]) == (None, True, 250)


# --- commands ---


@settings(deadline=None)
@given(json_values)
def test_the_body_of_a_message_is_handed_on_as_it_was_written(body: Any) -> None:
    text = json.dumps(body, indent=1)
    command = decode_command(f'{{"type":"room.send","room":"lobby","body":{text}}}')
    assert isinstance(command, RoomSend)
    assert bytes(command.body) == text.encode()


def test_text_and_bytes_are_read_alike() -> None:
    text = '{"type":"token.refresh","token":"é"}'
    assert decode_command(text) == decode_command(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        "hello",
        "{'type':'bye'}",
        '{"type":"bye"} {}',
        '{"type":"bye",}',
        '{"type":"room.send","room":"r","body":nul}',
        '{"type":"room.send","room":"r","body":"\\ud800"}',
        b'{"type":"token.refresh","token":"\xff"}',
    ],
)
def test_what_is_not_json_is_a_bad_frame(text: str | bytes) -> None:
    assert (bad(text).code, bad(text).message) == (Err.BAD_FRAME, "the frame is not valid JSON")


def test_what_is_nested_too_deeply_is_refused_with_its_id_where_that_can_be_read() -> None:
    def sent(levels: int) -> str:
        return '{"type":"room.send","id":5,"room":"r","body":' + "[" * levels + "]" * levels + "}"

    assert decode_command(sent(MAX_DEPTH - 1)).id == 5
    readable, unreadable = (Err.BAD_FIELD, 5), (Err.BAD_FRAME, None)
    # From Python 3.14 on, the stack has room for all levels of a frame.
    for levels, answers in ((MAX_DEPTH, [readable]), (10_000, [readable, unreadable])):
        refused = bad(sent(levels))
        assert (refused.code, refused.command_id) in answers
        assert refused.message == "a frame may be nested at most 64 levels deep"


@pytest.mark.parametrize("text", ["[]", "null", "5", '"bye"', '["type","bye"]'])
def test_what_is_not_an_object_is_a_bad_frame(text: str) -> None:
    assert (bad(text).code, bad(text).message) == (Err.BAD_FRAME, "a frame must be one JSON object")


@pytest.mark.parametrize("text", ["{}", '{"id":4}', '{"type":5,"id":4}', '{"type":null}', '{"type":["bye"]}'])
def test_an_object_without_a_type_is_a_bad_frame(text: str) -> None:
    assert (bad(text).code, bad(text).message) == (Err.BAD_FRAME, "a frame needs a `type` that is a string")


def test_an_unknown_type_is_named_but_not_at_any_length() -> None:
    error = bad('{"type":"room.explode","id":"x1"}')
    assert (error.code, error.message) == (Err.UNKNOWN_TYPE, "unknown command 'room.explode'")
    assert error.command_id == "x1"
    assert len(bad(json.dumps({"type": "x" * 60_000})).message) < 100


@pytest.mark.parametrize(("given", "meant"), [("room.jion", "room.join"), ("presence_get", "presence.get")])
def test_the_nearest_command_is_named(given: str, meant: str) -> None:
    assert bad(json.dumps({"type": given})).message == f"unknown command {given!r}; did you mean {meant!r}?"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ({"type": "watch", "users": ["ann", "a b"]}, f"not a valid id: {ID_RULE} - at `$.users[1]`"),
        ({"type": "status.set", "status": "bussy"}, "unknown value `bussy`; did you mean `busy`? - at `$.status`"),
        (
            {"type": "status.set", "status": "x"},
            "unknown value `x`; use one of `auto`, `busy`, `invisible` - at `$.status`",
        ),
        ({"type": "status.set", "status": "busy", "text": "a\0"}, "text must have no NUL and no half of a surrogate"),
        ({"type": "room.react", "room": "a", "ref": 1, "reaction": " "}, "a reaction begins with a visible character"),
    ],
)
def test_the_rule_of_an_invalid_value_is_a_sentence(command: dict[str, object], reason: str) -> None:
    error = bad(json.dumps(command))
    assert error.code == Err.BAD_FIELD
    assert reason in error.message


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('{"type":"watch"}', "users"),
        ('{"type":"watch","users":"ann"}', "users"),
        ('{"type":"watch","users":["ann",5]}', "users[1]"),
        ('{"type":"hello","client":{"name":5}}', "client.name"),
        ('{"type":"hello","resume":{"rooms":{"a b":1}}}', "resume.rooms"),
        ('{"type":"room.history","room":"r","limit":0}', "limit"),
        ('{"type":"status.set","status":"away"}', "status"),
        ('{"type":"bye","id":1.5}', "id"),
    ],
)
def test_a_missing_or_wrong_field_is_named(text: str, field: str) -> None:
    error = bad(text)
    assert error.code == Err.BAD_FIELD
    assert error.message.startswith(f"field `{field}` of {json.loads(text)['type']}: ")


@pytest.mark.parametrize("command_id", ["x1", 17])
@pytest.mark.parametrize("wrong", ['"type":5', '"type":"nope"', '"type":"watch"'])
def test_the_error_of_a_bad_command_can_still_be_matched_to_it(command_id: str | int, wrong: str) -> None:
    assert bad(f'{{"id":{json.dumps(command_id)},{wrong}}}').command_id == command_id


@pytest.mark.parametrize("command_id", ["1.5", "true", "[]", "{}", "null"])
def test_an_id_that_cannot_be_one_is_not_echoed(command_id: str) -> None:
    assert bad(f'{{"id":{command_id},"type":"nope"}}').command_id is None


@settings(deadline=None)
@given(st.text() | st.binary() | json_values.map(json.dumps))
def test_whatever_arrives_is_a_command_or_a_bad_one(text: str | bytes) -> None:
    with suppress(BadCommand):
        decode_command(text)
