"""Overloaded node as others see it: apps get a retry time from each node."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from cluster.engines import TENANT, come, engines, ref, until
from cluster.nodes import GRACE_S, Clients, redis_url, serving
from greendot.engine.messages import Deliver, Topic
from greendot.errors import Refused
from greendot.limits.overload import OverloadMonitor
from greendot.limits.overload_model import Level, Load, OverloadBounds, OverloadLevels
from greendot.limits.publisher_backpressure import Backpressure
from greendot.node.hub import Hub
from greendot.telemetry.metrics import Metrics
from greendot.testing import WireClient
from redis_servers import RedisProcess

WITHIN_S = 4.0  # a second until the node reports it, another until others read it, and time for a slow machine


@pytest.mark.timing
async def test_publishers_are_asked_to_wait_only_for_users_and_rooms_on_an_overloaded_node(
    redis: RedisProcess,
) -> None:
    async with engines(*[redis_url(redis.port)] * 3) as (asked, busy, idle):
        for node, user in ((busy, "ann"), (idle, "bob")):
            await come(node, user)
            await node.engine.enter(TENANT, f"{user}s-room", user, ref(node, user))
        overload_monitor = OverloadMonitor(
            OverloadLevels(OverloadBounds(Load(1, 1, 1), 2), 1), asked.engine, Hub(Metrics()), Metrics()
        )
        now = 0.0
        targets = Backpressure(asked.engine, overload_monitor, lambda: now)
        await targets.check_users(TENANT, ["ann", "bob"])
        await targets.check_room(TENANT, "anns-room")

        busy.engine.level = Level.REFUSING
        await until(
            lambda: asked.engine.refusing() == {busy.incarnation}, "the level of the busy node is known", WITHIN_S
        )
        levels = {info.node: info.level for info in await idle.engine.nodes()}
        assert levels == {asked.incarnation: "normal", busy.incarnation: "refusing", idle.incarnation: "normal"}
        await targets.check_users(TENANT, ["bob", "nobody"])
        await targets.check_room(TENANT, "bobs-room")
        with pytest.raises(Refused) as refused:
            await targets.check_users(TENANT, ["bob", "ann"])
        assert refused.value.code == "unavailable"
        assert refused.value.retry_in_ms
        with pytest.raises(Refused):
            await targets.check_room(TENANT, "anns-room")

        # The result is cached for a second.
        await busy.engine.exit(TENANT, "anns-room", "ann", ref(busy, "ann"))
        with pytest.raises(Refused):
            await targets.check_room(TENANT, "anns-room")
        now += 1.1
        await targets.check_room(TENANT, "anns-room")

        busy.engine.level = Level.NORMAL
        await until(lambda: asked.engine.refusing() == frozenset(), "the overload is over", WITHIN_S)
        await targets.check_users(TENANT, ["ann"])


async def test_how_long_the_bus_takes_is_measured(redis: RedisProcess) -> None:
    async with engines(redis_url(redis.port)) as (node,):
        await until(lambda: node.engine.lag_s > 0, "a beat has come back")
        assert node.engine.lag_s < 1
        redis.stop()
        try:
            await until(
                lambda: node.engine.lag_s > 1 or node.engine.trouble is not None, "the missing beats are noticed"
            )
        finally:
            redis.cont()
        node.engine.publish(Topic("node", "", node.incarnation), Deliver(b"x"))


async def test_one_who_is_sent_away_by_another_node_than_holds_its_session_stays_online(
    tmp_path: Path, redis: RedisProcess
) -> None:
    # The bus always takes longer than this, while a timer may be on time.
    late = {"GREENDOT_OVERLOAD_BUS_LAG_S": "0.000001", "GREENDOT_OVERLOAD_REFUSE_TIMES": "1"}
    async with (
        serving(tmp_path, redis_url(redis.port)) as (holds,),
        serving(tmp_path, redis_url(redis.port), **late) as (refuses,),
        Clients() as clients,
    ):
        watcher = await clients.join(holds, "wanda")
        await watcher.request(type="watch", users=["ann"])
        ann = await holds.client("ann")
        session = ann.welcome["session"]
        await watcher.sees("ann", "online")
        while (await refuses.ask("GET", "/readyz")).status != 503:
            pass
        await ann.reset()
        lost = time.monotonic()
        async with await WireClient.connect(refuses.port) as back:
            back.send(type="hello", token=refuses.token("ann"), resume={"session": session})
            wait_ms = (await back.receive("overloaded"))["data"]["retry_in_ms"]
            assert (await back.closed()).code == 4003
        await asyncio.sleep(wait_ms / 1000)  # the retry time
        assert time.monotonic() - lost > GRACE_S
        async with await holds.client("ann", resume={"session": session}) as again:
            assert again.welcome["resumed"]
        assert [told.data["state"] for told in watcher.changes("ann")] == ["online"]
