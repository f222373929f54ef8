"""Hostile use of event streams: guessed ids, replays, floods, slow requests, pages of other origins."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from e2e.processes import ask, exchange, serves_a_fresh_client, until
from greendot.connect.http import MAX_POST, MOST_COMMANDS
from greendot.engine.messages import StreamPost
from greendot.testing import Served, serving
from greendot.testing.event_stream import EventStreamClient
from greendot.transport.event_stream import MOST_INPUT
from greendot.transport.event_stream_model import FIRST_PADDING, MAX_PADDING

BEAT = {"type": "heartbeat"}


async def stream(served: Served, user: str | None = None, **claims: Any) -> EventStreamClient:
    client = await EventStreamClient.connect(served.port)
    served._clients.append(client)
    if user is not None:
        await client.hello(served.token(user, **claims))
    return client


async def test_unknown_and_guessed_ids_are_not_found_and_cost_no_message_of_the_bus() -> None:
    async with serving() as served:
        ann = await stream(served, "ann")
        asked: list[object] = []
        served.node.engine.reach = lambda node, message: asked.append(message)  # type: ignore[assignment, method-assign]
        node = served.node.incarnation
        changed = ann.stream[:-1] + ("0" if ann.stream[-1] != "0" else "1")
        for guess in (changed, f"{node}-x", "other-x", "x" * 128, ann.welcome["session"], f"ZZZZ-{ann.stream[5:]}"):
            assert await ann.post({"seq": 2, "commands": [BEAT]}, guess) == 404
        assert asked == []
        assert len({(await stream(served)).stream for _ in range(20)}) == 20
        assert len(ann.stream) >= 40


async def test_the_body_of_a_request_for_an_unknown_stream_is_not_awaited() -> None:
    async with serving() as served:
        ann = await stream(served, "ann")
        guess = ann.stream[:-1] + ("0" if ann.stream[-1] != "0" else "1")
        head = f"POST /v1/events/{guess} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 60000\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        try:
            writer.write(head.encode())  # the body never comes
            async with asyncio.timeout(5):
                assert b" 404 " in await reader.readline()
        finally:
            writer.close()


async def test_a_request_that_is_repeated_has_no_effect_again() -> None:
    async with serving() as served:
        await served.lobby()
        ann = await stream(served, "ann")
        await ann.request(type="room.join", room="lobby")
        send = {"seq": 3, "commands": [{"type": "room.send", "room": "lobby", "body": "once"}]}
        assert [await ann.post(send) for _ in range(3)] == [202] * 3
        assert await ann.post({**send, "seq": 1}) == 202
        assert (await message_on(ann))["seq"] == 1
        ann.seq = 3
        assert [frame for frame in await ann.quiet() if frame["type"] == "room.message"] == []
        assert await ann.post({**send, "seq": 9}) == 400


async def message_on(client: EventStreamClient) -> dict[str, Any]:
    """Return the next message of a room."""
    while (frame := await client.receive())["type"] != "room.message":
        pass
    data: dict[str, Any] = frame["data"]
    return data


async def test_requests_that_are_wrong_or_too_large_are_refused_and_the_stream_goes_on() -> None:
    async with serving() as served:
        ann = await stream(served, "ann")
        for body, status in (
            (b"", 400),
            (b"nonsense", 400),
            (b"[" * 60_000, 400),
            (b'{"seq":2,"commands":[{"type":"heartbeat"}', 400),
            ({"commands": [BEAT]}, 400),
            ({"seq": 0, "commands": [BEAT]}, 400),
            ({"seq": -1, "commands": [BEAT]}, 400),
            ({"seq": 2**60, "commands": [BEAT]}, 400),
            ({"seq": 2, "commands": [BEAT], "close": 4500}, 400),
            ({"seq": 2, "commands": [BEAT], "other": 1}, 400),
            ({"seq": 2, "commands": [BEAT] * (MOST_COMMANDS + 1)}, 400),
            (b'{"seq":2,"commands":["' + b"x" * MAX_POST + b'"]}', 413),
        ):
            assert await ann.post(body) == status, body[:40] if isinstance(body, bytes) else body
        assert await ann.quiet() == []
        assert await ann.post({"seq": 3, "commands": ["no object"]}) == 202
        assert (await ann.receive("error"))["code"] == "bad_frame"


async def test_the_largest_command_passes_and_one_byte_more_does_not() -> None:
    async with serving() as served:
        await served.lobby()
        ann = await stream(served, "ann")
        await ann.request(type="room.join", room="lobby")
        text = '{"type":"room.send","room":"lobby","id":7,"body":"%s"}'
        command = text % ("x" * (64 * 1024 - len(text) + 2))
        assert await ann.post(f'{{"seq":3,"commands":[{command}]}}'.encode()) == 202
        while (frame := await ann.receive())["type"] != "reply":
            pass
        assert frame["data"]["seq"] == 1
        assert await ann.post(f'{{"seq":4,"commands":[{command[:-2]}x"}}]}}'.encode()) == 202
        assert (await ann.closed()).code == 1009


async def test_a_stream_acts_for_its_own_session_only() -> None:
    tenants: dict[str, dict[str, Any]] = {"red": {}, "blue": {}}
    async with serving(tenants=tenants) as served:
        for tenant in tenants:
            await served.node.store.put_room(tenant, "lobby", open=True)
        ann = await stream(served, "ann", tenant="red")
        eve = await stream(served, "eve", tenant="blue")
        for client in (ann, eve):
            await client.request(type="room.join", room="lobby")
        # Eve's id and her token in a request do not reach the stream of another tenant.
        assert await eve.post({"seq": 3, "commands": [BEAT]}, ann.stream[:-16] + eve.stream[-16:]) == 404
        # A token that comes with a request is not read: the stream alone names the session.
        sent = {"seq": 3, "commands": [{"type": "room.send", "room": "lobby", "body": "hi"}]}
        assert await eve.post(sent, Authorization=f"Bearer {served.token('ann', tenant='red')}") == 202
        assert (await message_on(eve))["user"] == "eve"
        assert [frame["type"] for frame in await ann.quiet() if frame["type"] == "room.message"] == []


async def test_a_flood_of_commands_is_limited_as_on_a_socket() -> None:
    async with serving() as served:
        ann = await stream(served, "ann")
        number, status = 2, 202
        while status in (202, 429):
            status = await ann.post({"seq": number, "commands": [{"type": "room.list", "id": 1}] * MOST_COMMANDS})
            number += status == 202
            await served.advance(0.05)
        assert status == 404
        assert (await ann.closed()).code == 4003
        assert served.node.metrics.realtime_flood_closed_total == 1


async def test_commands_behind_one_that_waits_are_bounded() -> None:
    async with serving(limits={"enabled": False}) as served:
        await served.lobby()
        ann = await stream(served, "ann")
        (connection,) = served.node.registry.connections_of("default", "ann")
        connection.pause_reading()
        assert await ann.post({"seq": 2, "commands": [BEAT]}) == 429
        connection.resume_reading()
        assert await ann.post({"seq": 2, "commands": [BEAT]}) == 202
        assert (await ann.receive())["type"] == "heartbeat.ack"


async def test_a_stranger_gets_padding_behind_the_first_event_only() -> None:
    async with serving() as served:
        client = await EventStreamClient.connect(served.port, f"/v1/events?pad={MAX_PADDING}")
        served._clients.append(client)
        assert await client.post({"seq": 1, "commands": [{"type": "hello", "token": "wrong"}]}) == 202
        async with asyncio.timeout(10):
            rest = await client._reader.read()
        assert b"event: close" in rest
        assert len(rest) < FIRST_PADDING + 1024


async def test_many_streams_of_an_address_are_refused() -> None:
    async with serving(door={"connections_per_ip": 3}) as served:
        for _ in range(3):
            await stream(served)
        with pytest.raises(ConnectionError, match="429"):
            await stream(served)
        assert served.node.metrics.realtime_refused_address_total == 1
        await served.close_clients()
        await served.until_gone()
        await until(lambda: served.node.ingress.address_groups == 0)


async def test_many_streams_without_a_hello_are_refused() -> None:
    async with serving(admission={"strangers": 3}) as served:
        silent = [await stream(served) for _ in range(3)]
        with pytest.raises(ConnectionError, match="503"):
            await stream(served)
        await silent[0].hello(served.token("ann"))
        await stream(served, "bob")


async def test_a_request_that_comes_byte_by_byte_ends_and_the_stream_goes_on() -> None:
    async with serving() as served:
        ann = await stream(served, "ann")
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(f"POST /v1/events/{ann.stream} HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{{".encode())
        await asyncio.sleep(0.05)
        await served.advance(11, [ann])
        async with asyncio.timeout(10):
            assert b" 408 " in await reader.readline()
        writer.close()
        assert await ann.quiet() == []


async def test_input_behind_the_request_of_a_stream_is_dropped_and_bounded() -> None:
    async with serving() as served:
        ann = await stream(served, "ann")
        ann.send_bytes(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n" * 10)
        assert await ann.quiet() == []
        ann.send_bytes(b"x" * (MOST_INPUT + 1))
        assert (await ann.closed()).code == 1006
        await served.until_gone()
        await serves_a_fresh_client(served.port, served.token("bob"))


async def test_a_stream_waits_for_the_responses_before_it() -> None:
    async with serving() as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        get = "GET {} HTTP/1.1\r\nHost: x\r\n\r\n"
        writer.write((get.format("/livez") * 2 + get.format("/v1/events") + get.format("/livez") * 9).encode())
        async with asyncio.timeout(10):
            read = await reader.readuntil(b"event: stream\ndata: ")
        assert (read.count(b"HTTP/1.1 200 OK"), read.count(b"text/event-stream")) == (3, 1)
        writer.close()
        await served.until_gone()


ORIGINS = {"origins": ("https://good.com",)}


async def test_pages_of_other_origins_can_neither_open_a_stream_nor_send_to_one() -> None:
    async with serving(door=ORIGINS) as served:
        good, evil = {"Origin": "https://good.com"}, {"Origin": "https://evil.com"}
        with pytest.raises(ConnectionError, match="403"):
            await EventStreamClient.connect(served.port, headers=evil)
        async with await EventStreamClient.connect(served.port, headers=good) as ann:
            assert "access-control-allow-origin: https://good.com\r\nvary: origin\r\n" in ann.head
            hello = {"seq": 1, "commands": [{"type": "hello", "token": served.token("ann")}]}
            assert await ann.post(hello, **evil) == 403
            assert await ann.post(hello, **good) == 202
            assert (await ann.receive())["type"] == "welcome"
            answer = await ask(served.port, "POST", f"/v1/events/{ann.stream}", {"seq": 2, "commands": [BEAT]}, **good)
            assert (answer.status, answer.headers["access-control-allow-origin"]) == (202, "https://good.com")
            answer = await ask(served.port, "POST", f"/v1/events/{ann.stream}", {"seq": 9, "commands": []}, **good)
            assert (answer.status, answer.headers["access-control-allow-origin"]) == (400, "https://good.com")
        assert served.node.metrics.realtime_refused_origin_total == 2


@pytest.mark.parametrize(
    "request_line",
    ["HEAD /v1/events", "POST /v1/events", "GET /v1/events/x", "DELETE /v1/events/x", "GET /v1/events/"],
)
async def test_other_methods_and_paths_open_nothing(request_line: str) -> None:
    async with serving() as served:
        answer = await exchange(
            served.port, f"{request_line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
        )
        assert answer.status in (400, 404, 405)
        assert len(served.node.streams) == 0


async def test_a_stream_cannot_be_opened_with_a_body_or_an_upgrade() -> None:
    async with serving() as served:
        for more, status in (("Content-Length: 2\r\n\r\n{}", 400), ("Connection: upgrade\r\nUpgrade: x\r\n\r\n", 400)):
            head = f"GET /v1/events HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{more}"
            assert (await exchange(served.port, head.encode())).status == status


async def test_a_forwarded_request_for_an_unknown_stream_is_answered() -> None:
    async with serving() as served:
        node = served.node
        answer = await node.rpc.ask_one(
            node.incarnation, lambda asker, number: StreamPost("x", 1, [], None, asker, number), 2.0
        )
        assert answer == b"unknown"
