"""Centrifuge clients that speak Protobuf, unmodified: the same users, channels and messages as in JSON."""

from __future__ import annotations

import msgspec
import pytest

from centrifuge_clients.javascript import javascript
from centrifuge_clients.parts import ON, SOCKET, RawClient, address
from centrifuge_clients.test_python import Events, client, subscribed
from e2e.processes import until
from greendot.compat.centrifuge import protobuf, protocol
from greendot.testing.hold import hold
from greendot.testing.server import Served, serving
from greendot.testing.wire import BINARY, TEXT, WireClient

BROKEN = [b"\x05\x01", b"\xff\xff\xff\xff\xff\xff", b"\x02\xff\xff", b"\x00" * 1_001, b"\x80"]


async def opened(served: Served) -> WireClient:
    return await served.socket(SOCKET, {"Sec-WebSocket-Protocol": "centrifuge-protobuf"})


async def test_centrifuge_python_works_in_protobuf() -> None:
    async with serving(centrifuge=ON) as served:
        events = Events()
        token = served.token("ann", info={"age": 4})
        async with client(served, events, "ann", token=token, use_protobuf=True) as ann:
            await ann.ready(10)
            chat = await subscribed(ann, events, "chat:1", join_leave=True)
            first = await events.next("chat:1 subscribed")
            assert first.stream_position.offset == 0
            bob = await RawClient.subscribed(served, "bob", "chat:1")
            while (await events.next("chat:1 join")).info.user != "bob":
                pass
            await chat.publish(b'{"text":\n"hi"}')
            seen = await events.next("chat:1 publication")
            assert (msgspec.json.decode(seen.pub.data), seen.pub.offset, seen.pub.info.user) == (
                {"text": "hi"},
                1,
                "ann",
            )
            assert (await bob.push())["pub"]["data"] == {"text": "hi"}
            await bob.ask(publish={"channel": "chat:1", "data": [1, "ü"]})
            assert msgspec.json.decode((await events.next("chat:1 publication")).pub.data) == [1, "ü"]
            there = (await chat.presence()).clients
            assert there.keys() == {"ann", "bob"}
            assert msgspec.json.decode(there["ann"].conn_info) == {"age": 4}
            assert (await chat.presence_stats()).num_users == 2
            history = await chat.history(limit=10)
            assert [one.offset for one in history.publications] == [1, 2]
            [session] = served.node.registry.sessions_of("default", "ann")
            await events.next("connecting")
            served.node.cut(session.id)
            await events.next("connecting")
            await bob.ask(publish={"channel": "chat:1", "data": 3})
            again = await events.next("chat:1 subscribed")
            assert (again.was_recovering, again.recovered) == (True, True)
            assert (await events.next("chat:1 publication")).pub.offset == 3
            await chat.unsubscribe()


async def test_centrifuge_js_works_in_protobuf_beside_json_and_native_clients() -> None:
    async with serving(centrifuge=ON) as served, javascript() as js:
        await served.lobby()
        native = await served.joined("cem")
        url = address(served)
        for name, protobuf in (("a", True), ("b", False)):
            token, options = served.token(f"u{name}"), {"channels": ["lobby"]}
            await js.call("connect", client=name, url=url, token=token, options=options, protobuf=protobuf)
            await js.event("subscribed", name, channel="lobby")
        await js.call("publish", channel="lobby", bytes='{"x":1}')
        await native.request(type="room.send", room="lobby", body=2)
        seen = [await js.event("publication", channel="lobby") for _ in range(2)]
        # A 64-bit number of protobuf.js is an object.
        assert [(one["offset"]["low"], one["data"]) for one in seen] == [(1, '{"x":1}'), (2, "2")]
        other = [await js.event("publication", "b", channel="lobby") for _ in range(2)]
        assert [(one["offset"], one["data"]) for one in other] == [(1, {"x": 1}), (2, 2)]
        assert (await native.receive("room.message"))["data"]["body"] == {"x": 1}
        there = (await js.call("presence", channel="lobby"))["clients"]
        assert there.keys() == {"ua", "ub", "cem"}


@pytest.mark.parametrize("payload", BROKEN)
async def test_a_broken_binary_frame_ends_the_connection(payload: bytes) -> None:
    async with serving(centrifuge=ON) as served:
        wire = await opened(served)
        assert "centrifuge-protobuf" in wire.head
        wire.send_frame(BINARY, payload)
        assert (await wire.closed()).code == 3501


async def test_bytes_that_are_no_json_are_refused() -> None:
    async with serving(centrifuge=ON) as served:
        wire = await opened(served)
        publish = b"\x08\x02\x3a\x0a\x0a\x04chat\x12\x02\xff\xfe"  # id 2, publish to `chat`
        wire.send_frame(BINARY, bytes([len(publish)]) + publish)
        assert (await wire.closed()).code == 3501


async def test_frames_that_wait_are_decoded_when_it_is_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []

    def noted(payload: bytes) -> str:
        decoded.append(payload)
        return "{}"

    monkeypatch.setattr(protobuf, "as_json", noted)
    async with serving(centrifuge=ON) as served:
        wire = await opened(served)
        (connection,) = served.node.hello.strangers
        async with hold(served.node.tokens, "verify") as held:
            wire.send_frame(TEXT, msgspec.json.encode({"id": 1, "connect": {"token": served.token("ann")}}))
            await held.reached()
            for _ in range(3):
                wire.send_frame(BINARY, b"\x00\xff")
            await until(lambda: len(connection.waiting or ()) == 3)
            assert decoded == []
        await until(lambda: decoded == [b"\x00\xff"] * 3)


async def test_a_client_in_json_sends_no_binary_frames() -> None:
    async with serving(centrifuge=ON) as served:
        json = await RawClient.connected(served, "ann")
        json.wire.send_frame(BINARY, b"\x00")
        assert (await json.wire.closed()).code == 3501


async def test_a_server_without_the_library_asks_for_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "has_protobuf", lambda: False)
    async with serving(centrifuge=ON) as served:
        wire = await opened(served)
        closed = await wire.closed()
        assert closed.code == 3506
        assert "JSON" in closed.reason
        wire = await served.socket(f"{SOCKET}?format=protobuf")
        wire.send_frame(TEXT, b"{}")
        assert (await wire.closed()).code == 3506
