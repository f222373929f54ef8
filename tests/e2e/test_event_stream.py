"""Event streams: the protocol over Server-Sent Events and requests, on the same sessions as WebSockets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from e2e.narrow import connection_of
from greendot.testing import Served, WireClient, serving
from greendot.testing.event_stream import EventStreamClient
from greendot.transport import event_stream_model
from greendot.transport.send_buffer_model import MAX_RECORD_BYTES

BOTH = pytest.mark.parametrize("kind", [WireClient, EventStreamClient], ids=["websocket", "event stream"])


async def stream(served: Served, user: str | None = None, path: str = "/v1/events", **hello: Any) -> EventStreamClient:
    """Open a stream that is closed with the server, and send hello as `user`."""
    client = await EventStreamClient.connect(served.port, path)
    served._clients.append(client)
    if user is not None:
        await client.hello(served.token(user), **hello)
    return client


async def connected(served: Served, kind: type[WireClient], user: str) -> WireClient:
    return await (stream(served, user) if kind is EventStreamClient else served.client(user))


def present(frames: list[dict[str, Any]]) -> list[str]:
    return [frame["data"]["state"] for frame in frames if frame["type"] == "presence.changed"]


async def test_a_stream_and_a_socket_see_each_other() -> None:
    async with serving() as served:
        await served.lobby()
        bob = await served.joined("bob")
        ann = await stream(served, "ann")
        assert ann.welcome["user"] == "ann"
        await ann.request(type="room.join", room="lobby")
        sent = await ann.request(type="room.send", room="lobby", body={"text": "hello"})
        assert (await bob.receive("room.message"))["data"]["seq"] == sent["seq"]
        await bob.request(type="typing.start", room="lobby")
        while (frame := await ann.receive())["type"] != "typing.started":
            pass
        assert frame["data"]["user"] == "bob"
        assert {*ann.statuses} == {202}
        assert served.node.metrics.realtime_event_streams_total == 1
        assert len(served.node.registry.connections) == 2


async def test_the_response_may_not_be_held_back_or_cached_by_proxies() -> None:
    async with serving() as served:
        head = (await stream(served)).head.lower()
        for line in (
            "content-type: text/event-stream",
            "x-accel-buffering: no",
            "cache-control: no-store, no-transform",
        ):
            assert f"{line}\r\n" in head


@BOTH
async def test_a_session_is_resumed_by_the_other_transport_without_a_gap(kind: type[WireClient]) -> None:
    other = WireClient if kind is EventStreamClient else EventStreamClient
    async with serving() as served:
        await served.lobby()
        bob = await served.joined("bob")
        ann = await connected(served, kind, "ann")
        await ann.request(type="room.join", room="lobby")
        session = ann.welcome["session"]
        await ann.end()
        await served.until_gone(1)
        for text in ("one", "two"):
            await bob.request(type="room.send", room="lobby", body=text)
        resume = {"session": session, "rooms": {"lobby": 0}}
        again = await (
            stream(served, "ann", resume=resume) if other is EventStreamClient else served.client("ann", resume=resume)
        )
        assert (again.welcome["session"], again.welcome["resumed"]) == (session, True)
        bodies = [frame["data"]["body"] for frame in await again.quiet() if frame["type"] == "room.message"]
        assert bodies == ["one", "two"]


@BOTH
async def test_a_resume_replaces_the_connection_on_the_other_transport(kind: type[WireClient]) -> None:
    async with serving() as served:
        ann = await connected(served, kind, "ann")
        resume = {"session": ann.welcome["session"], "rooms": {}}
        await (
            served.client("ann", resume=resume) if kind is EventStreamClient else stream(served, "ann", resume=resume)
        )
        assert (await ann.closed()).code == 4505


@pytest.mark.parametrize(
    ("end", "grace_s"),
    [("bye", 0), ("close", 5), ("lost", 30)],
)
async def test_the_grace_depends_on_the_end_of_the_stream(end: str, grace_s: float) -> None:
    async with serving() as served:
        bob = await served.client("bob")
        await bob.request(type="watch", users=["ann"])
        ann = await stream(served, "ann")
        assert present(await bob.quiet()) == ["online"]
        if end == "bye":
            ann.send(type="bye")
            assert (await ann.closed()).code == 1000
        elif end == "close":
            assert await ann.post({"seq": 2, "commands": [], "close": 1000}) == 202
            assert (await ann.closed()).code == 1000
        else:
            await ann.end()
        await served.until_gone(1)
        frames = await bob.quiet()
        if grace_s:
            frames += (await served.advance(grace_s - 0.5, [bob]))[0]
            assert present(frames) == []
            frames += (await served.advance(1, [bob]))[0]
        assert present(frames) == ["offline"]


async def test_time_limits_are_those_of_a_socket() -> None:
    async with serving() as served:
        silent, late = await stream(served, "ann"), await stream(served)
        await served.advance(10.5)
        closed = await late.closed()
        assert (closed.code, "hello" in closed.reason) == (4502, True)
        await served.advance(76)
        assert (await silent.closed()).code == 4002


async def test_a_stream_ends_with_the_code_that_a_socket_gets() -> None:
    async with serving() as served:
        ann, bob, eve = [await stream(served, user) for user in ("ann", "bob", "eve")]
        (session,) = served.node.registry.sessions_of("default", "ann")
        await served.node.connections.disconnect(session.id, 4503, "by the operator", "default")
        closed = await ann.closed()
        assert (closed.code, closed.reason) == (4503, "by the operator")
        bob.send(type="hello", token=served.token("bob"))
        assert (await bob.closed()).code == 4502
        draining = asyncio.ensure_future(served.node.drain(0.5))
        assert (await eve.receive())["type"] == "drain"
        assert (await eve.closed()).code == 4000
        await draining
        assert len(served.node.streams) == 0


async def test_a_token_is_refreshed_and_its_end_closes_the_stream() -> None:
    async with serving(auth={"secret": "a secret for tests, long enough to be taken", "leeway_s": 0}) as served:
        ann = await stream(served)
        await ann.hello(served.token("ann", ttl_s=100))
        await served.advance(50, [ann])
        await ann.request(type="token.refresh", token=served.token("ann", ttl_s=200))
        await served.advance(199, [ann])
        await served.advance(2)
        assert (await ann.closed()).code == 4005


async def test_a_reader_that_stops_is_closed_with_4001_and_holds_a_bounded_number_of_bytes() -> None:
    async with serving(limits={"enabled": False}) as served:
        await served.lobby()
        bob = await served.joined("bob")
        ann = await EventStreamClient.connect(served.port, receive_bytes=4096)
        served._clients.append(ann)
        await ann.hello(served.token("ann"))
        await ann.request(type="room.join", room="lobby")
        connection = connection_of(served, "ann")
        ann.stop_reading()
        most = 0
        while not connection.closing:
            await bob.request(type="room.send", room="lobby", body="x" * 60_000)
            most = max(most, connection.unsent)
        assert most < MAX_RECORD_BYTES + 256 * 1024
        assert served.node.metrics.realtime_client_slow_closed_total == 1
        ann.go_on_reading()
        assert (await ann.closed()).code == 4001


async def test_frames_for_many_streams_are_converted_once() -> None:
    async with serving() as served:
        await served.lobby()
        bob = await served.joined("bob")
        streams = [await stream(served, f"user{number}") for number in range(20)]
        for one in streams:
            one.deaf_to = frozenset({"room.entered"})
            await one.request(type="room.join", room="lobby")
            await one.quiet()
        assert {connection_of(served, f"user{number}").direct for number in range(20)} == {-1}
        before = event_stream_model._cached.cache_info().misses
        await bob.request(type="room.send", room="lobby", body="for all")
        for one in streams:
            assert (await one.receive("room.message"))["data"]["body"] == "for all"
        assert event_stream_model._cached.cache_info().misses == before + 1


async def test_line_breaks_in_a_body_do_not_break_an_event() -> None:
    async with serving() as served:
        await served.lobby()
        ann = await stream(served, "ann")
        await ann.request(type="room.join", room="lobby")
        raw = b'{"seq": 3, "commands": [{"type":"room.send","room":"lobby","body":{"a":\r\n 1,\n\n"b": "x\\ny"}}]}'
        assert await ann.post(raw) == 202
        while (frame := await ann.receive())["type"] != "room.message":
            pass
        assert frame["data"]["body"] == {"a": 1, "b": "x\ny"}


async def test_padding_follows_each_write_if_the_client_asks_for_it() -> None:
    async with serving() as served:
        ann = await stream(served, path="/v1/events?pad=4096")
        await ann.hello(served.token("ann"))
        read: list[int] = []
        heartbeat = asyncio.ensure_future(ann.post({"seq": 2, "commands": [{"type": "heartbeat"}]}))
        async with asyncio.timeout(10):
            while sum(read) < 4096 + 4000:  # the rest of the welcome's padding, then the answer and its padding
                read.append(len(await ann._reader.read(2**16)))
        assert await heartbeat == 202


async def test_no_task_belongs_to_an_idle_stream() -> None:
    async with serving() as served:
        await served.settle()
        tasks = len(asyncio.all_tasks())
        for number in range(20):
            await stream(served, f"user{number}")
        await served.settle()
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == tasks
