"""New incarnation of a node that the others took for dead."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from unittest import mock

import pytest

from greendot.engine.port import Fenced
from greendot.engine.results import Touched
from greendot.errors import EngineUnavailable
from greendot.presence.model import SessionEpoch
from hosts import RedisNode
from redis_servers import redis_server


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server("redis", tmp_path_factory.mktemp("redis")) as port:
        yield f"redis://127.0.0.1:{port}"


@asynccontextmanager
async def two_nodes(url: str, prefix: str) -> AsyncIterator[tuple[RedisNode, RedisNode]]:
    one, other = RedisNode(url, prefix), RedisNode(url, prefix)
    await one.start()
    try:
        await other.start()
        try:
            yield one, other
        finally:
            await other.close()
    finally:
        await one.close()


async def touch(node: RedisNode, user: str, incarnation: str) -> Touched:
    return await node.engine.touch(
        "t1", user, SessionEpoch(f"{incarnation}-{user}", incarnation, 1), "phone", False, None
    )


async def test_a_node_declared_dead_gets_one_new_name_whatever_the_number_of_late_calls(url: str) -> None:
    async with two_nodes(url, "once:") as (node, other):
        old = node.incarnation
        await other.engine.lives.bury(old, "")
        for round in range(3):  # sessions are restored in batches, and the rest still use the old name
            late = await asyncio.gather(*(touch(node, f"u{n}", old) for n in range(20)), return_exceptions=True)
            assert [type(answer) for answer in late] == [Fenced] * 20, round
            await node.engine.settled()
        new = node.engine.lives.incarnation
        assert new != old
        assert node.host.told == [("reborn", new)]
        assert {info.node: info.state for info in await other.engine.nodes()} == {
            old: "dead",
            new: "live",
            other.incarnation: "live",
        }
        assert not (await touch(node, "u1", new)).resumed


@pytest.mark.parametrize("is_written", [False, True])
async def test_a_node_whose_link_breaks_while_it_gets_a_new_name_gets_another_one_later(
    url: str, *, is_written: bool
) -> None:
    async with two_nodes(url, f"broken{is_written}:") as (node, other):
        old, servers = node.incarnation, node.engine.servers
        await other.engine.lives.bury(old, "")

        async def run(partition: int, verb: str, *arguments: Any, original: Any = servers.run) -> Any:
            if verb == "register" and not is_written:
                raise EngineUnavailable("the link is cut")
            answer = await original(partition, verb, *arguments)
            if verb == "register":
                raise EngineUnavailable("the link is cut before the reply")
            return answer

        with mock.patch.object(servers, "run", run):
            with pytest.raises(Fenced):
                await touch(node, "u1", old)
            await node.engine.settled()
        assert node.host.told == []
        assert node.engine.lives.incarnation == old  # as the host knows it
        await node.engine.tick()
        await node.engine.settled()
        new = node.engine.lives.incarnation
        assert new != old
        assert node.host.told == [("reborn", new)]
        assert not (await touch(node, "u1", new)).resumed
