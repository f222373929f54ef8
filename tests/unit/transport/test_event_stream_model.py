"""Frames as Server-Sent Events, and commands as frames."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greendot.protocol.codec import MAX_FRAME, close_frame, encode_event, pong_frame
from greendot.protocol.events import HeartbeatAck
from greendot.transport.event_stream_model import (
    KEPT_BYTES,
    MAX_PADDING,
    Events,
    client_frames,
    events_of,
    first_event,
    padding,
    padding_asked,
)
from greendot.transport.frame_model import WHOLE_TEXT, close_code, next_frame

ACK = encode_event(HeartbeatAck(), 7)
EVENT = b"data: " + ACK[2:] + b"\n\n"


def text_frame(text: bytes) -> bytes:
    size = len(text)
    if size < 126:
        return b"\x81%c%b" % (size, text)
    return (
        b"\x81\x7e%b%b" % (size.to_bytes(2, "big"), text)
        if size < 65_536
        else b"\x81\x7f%b%b"
        % (
            size.to_bytes(8, "big"),
            text,
        )
    )


def test_each_frame_is_an_event_and_a_pong_is_none() -> None:
    assert events_of(ACK) == Events(EVENT)
    assert events_of(ACK + pong_frame(b"x") + ACK) == Events(EVENT * 2)
    assert events_of(pong_frame(b"x")) == Events(b"")


def test_a_close_is_the_last_event() -> None:
    data, is_end = events_of(ACK + close_frame(4001, "too slow"))
    assert is_end
    assert data == EVENT + b'event: close\ndata: {"code":4001,"reason":"too slow"}\n\n'


@given(
    st.recursive(
        st.text() | st.integers(-(2**53), 2**53) | st.none(), lambda of: st.lists(of) | st.dictionaries(st.text(), of)
    )
)
def test_any_json_stays_the_same_on_one_line(value: object) -> None:
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).replace(b"\n", b"\r\n")
    data = events_of(text_frame(text)).data
    assert data.startswith(b"data: ")
    assert data.endswith(b"\n\n")
    assert b"\n" not in data[:-2]
    assert b"\r" not in data
    assert msgspec.json.decode(data[6:]) == value


@pytest.mark.parametrize("size", [125, 126, 65_535, 65_536, KEPT_BYTES * 2])
def test_frames_of_every_length_are_converted(size: int) -> None:
    text = b'"%b"' % (b"x" * (size - 2))
    assert events_of(text_frame(text)).data == b"data: " + text + b"\n\n"


@given(st.lists(st.text(max_size=300)), st.none() | st.sampled_from([1000, 1001]))
def test_commands_are_read_as_frames_of_a_client(commands: list[str], close: int | None) -> None:
    data, at, read = client_frames(commands, close), 0, []
    while (frame := next_frame(data, at)) is not None:
        first, payload, at = frame
        read.append(payload.decode() if first == WHOLE_TEXT else close_code(payload))
    assert at == len(data)
    assert read == [*commands, *([] if close is None else [close])]


def test_the_largest_command_is_one_frame() -> None:
    frame = next_frame(client_frames(["x" * MAX_FRAME], None), 0)
    assert frame is not None
    assert len(frame[1]) == MAX_FRAME


def test_the_first_event_names_the_stream() -> None:
    assert first_event("k3Fa-x") == b'event: stream\ndata: {"stream":"k3Fa-x"}\n\n'


def test_padding_is_a_comment_of_the_size_asked_for() -> None:
    assert padding(0) == b""
    assert (len(padding(4096)), padding(4096)[:1], padding(4096)[-2:]) == (4096, b":", b"\n\n")
    assert padding(4096) is padding(4096)  # shared by all streams


@pytest.mark.parametrize(
    ("query", "size"),
    [
        (b"", 0),
        (b"pad=4096", 4096),
        (b"a=1&pad=512", 4096),
        (b"pad=0", 0),
        (b"pad=16384", 16384),
        (b"pad=16385", 20480),
        (b"pad=99999", MAX_PADDING),
        (b"pad=999999999", 0),
        (b"pad=-1", 0),
        (b"pad=x", 0),
        (b"padding=5", 0),
    ],
)
def test_the_query_asks_for_padding(query: bytes, size: int) -> None:
    assert padding_asked(query) == size
