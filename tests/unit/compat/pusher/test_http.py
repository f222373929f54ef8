"""HTTP API of Pusher: signatures, replays, limits, and rooms that take events as messages."""

from __future__ import annotations

import asyncio
import json
from hashlib import md5
from typing import Any

import pytest

from e2e.processes import Answer, ask
from greendot.compat.pusher import http
from greendot.compat.pusher.signature_model import sign
from greendot.testing.server import Served, serving

from .wire import APP, connected, member

BASE = "/apps/4711"


def target(
    served: Served, method: str, path: str, body: bytes, *, secret: str = APP["secret"], at: int = 0, **more: str
) -> str:
    """Return the path of a signed request with its query."""
    now = served.clock.now_ms() // 1000 + at
    values = {"auth_key": APP["key"], "auth_timestamp": str(now), "auth_version": "1.0"} | more
    if body:
        values.setdefault("body_md5", md5(body, usedforsecurity=False).hexdigest())
    query = "&".join(f"{name}={values[name]}" for name in sorted(values))
    signature = sign(secret, f"{method}\n{path}\n{query}")
    return f"{path}?{query}&auth_signature={signature}"


async def post(served: Served, path: str, content: Any, **how: Any) -> Answer:
    body = json.dumps(content).encode()
    return await ask(served.port, "POST", target(served, "POST", path, body, **how), body)


async def get(served: Served, path: str, **more: str) -> Answer:
    return await ask(served.port, "GET", target(served, "GET", path, b"", **more))


def event(**more: Any) -> dict[str, Any]:
    return {"name": "e", "data": "{}", "channels": ["news"]} | more


@pytest.mark.parametrize(
    ("how", "status"),
    [
        ({}, 200),
        ({"at": 600}, 200),
        ({"at": -600}, 200),
        ({"at": 601}, 401),
        ({"at": -601}, 401),
        ({"secret": "another secret, wrong"}, 401),
        ({"auth_key": "other"}, 401),
        ({"auth_version": "2.0"}, 401),
        ({"body_md5": "0" * 32}, 401),
        ({"auth_timestamp": "x"}, 401),
    ],
)
async def test_a_request_is_accepted_only_if_it_is_signed_for_now(how: dict[str, Any], status: int) -> None:
    async with serving(pusher=APP) as served:
        assert (await post(served, f"{BASE}/events", event(), **how)).status == status


async def test_a_replay_is_refused_and_an_equal_request_of_the_same_second_is_not() -> None:
    async with serving(pusher=APP) as served:
        content = json.dumps(event()).encode()
        path = target(served, "POST", f"{BASE}/events", content)
        assert [(await ask(served.port, "POST", path, content)).status for _ in range(2)] == [200, 200]
        await served.advance(3)
        assert (await ask(served.port, "POST", path, content)).status == 401
        await served.advance(601)
        assert (await ask(served.port, "POST", path, content)).status == 401


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (event(data="x" * 10_241), 413),
        (event(data={}), 400),
        (event(name=""), 400),
        (event(name="x" * 201), 400),
        (event(name="pusher:error"), 400),
        (event(channels=["a b"]), 400),
        (event(channels=[f"c{number}" for number in range(101)]), 400),
        (event(socket_id="1"), 400),
        (event(channels=[]), 400),
        ([], 400),
        ({}, 400),
    ],
)
async def test_a_wrong_event_is_refused_whole(content: Any, status: int) -> None:
    async with serving(pusher=APP) as served:
        client = await connected(served)
        await client.subscribe("news")
        found = await post(served, f"{BASE}/events", content)
        assert (found.status, "error" in found.json()) == (status, True)
        assert await client.quiet() == []


async def test_a_batch_has_ten_events_at_most_and_is_refused_whole() -> None:
    async with serving(pusher=APP) as served:
        one = {"name": "e", "channel": "news", "data": "1"}
        assert (await post(served, f"{BASE}/batch_events", {"batch": [one] * 11})).status == 400
        wrong = one | {"channel": "a b"}
        client = await connected(served)
        await client.subscribe("news")
        assert (await post(served, f"{BASE}/batch_events", {"batch": [one, wrong]})).status == 400
        assert await client.quiet() == []


@pytest.mark.parametrize("path", ["/apps/1/channels", "/apps/4711/nothing", "/apps", "/users/ann"])
async def test_an_unknown_app_or_path_is_not_found(path: str) -> None:
    async with serving(pusher=APP) as served:
        assert (await get(served, path)).status == 404


