"""Servers of an engine, and the task that follows changes of their topology."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hosts import RedisNode
from redis_servers import redis_cluster


async def test_they_are_closed_though_a_question_comes_up_at_that_moment(tmp_path: Path) -> None:
    with redis_cluster("redis", tmp_path) as cluster:
        for turns in range(4):
            node = RedisNode(cluster.url, "gd:")
            await node.start()
            servers = node.engine.servers
            await asyncio.sleep(0)  # the task waits for a request
            servers.ask()
            for _ in range(turns):
                await asyncio.sleep(0)
            async with asyncio.timeout(5.0):
                await servers.close()
            await node.close()
