"""Races: each test holds one step back until another has happened."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from greendot.errors import StoreUnavailable
from greendot.testing import Closed, Served, hold, serving


async def tick(served: Served, seconds: float) -> None:
    """Advance the clock without waiting for the work it starts."""
    served.clock.advance(seconds)
    served.node.timers.tick()
    await asyncio.sleep(0)


async def test_a_watch_while_the_topic_is_being_unsubscribed_receives_every_change() -> None:
    async with serving() as served:
        alice, bob = await served.client("alice"), await served.client("bob")
        await bob.request(type="watch", users=["alice"])
        await bob.request(type="unwatch", users=["alice"])
        async with hold(served.node.engine, "unsubscribe") as held:
            await tick(served, 5.0)
            await held.reached()
            bob.send(type="watch", users=["alice"], id="w")
            await bob.drain()
            await asyncio.sleep(0.01)
        assert (await bob.receive("reply"))["id"] == "w"
        await alice.request(type="status.set", status="busy")
        assert [frame["data"]["state"] for frame in await bob.quiet()] == ["busy"]


async def test_a_client_that_joins_while_the_room_is_being_unsubscribed_receives_every_message() -> None:
    async with serving() as served:
        await served.lobby()
        bob = await served.joined("bob")
        await bob.request(type="room.leave", room="lobby")
        async with hold(served.node.engine, "unsubscribe") as held:
            await tick(served, 5.0)
            await held.reached()
            bob.send(type="room.join", room="lobby", id="j")
            await bob.drain()
            await asyncio.sleep(0.01)
        assert (await bob.receive("reply"))["id"] == "j"
        alice = await served.joined("alice")
        await alice.request(type="room.send", room="lobby", body=1)
        assert [frame["type"] for frame in await bob.quiet()] == ["room.message"]


@pytest.mark.parametrize("step", ["subscribe", "typers"])
async def test_who_is_removed_while_joining_does_not_get_in(step: str) -> None:
    async with serving() as served:
        store = served.node.store
        await store.put_room("default", "lobby", open=False)
        for user in ("alice", "bob"):
            await store.put_member("default", "lobby", user)
        bob = await served.client("bob")
        async with hold(served.node.engine, step) as held:
            bob.send(type="room.join", room="lobby", id="j")
            await held.reached()
            await store.remove_member("default", "lobby", "bob")
        assert (await bob.receive("error"))["code"] == "not_a_member"
        alice = await served.joined("alice")
        await alice.request(type="room.send", room="lobby", body="secret")
        assert await bob.quiet() == []


async def test_a_hello_that_fails_halfway_shows_nothing_live_before_what_was_missed() -> None:
    async with serving() as served:
        store = served.node.store
        for room in ("a", "b"):
            await store.put_room("default", room, open=True)
        alice = await served.client("alice")
        await alice.request(type="room.join", room="a")
        for number in range(3):
            await alice.request(type="room.send", room="a", body=number)
        original = store.heads

        async def failing(rooms: Sequence[tuple[str, str]]) -> Any:
            if ("default", "b") in rooms:
                await alice.request(type="room.send", room="a", body="live")
                raise StoreUnavailable("gone")
            return await original(rooms)

        store.heads = failing  # type: ignore[method-assign]
        bob = await served.socket()
        bob.send(type="hello", token=served.token("bob"), resume={"rooms": {"a": 1, "b": 0}})
        heard = []
        try:
            while True:
                heard.append((await bob.receive())["type"])
        except Closed as closed:
            assert closed.code == 4003  # noqa: PT017
        assert heard == ["overloaded"]


async def test_a_hello_that_fails_unexpectedly_ends_the_connection() -> None:
    async with serving() as served:

        async def broken(*args: Any) -> Any:
            raise RuntimeError("a bug")

        served.node.engine.touch = broken  # type: ignore[method-assign]
        bob = await served.socket()
        bob.send(type="hello", token=served.token("bob"))
        assert (await bob.closed()).code == 1011


async def test_a_command_of_a_replaced_socket_does_not_act_on_the_new_one() -> None:
    async with serving() as served:
        alice, old = await served.client("alice"), await served.client("bob")
        async with hold(served.node.engine, "read") as held:
            old.send(type="watch", users=["alice"])
            await old.drain()
            await held.reached()
            new = await served.client("bob", resume={"session": old.welcome["session"]})
        await served.settle()
        await alice.request(type="status.set", status="busy")
        assert await new.quiet() == []


async def test_a_recovery_larger_than_the_limit_of_a_client_is_truncated() -> None:
    async with serving(limits={"enabled": False}) as served:
        clients = []
        for room in ("a", "b", "c"):
            await served.node.store.put_room("default", room, open=True)
            alice = await served.client("alice")
            await alice.request(type="room.join", room=room)
            for _ in range(30):
                await alice.request(type="room.send", room=room, body="x" * 60_000)
            clients.append(alice)
        bob = await served.client("bob", resume={"rooms": {"a": 0, "b": 0, "c": 0}})
        rooms = bob.welcome["rooms"]
        assert [rooms[room]["truncated"] for room in ("a", "b", "c")] == [False, False, True]
        assert len(await bob.quiet()) == 60
        page = await bob.request(type="room.history", room="c", limit=300)
        assert [message["seq"] for message in page["messages"]] == [*range(14, 31)]  # limit of one reply


async def test_a_bye_that_waits_for_another_command_counts_though_the_socket_is_closed_meanwhile() -> None:
    async with serving() as served:
        alice, bob = await served.client("alice"), await served.client("bob")
        await bob.request(type="watch", users=["alice"])
        async with hold(served.node.store, "inbox_page") as held:
            alice.send(type="inbox.list")
            await held.reached()
            alice.send(type="bye")
            await alice.close(1000)
        await served.until_gone(1)
        assert [frame["data"]["state"] for frame in await bob.quiet()] == ["offline"]
