"""Watches: the state at once, then changes, to watchers only, without a gap or a duplicate."""

from __future__ import annotations

import asyncio
from typing import Any

from greendot.engine.messages import Topic
from greendot.testing import Served, WireClient, serving


async def entries(client: WireClient, *users: str) -> list[dict[str, Any]]:
    reply: list[dict[str, Any]] = (await client.request(type="watch", users=list(users)))["presence"]
    return reply


async def test_the_snapshot_comes_at_once_in_the_order_asked_for() -> None:
    async with serving() as served:
        await served.client("alice", device="phone")
        bob = await served.client("bob")
        alice, nobody, again = await entries(bob, "alice", "nobody", "alice")
        assert (alice["state"], alice["devices"], alice["mode"]) == ("online", ["phone"], "live")
        assert (nobody["state"], nobody["version"], nobody["last_seen"], nobody["name"]) == ("offline", 0, None, None)
        assert again == alice


async def test_there_is_neither_a_gap_nor_a_duplicate_between_snapshot_and_changes() -> None:
    async with serving(presence={"idle_s": 1.0}) as served:
        alice = await served.client("alice")
        bobs = [await served.client(f"bob{number}") for number in range(30)]
        for number, bob in enumerate(bobs):
            # Each watch starts while a change is being delivered.
            if number % 3 == 0:
                alice.send(type="activity")
            elif number % 3 == 1:
                served.clock.advance(1.0)
                served.node.timers.tick()
            bob.send(type="watch", users=["alice"], id="w")
            await bob.drain()
            await asyncio.sleep(0)
        await alice.quiet()
        await served.settle()
        truth = (await entries(await served.client("judge"), "alice"))[0]
        for bob in bobs:
            frames = await bob.quiet()
            assert frames[0]["type"] == "reply", frames
            versions = [frames[0]["data"]["presence"][0]["version"]]
            versions += [frame["data"]["version"] for frame in frames[1:]]
            assert versions == sorted(set(versions))
            assert versions[-1] == truth["version"]


async def test_watching_again_neither_duplicates_nor_loses() -> None:
    async with serving() as served:
        bob = await served.client("bob")
        for _ in range(3):
            await entries(bob, "alice")
        await served.client("alice")
        assert [frame["data"]["state"] for frame in await bob.quiet()] == ["online"]


async def test_unwatching_ends_it() -> None:
    async with serving() as served:
        bob = await served.client("bob")
        await entries(bob, "alice", "carol")
        assert await bob.request(type="unwatch", users=["alice", "never-watched"]) == {}
        await served.client("alice")
        await served.client("carol")
        assert [frame["data"]["user"] for frame in await bob.quiet()] == ["carol"]


async def test_interest_ends_with_the_connection_and_the_topic_soon_after() -> None:
    async with serving() as served:
        bob = await served.client("bob")
        await entries(bob, "alice")
        assert served.node.hub.topics == 1
        await bob.reset()
        await served.until_gone()
        await served.advance(5)
        assert served.node.hub.topics == 0
        received = served.node.metrics.realtime_pubsub_received_total
        await served.client("alice")
        assert served.node.metrics.realtime_pubsub_received_total == received


async def test_a_resumed_session_watches_anew() -> None:
    async with serving() as served:
        bob = await served.client("bob")
        await entries(bob, "alice")
        back = await served.client("bob", resume={"session": bob.welcome["session"]})
        await served.client("alice")
        assert await back.quiet() == []
        await entries(back, "alice")


async def test_later_watchers_cost_no_read_of_the_engine_and_see_devices_that_came_meanwhile() -> None:
    async with serving() as served:
        await served.client("alice", device="phone")
        await entries(await served.client("bob"), "alice")
        await served.client("alice", device="laptop")
        reads: list[Any] = []
        read = served.node.engine.read
        served.node.engine.read = lambda *args: (reads.append(args), read(*args))[1]  # type: ignore[method-assign]
        (entry,) = await entries(await served.client("carol"), "alice")
        assert (entry["state"], entry["devices"]) == ("online", ["laptop", "phone"])
        assert reads == []


async def test_two_watchers_of_the_same_user_at_the_same_time_share_one_subscription() -> None:
    async with serving() as served:
        alice = await served.client("alice")
        bobs = [await served.client(f"bob{number}") for number in range(10)]
        await asyncio.gather(*(entries(bob, "alice") for bob in bobs))
        await alice.request(type="status.set", status="busy")
        for bob in bobs:
            assert [frame["data"]["state"] for frame in await bob.quiet()] == ["busy"]


async def test_a_token_may_limit_whom_one_watches_and_the_others_read_as_offline() -> None:
    async with serving() as served:
        await served.client("alice")
        await served.client("team-1")
        bob = await served.client("bob", claims={"watch": ["team-*"]})
        hidden, shown, own = await entries(bob, "alice", "team-1", "bob")
        assert [hidden["state"], shown["state"], own["state"]] == ["offline", "online", "online"]
        assert (hidden["version"], hidden["last_seen"], hidden["name"]) == (0, None, None)
        reply = await bob.request(type="presence.get", users=["alice", "team-1"])
        assert [entry["state"] for entry in reply["presence"]] == ["offline", "online"]


async def test_tenants_do_not_see_each_other() -> None:
    async with serving() as served:
        stranger = await served.client("bob", claims={"tenant": "other"})
        (entry,) = await entries(stranger, "alice")
        await served.client("alice")
        assert entry["state"] == "offline"
        assert await stranger.quiet() == []


async def test_the_number_of_users_a_connection_watches_is_limited() -> None:
    async with serving(limits={"watches": 3}) as served:
        bob = await served.client("bob")
        await entries(bob, "u1", "u2")
        bob.send(type="watch", users=["u3", "u4"], id=7)
        error = await bob.receive("error")
        assert (error["code"], error["id"]) == ("too_many", 7)
        await entries(bob, "u2", "u3")
        assert served.node.hub.find(Topic("watch", "default", "u4")) is None


async def test_commands_of_a_connection_are_carried_out_in_order() -> None:
    async with serving() as served:
        bob = await served.client("bob")
        for number in range(20):
            bob.send(type="watch" if number % 2 == 0 else "unwatch", users=["alice"], id=number)
        bob.send(type="bye", id=99)
        answered = [(await bob.receive("reply"))["id"] for _ in range(20)]
        assert answered == [*range(20)]
        assert (await bob.closed()).code == 1000


async def test_a_batch_of_thousands_is_one_reply() -> None:
    served_users = 5_000
    async with serving() as served:
        await served.client("u77")
        bob = await served.client("bob")
        found = await entries(bob, *(f"u{number}" for number in range(served_users)))
        assert [entry["user"] for entry in found if entry["state"] == "online"] == ["u77"]
        assert len(found) == served_users
        assert await _topics_left(served, bob) == 0


async def _topics_left(served: Served, client: WireClient) -> int:
    await client.reset()
    await served.until_gone(1)
    await served.advance(5)
    return served.node.hub.topics


async def test_a_later_watcher_sees_the_newest_name() -> None:
    async with serving() as served:
        await served.client("alice", claims={"name": "Al"})
        bob = await served.client("bob")
        assert (await entries(bob, "alice"))[0]["name"] == "Al"
        await served.client("alice", claims={"name": "Alice Miller"})  # only the name is new
        assert (await entries(await served.client("carol"), "alice"))[0]["name"] == "Alice Miller"
        assert [frame["data"]["name"] for frame in await bob.quiet()] == ["Alice Miller"]
