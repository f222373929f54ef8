"""Holds after a loss: they last until slow nodes have restored, and what people do meanwhile is shown at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cluster.engines import TENANT, names_everywhere
from cluster.inside import Inside, inside, passing
from cluster.nodes import Listener, eventually, redis_url
from greendot.engine.messages import Part
from greendot.engine.redis import keys
from greendot.testing import hold
from redis_servers import Cluster, RedisProcess, redis_cluster

LEASE_S = 3.0
SOON_S = 3.0  # a question to all nodes takes a second at most; twice more for a busy machine
CROWD = [f"u{number:03}" for number in range(120)]


class Place:
    """Redis, or a Redis Cluster."""

    def __init__(self, url: str, servers: list[RedisProcess]) -> None:
        self.url = url
        self._servers = servers

    def flush(self) -> None:
        for server in self._servers:
            server.command("FLUSHALL")


@pytest.fixture(params=["standalone", "cluster"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "standalone":
        with RedisProcess("redis", tmp_path / "redis") as redis:
            yield Place(redis_url(redis.port), [redis])
    else:
        with redis_cluster("redis", tmp_path / "redis", primaries=3) as cluster:
            yield Place(cluster.url, cluster.processes)


@asynccontextmanager
async def running(url: str, batch: int = 500, **periods: float) -> AsyncIterator[Inside]:
    """Run a node with the rooms of these tests in its store."""
    sections: dict[str, dict[str, Any]] = {
        "node": {"lease_s": 60.0, "renew_s": 0.5} | periods,
        "typing": {"large_room": 1_000},
        "engine": {"restore_batch": batch},
    }
    async with inside(url, **sections) as (node,):
        for room in ("den", *rooms()):
            assert (await node.ask("PUT", f"/v1/rooms/{room}", {"open": True})).status < 300
        yield node


@asynccontextmanager
async def fast_and_slow(url: str, slow_batch: int = 500, **periods: float) -> AsyncIterator[tuple[Inside, Inside]]:
    """Run a node, and one that restores `slow_batch` sessions or occupants in a tenth of a second."""
    async with running(url, **periods) as fast, running(url, slow_batch, **periods) as slow:
        await passing(lambda: len(fast.node.engine.live_nodes()) == len(slow.node.engine.live_nodes()) == 2)
        yield fast, slow


def rooms() -> list[str]:
    """Return rooms in different pieces of the partitions."""
    return names_everywhere("r")[::16]


async def enter(node: Inside, user: str, room: str = "den", **hello: Any) -> Listener:
    client = await node.join(user, **hello)
    await client.request(type="room.join", room=room)
    return client


async def observer(node: Inside, *users: str) -> Listener:
    watcher = await enter(node, "observer")
    await watcher.watch(*users)
    for room in rooms():
        await watcher.request(type="room.join", room=room)
    return watcher


def disturbances(listener: Listener) -> list[tuple[str, Any]]:
    kinds = {"presence.changed", "room.entered", "room.left"}
    return [(told.type, told.data.get("user")) for told in listener.told if told.type in kinds]


def is_restoring(node: Inside) -> bool:
    return bool(node.node.engine.losses.restoring())  # type: ignore[attr-defined]


async def are_present(node: Inside, count: int) -> bool:
    found = [(await node.ask("GET", f"/v1/rooms/{room}/present")).json()["count"] for room in rooms()]
    return sum(found) == count


async def test_a_node_that_restores_for_longer_than_a_lease_disturbs_no_observer(place: Place) -> None:
    async with fast_and_slow(place.url, 5, lease_s=LEASE_S) as (fast, slow):
        names = rooms()
        homes = [names[number % len(names)] for number in range(len(CROWD))]
        await asyncio.gather(*(enter(slow, user, room) for user, room in zip(CROWD, homes, strict=True)))
        watcher = await observer(fast, *CROWD)
        await eventually(lambda: are_present(fast, len(CROWD) + len(names)), "all users are in their rooms")
        watcher.told.clear()
        clock = asyncio.get_running_loop().time
        began = clock()
        place.flush()
        await passing(lambda: is_restoring(fast) and is_restoring(slow))
        await passing(lambda: not is_restoring(fast), 60.0)
        assert clock() - began > LEASE_S, "the slow node was not slow enough for this test"
        await passing(lambda: not is_restoring(slow) and slow.node.recovery.resyncs > 0)
        await passing(lambda: fast.node.recovery.resyncs > 0)
        await eventually(lambda: are_present(fast, len(CROWD) + len(names)), "all users are in their rooms")
        assert disturbances(watcher) == []
        assert all(entry["state"] == "online" for entry in (await fast.query(*CROWD)).values())


async def test_a_user_who_leaves_or_sets_a_status_during_a_hold_is_shown_at_once(place: Place) -> None:
    async with fast_and_slow(place.url) as (fast, slow):
        near, far = await enter(fast, "near"), await enter(slow, "far")
        quits = await enter(slow, "quits")
        both = [await enter(node, "both", device=node.node.incarnation) for node in (fast, slow)]
        near_busy, far_busy, ghost = await fast.join("nbusy"), await slow.join("fbusy"), await slow.join("ghost")
        users = ["near", "far", "both", "nbusy", "fbusy", "ghost"]
        watcher = await observer(fast, *users)
        await eventually(lambda: present_in_den(fast, "both", "far", "near", "observer", "quits"), "all have entered")
        watcher.told.clear()
        async with hold(slow.node.recovery, "_recover") as waiting:  # restores nothing by itself
            place.flush()
            await waiting.reached()
            await passing(lambda: is_restoring(fast) and fast.node.recovery.restored >= 4)
            for client in (near, far, both[0]):
                client.send(type="bye")
            await near_busy.request(type="status.set", status="busy")
            await far_busy.request(type="status.set", status="busy", text="in a meeting")
            await ghost.request(type="status.set", status="invisible")
            await quits.request(type="room.leave", room="den")
            for user, state in [("near", "offline"), ("far", "offline"), ("ghost", "offline"), ("nbusy", "busy")]:
                await watcher.hears("presence.changed", SOON_S, user=user, state=state)
            await watcher.hears("presence.changed", SOON_S, user="fbusy", state="busy", status_text="in a meeting")
            for user in ("near", "far", "quits"):
                await watcher.hears("room.left", SOON_S, user=user)
            assert is_restoring(fast), "the hold is over, so the test shows nothing"
        await passing(lambda: not is_restoring(fast) and fast.node.recovery.resyncs > 0)
        shown = sorted(disturbances(watcher))
        assert shown == sorted(
            [("presence.changed", user) for user in users if user != "both"]
            + [("room.left", user) for user in ("far", "near", "quits")]
        ), "each change is shown once, and the user with another session is not disturbed"


async def is_reported(node: Inside) -> bool:
    """Return whether the lease of a node shows that the node restores."""
    reports = (await node.node.engine.lives.table()).reports()  # type: ignore[attr-defined]
    return "," in (reports.get(node.node.incarnation) or "")


async def test_a_node_that_starts_during_a_loss_shows_no_user_as_offline(place: Place) -> None:
    async with fast_and_slow(place.url) as (_, slow):
        await enter(slow, "far")
        async with hold(slow.node.recovery, "_recover") as waiting:  # restores nothing by itself
            place.flush()
            await waiting.reached()
            await eventually(lambda: is_reported(slow), "the slow node reports that it restores")
            async with running(place.url) as fresh:
                watcher = await fresh.join("watcher")
                assert (await watcher.watch("far"))["far"].get("stale"), "the slow node has not restored the user"
                await watcher.request(type="room.join", room="den")
                assert (await watcher.request(type="room.present", room="den")).get("stale")
                waiting.release()
                await watcher.hears("presence.changed", user="far", state="online")
                await eventually(lambda: present_in_den(fresh, "far", "watcher"), "the room is complete")
                await passing(lambda: not is_restoring(fresh) and fresh.node.recovery.resyncs > 0)
                assert "stale" not in await watcher.request(type="room.present", room="den")
                assert "stale" not in (await watcher.watch("far"))["far"]
                assert "offline" not in watcher.states("far")


async def present_in_den(node: Inside, *users: str) -> bool:
    found: list[str] = (await node.ask("GET", "/v1/rooms/den/present")).json()["users"]
    return found == [*users]


async def test_a_store_that_does_not_answer_delays_no_recovery(redis: RedisProcess) -> None:
    async with fast_and_slow(redis_url(redis.port)) as (fast, slow):
        ann = await enter(slow, "ann")
        await ann.request(type="status.set", status="busy")
        watcher = await observer(fast, "ann")
        watcher.told.clear()
        async with (
            hold(slow.node.store, "statuses"),
            hold(slow.node.store, "heads"),
            hold(slow.node.store, "inboxes"),
        ):
            redis.command("FLUSHALL")
            await passing(lambda: is_restoring(fast) and is_restoring(slow))
            await passing(lambda: not is_restoring(fast) and not is_restoring(slow))
            assert (await fast.query("ann"))["ann"]["state"] == "busy"
        assert disturbances(watcher) == []


async def test_a_slot_that_moves_restores_only_its_own_partition(tmp_path: Path) -> None:
    with redis_cluster("redis", tmp_path / "redis", primaries=3) as cluster:
        async with fast_and_slow(cluster.url) as (fast, slow):
            users = names_everywhere("u")[::8]
            moved = users[5]
            for user in users:
                await slow.join(user)
            watcher = await observer(fast, *users)
            watcher.told.clear()
            await move(cluster, moved)
            await passing(lambda: fast.node.recovery.resyncs > 0 and slow.node.recovery.resyncs > 0)
            await passing(lambda: not is_restoring(fast) and not is_restoring(slow))
            assert slow.node.recovery.restored < len(users) / 2, "users of other partitions were restored, too"
            assert fast.node.engine.is_restoring(TENANT, moved) is False
            assert disturbances(watcher) == []
            assert {entry["state"] for entry in (await fast.query(*users)).values()} == {"online"}


async def move(cluster: Cluster, user: str) -> None:
    slot = cluster.slot_of(keys.user_keys("gd:", TENANT, user).nodes)
    target = next(process for process in cluster.primaries if process is not cluster.owner(slot))
    await asyncio.to_thread(cluster.move_slot, slot, target)


async def test_a_session_that_cannot_be_restored_delays_no_other(redis: RedisProcess) -> None:
    async with fast_and_slow(redis_url(redis.port)) as (fast, slow):
        clients = {user: await slow.join(user) for user in CROWD[:10]}
        watcher = await observer(fast, *clients)
        watcher.told.clear()
        broken = slow.node.registry.sessions[clients[CROWD[0]].client.welcome["session"]]
        grants, broken.grants = broken.grants, None  # type: ignore[assignment]
        redis.command("FLUSHALL")
        await passing(lambda: is_restoring(fast) and is_restoring(slow))
        await passing(lambda: slow.node.recovery.restored >= 9)
        await passing(lambda: not is_restoring(fast))
        restored = slow.node.recovery.restored
        assert restored < 2 * len(clients), "one failure restarted the whole recovery"
        broken.grants = grants
        await watcher.sees(CROWD[0], "offline", "online")
        assert {user for _, user in disturbances(watcher)} == {CROWD[0]}
        assert await slow.node.engine.audit(slow.node.sessions.holds, None, Part()) == 0
