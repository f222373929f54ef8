"""Redis loses all data while nodes run: presence is complete again soon, and watchers see no change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from cluster.nodes import LEASE_S, Clients, Listener, counted, eventually, meanwhile, redis_url, serving
from e2e.processes import Process, until
from greendot.testing import Closed
from redis_servers import RedisProcess
from waited import Lap

BATCH = 100  # sessions restored together, ten times a second
AROUND = 2_000  # commands independent of the number of sessions: traffic, registration, requests of the test
COMPLETE_S = LEASE_S + 3.0  # at most a lease for other nodes, and up to a poll each to detect the loss and its end
SINCE_MS = 1_000  # a node's estimate of Redis's clock is as exact as the round trip is short
RECONNECT_S = 2.0  # longest pause between two attempts
CROWD = [f"u{number:03}" for number in range(300)]


def flush(redis: RedisProcess) -> None:
    redis.command("FLUSHALL")


def restart(redis: RedisProcess) -> None:
    redis.restart()


@asynccontextmanager
async def traffic(nodes: list[Process], clients: Clients, active: list[Listener]) -> AsyncIterator[None]:
    """Let users connect, leave, type and send signals continuously. `active` clients send activity."""
    talkers = [await clients.join(node, f"talker{number}") for number, node in enumerate(nodes)]
    assert (await nodes[0].ask("PUT", "/v1/rooms/lively", {"open": True})).status < 300
    for talker in talkers:
        await talker.request(type="room.join", room="lively")

    async def talk() -> None:
        for number, talker in enumerate(talkers):
            talker.send(type="typing.start", room="lively")
            talker.send(type="signal.send", user=f"talker{1 - number}", kind="wave")
        for client in active:
            client.send(type="activity")
        await asyncio.sleep(0.1)

    async def pass_by() -> None:
        for node in nodes:
            with suppress(Closed, AssertionError):  # refused while Redis is away
                async with await node.client("passer") as passer:
                    passer.send(type="bye")
                    await passer.closed()

    async with meanwhile(talk, pass_by):
        yield


async def snapshot(node: Process, users: list[str]) -> dict[str, dict[str, Any]]:
    reply = (await node.ask("POST", "/v1/presence/query", {"users": users})).json()
    return {entry["user"]: entry for entry in reply.get("presence", [])}


def visibles(entries: dict[str, dict[str, Any]]) -> dict[str, tuple[Any, ...]]:
    return {
        user: (entry["state"], entry["name"], entry["status_text"], sorted(entry["devices"]), "stale" in entry)
        for user, entry in entries.items()
    }


def scripts(redis: RedisProcess) -> int:
    """Return the number of scripts that Redis has run."""
    return int(redis.info("commandstats")["cmdstat_evalsha"].removeprefix("calls=").partition(",")[0])


async def busiest_second(redis: RedisProcess, over: asyncio.Event) -> int:
    """Return the largest number of scripts that Redis ran in one second: one for each session and bucket."""
    samples: list[tuple[float, int]] = []
    most = 0
    while not over.is_set():
        try:
            count = await asyncio.to_thread(scripts, redis)
        except (OSError, KeyError):
            samples.clear()
        else:
            now = time.monotonic()
            if samples and count < samples[-1][1]:
                samples.clear()
            samples.append((now, count))
            samples = [sample for sample in samples if sample[0] > now - 1.0]
            most = max(most, count - samples[0][1])
        await asyncio.sleep(0.05)
    return most


@pytest.mark.timing
@pytest.mark.parametrize("lose", [flush, restart])
async def test_what_redis_forgets_is_restored_in_time_and_no_watcher_notices(
    tmp_path: Path, redis: RedisProcess, lose: Callable[[RedisProcess], None]
) -> None:
    env = {"GREENDOT_ENGINE_RESTORE_BATCH": str(BATCH), "GREENDOT_PRESENCE_IDLE_S": "2"}
    users = [*CROWD, "two", "works", "busy", "ghost"]
    async with serving(tmp_path, *[redis_url(redis.port)] * 2, **env) as nodes, Clients() as clients:
        first, second = nodes
        await clients.crowd(first, CROWD)
        await clients.join(first, "two", device="laptop")  # idle on this node, active on the other
        active = [await clients.join(second, "two", device="phone"), await clients.join(second, "works")]
        busy = await clients.join(first, "busy")
        await busy.request(type="status.set", status="busy", text="in a meeting")
        ghost = await clients.join(second, "ghost")
        await ghost.request(type="status.set", status="invisible")
        leaving = await clients.join(second, "leaves")
        watchers = await clients.watchers(nodes, *users, "lingers", "leaves")

        async with traffic(nodes, clients, active):
            idle = dict.fromkeys([*CROWD, "leaves"], "idle")
            await until(lambda: all(watcher.shown() | idle == watcher.shown() for watcher in watchers))
            lingering = await clients.join(first, "lingers")
            await asyncio.gather(*(w.sees("lingers", "online") for w in watchers))
            before = await snapshot(first, users)
            told = [len(watcher.changes(*users)) for watcher in watchers]
            resynced = [await counted(node, "realtime_resync_total") for node in nodes]

            over = asyncio.Event()
            measuring = asyncio.create_task(busiest_second(redis, over))
            await lingering.end()
            lose(redis)
            leaving.send(type="bye")
            lap = Lap(*(node.pid for node in nodes))

            async def complete() -> bool:
                return visibles(await snapshot(first, users)) == visibles(before)

            allowed = COMPLETE_S + (RECONNECT_S if lose is restart else 0)
            await eventually(complete, "all users are restored")
            took = lap.seconds
            assert took < allowed

            async def resync() -> bool:
                now = [await counted(node, "realtime_resync_total") for node in nodes]
                return all(after > before for after, before in zip(now, resynced, strict=True))

            await eventually(resync, "both nodes have compared and read everything again")
            over.set()
            most = await measuring
            await asyncio.gather(*(w.sees("lingers", "online", "offline") for w in watchers))
            await asyncio.gather(*(w.hears("presence.changed", user="leaves", state="offline") for w in watchers))
            assert all(watcher.states("leaves").count("offline") == 1 for watcher in watchers)
            for watcher, count in zip(watchers, told, strict=True):
                assert [t.data for t in watcher.changes(*users)[count:]] == []
            after = await snapshot(second, users)
            for user in users:  # an invisible user is shown as offline, and its `since` is lost with Redis
                expected = None if user == "ghost" else pytest.approx(before[user]["since"], abs=SINCE_MS)
                assert after[user]["since"] == expected, user
        print(f"{lose.__name__}: complete after {took:.2f} s, at most {most} commands/s by {len(nodes)} nodes")
        assert most <= len(nodes) * 10 * BATCH + AROUND


async def test_users_of_a_node_that_dies_together_with_the_data_go_offline_once(
    tmp_path: Path, redis: RedisProcess
) -> None:
    gone, here = [f"gone{number}" for number in range(20)], [f"here{number}" for number in range(20)]
    async with serving(tmp_path, *[redis_url(redis.port)] * 3) as (dying, second, third), Clients() as clients:
        await clients.crowd(dying, [*gone, "both"], device="laptop")
        await clients.crowd(second, [*here, "both"], device="phone")
        marker = await clients.join(second, "marker")
        watchers = await clients.watchers((second, third), *gone, *here, "both", "marker")
        await dying.kill()
        flush(redis)
        await asyncio.gather(*(watcher.sees(user, "offline") for watcher in watchers for user in gone))
        marker.send(type="bye")
        await asyncio.gather(*(watcher.sees("marker", "offline") for watcher in watchers))
        for watcher in watchers:
            assert sorted(told.data["user"] for told in watcher.changes()) == sorted([*gone, "marker"])


async def test_successive_restarts_of_redis_are_visible_to_no_user(tmp_path: Path, redis: RedisProcess) -> None:
    users = [f"user{number}" for number in range(100)]
    async with serving(tmp_path, *[redis_url(redis.port)] * 2) as nodes, Clients() as clients:
        for at, node in enumerate(nodes):
            await clients.crowd(node, users[at::2])
        marker = await clients.join(nodes[1], "marker")
        watchers = await clients.watchers(nodes, *users, "marker")
        before = visibles(await snapshot(nodes[0], users))

        async def lose() -> None:
            lost = sum([await counted(node, "realtime_pubsub_gaps_total") for node in nodes])
            restart(redis)

            async def restoring() -> bool:
                gaps = sum([await counted(node, "realtime_pubsub_gaps_total") for node in nodes])
                stored = sum(redis.command("HLEN", bucket) for bucket in redis.command("KEYS", "presence:*"))
                return gaps >= lost + len(nodes) and stored > 0.9 * len(users)

            await eventually(restoring, "the sessions are on their way back")

        async def complete() -> bool:
            return visibles(await snapshot(nodes[0], users)) == before

        read = [await counted(node, "realtime_resync_total") for node in nodes]

        async def read_again() -> bool:
            now = [await counted(node, "realtime_resync_total") for node in nodes]
            return all(after > before for after, before in zip(now, read, strict=True))

        for _ in range(4):
            await lose()
        await eventually(complete, "all users are restored", COMPLETE_S)
        await eventually(read_again, "both nodes have read everything again")
        marker.send(type="bye")
        await asyncio.gather(*(watcher.sees("marker", "offline") for watcher in watchers))
        for watcher in watchers:
            assert watcher.changes(*users) == []
