"""Hostile and broken input of Centrifuge clients: bounded, answered or closed, and harmless for others."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from centrifuge_clients.parts import ON, RawClient, subscription_token
from greendot.testing.server import serving
from greendot.testing.wire import BINARY, TEXT

DEEP = "[" * 100 + "]" * 100
# Lines after the connect that end the connection.
FATAL = [
    "x",
    "[]",
    "null",
    '"text"',
    "{",
    '{"id":1.5,"presence":{"channel":"a"}}',
    '{"id":-1,"presence":{"channel":"a"}}',
    '{"id":99999999999,"presence":{"channel":"a"}}',
    '{"id":"1","presence":{"channel":"a"}}',
    '{"presence":{"channel":"a"}}',
    '{"id":7,"publish":{"channel":"a","data":\n1}}',
    '{"id":7,"connect":{}}',
    "\n".join(["{}"] * 1_001),
    DEEP * 30,
]
# Lines after the connect, and the code of the error that answers each.
REFUSED: list[tuple[str, int]] = [
    ('{"id":7}', 104),
    ('{"id":7,"explode":{}}', 104),
    ('{"id":7,"presence":5}', 107),
    ('{"id":7,"presence":{}}', 107),
    ('{"id":7,"presence":{"channel":5}}', 107),
    ('{"id":7,"presence":{"channel":""}}', 107),
    ('{"id":7,"presence":{"channel":"' + "x" * 300 + '"}}', 107),
    ('{"id":7,"subscribe":{"channel":"' + "ü" * 60 + '"}}', 107),
    ('{"id":7,"subscribe":{"channel":"a","offset":-1}}', 107),
    ('{"id":7,"subscribe":{"channel":"a","recover":"yes"}}', 107),
    ('{"id":7,"subscribe":{"channel":"a","type":2}}', 108),
    ('{"id":7,"subscribe":{"channel":"a","token":"x.y.z"}}', 103),
    ('{"id":7,"publish":{"channel":"a","data":' + DEEP + "}}", 107),
    ('{"id":7,"publish":{"channel":"a","data":1e999}}', 107),
    ('{"id":7,"publish":{"channel":"never-joined","data":1}}', 103),
    ('{"id":7,"history":{"channel":"a","since":{"offset":"x"}}}', 107),
    ('{"id":7,"presence":{"channel":"a"},"history":{"channel":"a"}}', 107),
    ('{"id":7,"sub_refresh":{"channel":"a","token":"x"}}', 103),
    ('{"id":7,"rpc":{"method":"x","data":{}}}', 108),
]


@pytest.mark.parametrize("text", FATAL)
async def test_a_broken_frame_ends_the_connection(text: str) -> None:
    async with serving(centrifuge=ON) as served:
        client = await RawClient.connected(served, "ann")
        client.send(text)
        closed = await client.wire.closed()
        assert closed.code == 3501
        assert closed.reason


async def test_wrong_commands_are_refused_and_the_connection_stays() -> None:
    async with serving(centrifuge=ON) as served:
        client = await RawClient.connected(served, "ann")
        for text, code in REFUSED:
            client.send(text)
            answer = await client.wire.receive()
            assert (answer["id"], answer["error"]["code"]) == (7, code), (text[:100], answer)
        assert "subscribe" in await client.ask(subscribe={"channel": "chat"})


async def test_no_client_is_the_user_that_stands_for_the_app() -> None:
    async with serving(centrifuge=ON) as served:
        client = await RawClient.opened(served)
        client.send(msgspec.json.encode({"id": 1, "connect": {"token": served.token("system")}}))
        assert (await client.wire.closed()).code == 3500


async def test_nothing_comes_before_the_connect() -> None:
    async with serving(centrifuge=ON) as served:
        for text in ('{"id":1,"subscribe":{"channel":"a"}}', '{"id":1,"explode":{}}', '{"id":1,"connect":5}'):
            client = await RawClient.opened(served)
            client.send(text)
            assert (await client.wire.closed()).code == 3501
        client = await RawClient.opened(served)
        client.send('{"id":1,"connect":{}}')
        assert (await client.wire.closed()).code == 3500
        assert len(served.node.registry.sessions) == 0


async def test_white_space_between_commands_is_no_command() -> None:
    async with serving(centrifuge=ON) as served:
        client = await RawClient.connected(served, "ann")
        client.send('\n\r\n{"id":7,"presence":{"channel":"a"}}\r\n \n{}\n\n{"id":8,"presence":{"channel":"a"}}\n')
        assert [(await client.wire.receive())["id"] for _ in range(2)] == [7, 8]


async def test_frames_that_are_too_large_binary_or_not_utf8_end_the_connection() -> None:
    async with serving(centrifuge=ON) as served:
        for opcode, payload, code in ((TEXT, b"x" * 70_000, 1009), (BINARY, b"{}", 3501), (TEXT, b"\xff", 3501)):
            client = await RawClient.connected(served, "ann")
            client.wire.send_frame(opcode, payload)
            assert (await client.wire.closed()).code == code


async def test_a_flood_is_refused_and_then_ended() -> None:
    limits = {"commands_per_s": 10, "commands_burst": 20}
    async with serving(centrifuge=ON, limits=limits) as served:
        await served.lobby()
        calm = await served.joined("bob")
        client = await RawClient.connected(served, "ann")
        lines = [msgspec.json.encode({"id": number, "presence": {"channel": "a"}}) for number in range(1, 101)]
        client.send(b"\n".join(lines))
        answers = [await client.wire.receive() for _ in lines]
        refused = [answer["error"] for answer in answers if "error" in answer]
        assert [answer["id"] for answer in answers] == [*range(1, 101)]
        assert len(refused) >= 80
        assert {(error["code"], error["temporary"]) for error in refused} == {(111, True)}
        for _ in range(12):
            served.clock.advance(1)
            for _ in range(2):
                client.send(b"\n".join(lines))
            await served.settle()
        assert (await client.wire.closed()).code == 3013
        assert await calm.request(type="room.send", room="lobby", body=1)


async def test_a_single_command_over_the_limit_is_answered() -> None:
    async with serving(centrifuge=ON, limits={"commands_per_s": 1, "commands_burst": 3}) as served:
        client = await RawClient.connected(served, "ann")
        answers = [await client.ask(presence={"channel": "a"}) for _ in range(4)]
        assert answers[-1]["error"]["code"] == 111


async def test_a_connection_is_in_a_limited_number_of_channels() -> None:
    async with serving(centrifuge=ON, limits={"rooms": 2}) as served:
        client = await RawClient.connected(served, "ann")
        answers: list[dict[str, Any]] = [await client.ask(subscribe={"channel": f"c{number}"}) for number in range(3)]
        assert [answer.get("error", {}).get("code") for answer in answers] == [None, None, 106]


async def test_a_user_cannot_use_a_subscription_token_of_another_tenant() -> None:
    async with serving(centrifuge=ON, tenants={"acme": {"centrifuge": ON}}) as served:
        client = await RawClient.connected(served, "ann", tenant="acme")
        token = subscription_token(served, "ann", "$1")  # of tenant `default`
        assert (await client.ask(subscribe={"channel": "$1", "token": token}))["error"]["code"] == 103


async def test_a_client_that_does_not_read_is_closed_as_slow() -> None:
    async with serving(centrifuge=ON, limits={"enabled": False}) as served:
        await served.lobby()
        slow, native = await RawClient.subscribed(served, "ann", "lobby"), await served.joined("bob")
        slow.wire._writer.transport.pause_reading()  # type: ignore[attr-defined]
        body = "x" * 60_000
        for _ in range(200):
            await native.request(type="room.send", room="lobby", body=body)
            if served.node.metrics.realtime_client_slow_closed_total:
                break
        assert served.node.metrics.realtime_client_slow_closed_total == 1
        slow.wire._writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert (await slow.wire.closed()).code in (3008, 1006)