async def test_events_of_a_room_are_messages_for_native_clients_and_in_one_order() -> None:
    async with serving(pusher=APP) as served:
        await served.node.store.put_room("default", "presence-lobby", open=True)
        nat = await served.joined("nat", "presence-lobby")
        ann = await member(served, "ann")
        for number in range(5):
            data = json.dumps({"n": number})
            assert (await post(served, f"{BASE}/events", event(data=data, channels=["presence-lobby"]))).status == 200
            await nat.request(type="room.send", room="presence-lobby", body={"n": number})
        seen = [await ann.receive() for _ in range(10)]
        assert [frame["event"] for frame in seen] == ["e", "message"] * 5
        got = [frame["data"] for frame in await nat.quiet() if frame["type"] == "room.message"]
        assert [message["seq"] for message in got] == [*range(1, 11)]
        assert got[0]["body"] == {"event": "e", "data": {"n": 0}}


async def test_the_socket_that_caused_an_event_does_not_get_it_in_rooms_either() -> None:
    async with serving(pusher=APP) as served:
        await served.node.store.put_room("default", "presence-lobby", open=True)
        ann, bob = await member(served, "ann"), await member(served, "bob")
        await ann.quiet()
        for number in range(3):
            skipped = {"socket_id": ann.socket_id} if number == 1 else {}
            content = event(data=str(number), channels=["presence-lobby"], **skipped)
            assert (await post(served, f"{BASE}/events", content)).status == 200
        assert [frame["data"] for frame in await ann.quiet()] == [0, 2]
        assert [frame["data"] for frame in await bob.quiet()] == [0, 1, 2]


async def test_an_event_keeps_its_text_whatever_it_is() -> None:
    texts = [
        '{"a": 1.0,  "b":[ ]}',
        "plain",
        '"quoted"',
        "",
        " {} ",
        "12",
        "1e999",
        "[" * 70 + "]" * 70,
        "ü\n☃",
        "null",
    ]
    async with serving(pusher=APP) as served:
        client = await connected(served)
        await client.subscribe("news")
        await served.node.store.put_room("default", "hall", open=True)
        await client.subscribe("hall")
        for text in texts:
            assert (await post(served, f"{BASE}/events", event(data=text, channels=["news", "hall"]))).status == 200
            assert [(await client.socket.receive())["data"] for _ in range(2)] == [text, text]


async def test_requests_are_limited_as_those_of_other_apps() -> None:
    async with serving(pusher=APP, limits={"key_requests_per_s": 1, "burst_s": 1.0}) as served:
        codes = {(await get(served, f"{BASE}/channels", x=str(number))).status for number in range(5)}
        assert codes == {200, 429}


async def test_terminated_users_are_closed_wherever_they_are() -> None:
    async with serving(pusher=APP) as served:
        ann, nat = await member(served, "ann"), await served.client("ann")
        assert (await post(served, "/users/ann/terminate_connections", {})).status == 200
        assert (await ann.socket.closed()).code == 4009
        assert (await nat.closed()).code == 4503
        assert (await post(served, "/users/a b/terminate_connections".replace(" ", "%20"), {})).status == 400


async def test_the_body_of_a_request_that_is_not_signed_is_not_read() -> None:
    async with serving(pusher=APP) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        path = target(served, "POST", f"{BASE}/events", b"x", secret="another secret here")
        writer.write(f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n".encode())
        async with asyncio.timeout(5):
            assert b" 401 " in await reader.readline()
        writer.close()


async def test_parameters_are_read_as_they_were_signed() -> None:
    async with serving(pusher=APP) as served:
        client = await connected(served)
        await client.subscribe("news")
        await client.subscribe("other")
        found = await get(served, f"{BASE}/channels", filter_by_prefix="ne")
        assert found.json() == {"channels": {"news": {}}}
        await client.subscribe("list,1;2")
        for prefix in ("list,", "list,1;"):
            found = await get(served, f"{BASE}/channels", filter_by_prefix=prefix)
            assert found.json() == {"channels": {"list,1;2": {}}}, prefix
        path = target(served, "GET", f"{BASE}/channels", b"", filter_by_prefix="ne")
        assert (await ask(served.port, "GET", f"{path}&filter_by_prefix=ne")).status == 401
        path = path.replace("filter_by_prefix", "Filter_By_Prefix")
        assert (await ask(served.port, "GET", path)).json() == {"channels": {"news": {}}}


async def test_users_are_counted_in_few_channels_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(pusher=APP) as served:
        await member(served, "ann")
        found = await get(served, f"{BASE}/channels", filter_by_prefix="presence-", info="user_count")
        assert found.json() == {"channels": {"presence-lobby": {"user_count": 1}}}
        await member(served, "bob", "presence-other")
        monkeypatch.setattr(http, "MOST_COUNTED", 1)
        assert (await get(served, f"{BASE}/channels", filter_by_prefix="presence-", info="user_count")).status == 400
