from __future__ import annotations

import gc

import msgspec
import pytest
from msgspec import UNSET

from greendot.client.codec import Answer, Failure, body_of, decode, decode_reply, encode, raw
from greendot.errors import Refused
from greendot.protocol.codec import decode_command, encode_error, encode_event, encode_reply
from greendot.protocol.commands import RoomSend
from greendot.protocol.events import RoomMessage, Signal
from greendot.protocol.replies import PresenceReply

from .wire import a_message, a_presence


def payload(frame: bytes) -> bytes:
    return frame[2:] if frame[1] < 126 else frame[4:]


def test_frames_of_the_server_are_decoded_to_equal_events() -> None:
    assert decode(payload(encode_event(a_presence(), 0))) == a_presence()
    message = decode(payload(encode_event(a_message(7), 0)))
    gc.collect()
    assert isinstance(message, RoomMessage)
    assert (message.seq, body_of(message)) == (7, {"text": "hi"})


def test_a_reply_is_read_by_who_asked() -> None:
    answer = decode(payload(encode_reply(3, PresenceReply([a_presence()]))))
    assert isinstance(answer, Answer)
    assert answer.id == 3
    assert decode_reply(answer.data, PresenceReply).presence == [a_presence()]


def test_an_error_frame() -> None:
    frame = payload(encode_error(Refused("rate_limited", "slow down", retry_in_ms=20), "x"))
    assert decode(frame) == Failure("x", "rate_limited", "slow down", True, 20)


def test_what_a_newer_server_adds_is_no_error() -> None:
    assert decode(b'{"type":"brand.new","v":1,"ts":0,"data":{"a":1}}') is None
    assert decode(b'{"type":"resync","v":1,"ts":0,"new":2,"data":{"scope":"x","more":1}}') is not None


def test_what_is_not_a_frame_is_an_error() -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(b"[]")
    with pytest.raises(msgspec.DecodeError):
        decode(b'{"type":"resync","data":{}}')


def test_commands_are_what_the_server_reads() -> None:
    command = RoomSend(id=1, room="lobby", body=raw({"text": "ü"}), key="k")
    assert decode_command(encode(command)) == command


def test_a_signal_without_body_has_none() -> None:
    signal = Signal("bob", "Bob", "wave")
    assert signal.body is UNSET
    assert body_of(signal) is None
