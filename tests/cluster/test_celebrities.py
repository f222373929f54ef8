"""Users with very many watchers on real nodes in real time: slices continue while Redis loses all data."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from cluster.nodes import Clients, eventually, redis_url, serving
from e2e.processes import until
from redis_servers import RedisProcess

WATCHERS, WINDOW_S = 60, 10.0
ENVIRONMENT = {"GREENDOT_PRESENCE_CELEBRITY_WATCHERS": "20", "GREENDOT_PRESENCE_POLLED": "default/idol, other/fan"}


async def test_a_celebrity_of_one_node_is_an_ordinary_user_on_another_and_a_lost_message_is_recovered(
    redis: RedisProcess, tmp_path: Path
) -> None:
    async with serving(tmp_path, *[redis_url(redis.port)] * 2, **ENVIRONMENT) as (home, away), Clients() as clients:
        star = await clients.join(home, "star")
        near = await asyncio.gather(*(clients.join(home, f"near{number}") for number in range(3)))
        far = await asyncio.gather(*(clients.join(away, f"far{number}") for number in range(WATCHERS)))
        for watcher in (*near, *far):
            await watcher.watch("star")

        started = time.monotonic()
        await star.request(type="status.set", status="busy")
        await asyncio.gather(*(watcher.sees("star", "busy", within_s=2.0) for watcher in near))
        assert sum(bool(watcher.changes()) for watcher in far) <= 15
        await until(lambda: sum(bool(watcher.changes()) for watcher in far) >= 10, WINDOW_S)
        assert time.monotonic() - started > 1.0
        redis.command("FLUSHALL")
        await star.request(type="status.set", status="auto")

        def everybody_knows() -> bool:
            # The version may differ: the state gets a new one when it is restored, which may be between two slices.
            last = [watcher.changes()[-1:] for watcher in (*near, *far)]
            return all(told and told[0].data["state"] == "online" for told in last)

        await until(everybody_knows, 3 * WINDOW_S)
        for watcher in (*near, *far):
            told = [change.data["version"] for change in watcher.changes()]
            assert told == sorted({*told}), "a change came twice or out of order"


async def test_a_user_named_in_the_settings_is_polled_on_every_node(redis: RedisProcess, tmp_path: Path) -> None:
    async with serving(tmp_path, *[redis_url(redis.port)] * 2, **ENVIRONMENT) as nodes, Clients() as clients:
        watchers = [await clients.join(node, f"watcher{number}") for number, node in enumerate(nodes)]
        for watcher in watchers:
            assert (await watcher.watch("idol"))["idol"]["mode"] == "poll"
        idol = await clients.join(nodes[0], "idol")

        async def answered(state: str) -> bool:
            found = [(await watcher.request(type="presence.get", users=["idol"]))["presence"] for watcher in watchers]
            assert {entry["mode"] for (entry,) in found} == {"poll"}
            return all((entry["state"], entry["recently_active"]) == (state, True) for (entry,) in found)

        await eventually(lambda: answered("online"), "both nodes have the online state of the idol")
        await idol.request(type="status.set", status="busy")
        await eventually(lambda: answered("busy"), "both nodes have the busy state of the idol")
        assert [watcher.changes() for watcher in watchers] == [[], []]
