"""Every command of the protocol, with an example as a client sends it."""

from __future__ import annotations

import json

import msgspec
import pytest

from greendot.protocol import commands as wire
from greendot.protocol.codec import BadCommand, decode_command
from greendot.protocol.codes import Err
from greendot.protocol.commands import ACTIVITY, COMMANDS, Command

EXAMPLES: dict[str, dict[str, object]] = {
    "hello": {
        "token": "abc.def.ghi",
        "device": "laptop-1",
        "client": {"name": "web", "version": "1.2"},
        "supports": {"presence.changed": [1, 2]},
        "resume": {"session": "n1-aa", "rooms": {"lobby": 17}, "inbox": 3},
    },
    "heartbeat": {},
    "activity": {},
    "status.set": {"status": "busy", "until": 1_800_000_000_000, "text": "in a meeting"},
    "privacy.set": {"last_seen": "hidden", "hide_from": ["ann", "bob"]},
    "watch": {"users": ["ann", "bob"]},
    "unwatch": {"users": ["ann"]},
    "presence.get": {"users": ["ann@example.org"]},
    "typing.start": {"room": "lobby"},
    "typing.stop": {"room": "lobby"},
    "room.list": {},
    "room.join": {"room": "lobby", "after": 0},
    "room.leave": {"room": "lobby"},
    "room.present": {"room": "lobby", "after": "ann", "limit": 10},
    "room.send": {"room": "lobby", "body": {"text": "hi"}, "key": "k1"},
    "room.edit": {"room": "lobby", "ref": 3, "body": "hi", "key": "k2"},
    "room.delete": {"room": "lobby", "ref": 3, "key": "k3"},
    "room.react": {"room": "lobby", "ref": 3, "reaction": "+", "on": False, "key": "k4"},
    "room.read": {"room": "lobby", "seq": 7},
    "room.receipts": {"room": "lobby", "after": "alice", "limit": 20},
    "room.history": {"room": "lobby", "before": 100, "limit": 20},
    "inbox.list": {"after": 3, "limit": 20, "filter": "unread"},
    "inbox.seen": {"through": 7},
    "inbox.read": {"ids": ["3-aa", "4-bb"]},
    "inbox.archive": {"ids": ["3-aa"]},
    "inbox.ack": {"ids": ["3-aa"]},
    "signal.send": {"room": "lobby", "kind": "cursor", "body": [1, 2], "key": "k1"},
    "device.register": {"provider": "fcm", "token": "t-1"},
    "device.remove": {},
    "device.key": {},
    "token.refresh": {"token": "abc.def.ghi"},
    "bye": {},
}
MARKS = ["inbox.seen", "inbox.read", "inbox.archive", "inbox.ack"]
BARE = [
    "hello",
    "heartbeat",
    "activity",
    "status.set",
    "privacy.set",
    "room.list",
    "device.remove",
    "device.key",
    "bye",
    "inbox.list",
]  # commands without required fields


def decode(kind: str, /, **fields: object) -> Command:
    return decode_command(json.dumps({"type": kind, **fields}))


def refused(kind: str, /, **fields: object) -> str:
    with pytest.raises(BadCommand) as caught:
        decode(kind, **fields)
    assert caught.value.code == Err.BAD_FIELD
    return caught.value.message


def test_there_is_an_example_of_every_command() -> None:
    assert EXAMPLES.keys() == COMMANDS.keys()


@pytest.mark.parametrize("kind", EXAMPLES)
def test_the_example_of_a_command_is_understood_field_by_field(kind: str) -> None:
    command = decode(kind, id=7, **EXAMPLES[kind])
    assert type(command) is COMMANDS[kind]
    assert command.id == 7
    for name, value in EXAMPLES[kind].items():
        decoded = getattr(command, name)
        if name == "body":
            assert json.loads(bytes(decoded)) == value
        elif isinstance(value, dict) and not isinstance(decoded, dict):
            assert {key: getattr(decoded, key) for key in value} == value
        else:
            assert decoded == value


@pytest.mark.parametrize("kind", EXAMPLES)
def test_unknown_fields_are_ignored(kind: str) -> None:
    plain = decode(kind, **EXAMPLES[kind])
    extended = decode(kind, **EXAMPLES[kind], colour="red", nested={"a": [1]}, Type="x")
    assert msgspec.json.encode(extended) == msgspec.json.encode(plain)


@pytest.mark.parametrize("kind", EXAMPLES)
@pytest.mark.parametrize("command_id", ["a", "", 0, -1, 2**63, None])
def test_an_id_is_text_or_a_whole_number_or_left_out(kind: str, command_id: object) -> None:
    assert decode(kind, id=command_id, **EXAMPLES[kind]).id == command_id
    assert decode(kind, **EXAMPLES[kind]).id is None


