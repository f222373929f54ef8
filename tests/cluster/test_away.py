"""Unreachable Redis: no node or user counts as dead, clients keep their state, and all recovers by itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from cluster.nodes import GRACE_S, LAPSE_S, LEASE_S, Clients, Listener, counted, eventually, lives, redis_url, serving
from e2e.processes import Process, ask, until
from greendot.testing import WireClient
from redis_servers import Proxy, RedisProcess

USERS = [f"user{number}" for number in range(20)]
NOTICED_S = 5.0  # time until a node detects that Redis is away, also without an error
BACK_S = 10.0  # time until the node has reconnected and read everything again


async def is_ready(node: Process) -> bool:
    return (await node.ask("GET", "/readyz")).status == 200


async def all_ready(nodes: list[Process]) -> bool:
    return all([await is_ready(node) for node in nodes])


async def are_stale(watchers: list[Listener], users: list[str], stale: bool, within_s: float) -> None:
    """Wait until the last change of each user has this `stale` flag for each watcher."""

    def last(watcher: Listener) -> dict[str, bool]:
        return {told.data["user"]: told.data.get("stale", False) for told in watcher.changes(*users)}

    await until(lambda: all(last(watcher) == dict.fromkeys(users, stale) for watcher in watchers), within_s)


async def test_no_node_is_declared_dead_while_no_node_can_reach_redis(tmp_path: Path) -> None:
    """Redis is away for longer than lease and grace, with refused and with silent connections."""

    async def away(name: str, leave: Callable[[Proxy], None]) -> None:
        with ExitStack() as stack:
            redis = stack.enter_context(RedisProcess("redis", tmp_path / name))
            network = stack.enter_context(Proxy(redis.port))
            folder, stale_after_s = tmp_path / f"{name}-nodes", LEASE_S + GRACE_S + 1.0
            folder.mkdir()
            env = {"GREENDOT_ENGINE_STALE_AFTER_S": f"{stale_after_s:g}"}
            async with serving(folder, *[redis_url(network.port)] * 2, **env) as nodes, Clients() as clients:
                for node in nodes:
                    await clients.crowd(node, USERS[nodes.index(node) :: 2])
                watchers = await clients.watchers(nodes, *USERS)
                before = await lives(nodes[0])

                leave(network)
                await are_stale(watchers, USERS, True, stale_after_s + NOTICED_S)
                network.heal()
                await are_stale(watchers, USERS, False, BACK_S)
                assert await lives(nodes[0]) == await lives(nodes[1]) == before
                assert [await counted(node, "presence_node_deaths_total") for node in nodes] == [0, 0]
                for watcher in watchers:
                    assert {told.data["state"] for told in watcher.changes()} == {"online"}
                    assert len(watcher.changes()) == 2 * len(USERS), (
                        "expected one stale change and one fresh change per user"
                    )

    async with asyncio.TaskGroup() as group:
        group.create_task(away("refused", Proxy.cut))
        group.create_task(away("silent", Proxy.freeze))


async def test_users_of_a_node_that_alone_is_cut_off_lapse_and_return_once(tmp_path: Path) -> None:
    async def away(name: str, leave: Callable[[Proxy], None]) -> None:
        with ExitStack() as stack:
            redis = stack.enter_context(RedisProcess("redis", tmp_path / name))
            network = stack.enter_context(Proxy(redis.port))
            folder = tmp_path / f"{name}-nodes"
            folder.mkdir()
            urls = redis_url(network.port), redis_url(redis.port)
            async with serving(folder, *urls) as (lonely, other), Clients() as clients:
                crowd = await clients.crowd(lonely, USERS)
                await clients.join(lonely, "both", device="laptop")
                await clients.join(other, "both", device="phone")
                marker = await clients.join(other, "marker")
                inside, outside = await clients.watchers((lonely, other), *USERS, "both", "marker")
                old = crowd[USERS[0]].client.welcome["node"]

                left = time.monotonic()
                leave(network)
                await asyncio.gather(*(outside.sees(user, "offline", within_s=LAPSE_S + 1.0) for user in USERS))
                assert min(told.at for told in outside.changes()) - left > LEASE_S
                assert not await is_ready(lonely)
                network.heal()
                await asyncio.gather(*(outside.sees(user, "offline", "online") for user in USERS))
                await eventually(lambda: is_ready(lonely), "the cut node is ready again")
                found = await lives(other)
                assert found[old] == "dead"
                assert sorted(found.values()) == ["dead", "live", "live"]

                async def audited() -> bool:
                    return await counted(lonely, "presence_restored_sessions_total") >= len(USERS) + 2

                await eventually(audited, "the sessions of the node are restored")
                marker.send(type="bye")
                await asyncio.gather(*(watcher.sees("marker", "offline") for watcher in (inside, outside)))
                for user in USERS:
                    assert outside.states(user) == ["offline", "online"], user
                    assert inside.states(user) == [], "watchers on the same node must see no change"
                assert inside.states("both") == outside.states("both") == []
                assert all(client.closed is None for client in crowd.values())

    async with asyncio.TaskGroup() as group:
        group.create_task(away("refused", Proxy.cut))
        group.create_task(away("silent", Proxy.freeze))


async def test_what_works_while_redis_is_away_and_what_waits_for_it(tmp_path: Path) -> None:
    async def refusing() -> None:
        await degrade(tmp_path / "refusing", RedisProcess.stop, RedisProcess.cont, "refuse")

    async def accepting() -> None:
        await degrade(tmp_path / "accepting", RedisProcess.kill, start_again, "accept")

    async with asyncio.TaskGroup() as group:
        group.create_task(refusing())
        group.create_task(accepting())


def start_again(redis: RedisProcess) -> None:
    redis.start()
    redis.ready()


async def degrade(
    folder: Path, leave: Callable[[RedisProcess], None], come_back: Callable[[RedisProcess], None], policy: str
) -> None:
    env = {"GREENDOT_ENGINE_STALE_AFTER_S": "1", "GREENDOT_ENGINE_WHEN_AWAY": policy}
    with RedisProcess("redis", folder / "redis") as redis:
        async with serving(folder, *[redis_url(redis.port)] * 2, **env) as nodes, Clients() as clients:
            node, other = nodes
            assert (await node.ask("PUT", "/v1/rooms/den", {"open": True})).status < 300
            ann, bob, far = [
                await clients.join(at, name) for at, name in ((node, "ann"), (node, "bob"), (other, "far"))
            ]
            for client in (ann, bob, far):
                await client.request(type="room.join", room="den")
                await client.watch("ann", "bob", "far", "newcomer")

            leave(redis)
            await eventually(lambda: not_ready(nodes), "both nodes know that Redis is away", NOTICED_S)
            assert "Redis at 127.0.0.1" in (await node.ask("GET", "/readyz")).json()["reason"]
            told = (await ask(node.port, "GET", "/readyz")).json()
            assert told["reason"] == "the engine does not answer", "the address of Redis must not be public"
            await are_stale([ann, bob, far], ["ann", "bob", "far", "newcomer"], True, NOTICED_S)
            assert (await ann.watch("bob"))["bob"] | {"devices": []} == bob_is_stale(ann)

            ann.send(type="typing.start", room="den")
            ann.send(type="signal.send", room="den", kind="wave")
            ann.send(type="signal.send", user="bob", kind="poke")
            await bob.hears("typing.started", room="den", user="ann")
            await bob.hears("signal", kind="wave", room="den")
            await bob.hears("signal", kind="poke")
            assert (await ann.request(type="room.send", room="den", body="still here"))["seq"] == 1
            await bob.hears("room.message", room="den", seq=1)
            for command in ({"type": "watch", "users": ["stranger"]}, {"type": "status.set", "status": "busy"}):
                refusal = await ann.answer(**command)
                assert (refusal["type"], refusal["retry"]) == ("error", True), refusal
            newcomer = await comes(clients, node, policy)
            await nothing_piles_up(node, ann, bob)

            assert {client.closed for client in (ann, bob, far)} == {None}
            come_back(redis)
            await eventually(lambda: all_ready(nodes), "both nodes are ready", BACK_S)
            await are_stale([ann, bob, far], ["ann", "bob", "far", "newcomer"], False, BACK_S)
            if newcomer is not None:
                await far.hears("presence.changed", user="newcomer", state="online")
            await far.hears("presence.changed", user="ann", state="busy")  # set during the outage
            await far.hears("room.message", room="den", seq=1)
            bob.send(type="signal.send", user="far", kind="again")
            await far.hears("signal", kind="again")
            assert len(far.of("room.message")) == 1
            assert not [
                told
                for client in (ann, bob, far)
                for told in client.changes()
                if told.data["state"] == "offline" and told.data["user"] != "newcomer"
            ]


async def not_ready(nodes: list[Process]) -> bool:
    return not any([await is_ready(node) for node in nodes])


def bob_is_stale(watcher: Listener) -> dict[str, object]:
    return {**watcher.changes("bob")[-1].data, "devices": [], "stale": True}


async def comes(clients: Clients, node: Process, policy: str) -> Listener | None:
    """Connect a new client, which is refused with advice or accepted."""
    if policy == "accept":
        return await clients.join(node, "newcomer")
    async with await WireClient.connect(node.port) as client:
        client.send(type="hello", token=node.token("newcomer"))
        assert (await client.receive("overloaded"))["data"]["retry_in_ms"] > 0
        assert (await client.closed()).code == 4003
    return None


async def nothing_piles_up(node: Process, ann: Listener, bob: Listener) -> None:
    async def chatter(rounds: int) -> None:
        for number in range(rounds):
            ann.send(type="activity")
            ann.send(type="typing.start", room="den")
            ann.send(type="signal.send", user="far", kind="lost", body="x" * 1_000)
            ann.send(type="signal.send", room="den", kind="many", body={"number": number})
            if number % 100 == 0:
                await ann.client.drain()
                await bob.hears("signal", kind="many", body={"number": number})

    await chatter(501)
    before = node.resident_kb
    await chatter(2_501)
    grown = node.resident_kb - before
    print(f"10,000 commands while Redis is away: {grown} KB more")
    assert grown < 8_000
