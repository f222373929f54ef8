"""Invisible users and presence modes on two nodes: what is answered is in force on both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from cluster.inside import Inside, inside, passing
from cluster.nodes import Listener, redis_url
from e2e.narrow import Peer
from greendot.engine.messages import Message, Topic
from greendot.testing import hold
from postgres_server import fresh_schema
from redis_servers import RedisProcess

TIMES = 20
Two = Callable[[], AbstractAsyncContextManager[list[Inside]]]


@pytest.fixture(params=["sqlite", "postgres"])
def two(redis: RedisProcess, tmp_path: Path, request: pytest.FixtureRequest) -> Two:
    """Return a function that runs two nodes on one Redis and one store."""
    postgres = request.getfixturevalue("postgres") if request.param == "postgres" else None

    @asynccontextmanager
    async def run() -> AsyncIterator[list[Inside]]:
        async with AsyncExitStack() as stack:
            url = f"sqlite:///{tmp_path / 'greendot.db'}"
            if postgres is not None:
                url = await stack.enter_async_context(fresh_schema(postgres))
            on = inside(*[redis_url(redis.port)] * 2, store={"url": url, "migrate": True})
            yield await stack.enter_async_context(on)

    return run


async def in_the_hall(*joining: tuple[Inside, str, str]) -> list[Listener]:
    """Connect devices that have joined an open room."""
    await joining[0][0].ask("PUT", "/v1/rooms/hall", {"open": True})
    clients = [await node.join(user, device=device) for node, user, device in joining]
    for client in clients:
        await client.request(type="room.join", room="hall")
    return clients


async def refused(client: Listener, **command: Any) -> bool:
    frame = await client.answer(**command)
    return frame["type"] == "error" and frame["code"] == "forbidden"


def concerns_ann(tenant: str, users: list[str]) -> bool:
    return "ann" in users


async def test_a_device_on_another_node_sends_no_signal_once_invisible_is_answered(two: Two) -> None:
    async with two() as nodes:
        home, away = nodes
        phone, laptop, bob, eve = await in_the_hall(
            (home, "ann", "phone"), (away, "ann", "laptop"), (home, "bob", "d"), (away, "eve", "d")
        )
        for _ in range(TIMES):
            await phone.request(type="status.set", status="invisible")
            laptop.send(type="typing.start", room="hall")
            assert await refused(laptop, type="signal.send", kind="cursor", room="hall")
            assert await refused(laptop, type="signal.send", kind="cursor", user="bob")
            await phone.request(type="status.set", status="auto")
            await passing(lambda: not away.node.statuses.is_invisible(("default", "ann")))
        for client in (bob, eve):
            await client.request(type="room.present", room="hall")
            assert [told for told in client.told if told.type in ("signal", "typing.started")] == []


async def test_invisible_is_answered_when_the_other_node_knows_it(two: Two) -> None:
    async with two() as nodes:
        home, away = nodes
        phone, laptop, bob = await in_the_hall((home, "ann", "phone"), (away, "ann", "laptop"), (away, "bob", "d"))
        async with hold(away.node.engine, "read", when=concerns_ann) as held:
            setting = asyncio.create_task(phone.request(type="status.set", status="invisible"))
            await held.reached()
            await home.query("ann")  # some turns of both nodes
            assert not setting.done()
            sent = asyncio.create_task(laptop.answer(type="signal.send", kind="cursor", room="hall"))
            await asyncio.sleep(0.05)
            held.release()
            await setting
        assert (await sent)["code"] == "forbidden"
        assert await refused(laptop, type="signal.send", kind="cursor", room="hall")
        await bob.request(type="room.present", room="hall")
        assert bob.of("signal") == []


async def test_a_signal_published_before_its_node_knows_the_status_is_withdrawn_where_it_waits(two: Two) -> None:
    """The receiver's node has applied the status already when the signal arrives."""
    async with two() as (here, there):
        phone, laptop = await in_the_hall((there, "ann", "phone"), (here, "ann", "laptop"))
        bob = await Peer.connect(here.port)
        await bob.hello(here.token("bob"))
        await bob.request(type="room.join", room="hall")
        bob.stop_reading()
        (connection,) = here.node.registry.connections_of("default", "bob")
        carl = await here.join("carl")
        while not connection.behind:
            await carl.request(type="signal.send", user="bob", kind="fill", body="x" * 30_000)
            await asyncio.sleep(0.001)
        there.node.statuses.refresh = lambda key: None  # type: ignore[method-assign]
        applied = here.node.visibility_updates.appliers
        async with AsyncExitStack() as stack:
            held = await stack.enter_async_context(hold(there.node.statuses, "apply"))
            here_done = asyncio.Event()

            async def apply(key: Any, original: Any = applied["status"]) -> None:
                await original(key)
                here_done.set()

            applied["status"] = apply
            setting = asyncio.create_task(laptop.request(type="status.set", status="invisible"))
            await held.reached()
            await here_done.wait()
            assert await phone.request(type="signal.send", room="hall", kind="cursor", body="where") is not None
            await passing(lambda: "where" in waiting_for(connection))
        await setting
        assert "where" not in waiting_for(connection)
        bob.go_on_reading()
        kinds = [frame["data"]["kind"] for frame in await bob.quiet() if frame["type"] == "signal"]
        assert set(kinds) == {"fill"}
        await bob.close()