@pytest.mark.parametrize("kind", BARE)
def test_commands_that_need_no_field_do_without(kind: str) -> None:
    assert type(decode(kind)) is COMMANDS[kind]


@pytest.mark.parametrize("kind", sorted(EXAMPLES.keys() - {*BARE, *MARKS}))
def test_commands_without_a_required_field_are_refused_with_its_name(kind: str) -> None:
    assert "missing required field" in refused(kind)


def test_a_bare_hello_is_of_the_default_device_and_resumes_nothing() -> None:
    hello = decode("hello")
    assert isinstance(hello, wire.Hello)
    assert (hello.device, hello.resume, hello.supports) == ("default", None, {})


@pytest.mark.parametrize(
    "bad",
    [
        [],
        {"signal": 1},
        {"signal": None},
        {"signal": [0]},
        {"signal": [-1]},
        {"signal": [1.5]},
        {"signal": [True]},
        {"signal": [10**30]},
        {"signal": [1] * 33},
        {"x" * 65: [1]},
        {f"event{number}": [1] for number in range(201)},
    ],
)
def test_the_supports_field_of_a_hello_is_validated_and_bounded(bad: object) -> None:
    assert "`supports`" in refused("hello", supports=bad) or "`supports[...]" in refused("hello", supports=bad)
    decode("hello", supports={f"event{number:058}": [*range(1, 33)] for number in range(200)})


def test_a_command_with_one_invalid_id_is_refused_whole() -> None:
    assert "`users[1]`" in refused("watch", users=["ann", "b c", "zoe"])
    assert "`resume.rooms`" in refused("hello", resume={"rooms": {"b c": 1}})


@pytest.mark.parametrize("bad", ["", ".ann", "-ann", "@ann", "a b", "a/b", "ann\n", "é", "a" * 129, "a*"])
def test_an_id_that_could_not_be_a_key_is_refused(bad: str) -> None:
    assert "`room`" in refused("typing.start", room=bad)
    assert "`device`" in refused("hello", device=bad)


def test_lists_of_users_have_at_least_one_and_at_most_ten_thousand() -> None:
    refused("watch", users=[])
    assert len(decode("watch", users=["ann"] * 10_000).users) == 10_000  # type: ignore[attr-defined]
    refused("watch", users=["ann"] * 10_001)


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("inbox.list", "after"),
        ("inbox.read", "through"),
        ("room.join", "after"),
        ("room.history", "before"),
        ("room.history", "after"),
        ("status.set", "until"),
    ],
)
def test_numbers_are_whole_not_negative_and_such_as_a_store_can_keep(kind: str, field: str) -> None:
    for bad in (-1, 1.5, "1", True, 2**53 + 1, 2**63, 10**30):
        assert f"`{field}`" in refused(kind, **EXAMPLES[kind] | {field: bad})
    assert getattr(decode(kind, **EXAMPLES[kind] | {field: 2**53}), field) == 2**53


def test_pages_have_one_to_three_hundred_entries() -> None:
    for bad in (0, 301, -1, "10"):
        assert "`limit`" in refused("room.history", room="lobby", limit=bad)
        assert "`limit`" in refused("room.present", room="lobby", limit=bad)
        assert "`limit`" in refused("inbox.list", limit=bad)
    decode("room.history", room="lobby", limit=300)
    decode("inbox.list", limit=300)


def test_at_least_one_and_at_most_a_thousand_notifications_are_marked_by_id() -> None:
    for kind in MARKS:
        assert "`ids`" in refused(kind, ids=[])
        assert "`ids`" in refused(kind, ids=["1-a"] * 1_001)
        assert "`ids[1]`" in refused(kind, ids=["1-a", "1 a"])
        assert len(decode(kind, ids=["1-a"] * 1_000).ids) == 1_000  # type: ignore[attr-defined]


def test_a_status_is_one_of_three_words_and_its_text_short() -> None:
    assert "`status`" in refused("status.set", status="away")
    assert "`text`" in refused("status.set", text="x" * 201)
    decode("status.set", text="x" * 200)


def test_what_a_person_does_is_activity_and_what_a_client_does_by_itself_is_not() -> None:
    names = {name for name, kind in COMMANDS.items() if kind in ACTIVITY}
    said = {"room.send", "room.edit", "room.delete", "room.react", "room.read", "signal.send"}
    assert names == {"activity", "typing.start", "status.set"} | said | {*MARKS}


@pytest.mark.parametrize("kind", EXAMPLES)
def test_a_command_cannot_be_changed(kind: str) -> None:
    with pytest.raises(AttributeError):
        decode(kind, **EXAMPLES[kind]).id = 9  # type: ignore[misc]
