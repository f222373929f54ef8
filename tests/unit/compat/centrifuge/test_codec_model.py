"""Commands and replies of the Centrifuge protocol as text."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from greendot.compat.centrifuge.codec_model import (
    MOST_COMMANDS,
    PING_FRAME,
    PONG,
    BadCommand,
    Connect,
    Empty,
    Publication,
    Publish,
    Send,
    Subscribe,
    SubscribeResult,
    compact,
    error_frame,
    push_frame,
    read_command,
    reply_frame,
    split_frame,
)
from greendot.compat.centrifuge.codes_model import CfError


def test_the_first_frame_of_centrifuge_js_has_two_commands() -> None:
    frame = (
        '{"connect":{"token":"t","name":"js"},"id":1}\n'
        '{"subscribe":{"channel":"room:1","recoverable":true,"join_leave":true,"flag":1},"id":2}'
    )
    connect, subscribe = map(read_command, split_frame(frame))
    assert connect.method == Connect("t", "js")
    assert (subscribe.id, subscribe.method) == (2, Subscribe("room:1", join_leave=True))


def test_empty_lines_are_no_commands_and_too_many_lines_are_refused() -> None:
    assert split_frame("\n\r\n{}\n \n") == ["{}"]
    assert len(split_frame("\n".join(["{}"] * MOST_COMMANDS))) == MOST_COMMANDS
    with pytest.raises(BadCommand):
        split_frame("\n".join(["{}"] * (MOST_COMMANDS + 1)))


def test_an_empty_object_is_a_pong_and_a_send_needs_no_number() -> None:
    assert read_command("{}") is PONG
    assert read_command("{ }").method == PONG.method
    assert read_command('{"send":{"data":1}}').method == Send()


@pytest.mark.parametrize(
    ("text", "id", "code"),
    [
        ("[]", 0, 107),
        ("{", 0, 107),
        ('{"id":true,"send":{}}', 0, 107),
        ('{"id":4294967297,"presence":{"channel":"a"}}', 0, 107),
        ('{"presence":{"channel":"a"}}', 0, 107),
        ('{"id":3,"presence":{"channel":1}}', 3, 107),
        ('{"id":3}', 3, 104),
        ('{"id":3,"what":{}}', 3, 104),
        ('{"id":3,"send":{},"rpc":{}}', 3, 107),
        ('{"id":3,"publish":{"channel":"a","data":1e400}}', 3, 107),
        ('{"id":3,"publish":{"channel":"a","data":' + "[" * 65 + "]" * 65 + "}}", 3, 107),
    ],
)
def test_text_that_is_no_command_is_explained(text: str, id: int, code: int) -> None:
    with pytest.raises(BadCommand) as bad:
        read_command(text)
    assert (bad.value.id, bad.value.error.code) == (id, code)


@given(st.text())
def test_no_text_breaks_the_reader(text: str) -> None:
    for line in text.split("\n"):
        with suppress(BadCommand):
            read_command(line)


def test_the_data_of_a_publication_is_kept_as_it_is() -> None:
    command = read_command('{"id":1,"publish":{"channel":"a","data":{"b" : 1.50}}}')
    assert isinstance(command.method, Publish)
    assert bytes(command.method.data) == b'{"b" : 1.50}'


def test_replies_have_the_fields_that_differ_from_their_defaults() -> None:
    assert reply_frame(2, "unsubscribe", Empty())[2:] == b'{"id":2,"unsubscribe":{}}'
    result = SubscribeResult(epoch="e", offset=3, recovered=True, publications=[Publication(Raw(b"null"), 3)])
    assert msgspec.json.decode(reply_frame(2, "subscribe", result)[2:]) == {
        "id": 2,
        "subscribe": {"epoch": "e", "offset": 3, "recovered": True, "publications": [{"data": None, "offset": 3}]},
    }
    assert (
        error_frame(2, CfError(111, "m", True))[2:] == b'{"id":2,"error":{"code":111,"message":"m","temporary":true}}'
    )
    assert push_frame("c", "pub", Publication(Raw(b"1")))[2:] == b'{"push":{"channel":"c","pub":{"data":1}}}'
    assert PING_FRAME == b"\x81\x02{}"


@given(
    st.recursive(
        st.none() | st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_json_of_users_never_has_a_newline(value: object) -> None:
    spaced = msgspec.json.format(msgspec.json.encode(value), indent=2).replace(b"\n", b"\r\n")
    made = bytes(compact(Raw(spaced)))
    assert b"\n" not in made
    assert b"\r" not in made
    assert msgspec.json.decode(made) == value
