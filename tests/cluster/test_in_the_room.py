"""Occupancy when nodes die, users move between nodes and Redis loses data: one event in time, or none."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.nodes import CLEAN_GRACE_S, GRACE_S, LAPSE_S, RENEW_S, Clients, Listener, eventually, redis_url, serving
from e2e.processes import Process, until
from greendot.engine.redis import keys
from redis_servers import RedisProcess

CROWD = [f"u{number:02}" for number in range(40)]
HELD_S = RENEW_S + 2.0  # after a loss no user leaves before this


async def open_room(node: Process, room: str = "hall") -> None:
    assert (await node.ask("PUT", f"/v1/rooms/{room}", {"open": True})).status < 300


async def enter(clients: Clients, node: Process, user: str, room: str = "hall", device: str = "phone") -> Listener:
    client = await clients.join(node, user, device=device)
    await client.request(type="room.join", room=room)
    return client


async def crowd(clients: Clients, node: Process, users: list[str]) -> dict[str, Listener]:
    return dict(zip(users, await asyncio.gather(*(enter(clients, node, user) for user in users)), strict=True))


async def present(node: Process, room: str = "hall") -> list[str]:
    reply = (await node.ask("GET", f"/v1/rooms/{room}/present?limit=1000")).json()
    assert reply["count"] == len(reply["users"])
    users: list[str] = reply["users"]
    return users


async def complete(node: Process, room: str = "hall") -> list[str]:
    """Return the users of the first list that is not stale: the other nodes may still restore."""
    users: list[str] = []

    async def is_complete() -> bool:
        reply = (await node.ask("GET", f"/v1/rooms/{room}/present?limit=1000")).json()
        users[:] = reply["users"]
        return not reply.get("stale")

    await eventually(is_complete, "the list is not stale", HELD_S + 8.0)
    return users


async def all_there(nodes: list[Process], users: list[str], within_s: float = 5.0) -> None:
    async def there() -> bool:
        return [await present(node) for node in nodes] == [sorted(users)] * len(nodes)

    await eventually(there, f"{users} are in the room on all nodes", within_s)


def comings(listener: Listener, *but: str) -> list[tuple[str, str]]:
    """Return the users who entered or left, in order."""
    return [
        (told.type.removeprefix("room."), told.data["user"])
        for told in listener.told
        if told.type in ("room.entered", "room.left") and told.data["user"] not in but
    ]


async def test_people_on_different_nodes_are_in_one_room(tmp_path: Path, redis: RedisProcess) -> None:
    async with serving(tmp_path, *[redis_url(redis.port)] * 2) as nodes, Clients() as clients:
        first, second = nodes
        await open_room(first)
        alice = await enter(clients, first, "alice")
        bob = await enter(clients, second, "bob")
        phone = await enter(clients, first, "bob", device="laptop")
        await alice.hears("room.entered", user="bob")
        await all_there(nodes, ["alice", "bob"])
        assert (await bob.request(type="room.join", room="hall"))["present"] == 2
        await bob.request(type="room.leave", room="hall")
        phone.send(type="bye")
        await alice.hears("room.left", user="bob")
        assert comings(alice) == [("entered", "bob"), ("left", "bob")]
        assert comings(bob) == []
        # A user who is invisible on one node is invisible on all nodes at once.
        await bob.request(type="status.set", status="invisible")
        await bob.request(type="room.join", room="hall")
        await enter(clients, first, "bob", device="tablet")
        carol = await enter(clients, first, "carol")
        await alice.hears("room.entered", user="carol")
        await all_there(nodes, ["alice", "carol"])
        assert (await bob.request(type="room.present", room="hall"))["users"] == ["alice", "bob", "carol"]
        await bob.request(type="status.set", status="auto")
        for listener in (alice, carol):
            await listener.hears("room.entered", user="bob")

        async def is_back() -> bool:
            return redis.command("HGET", keys.present_key("", "default", "hall"), "bob").count(b";") == 1

        await eventually(is_back, "both devices are in the room")
        await bob.request(type="status.set", status="invisible")
        await carol.hears("room.left", user="bob")
        assert comings(carol, "carol") == [("entered", "bob"), ("left", "bob")]


async def test_users_in_the_room_through_a_killed_node_leave_it_once_and_in_time(
    tmp_path: Path, redis: RedisProcess
) -> None:
    gone, elsewhere = CROWD[:30], CROWD[30:]
    async with serving(tmp_path, *[redis_url(redis.port)] * 3) as (dying, second, third), Clients() as clients:
        await open_room(dying)
        await crowd(clients, dying, CROWD)
        await crowd(clients, second, elsewhere)
        listeners = [await enter(clients, node, user) for node, user in ((second, "near"), (third, "far"))]
        await all_there([dying, second, third], [*CROWD, "near", "far"])

        killed = time.monotonic()
        await dying.kill()
        for listener in listeners:
            await until(lambda listener=listener: len(comings(listener, "far")) >= len(gone), LAPSE_S)
        canary = await enter(clients, third, "canary")
        for listener in listeners:
            await listener.hears("room.entered", user="canary")
            assert sorted(comings(listener, "far", "canary")) == [("left", user) for user in gone]
            last = max(told.at for told in listener.told if told.type == "room.left") - killed
            print(f"the last left {last:.2f} s after the kill")
        assert (await canary.request(type="room.present", room="hall"))["users"] == sorted(
            [*elsewhere, "near", "far", "canary"]
        )
        assert await present(second) == await present(third)


async def test_a_user_who_returns_on_another_node_within_the_grace_does_not_leave(
    tmp_path: Path, redis: RedisProcess
) -> None:
    resumes, anew = CROWD[:5], CROWD[5:10]
    async with serving(tmp_path, *[redis_url(redis.port)] * 3) as (dying, second, third), Clients() as clients:
        await open_room(dying)
        old = await crowd(clients, dying, [*resumes, *anew, "canary"])
        listener = await enter(clients, third, "listener")
        await all_there([second, third], [*resumes, *anew, "canary", "listener"])
        await dying.kill()
        for user in resumes:
            resume = {"session": old[user].client.welcome["session"], "rooms": {"hall": 0}}
            await clients.join(second, user, device="phone", resume=resume)
        await crowd(clients, second, anew)
        await listener.hears("room.left", LAPSE_S, user="canary")
        assert comings(listener) == [("left", "canary")]
        await all_there([second, third], [*resumes, *anew, "listener"])


async def test_moving_from_node_to_node_is_visible_to_no_other_user(tmp_path: Path, redis: RedisProcess) -> None:
    async with serving(tmp_path, *[redis_url(redis.port)] * 2) as nodes, Clients() as clients:
        await open_room(nodes[0])
        watchers = [await enter(clients, node, f"watcher{at}") for at, node in enumerate(nodes)]
        lost, connected = await crowd(clients, nodes[0], ["lost"]), await crowd(clients, nodes[0], ["connected"])
        for watcher in watchers:
            await watcher.hears("room.entered", user="connected")
        movers = lost | connected
        for at in (1, 0, 1):
            await movers["lost"].end()
            for user, mover in movers.items():
                resume = {"session": mover.client.welcome["session"], "rooms": {"hall": 0}}
                movers[user] = await clients.join(nodes[at], user, device="phone", resume=resume)
                assert movers[user].client.welcome["resumed"]

        async def settled() -> bool:
            entries = [redis.command("HGET", keys.present_key("", "default", "hall"), user).decode() for user in movers]
            return entries == [mover.client.welcome["session"] for mover in movers.values()]

        await eventually(settled, "the old nodes have published all their changes")
        for watcher in watchers:
            assert [name for name in comings(watcher) if "left" in name] == []
        for user, mover in movers.items():
            mover.send(type="bye")
            for watcher in watchers:
                await watcher.hears("room.left", user=user)
        await all_there(nodes, ["watcher0", "watcher1"])
        for watcher in watchers:
            assert sorted(name for name in comings(watcher) if "left" in name) == [
                ("left", "connected"),
                ("left", "lost"),
            ]


async def test_a_user_of_a_stopped_node_who_does_not_return_leaves_after_the_grace(
    tmp_path: Path, redis: RedisProcess
) -> None:
    async with serving(tmp_path, *[redis_url(redis.port)] * 2) as (stopping, staying), Clients() as clients:
        await open_room(stopping)
        old = await crowd(clients, stopping, ["gone", "back"])
        listener = await enter(clients, staying, "listener")
        await all_there([staying], ["gone", "back", "listener"])
        stopped = time.monotonic()
        stopping.signal(signal.SIGTERM)
        await stopping.ended()
        resume = {"session": old["back"].client.welcome["session"], "rooms": {"hall": 0}}
        await clients.join(staying, "back", device="phone", resume=resume)
        await listener.hears("room.left", GRACE_S + 4.0, user="gone")
        assert time.monotonic() - stopped >= min(GRACE_S, CLEAN_GRACE_S)
        assert comings(listener) == [("left", "gone")]
        assert await present(staying) == ["back", "listener"]


def flush(redis: RedisProcess) -> None:
    redis.command("FLUSHALL")


def restart(redis: RedisProcess) -> None:
    redis.restart()


@pytest.mark.alone  # three nodes must restore within the time limits of this test
@pytest.mark.parametrize("lose", [flush, restart])
async def test_a_flush_of_redis_shows_no_user_as_leaving_and_the_list_is_complete_again(
    tmp_path: Path, redis: RedisProcess, lose: Callable[[RedisProcess], None]
) -> None:
    async with serving(tmp_path, *[redis_url(redis.port)] * 3) as nodes, Clients() as clients:
        first, second, _ = nodes
        await open_room(first)
        await crowd(clients, first, CROWD[:20])
        others = await crowd(clients, second, CROWD[20:])
        both = [await enter(clients, node, "both", device=f"d{at}") for at, node in enumerate(nodes[:2])]
        listeners = [await enter(clients, node, f"listener{at}") for at, node in enumerate(nodes)]
        everybody = [*CROWD, "both", "listener0", "listener1", "listener2"]
        await all_there(nodes, everybody)
        for listener in listeners:
            listener.told.clear()

        lose(redis)
        # During the restore one user leaves on one node but stays on the other. Another user leaves for good.
        both[0].send(type="room.leave", room="hall")
        others[CROWD[-1]].send(type="room.leave", room="hall")
        for listener in listeners:
            await listener.hears("room.left", HELD_S + 8.0, user=CROWD[-1])
        newcomer = await enter(clients, second, "newcomer")
        for listener in listeners:
            await listener.hears("room.entered", user="newcomer")
            assert comings(listener, "newcomer") == [("left", CROWD[-1])]
        still = [*(user for user in everybody if user != CROWD[-1]), "newcomer"]
        await all_there(nodes, still)
        async with serving(tmp_path, redis_url(redis.port)) as (fresh,):  # a new node sees the data of Redis only
            assert await complete(fresh) == sorted(still)
        assert (await newcomer.request(type="room.present", room="hall", limit=300))["count"] == len(still)


async def test_who_enters_and_leaves_while_redis_does_not_answer_has_when_it_does(
    tmp_path: Path, redis: RedisProcess
) -> None:
    async with serving(tmp_path, *[redis_url(redis.port)] * 2) as nodes, Clients() as clients:
        first, second = nodes
        await open_room(first)
        await open_room(first, "den")
        near, far = await enter(clients, first, "near"), await enter(clients, second, "far")
        movers = {user: await enter(clients, first, user, room) for user, room in (("in", "den"), ("out", "hall"))}
        await all_there(nodes, ["near", "far", "out"])
        for listener in (near, far):
            await listener.hears("room.entered", user="out")
            listener.told.clear()

        async def is_away() -> bool:
            return (await first.ask("GET", "/readyz")).status == 503

        redis.stop()
        try:
            for _ in range(3):  # repeatedly, and Redis may execute the commands in any order
                for user in movers:
                    await movers[user].request(type="room.leave", room="hall")
                    await movers[user].request(type="room.join", room="hall")
            await movers["out"].request(type="room.leave", room="hall")
            await eventually(is_away, "the node has noticed the outage")
        finally:
            redis.cont()
        for listener in (near, far):
            await listener.hears("room.entered", user="in")
            await listener.hears("room.left", user="out")
        await all_there(nodes, ["near", "far", "in"])
        for listener in (near, far):
            assert sorted(set(comings(listener))) == [("entered", "in"), ("left", "out")]