def waiting_for(connection: Any) -> str:
    """Return the signals that wait in the send buffer of a connection."""
    buffer = connection.waits()
    return "" if buffer is None else b"".join(buffer._signals.values()).decode(errors="replace")


async def test_a_device_that_connects_while_the_user_becomes_invisible_sends_no_signal(two: Two) -> None:
    async with two() as nodes:
        home, away = nodes
        phone, bob = await in_the_hall((home, "ann", "phone"), (away, "bob", "d"))
        reads = count(1)
        async with hold(
            away.node.engine, "read", at="after", when=lambda *args: concerns_ann(*args) and next(reads) == 1
        ) as held:
            coming = asyncio.create_task(away.join("ann", device="laptop"))
            await held.reached()  # the visible status is read, the node does not have it yet
            await phone.request(type="status.set", status="invisible")
        laptop = await coming
        await laptop.request(type="room.join", room="hall")
        assert await refused(laptop, type="signal.send", kind="cursor", room="hall")
        assert bob.of("signal") == []


async def test_a_node_that_was_cut_off_reads_the_status_before_it_sends_a_signal(two: Two) -> None:
    async with two() as nodes:
        home, away = nodes
        phone, laptop, bob = await in_the_hall((home, "ann", "phone"), (away, "ann", "laptop"), (away, "bob", "d"))
        await laptop.request(type="signal.send", kind="cursor", room="hall")
        await bob.hears("signal")
        await passing(lambda: away.node.incarnation in home.node.rpc.prompt)
        missed: list[tuple[Topic, Message]] = []
        freshness = away.node._freshness
        heard_at = freshness._heard_at()
        freshness._heard_at = lambda: heard_at
        receive, away.node.receive = away.node.receive, lambda *message: missed.append(message)
        try:
            await phone.request(type="status.set", status="invisible", within_s=20)
            assert not away.node.statuses.is_invisible(("default", "ann"))
            assert await refused(laptop, type="signal.send", kind="cursor", room="hall")
        finally:
            away.node.receive = receive
        assert missed
        await bob.request(type="room.present", room="hall")
        assert len(bob.of("signal")) == 1


async def test_a_presence_mode_is_in_force_on_every_node_when_it_is_answered(two: Two) -> None:
    async with two() as nodes:
        home, _ = nodes
        star = await home.join("star")
        fans = [await node.join(f"fan{number}") for number, node in enumerate(nodes)]
        for fan in fans:
            await fan.watch("star")
        for mode in ("poll", "live", "poll", "auto"):
            answer = await home.ask("PUT", "/v1/users/star/presence/mode", {"mode": mode})
            assert answer.status == 200, answer
            shown = "poll" if mode == "poll" else "live"
            for node, fan in zip(nodes, fans, strict=True):
                (entry,) = (await fan.request(type="presence.get", users=["star"]))["presence"]
                assert entry["mode"] == shown
                assert (await node.ask("GET", "/v1/users/star/presence/mode")).json()["mode"] == mode
            for fan in fans:
                await passing(lambda fan=fan, shown=shown: [it.data["mode"] for it in fan.changes()][-1:] == [shown])
        assert [change.data["mode"] for change in fans[1].changes()] == ["poll", "live", "poll", "live"]
        await star.request(type="status.set", status="busy")
        for fan in fans:
            await fan.hears("presence.changed", user="star", state="busy")


async def test_a_mode_of_which_a_node_got_no_message_is_found_by_its_revision(two: Two) -> None:
    async with two() as nodes:
        home, away = nodes
        await home.join("star")
        fan = await away.join("fan")
        await fan.watch("star")
        await home.node.store.put_presence_mode("default", "star", "poll", most=1)
        away.node.visibility_updates.lost()  # as after a break of the connection to the bus
        await passing(lambda: [change.data["mode"] for change in fan.changes()] == ["poll"])
