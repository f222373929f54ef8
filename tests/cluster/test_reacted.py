"""Reactions on two nodes: what both set at once is one record, and every listener counts the same."""

from __future__ import annotations

import asyncio

from cluster.inside import inside, passing
from cluster.nodes import redis_url
from greendot.testing import hold
from postgres_server import migrated_schema
from redis_servers import RedisProcess


async def test_two_devices_on_two_nodes_set_the_same_reaction_once(redis: RedisProcess, postgres: str) -> None:
    async with (
        migrated_schema(postgres) as url,
        inside(*[redis_url(redis.port)] * 2, store={"url": url, "migrate": True}) as (one, two),
    ):
        await one.ask("PUT", "/v1/rooms/lobby", {"open": True})
        await one.ask("POST", "/v1/rooms/lobby/messages", {"user": "app", "body": "hi"})
        phone, laptop = await one.join("ann", device="phone"), await two.join("ann", device="laptop")
        for device in (phone, laptop):
            await device.request(type="room.join", room="lobby")
        # Both nodes have admitted the command before either writes.
        async with hold(one.node.store, "append") as first, hold(two.node.store, "append") as second:
            asked = [
                asyncio.ensure_future(device.request(type="room.react", room="lobby", ref=1, reaction="+"))
                for device in (phone, laptop)
            ]
            await first.reached()
            await second.reached()
        replies = await asyncio.gather(*asked)
        assert replies[0] == replies[1]
        page = (await laptop.request(type="room.history", room="lobby"))["messages"]
        assert [record["op"] for record in page] == [None, "react"]
        assert page[0]["reactions"] == [{"reaction": "+", "count": 1, "mine": True}]
        for device in (phone, laptop):
            await passing(lambda device=device: any(told.type == "room.message" for told in device.told))
            assert [told.data["seq"] for told in device.told if told.type == "room.message"] == [2]
