"""Each row of the bad-input table: the error, the close code, and that nothing else changes."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from typing import Any

import jwt
import msgspec
import pytest

from e2e.processes import ask, serves_a_fresh_client, until
from greendot.protocol.commands import COMMANDS
from greendot.protocol.decoding import MAX_DEPTH
from greendot.testing import Closed, Served, WireClient, serving
from greendot.testing.server import API_KEY, SECRET
from greendot.testing.wire import BINARY, CLOSE, PING, TEXT, make_frame

CONTINUATION = 0x0
LIMIT = 64 * 1024


async def refusal(client: WireClient, text: str | bytes) -> dict[str, Any]:
    """Send a text frame and return the error that answers it."""
    client.send_frame(TEXT, text.encode() if isinstance(text, str) else text)
    return await client.receive("error")


async def goes_on(client: WireClient) -> None:
    """Check that the connection still answers and received nothing else."""
    assert await client.quiet() == []


async def serves_others(served: Served) -> None:
    await serves_a_fresh_client(served.port, served.token("somebody-else"))


# --- frames that are not commands ---

NOT_COMMANDS = {
    "nothing": "",
    "a blank": " ",
    "prose": "hello?",
    "half an object": '{"type": "heartbeat"',
    "an object and more": '{"type": "heartbeat"} {"type": "heartbeat"}',
    "single quotes": "{'type': 'heartbeat'}",
    "a byte order mark": '\ufeff{"type": "heartbeat"}',
    "not a number": '{"type": "room.send", "room": "a", "body": NaN}',
    "a zero byte": '{"type": "heartbeat"}\0',
    "a control character in a string": '{"type": "heart\nbeat"}',
    "half a surrogate pair": r'{"type": "status.set", "text": "\ud800"}',
    "half a surrogate pair in a body": r'{"type": "room.send", "room": "a", "body": "\udc00"}',
    "half a surrogate pair as a key": r'{"type": "heartbeat", "\ud800": 1}',
    "an array": '[{"type": "heartbeat"}]',
    "a string": '"heartbeat"',
    "a number": "1",
    "null": "null",
    "no type": '{"id": 1}',
    "a type that is no string": '{"type": 1}',
    "a type that is null": '{"type": null}',
}


@pytest.mark.parametrize("text", NOT_COMMANDS.values(), ids=NOT_COMMANDS.keys())
async def test_a_frame_that_is_not_a_command_is_answered_with_bad_frame(text: str) -> None:
    async with serving() as served:
        client = await served.client("alice")
        error = await refusal(client, text)
        assert error["code"] == "bad_frame"
        assert error["retry"] is False
        assert error["message"]
        await goes_on(client)


async def test_the_third_frame_in_ten_seconds_that_is_not_a_command_closes_4502() -> None:
    async with serving() as served:
        client = await served.client("alice")
        await refusal(client, "one")
        await served.advance(5)
        await refusal(client, "two")
        await served.advance(4.999)
        await refusal(client, "three")
        assert (await client.closed()).code == 4502
        await serves_others(served)


async def test_two_frames_that_are_not_commands_and_two_more_ten_seconds_later_close_nothing() -> None:
    async with serving() as served:
        client = await served.client("alice")
        for _ in range(2):
            await refusal(client, "no")
            await refusal(client, "no")
            await goes_on(client)
            await served.advance(10)
        await goes_on(client)


async def test_frames_that_are_not_commands_count_before_hello_too_and_forgive_one_slip() -> None:
    async with serving() as served:
        client, hasty = await served.socket(), await served.socket()
        await refusal(client, "no")
        await client.hello(served.token("alice"))
        for _ in range(3):
            await refusal(hasty, "no")
        assert (await hasty.closed()).code == 4502


# --- unknown types ---


@pytest.mark.parametrize("name", ["", "presence", "HELLO", "room.message", "привет", "x" * 60_000])
async def test_an_unknown_type_is_named_and_answered_without_counting_as_a_bad_frame(name: str) -> None:
    async with serving() as served:
        client = await served.client("alice")
        for number in range(5):
            client.send(type=name, id=number)
            error = await client.receive("error")
            assert (error["code"], error["id"]) == ("unknown_type", number)
            assert repr(name[:64]) in error["message"]
            assert len(error["message"]) < 200
        await goes_on(client)


# --- missing and wrong fields ---

WRONG_FIELDS: list[tuple[str, dict[str, Any], str]] = [
    ("hello", {"token": 5}, "token"),
    ("hello", {"device": None}, "device"),
    ("hello", {"client": "web"}, "client"),
    ("hello", {"client": {"name": 1}}, "client.name"),
    ("hello", {"client": {"version": "9" * 201}}, "client.version"),
    ("hello", {"supports": []}, "supports"),
    ("hello", {"supports": {"signal": ["1"]}}, "supports"),
    ("hello", {"supports": {"signal": [0]}}, "supports"),
    ("hello", {"supports": {f"event{number}": [1] for number in range(201)}}, "supports"),
    ("hello", {"resume": "k3Fa-1"}, "resume"),
    ("hello", {"resume": {"session": 7}}, "resume.session"),
    ("hello", {"resume": {"rooms": ["lobby"]}}, "resume.rooms"),
    ("hello", {"resume": {"rooms": {"lobby": "17"}}}, "resume.rooms"),
    ("hello", {"resume": {"rooms": {"lobby": -1}}}, "resume.rooms"),
    ("heartbeat", {"id": []}, "id"),
    ("heartbeat", {"id": 1.5}, "id"),
    ("heartbeat", {"id": True}, "id"),
    ("heartbeat", {"trace": 5}, "trace"),
    ("heartbeat", {"trace": "x" * 129}, "trace"),
    ("privacy.set", {"last_seen": "perhaps"}, "last_seen"),
    ("privacy.set", {"hide_from": "bob"}, "hide_from"),
    ("privacy.set", {"hide_from": ["a b"]}, "hide_from[0]"),
    ("status.set", {"status": "away"}, "status"),
    ("status.set", {"status": None}, "status"),
    ("status.set", {"status": "busy", "until": "tomorrow"}, "until"),
    ("status.set", {"status": "busy", "until": -1}, "until"),
    ("status.set", {"status": "busy", "until": 1}, "until"),
    ("status.set", {"status": "busy", "until": 2**63}, "until"),
    ("status.set", {"text": "x" * 201}, "text"),
    ("watch", {}, "users"),
    ("watch", {"users": "alice"}, "users"),
    ("watch", {"users": []}, "users"),
    ("watch", {"users": ["alice", 7]}, "users[1]"),
    ("watch", {"users": ["u"] * 10_001}, "users"),
    ("unwatch", {}, "users"),
    ("unwatch", {"users": {}}, "users"),
    ("presence.get", {}, "users"),
    ("presence.get", {"users": [None]}, "users[0]"),
    ("typing.start", {}, "room"),
    ("typing.start", {"room": 5}, "room"),
    ("typing.stop", {}, "room"),
    ("room.join", {}, "room"),
    ("room.join", {"room": "lobby", "after": -1}, "after"),
    ("room.join", {"room": "lobby", "after": 1.5}, "after"),
    ("room.join", {"room": "lobby", "after": 2**63}, "after"),
    ("room.join", {"room": "lobby", "history": -1}, "history"),
    ("room.join", {"room": "lobby", "history": 101}, "history"),
    ("room.join", {"room": "lobby", "history": "all"}, "history"),
    ("room.join", {"room": "lobby", "history": 1, "after": 0}, "history"),
    ("room.leave", {}, "room"),
    ("room.present", {}, "room"),
    ("room.present", {"room": "lobby", "limit": 0}, "limit"),
    ("room.present", {"room": "lobby", "limit": 301}, "limit"),
    ("room.receipts", {}, "room"),
    ("room.receipts", {"room": "lobby", "limit": 301}, "limit"),
    ("room.receipts", {"room": "lobby", "seq": -1}, "seq"),
    ("room.send", {"body": 1}, "room"),
    ("room.send", {"room": "lobby"}, "body"),
    ("room.history", {}, "room"),
    ("room.history", {"room": "lobby", "limit": 10**30}, "limit"),
    ("room.history", {"room": "lobby", "before": 2**63}, "before"),
    ("room.history", {"room": "lobby", "after": 10**30}, "after"),
    ("room.edit", {"room": "lobby", "ref": 1}, "body"),
    ("room.edit", {"room": "lobby", "ref": -1, "body": 1}, "ref"),
    ("room.delete", {"room": "lobby"}, "ref"),
    ("room.delete", {"room": "lobby", "ref": "1"}, "ref"),
    ("room.react", {"room": "lobby", "ref": 1}, "reaction"),
    ("room.react", {"room": "lobby", "reaction": "+"}, "ref"),
    ("room.react", {"room": "lobby", "ref": 1, "reaction": ""}, "reaction"),
    ("room.react", {"room": "lobby", "ref": 1, "reaction": "x" * 33}, "reaction"),
    ("room.react", {"room": "lobby", "ref": 1, "reaction": "a/b"}, "reaction"),
    ("room.react", {"room": "lobby", "ref": 1, "reaction": "a\0"}, "reaction"),
    ("room.react", {"room": "lobby", "ref": 1, "reaction": "+", "on": 1}, "on"),
    ("room.read", {"room": "lobby"}, "seq"),
    ("room.read", {"room": "lobby", "seq": 2**63}, "seq"),
    ("inbox.list", {"limit": 0}, "limit"),
    ("inbox.list", {"limit": 301}, "limit"),
    ("inbox.list", {"after": -1}, "after"),
    ("inbox.list", {"before": 2**63}, "before"),
    ("inbox.list", {"before": 3, "after": 1}, "before"),
    ("inbox.list", {"filter": "mine"}, "filter"),
    ("inbox.seen", {}, "ids"),
    ("inbox.seen", {"through": -1}, "through"),
    ("inbox.read", {"ids": []}, "ids"),
    ("inbox.read", {"ids": ["1-a"], "through": 1}, "ids"),
    ("inbox.read", {"ids": ["1-a", 7]}, "ids[1]"),
    ("inbox.archive", {"ids": "1-a"}, "ids"),
    ("inbox.archive", {"ids": ["1-a"] * 1_001}, "ids"),
    ("inbox.ack", {"ids": ["../1"]}, "ids[0]"),
    ("inbox.ack", {"through": 1.5}, "through"),
    ("signal.send", {"room": "lobby"}, "kind"),
    ("signal.send", {"kind": "wave"}, "room"),
    ("signal.send", {"kind": "wave", "room": "lobby", "user": "bob"}, "room"),
    ("device.register", {"token": "t"}, "provider"),
    ("device.register", {"provider": "pigeon", "token": "t"}, "provider"),
    ("device.register", {"provider": "fcm"}, "token"),
    ("device.register", {"provider": "fcm", "token": 7}, "token"),
    ("token.refresh", {}, "token"),
    ("token.refresh", {"token": None}, "token"),
    ("token.refresh", {"token": "not one"}, "token"),
]


def test_the_table_of_wrong_fields_leaves_no_command_out() -> None:
    of_all = {"id", "trace", "traceparent"}  # wrong values of these are ignored
    with_fields = {name for name, kind in COMMANDS.items() if {*kind.__struct_fields__} - of_all}
    assert with_fields <= {name for name, _, _ in WRONG_FIELDS}


@pytest.mark.parametrize(("name", "fields", "wrong"), [row for row in WRONG_FIELDS if row[0] != "hello"])
async def test_a_missing_or_wrong_field_is_named(name: str, fields: dict[str, Any], wrong: str) -> None:
    async with serving() as served:
        await served.lobby()
        client = await served.client("alice")
        await client.request(type="room.join", room="lobby")
        error = await refusal(client, msgspec.json.encode({"id": "seven"} | fields | {"type": name}))
        assert error["code"] == "bad_field"
        assert f"field `{wrong}` of {name}" in error["message"]
        assert error["id"] == (None if wrong == "id" else "seven")
        await goes_on(client)
        await client.request(type="room.list")  # the store still works


@pytest.mark.parametrize("command", ["room.send", "signal.send", "room.edit"])
async def test_what_is_nested_too_deeply_for_others_to_read_is_refused(command: str) -> None:
    fields = {"room.send": {}, "signal.send": {"kind": "k"}, "room.edit": {"ref": 1}}[command]
    async with serving() as served:
        await served.lobby()
        alice, bob = await served.joined("alice"), await served.joined("bob")
        await alice.request(type="room.send", room="lobby", body=1)
        body: list[Any] = []
        for _ in range(MAX_DEPTH - 2):  # the frame itself is one level
            body = [body]
        await alice.request(type=command, room="lobby", body=body, **fields)
        await alice.quiet()
        await bob.quiet()
        deeper = {"id": 7, "type": command, "room": "lobby", "body": [body]} | fields
        error = await refusal(alice, msgspec.json.encode(deeper))
        assert (error["code"], error["id"]) == ("bad_field", 7)
        assert "nested at most 64 levels" in error["message"]
        await goes_on(alice)
        assert await bob.quiet() == []


@pytest.mark.parametrize("command", ["room.send", "signal.send", "room.edit"])
async def test_a_number_too_large_for_others_to_read_is_refused(command: str) -> None:
    fields = {"room.send": {}, "signal.send": {"kind": "k"}, "room.edit": {"ref": 1}}[command]
    async with serving() as served:
        await served.lobby()
        alice, bob = await served.joined("alice"), await served.joined("bob")
        await alice.request(type="room.send", room="lobby", body="1e309")
        await alice.quiet()
        await bob.quiet()
        vast = msgspec.Raw(b'{"a":[1e309]}')
        error = await refusal(
            alice, msgspec.json.encode({"id": 7, "type": command, "room": "lobby", "body": vast} | fields)
        )
        assert (error["code"], error["id"]) == ("bad_field", 7)
        assert "a number beyond 1.8e308" in error["message"]
        await goes_on(alice)
        assert await bob.quiet() == []
        assert len((await bob.request(type="room.history", room="lobby"))["messages"]) == 1


@pytest.mark.parametrize(("fields", "wrong"), [row[1:] for row in WRONG_FIELDS if row[0] == "hello"])
async def test_a_wrong_field_of_hello_is_named_before_the_socket_is_closed(fields: dict[str, Any], wrong: str) -> None:
    async with serving() as served:
        client = await served.socket()
        client.send(**{"type": "hello", "token": served.token("alice")} | fields)
        error = await client.receive("error")
        assert error["code"] == "bad_field"
        assert f"field `{wrong}" in error["message"]
        assert (await client.closed()).code == 4502
        assert served.node.stats()["sessions"] == 0


# --- ids ---

INVALID_IDS = [
    "",
    " ",
    "-ada",
    ".ada",
    "@ada",
    "+ada",
    "a b",
    "ada\n",
    "\nada",
    "ada\0",
    "a/b",
    "a*",
    "a:b",
    "{a}",
    "ädä",
    "ａda",
    "🙂",
    "\u202eada",
    "a" * 129,
]

PLACES: dict[str, Callable[[str], dict[str, Any]]] = {
    "watch": lambda bad: {"type": "watch", "users": ["bob", bad, "carol"]},
    "unwatch": lambda bad: {"type": "unwatch", "users": ["bob", bad]},
    "presence.get": lambda bad: {"type": "presence.get", "users": [bad, "bob"]},
    "typing.start": lambda bad: {"type": "typing.start", "room": bad},
    "typing.stop": lambda bad: {"type": "typing.stop", "room": bad},
    "room.join": lambda bad: {"type": "room.join", "room": bad},
    "room.leave": lambda bad: {"type": "room.leave", "room": bad},
    "room.present": lambda bad: {"type": "room.present", "room": bad},
    "room.present after": lambda bad: {"type": "room.present", "room": "lobby", "after": bad},
    "room.receipts": lambda bad: {"type": "room.receipts", "room": bad},
    "room.receipts after": lambda bad: {"type": "room.receipts", "room": "lobby", "after": bad},
    "room.send": lambda bad: {"type": "room.send", "room": bad, "body": 1},
    "room.send key": lambda bad: {"type": "room.send", "room": "lobby", "body": 1, "key": bad},
    "room.history": lambda bad: {"type": "room.history", "room": bad},
    "signal.send room": lambda bad: {"type": "signal.send", "kind": "wave", "room": bad},
    "signal.send user": lambda bad: {"type": "signal.send", "kind": "wave", "user": bad},
    "signal.send kind": lambda bad: {"type": "signal.send", "kind": bad, "user": "bob"},
    "signal.send key": lambda bad: {"type": "signal.send", "kind": "wave", "user": "bob", "key": bad},
}


BAD_TEXTS = ["\0", "a\0b"]  # half of a surrogate pair is not JSON; see `NOT_COMMANDS`

TEXTS: dict[str, Callable[[str], dict[str, Any]]] = {
    "status.set": lambda bad: {"type": "status.set", "status": "busy", "text": bad},
    "device.register": lambda bad: {"type": "device.register", "provider": "fcm", "token": bad},
}

TEXTS_OVER_HTTP: dict[str, tuple[str, str, Callable[[str], dict[str, Any]]]] = {
    "name of a message": ("POST", "/v1/rooms/lobby/messages", lambda bad: {"user": "app", "body": 1, "name": bad}),
    "name of a signal": ("POST", "/v1/signals", lambda bad: {"kind": "k", "room": "lobby", "name": bad}),
    "status": ("PUT", "/v1/users/ann/status", lambda bad: {"status": "busy", "text": bad}),
    "device token": ("PUT", "/v1/users/ann/devices/phone", lambda bad: {"provider": "fcm", "token": bad}),
    "time zone": ("PUT", "/v1/users/ann/push", lambda bad: {"time_zone": bad}),
    "jti": ("POST", "/v1/tokens/revoke", lambda bad: {"jti": bad}),
    "collapse": ("POST", "/v1/notifications", lambda bad: {"user": "a", "kind": "k", "body": 1, "collapse": bad}),
}


@pytest.mark.parametrize("place", TEXTS.values(), ids=TEXTS.keys())
async def test_text_that_no_store_keeps_is_refused_before_the_store(place: Callable[[str], dict[str, Any]]) -> None:
    async with serving() as served:
        alice = await served.client("alice")
        for bad in BAD_TEXTS:
            error = await refusal(alice, msgspec.json.encode(place(bad) | {"id": 1}))
            assert (error["code"], error["id"]) == ("bad_field", 1), (bad, error)


@pytest.mark.parametrize(("method", "path", "body"), TEXTS_OVER_HTTP.values(), ids=TEXTS_OVER_HTTP.keys())
async def test_text_that_no_store_keeps_is_refused_over_http(
    method: str, path: str, body: Callable[[str], dict[str, Any]]
) -> None:
    async with serving() as served:
        await served.lobby()
        for bad in BAD_TEXTS:
            answer = await ask(served.port, method, path, body(bad), Authorization=f"Bearer {API_KEY}")
            assert (answer.status, answer.json()["code"]) == (400, "bad_field"), (bad, answer)


async def test_a_hello_with_text_that_no_store_keeps_is_refused() -> None:
    async with serving() as served:
        for bad in BAD_TEXTS:
            for claims in ({"name": bad}, {"jti": bad}):
                client = await served.socket()
                client.send(type="hello", token=served.token("ann", **claims))
                assert (await client.closed()).code == 4500
            client = await served.socket()
            hello = {"type": "hello", "token": served.token("ann"), "client": {"name": bad}}
            assert (await refusal(client, msgspec.json.encode(hello)))["code"] == "bad_field"


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
async def test_an_invalid_id_anywhere_refuses_the_whole_command(place: Callable[[str], dict[str, Any]]) -> None:
    async with serving() as served:
        await served.lobby()
        bob, alice = await served.client("bob"), await served.client("alice")
        for bad in INVALID_IDS:
            error = await refusal(alice, msgspec.json.encode(place(bad) | {"id": 1}))
            assert (error["code"], error["id"]) == ("bad_field", 1), (bad, error)
        await goes_on(alice)
        await goes_on(bob)
        assert served.node.stats()["topics"] == 0
        room = await served.node.store.room("default", "lobby")
        assert room is not None
        assert room.head == 0


@pytest.mark.parametrize("bad", INVALID_IDS)
async def test_an_invalid_id_in_hello_registers_nothing(bad: str) -> None:
    async with serving() as served:
        for fields in ({"device": bad}, {"resume": {"session": bad}}, {"resume": {"rooms": {"lobby": 1, bad: 1}}}):
            client = await served.socket()
            client.send(type="hello", token=served.token("alice"), **fields)
            assert (await client.receive("error"))["code"] == "bad_field"
            assert (await client.closed()).code == 4502
        assert served.node.stats()["sessions"] == served.node.stats()["topics"] == 0


@pytest.mark.parametrize("good", ["a", "_", "0", "a" * 128, "Ada.Lovelace+x=y@example-1.org"])
async def test_an_id_at_the_edge_of_the_rule_is_taken_everywhere(good: str) -> None:
    async with serving() as served:
        await served.node.store.put_room("default", good, open=True)
        client = await served.client(good, device=good, resume={"session": good, "rooms": {good: 0}})
        assert client.welcome["user"] == good
        await client.request(type="room.send", room=good, body=1, key=good)
        await client.request(type="signal.send", user=good, kind=good, key=good)
        (entry,) = (await client.request(type="watch", users=[good]))["presence"]
        assert (entry["user"], entry["state"]) == (good, "online")


# --- size ---


def padded(size: int) -> bytes:
    """Return a heartbeat of exactly `size` bytes."""
    bare = msgspec.json.encode({"type": "heartbeat", "id": 1, "pad": ""})
    return msgspec.json.encode({"type": "heartbeat", "id": 1, "pad": "x" * (size - len(bare))})


def in_fragments(payload: bytes, size: int) -> bytes:
    """Return one text message in frames of at most `size` bytes."""
    parts = [payload[at : at + size] for at in range(0, len(payload), size)]
    return b"".join(
        make_frame(CONTINUATION if index else TEXT, part, fin=index == len(parts) - 1)
        for index, part in enumerate(parts)
    )


@pytest.mark.parametrize("size", [125, 126, 65_535, LIMIT])
async def test_a_message_of_up_to_64_kib_is_accepted_whole_and_in_fragments(size: int) -> None:
    async with serving() as served:
        client = await served.client("alice")
        assert len(padded(size)) == size
        for data in (make_frame(TEXT, padded(size)), in_fragments(padded(size), 1000)):
            client.send_bytes(data)
            assert {(await client.receive())["type"], (await client.receive())["type"]} == {"heartbeat.ack", "reply"}


TOO_BIG = {
    "one byte more": make_frame(TEXT, padded(LIMIT + 1)),
    "one byte more in fragments": in_fragments(padded(LIMIT + 1), 1000),
    "a last fragment that is empty but one": make_frame(TEXT, padded(LIMIT), fin=False)
    + make_frame(CONTINUATION, b"x"),
    "only announced": b"\x81\xff" + struct.pack(">Q", 2**62) + b"\0\0\0\0",
    "binary": make_frame(BINARY, bytes(LIMIT + 1)),
}


@pytest.mark.parametrize("data", TOO_BIG.values(), ids=TOO_BIG.keys())
async def test_a_message_over_64_kib_closes_1009(data: bytes) -> None:
    async with serving() as served:
        client = await served.client("alice")
        client.send_bytes(data)
        assert (await client.closed()).code == 1009
        await served.until_gone()
        assert served.node.stats()["sessions"] == 0
        await serves_others(served)


# --- broken framing ---

BEAT = msgspec.json.encode({"type": "heartbeat"})

BROKEN = {
    "first reserved bit": make_frame(TEXT, BEAT, rsv=4),
    "second reserved bit": make_frame(TEXT, BEAT, rsv=2),
    "third reserved bit": make_frame(TEXT, BEAT, rsv=1),
    "reserved bit on a ping": make_frame(PING, b"", rsv=4),
    "reserved bit on a continuation": make_frame(TEXT, b"{", fin=False) + make_frame(CONTINUATION, b"}", rsv=4),
    "reserved bit on a close": make_frame(CLOSE, b"\x03\xe8", rsv=1),
    "continuation of nothing": make_frame(CONTINUATION, BEAT),
    "unfinished continuation of nothing": make_frame(CONTINUATION, BEAT, fin=False),
    "continuation of a finished message": make_frame(TEXT, BEAT) + make_frame(CONTINUATION, BEAT),
    "new text inside a fragmented message": make_frame(TEXT, b"{", fin=False) + make_frame(TEXT, BEAT),
    "new fragments inside a fragmented message": make_frame(TEXT, b"{", fin=False) * 2,
    "unmasked text": make_frame(TEXT, BEAT, mask=False),
    "unmasked ping": make_frame(PING, b"", mask=False),
    "unmasked close": make_frame(CLOSE, b"\x03\xe8", mask=False),
    "fragmented ping": make_frame(PING, b"", fin=False),
    "fragmented close": make_frame(CLOSE, b"\x03\xe8", fin=False),
    "ping of 126 bytes": make_frame(PING, bytes(126)),
    "ping of 64 KiB": make_frame(PING, bytes(LIMIT)),
    "close of 126 bytes": make_frame(CLOSE, b"\x03\xe8" + b"x" * 124),
    "close with half a code": make_frame(CLOSE, b"\x03"),
    "length in two bytes that fits one": b"\x81\xfe\x00\x05\0\0\0\0hello",
    "length in eight bytes that fits two": b"\x81\xff" + struct.pack(">Q", 200) + bytes(204),
    "length with its highest bit set": b"\x81\xff" + struct.pack(">Q", 2**63 + 1) + bytes(8),
} | {f"reserved opcode {code:#x}": make_frame(code, b"") for code in (3, 4, 5, 6, 7, 0xB, 0xC, 0xD, 0xE, 0xF)}
BROKEN |= {
    f"close code {code}": make_frame(CLOSE, code.to_bytes(2, "big")) for code in (0, 999, 1004, 1005, 1006, 1015, 2999)
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN.keys())
async def test_broken_framing_closes_1002_and_ends_the_session_at_once(data: bytes) -> None:
    async with serving() as served:
        client = await served.client("alice")
        client.send_bytes(data)
        assert (await client.closed()).code == 1002
        await served.until_gone()
        assert served.node.stats()["sessions"] == 0
        await serves_others(served)


@pytest.mark.parametrize("data", [make_frame(TEXT, b"", rsv=4), make_frame(TEXT, BEAT, mask=False)])
async def test_broken_framing_closes_1002_before_hello_too(data: bytes) -> None:
    async with serving() as served:
        client = await served.socket()
        client.send_bytes(data)
        assert (await client.closed()).code == 1002
        await serves_others(served)


@pytest.mark.parametrize("fin", [True, False])
async def test_a_binary_frame_closes_1003(fin: bool) -> None:
    async with serving() as served:
        client = await served.client("alice")
        client.send_frame(BINARY, BEAT, fin=fin)
        assert (await client.closed()).code == 1003
        await serves_others(served)


@pytest.mark.parametrize("code", [1000, 1001, 1011, 3000, 4999])
async def test_a_close_with_a_code_that_may_be_sent_is_answered_with_the_same(code: int) -> None:
    async with serving() as served:
        client = await served.client("alice")
        client.send_frame(CLOSE, code.to_bytes(2, "big") + "until then…".encode())
        assert (await client.closed()).code == code


# --- UTF-8 ---

NOT_UTF8 = {
    "a byte that continues nothing": b"\x80",
    "a character that is cut off": b"\xe2\x82",
    "an overlong slash": b"\xc0\xaf",
    "an overlong zero": b"\xe0\x80\x80",
    "a surrogate": b"\xed\xa0\x80",
    "a surrogate pair": b"\xed\xa0\xbd\xed\xb8\x80",
    "beyond the last character": b"\xf4\x90\x80\x80",
    "five bytes": b"\xf8\x88\x80\x80\x80",
    "latin 1": b"caf\xe9",
}


@pytest.mark.parametrize("raw", NOT_UTF8.values(), ids=NOT_UTF8.keys())
@pytest.mark.parametrize("fragment", [1000, 3, 1], ids=["whole", "in threes", "byte by byte"])
async def test_text_that_is_not_utf8_closes_1007(raw: bytes, fragment: int) -> None:
    async with serving() as served:
        client = await served.client("alice")
        client.send_bytes(in_fragments(b'{"type":"' + raw + b'"}', fragment))
        assert (await client.closed()).code == 1007
        await serves_others(served)


async def test_a_close_reason_that_is_not_utf8_closes_1007() -> None:
    async with serving() as served:
        client = await served.client("alice")
        client.send_frame(CLOSE, b"\x03\xe8\xed\xa0\x80")
        assert (await client.closed()).code == 1007


async def test_characters_cut_between_fragments_arrive_whole() -> None:
    async with serving() as served:
        await served.lobby()
        client = await served.client("alice")
        await client.request(type="room.join", room="lobby")
        sent = {"type": "room.send", "room": "lobby", "body": "é€🙂\u0000"}
        client.send_bytes(in_fragments(msgspec.json.encode(sent), 1))
        assert (await client.receive("room.message"))["data"]["body"] == "é€🙂\u0000"


# --- hello ---


async def test_a_socket_without_a_hello_is_closed_4502_after_exactly_ten_seconds() -> None:
    async with serving() as served:
        silent, late = await served.socket(), await served.socket()
        silent.send_frame(PING, b"I am alive, but I do not say who I am")
        await served.advance(9.999)
        await late.hello(served.token("late"))
        assert served.node.stats()["connections"] == 2
        await served.advance(0.001)
        assert (await silent.closed()).code == 4502
        await goes_on(late)


@pytest.mark.parametrize(
    "command",
    [{"type": "heartbeat"}, {"type": "watch", "users": ["bob"]}, {"type": "bye"}, {"type": "watch"}, {"type": "what?"}],
    ids=str,
)
async def test_a_command_before_hello_closes_4502_and_does_nothing(command: dict[str, Any]) -> None:
    async with serving() as served:
        client = await served.socket()
        client.send(**command)
        client.send(type="hello", token=served.token("alice"))
        assert (await client.closed()).code == 4502
        assert served.node.stats()["sessions"] == served.node.stats()["topics"] == 0


async def test_a_second_hello_closes_4502() -> None:
    async with serving() as served:
        client = await served.client("alice")
        client.send(type="hello", token=served.token("alice"))
        assert (await client.closed()).code == 4502


async def test_two_hellos_in_one_breath_are_a_second_hello_and_not_two_sessions() -> None:
    async with serving() as served:
        watcher = await served.client("watcher")
        await watcher.request(type="watch", users=["alice", "mallory"])
        client = await served.socket()
        for user in ("alice", "mallory"):
            client.send(type="hello", token=served.token(user))
        assert (await client.receive("welcome"))["data"]["user"] == "alice"
        assert (await client.closed()).code == 4502
        await served.settle()
        seen = [(frame["data"]["user"], frame["data"]["state"]) for frame in await watcher.quiet()]
        assert seen == [("alice", "online"), ("alice", "offline")]


# --- tokens ---


def signed(secret: str = SECRET, **claims: Any) -> str:
    whole = {"sub": "mallory", "exp": 4_000_000_000} | claims
    return jwt.encode({name: claim for name, claim in whole.items() if claim is not ...}, secret, algorithm="HS256")


def part(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


BAD_TOKENS = {
    "none": "",
    "garbage": "garbage",
    "two dots": "..",
    "60,000 dots": "." * 60_000,
    "not base64": "é.🙂.\0",
    "another secret": signed("another secret, just as long as the right one"),
    "a signature cut off": signed().rpartition(".")[0] + ".",
    "a signature changed": signed()[:-4] + "AAAA",
    "no algorithm": jwt.encode({"sub": "mallory", "exp": 4_000_000_000}, None, algorithm="none"),
    "another algorithm": jwt.encode({"sub": "mallory", "exp": 4_000_000_000}, SECRET * 2, algorithm="HS512"),
    "a header that is a number": f"{part(b'5')}.{part(b'{}')}.x",
    "a header nested 20,000 deep": f"{part(b'[' * 20_000)}.{part(b'{}')}.x",
    "no sub": signed(sub=...),
    "a sub that is a number": signed(sub=7),
    "an empty sub": signed(sub=""),
    "a sub that is no id": signed(sub="mallory\n"),
    "a sub of 129 characters": signed(sub="m" * 129),
    "no exp": signed(exp=...),
    "an exp in words": signed(exp="4000000000"),
    "an exp that never comes": signed(exp=float("inf")),
    "an exp that is not a number": signed(exp=float("nan")),
    "an exp beyond all numbers": signed(exp=1e306),
    "an iat beyond all numbers": signed(iat=float("inf")),
    "an nbf that is not a number": signed(nbf=float("nan")),
    "not valid yet": signed(nbf=3_999_999_999),
    "a tenant that is no id": signed(tenant="a/b"),
    "a name that is a list": signed(name=["Mallory"]),
    "rooms that are no patterns": signed(rooms=["a b"]),
    "rooms that are a text": signed(rooms="*"),
    "send that is a text": signed(send="false"),
}


@pytest.mark.parametrize("token", BAD_TOKENS.values(), ids=BAD_TOKENS.keys())
async def test_a_bad_token_closes_4500_and_registers_nothing(token: str) -> None:
    async with serving() as served:
        watcher = await served.client("watcher")
        await watcher.request(type="watch", users=["mallory"])
        client = await served.socket()
        client.send(type="hello", token=token)
        with pytest.raises(Closed) as closed:
            await client.receive()
        assert closed.value.code == 4500
        assert token not in closed.value.reason or not token
        await served.until_gone(1)
        assert (served.node.stats()["sessions"], served.node.stats()["users"]) == (1, 1)
        await goes_on(watcher)


@pytest.mark.parametrize("ago_s", [0, 1, 10**9])
async def test_an_expired_token_closes_4005_and_registers_nothing(ago_s: int) -> None:
    async with serving() as served:
        client = await served.socket()
        client.send(type="hello", token=signed(exp=served.clock.now_ms() // 1000 - ago_s))
        assert (await client.closed()).code == 4005
        await served.until_gone()
        assert served.node.stats()["sessions"] == 0


# --- rate limits ---

PRESENCE_GET = msgspec.json.encode({"type": "presence.get", "users": ["bob"]})


async def flood(served: Served, client: WireClient, payload: bytes, count: int) -> None:
    """Send a frame many times and wait until the server has processed each or is closing."""
    (connection,) = served.node.registry.connections_of("default", "alice")
    before = served.node.metrics.realtime_commands_total
    client.send_bytes(make_frame(TEXT, payload) * count)
    await until(lambda: connection.closing or served.node.metrics.realtime_commands_total >= before + count)
    await served.settle()


async def frames_until_closed(client: WireClient) -> tuple[list[dict[str, Any]], int]:
    frames = []
    try:
        while True:
            frames.append(await client.receive())
    except Closed as closed:
        return frames, closed.code


async def test_commands_over_the_limit_are_refused_with_a_retry_time() -> None:
    async with serving(limits={"commands_per_s": 10, "commands_burst": 20}) as served:
        client = await served.client("alice")
        await flood(served, client, b'{"type":"activity","id":1}', 30)
        frames = [await client.receive() for _ in range(30)]
        # The hello was the first command of the burst.
        assert [frame["type"] for frame in frames] == ["reply"] * 19 + ["error"] * 11
        for error in frames[19:]:
            assert (error["code"], error["id"], error["retry"]) == ("rate_limited", 1, True)
            assert 0 < error["retry_in_ms"] <= 100
        await served.advance(frames[-1]["retry_in_ms"] / 1000)
        await client.request(type="activity")


async def test_typing_over_the_limit_is_dropped_without_a_word() -> None:
    async with serving(limits={"commands_per_s": 10, "commands_burst": 20}) as served:
        await served.lobby()
        client = await served.client("alice")
        await client.request(type="room.join", room="lobby")
        await flood(served, client, b'{"type":"typing.start","room":"lobby"}', 99)
        await goes_on(client)


async def test_heartbeats_of_a_client_over_the_limit_are_still_acknowledged() -> None:
    async with serving(limits={"commands_per_s": 1, "commands_burst": 1}) as served:
        client = await served.client("alice")
        for _ in range(5):
            client.send(type="heartbeat")
            await client.receive("heartbeat.ack")


FLOODS = {
    "commands": PRESENCE_GET,
    "heartbeats": b'{"type":"heartbeat"}',
    "typing": b'{"type":"typing.start","room":"lobby"}',
    "unknown types": b'{"type":"?"}',
    "wrong fields": b'{"type":"watch"}',
}


@pytest.mark.parametrize("payload", FLOODS.values(), ids=FLOODS.keys())
async def test_ten_times_the_limit_for_ten_seconds_closes_with_4003_and_a_retry_time(payload: bytes) -> None:
    async with serving(limits={"commands_per_s": 5, "commands_burst": 5}) as served:
        client = await served.client("alice")
        for _ in range(10):
            await flood(served, client, payload, 50)
            assert served.node.stats()["connections"] == 1
            await served.advance(1)
        await flood(served, client, payload, 50)
        frames, code = await frames_until_closed(client)
        assert code == 4003
        assert frames[-1]["type"] == "overloaded"
        assert frames[-1]["data"]["retry_in_ms"] > 0
        await serves_others(served)


async def test_a_flood_of_pings_closes_4003_like_any_other() -> None:
    async with serving(limits={"commands_per_s": 5, "commands_burst": 5}) as served:
        client = await served.client("alice")
        for _ in range(11):
            client.send_bytes(make_frame(PING, b"") * 50)
            # The reply to a frame after the pings shows that the server processed the pings.
            client.send(type="heartbeat", id=1)
            await served.advance(1)
        frames, code = await frames_until_closed(client)
        assert code == 4003
        assert frames[-1]["type"] == "overloaded"


@pytest.mark.parametrize(("seconds", "count"), [(15, 49), (9, 50)], ids=["below ten times", "a second too short"])
async def test_less_than_ten_times_or_ten_seconds_closes_nothing(seconds: int, count: int) -> None:
    async with serving(limits={"commands_per_s": 5, "commands_burst": 5}) as served:
        client = await served.client("alice")
        for _ in range(3):
            for _ in range(seconds):
                await flood(served, client, PRESENCE_GET, count)
                await served.advance(1)
            await served.advance(1)  # an idle second resets the count
        assert {frame["code"] for frame in await client.quiet() if frame["type"] == "error"} == {"rate_limited"}


@pytest.mark.parametrize(("enabled", "granted"), [(True, 199), (False, 3_000)])
async def test_a_burst_behind_a_command_that_waits_is_answered_one_by_one(enabled: bool, granted: int) -> None:
    async with serving(limits={"enabled": enabled}) as served:
        client = await served.client("alice")
        client.send_bytes(b"".join(make_frame(TEXT, b'{"type":"room.list","id":%d}' % n) for n in range(3_000)))
        frames = [await client.receive() for _ in range(3_000)]
        assert [frame["id"] for frame in frames] == [*range(3_000)]
        assert [frame["type"] for frame in frames] == ["reply"] * granted + ["error"] * (3_000 - granted)
        assert await client.quiet() == []


async def test_limits_switched_off_refuse_nothing() -> None:
    async with serving(limits={"enabled": False, "commands_per_s": 5, "commands_burst": 5}) as served:
        client = await served.client("alice")
        for _ in range(12):
            await flood(served, client, PRESENCE_GET, 100)
            assert await client.quiet() == []
            await served.advance(1)
