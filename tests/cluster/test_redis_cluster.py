"""Redis Cluster with failing primaries and moving slots: all topics are received again, and all commands find their
keys.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cluster.engines import (
    PREFIX,
    TENANT,
    all_hear,
    come,
    engines,
    findings,
    gaps,
    names_everywhere,
    state,
    until,
)
from cluster.inside import inside
from cluster.nodes import RENEW_S, Clients, counted, eventually, serving
from cluster.working import assert_versions_rise, everything_works, states
from greendot.engine.messages import Topic
from greendot.engine.redis import keys
from greendot.engine.redis.nodes import LeasePeriods
from greendot.errors import EngineUnavailable
from greendot.node.time_slices import STEP
from greendot.presence.model import Change
from hosts import RedisNode
from redis_servers import Cluster, redis_cluster

RESTORED_S = RENEW_S + 2.0
NOT_LOST = {"periods": LeasePeriods()}  # no node counts as dead while a primary is replaced


@pytest.fixture
def with_replicas(tmp_path: Path) -> Iterator[Cluster]:
    with redis_cluster("redis", tmp_path / "redis", primaries=3, replicas=1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with redis_cluster("redis", tmp_path_factory.mktemp("redis"), primaries=3) as cluster:
        yield cluster


@pytest.fixture
def without(shared: Cluster) -> Cluster:
    """Return the shared cluster without replicas, emptied."""
    for process in shared.processes:
        process.command("FLUSHALL")
    return shared


def everywhere() -> list[Topic]:
    """Return a room in each partition."""
    return [Topic("room", TENANT, room) for room in names_everywhere("r")]


async def test_no_topic_is_deaf_after_a_replica_has_taken_over(with_replicas: Cluster) -> None:
    topics = everywhere()
    home = with_replicas.primary_of(keys.nodes_key(PREFIX, 0))
    async with engines(with_replicas.url, with_replicas.url, **NOT_LOST) as (first, second):
        await first.engine.subscribe(topics)
        await all_hear(first, second, topics)
        users = names_everywhere("u")
        for user in users[::8]:
            await come(first, user)
        await asyncio.to_thread(with_replicas.fail_over, home)
        begin = time.monotonic()
        for node in (first, second):
            await until(lambda node=node: findings(node), "the new primary is found")
        await all_hear(first, second, topics)
        await all_hear(second, second, [Topic("node", "", second.incarnation)])
        print(f"all topics are received {time.monotonic() - begin:.2f} s after the replica took over")
        for node in (first, second):
            assert findings(node) == [False]
            assert gaps(node) == 1
            assert not any(what == "reborn" for what, _ in node.host.told)
        for user in users[::8]:
            assert await first.engine.touch(TENANT, user, await come(first, user), "default", True, None)
            assert await state(second, user) == "idle"


async def test_a_primary_that_stands_still_for_a_while_is_found_and_taken_back(without: Cluster) -> None:
    topics = everywhere()
    async with engines(without.url, without.url, **NOT_LOST) as (first, second):
        await first.engine.subscribe(topics)
        await all_hear(first, second, topics)
        users = names_everywhere("u")
        for user in users[::16]:
            await come(first, user)
        stopped = without.primaries[0]
        stopped.stop()
        begin = time.monotonic()
        try:
            for node in (first, second):
                await until(lambda node=node: node.engine.servers.down, "the silence is noticed", 5.0)
            print(f"noticed after {time.monotonic() - begin:.2f} s")
            assert first.engine.trouble is None, "the other primaries must stay usable"
        finally:
            stopped.cont()
        for node in (first, second):
            await until(lambda node=node: findings(node), "the stopped primary is found again")
        await all_hear(first, second, topics)
        for node in (first, second):
            assert not any(what == "reborn" for what, _ in node.host.told)

        async def served() -> bool:
            try:
                return {await state(second, user) for user in users[::16]} == {"online"}
            except EngineUnavailable:
                return False  # the other processes accept the primary a moment later

        await eventually(served, "all users are online again")


@asynccontextmanager
async def touching(node: RedisNode, user: str) -> AsyncIterator[dict[str, int]]:
    """Toggle the user between idle and active during the block."""
    done = {"touches": 0, "refused": 0}
    here = await come(node, user)

    async def go_on() -> None:
        while True:
            try:
                await node.engine.touch(TENANT, user, here, "default", done["touches"] % 2 == 0, None)
                done["touches"] += 1
            except EngineUnavailable:
                done["refused"] += 1
            await asyncio.sleep(0.002)

    going = asyncio.create_task(go_on())
    try:
        yield done
    finally:
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)


async def test_a_slot_that_moves_under_traffic_takes_its_topics_and_users_along(without: Cluster) -> None:
    user = names_everywhere("u")[70]
    room = Topic("room", TENANT, names_everywhere("r")[70])
    watch, where = Topic("watch", TENANT, user), keys.user_keys(PREFIX, TENANT, user)
    slot = without.slot_of(where.nodes)
    assert slot == without.slot_of(keys.channel(PREFIX, room)) == without.slot_of(keys.channel(PREFIX, watch))
    async with engines(without.url, without.url) as (first, second):
        await second.engine.subscribe([room, watch])
        await all_hear(second, first, [room])
        for number in range(3):
            counted_before, owner = gaps(second), without.owner(slot)
            target = next(process for process in without.primaries if process is not owner)
            async with touching(first, user) as done:
                await until(lambda done=done: done["touches"] > 20, "there is traffic")
                await asyncio.to_thread(without.move_slot, slot, target)
                moved, touches = time.monotonic(), done["touches"]
                await until(
                    lambda done=done, touches=touches: done["touches"] > touches + 20, "commands reach the new owner"
                )
                took = await until(lambda before=counted_before: gaps(second) > before, "the move is noticed", 5.0)
                since = len(second.heard)
                await until(lambda since=since: changes(second, since), "changes are received from the new owner", 5.0)
                print(
                    f"move {number}: noticed after {took:.2f} s, {done}, heard {time.monotonic() - moved:.2f} s after"
                )
            await all_hear(second, first, [room])
            assert await state(second, user) in ("online", "idle")
            assert without.owner(slot) is target
            assert await first.engine.sessions(TENANT, user) == await second.engine.sessions(TENANT, user) != []
        versions = [m.visible.version for m in changes(second, 0) if m.public]
        assert versions == sorted(versions)
        assert False in findings(second)


def changes(node: RedisNode, since: int) -> list[Change]:
    return [message for _, message in node.heard[since:] if isinstance(message, Change)]


async def test_commands_go_to_the_new_owner_of_a_moving_slot_and_missed_changes_are_read_again(
    without: Cluster,
) -> None:
    there, gone = neighbours()
    slot = without.slot_of(keys.user_keys(PREFIX, TENANT, there).nodes)
    source = without.owner(slot)
    target = next(process for process in without.primaries if process is not source)
    async with engines(without.url, without.url) as (first, second):
        await second.engine.subscribe([Topic("watch", TENANT, there)])
        here = await come(first, there)
        await first.engine.linger(TENANT, gone, await come(first, gone), 0, 0)  # so that all keys of the command exist
        with without.moving_slot(slot, target):
            await first.engine.touch(TENANT, there, here, "default", True, None)
            found = source.command("CLUSTER", "GETKEYSINSLOT", slot, 100)
            presence, others = found[:1], found[1:]
            source.command("MIGRATE", "127.0.0.1", target.port, "", 0, 5_000, "KEYS", *presence)
            with pytest.raises(EngineUnavailable, match="moving between servers"):
                await first.engine.touch(TENANT, there, here, "default", False, None)
            source.command("MIGRATE", "127.0.0.1", target.port, "", 0, 5_000, "KEYS", *others)
            await first.engine.touch(TENANT, there, here, "default", False, None)
            assert await state(second, there) == "online"
        await until(lambda: False in findings(second), "the move is noticed and all data is read again")
        assert await state(second, there) == "online"
        since = len(second.heard)
        await first.engine.touch(TENANT, there, here, "default", True, None)
        await until(lambda: changes(second, since), "changes are received from the new owner")


def neighbours() -> tuple[str, str]:
    """Return two users in the same bucket."""
    known: dict[str, str] = {}
    for number in range(20_000):
        user = f"v{number}"
        other = known.setdefault(keys.user_keys(PREFIX, TENANT, user).buckets(128)[0], user)
        if other != user:
            return other, user
    raise AssertionError("no two users are in the same bucket")


async def test_two_nodes_on_a_cluster_go_on_when_a_primary_is_killed(tmp_path: Path, with_replicas: Cluster) -> None:
    users = [f"user{number:02}" for number in range(24)]
    async with serving(tmp_path, *[with_replicas.url] * 2) as nodes, Clients() as clients:
        first, second = nodes
        here, there = await clients.crowd(first, users[::2]), await clients.crowd(second, users[1::2])
        watchers = await clients.watchers(nodes, *users)
        await everything_works(nodes, clients, watchers)
        resyncs = [await counted(node, "realtime_resync_total") for node in nodes]
        await asyncio.to_thread(with_replicas.fail_over, with_replicas.primaries[0])
        begin = time.monotonic()

        async def complete() -> bool:
            return [await states(node, users) for node in nodes] == [dict.fromkeys(users, "online")] * 2

        await eventually(complete, "all users are online", RESTORED_S)
        print(f"complete {time.monotonic() - begin:.2f} s after the replica took over")

        async def resynced() -> bool:
            now = [await counted(node, "realtime_resync_total") for node in nodes]
            return all(after > before for after, before in zip(now, resyncs, strict=True))

        await eventually(resynced, "the data of the gap is read again and counted")
        assert [watcher.changes(*users) for watcher in watchers] == [[], []]
        for user, client in (here | there).items():
            await client.request(type="status.set", status="busy", text=f"{user} is busy")
        for watcher in watchers:
            for user in users:
                await watcher.sees(user, "busy")
            assert_versions_rise(watcher)
        await everything_works(nodes, clients, watchers, "again")


async def test_a_slot_that_moves_to_a_server_during_its_reconnect_is_subscribed_there(without: Cluster) -> None:
    room = Topic("room", TENANT, names_everywhere("r")[70])
    slot = without.slot_of(keys.channel(PREFIX, room))
    async with engines(without.url, without.url, **NOT_LOST) as (first, second):
        await second.engine.subscribe([room])
        await all_hear(second, first, [room])
        source = without.owner(slot)
        target = next(process for process in without.primaries if process is not source)
        with without.moving_slot(slot, target):
            found = source.command("CLUSTER", "GETKEYSINSLOT", slot, 100)
            source.command("MIGRATE", "127.0.0.1", target.port, "", 0, 5_000, "KEYS", *found)
            # Connecting succeeds, but registering waits for the pause.
            target.command("CLIENT", "PAUSE", 1_500, "WRITE")
            for kind in ("normal", "pubsub"):
                target.command("CLIENT", "KILL", "TYPE", kind)
            await until(lambda: second.engine.servers.down, "the connections are lost")
            server = next(s for a, s in second.engine.servers.all.items() if a.port == target.port)
            await until(lambda: server.pushes, "the node is connecting to the server")
        await until(lambda: server.up, "the node is connected to the server")
        await all_hear(second, first, [room])


async def test_a_subscription_on_the_former_owner_of_a_slot_is_refused_and_soon_succeeds(
    without: Cluster,
) -> None:
    room = Topic("room", TENANT, names_everywhere("r")[70])
    slot = without.slot_of(keys.channel(PREFIX, room))
    target = next(process for process in without.primaries if process is not without.owner(slot))
    async with engines(without.url, **NOT_LOST) as (node,):
        await asyncio.to_thread(without.move_slot, slot, target)

        async def subscribed() -> bool:
            try:
                await node.engine.subscribe([room])
            except EngineUnavailable:
                return False
            return True

        await eventually(subscribed, "the new owner is found", 2.0)  # long before the periodic request for the layout
        await all_hear(node, node, [room])


async def test_many_users_are_read_in_few_scripts(without: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    users = [f"user{number}" for number in range(4_000)]
    async with inside(without.url, limits={"enabled": False, "watches": 10_000}) as (node,):
        ann, servers = await node.join("ann"), node.node.engine.servers  # type: ignore[attr-defined]
        run, scripts = servers.run, list[str]()

        async def counting(partition: int, name: str, *arguments: Any) -> Any:
            scripts.append(name)
            return await run(partition, name, *arguments)

        monkeypatch.setattr(servers, "run", counting)
        read = [*await node.query(*users)]
        assert read == users
        for command in ("presence.get", "watch"):
            reply = await ann.request(type=command, users=users)
            assert [entry["user"] for entry in reply["presence"]] == users
        # Users without a last-seen time in Redis are read again after the store, the first time they are asked for.
        assert scripts.count("read") <= 4 * (keys.PARTITIONS + len(users) / STEP + 1)
