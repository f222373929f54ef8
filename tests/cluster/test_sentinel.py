"""Failover by Sentinel: nodes follow to the new primary, and no client keeps an older state."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.engines import (
    FOUND_S,
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
from cluster.nodes import RENEW_S, Clients, counted, eventually, serving
from cluster.working import assert_versions_rise, everything_works, states
from greendot.engine.messages import Topic
from redis_servers import Sentinel, redis_sentinel

REPLICATION = b"REPLCONF"  # sent by replicas only
RESTORED_S = RENEW_S + 2.0


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Sentinel]:
    with redis_sentinel(tmp_path / "redis") as group:
        yield group


async def test_who_still_speaks_to_the_old_primary_after_a_failover_finds_out(group: Sentinel) -> None:
    topics = [Topic("room", TENANT, room) for room in names_everywhere("r")[:16]]
    async with engines(group.url, group.url) as (first, second):
        await first.engine.subscribe(topics)
        await all_hear(first, second, topics)
        old = await asyncio.to_thread(group.split)
        promoted = time.monotonic()
        assert old.command("ROLE")[0] == b"master", "the old primary must still act as a primary"
        for node in (first, second):
            await until(lambda node=node: findings(node), "the new primary is found", FOUND_S)
        print(f"found {time.monotonic() - promoted:.2f} s after all sentinels agreed")
        for node in (first, second):
            assert {address.port for address in node.engine.servers.all} == {group.proxies[group.primary].port}
            assert findings(node) == [False]
            assert gaps(node) == 1
        await all_hear(first, second, topics)
        await come(first, "ann")
        assert await state(second, "ann") == "online"
        assert old.command("PUBSUB", "CHANNELS", f"{PREFIX}*") == [], "a node is still subscribed to the old primary"
        await asyncio.to_thread(group.heal)


async def test_a_touch_that_was_acknowledged_and_lost_is_repaired_and_versions_do_not_go_back(
    tmp_path: Path, group: Sentinel
) -> None:
    env = {"GREENDOT_PRESENCE_IDLE_S": "60"}
    users = ["stays", "comes", "sets", "leaves"]
    async with serving(tmp_path, group.url, group.url, **env) as nodes, Clients() as clients:
        first, second = nodes
        await clients.join(first, "stays")
        sets, leaves = await clients.join(first, "sets"), await clients.join(first, "leaves")
        watchers = await clients.watchers(nodes, *users)
        # From here on the replica receives nothing: all of this is acknowledged and lost.
        group.proxies[group.primary].freeze(REPLICATION)
        await clients.join(second, "comes")
        await sets.request(type="status.set", status="busy", text="lost and found")
        leaves.send(type="bye")
        await asyncio.gather(*(w.sees("comes", "online") for w in watchers))
        await asyncio.gather(*(w.sees("sets", "busy") for w in watchers))
        await asyncio.gather(*(w.sees("leaves", "offline") for w in watchers))
        await asyncio.to_thread(group.fail_over)
        promoted = time.monotonic()

        async def restored() -> bool:
            wanted = {"stays": "online", "comes": "online", "sets": "busy"}
            return [await states(node, [*wanted]) for node in nodes] == [wanted, wanted]

        await eventually(restored, "all users are restored", RESTORED_S)
        print(f"restored {time.monotonic() - promoted:.2f} s after the promotion")

        async def resynced() -> bool:
            return all([await counted(node, "realtime_resync_total") > 0 for node in nodes])

        await eventually(resynced, "the watched users are read again")
        await everything_works(nodes, clients, watchers)

        async def gone() -> bool:
            return [await states(node, ["leaves"]) for node in nodes] == [{"leaves": "offline"}] * 2

        await eventually(gone, "the comparison finds the lost leave")
        print(f"compared {time.monotonic() - promoted:.2f} s after the promotion")
        for watcher in watchers:
            await until(
                lambda watcher=watcher: watcher.states("leaves")[-1] == "offline",
                "watchers have received the offline state",
            )
            assert watcher.states("stays") == []
            assert watcher.states("comes") == ["online"]
            assert watcher.states("sets") == ["busy"]
            assert_versions_rise(watcher)
        for node in nodes:
            assert await counted(node, "realtime_pubsub_gaps_total") >= 1
