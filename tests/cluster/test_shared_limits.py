"""Limits of tenants on several nodes with one Redis: they hold for all nodes together, wherever the demand is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from cluster.inside import passing
from cluster.nodes import redis_url
from greendot.engine.redis.engine import RedisEngine
from greendot.testing import Served, WireClient, serving
from redis_servers import RedisProcess

LIMIT, BURST_S = 200, 2.0
STEP_S = 0.1
LIMITS = {
    "tenant_commands_per_s": LIMIT,
    "burst_s": BURST_S,
    "user_commands_per_s": 0,
    "commands_per_s": 10_000,
    "commands_burst": 10_000,
}


class Nodes:
    """Nodes in this process on one Redis, each with one client. Time passes on all of them together."""

    def __init__(self, served: Sequence[Served], clients: Sequence[WireClient]) -> None:
        self.served = [*served]
        self.clients = [*clients]
        self.has_bus = True

    async def permitted(self, seconds: float, *demand: int) -> float:
        """Send so many commands per second to each node. Return the permitted commands per second."""
        permitted = 0
        for _ in range(round(seconds / STEP_S)):
            for served in self.served:
                served.clock.advance(STEP_S)
                served.node.timers.tick()
            await self.settle()
            for client, rate in zip(self.clients, demand, strict=True):
                for _ in range(round(rate * STEP_S)):
                    client.send(type="unwatch", users=["nobody"], id="1")
            for client in self.clients:
                permitted += sum(frame["type"] == "reply" for frame in await client.quiet())
        return permitted / seconds

    async def settle(self) -> None:
        """Wait until all reports published so far have been received."""
        # Redis passes a message to its subscribers before it replies to the publisher.
        engines = [served.node.engine for served in self.served if self.has_bus]
        servers = [server for e in engines if isinstance(e, RedisEngine) for server in e.servers.all.values()]
        for server in servers:
            await server.call("PING")
        for server in servers:
            assert server.pushes is not None
            await server.pushes.call("PING")
        for served in self.served:
            await served.settle()

    async def see_each_other(self) -> None:
        """Wait until every node has read the leases of all nodes."""
        names = {served.node.incarnation for served in self.served}
        await passing(lambda: all({*served.node.engine.live_nodes()} == names for served in self.served))


def one_node(redis: RedisProcess, **limits: Any) -> AbstractAsyncContextManager[Served]:
    return serving(
        engine={"url": redis_url(redis.port)},
        limits=LIMITS | limits,
        # The engines run in real time and read the test's clock. No lease expires when the test moves it.
        node={"lease_s": 10_000.0, "renew_s": 0.1},
    )


@asynccontextmanager
async def nodes(redis: RedisProcess, count: int, **limits: Any) -> AsyncIterator[Nodes]:
    async with AsyncExitStack() as stack:
        served = [await stack.enter_async_context(one_node(redis, **limits)) for _ in range(count)]
        made = Nodes(served, [await each.client(f"user{number}") for number, each in enumerate(served)])
        await made.see_each_other()
        yield made


def within_ten_percent(permitted: float) -> bool:
    return 0.9 * LIMIT <= permitted <= 1.1 * LIMIT


async def test_a_tenant_s_rate_holds_for_all_nodes_and_follows_the_demand(redis: RedisProcess) -> None:
    async with nodes(redis, 3) as cluster:
        await cluster.permitted(4, 300, 300, 300)  # uses up the burst
        assert within_ten_percent(await cluster.permitted(4, 300, 300, 300))
        await cluster.permitted(4, 600, 0, 0)
        assert within_ten_percent(await cluster.permitted(4, 600, 0, 0))
        await cluster.permitted(4, 0, 20, 600)
        assert within_ten_percent(await cluster.permitted(4, 0, 20, 600))


async def test_a_tenant_s_connections_are_limited_on_all_nodes_together(redis: RedisProcess) -> None:
    most = 20
    async with nodes(redis, 2, tenant_connections=most) as cluster:
        first, second = cluster.served
        await cluster.permitted(2, 0, 0)
        assert await fill(cluster, first) >= 0.8 * most
        await fill(cluster, second)
        total = connected(first) + connected(second)
        assert 0.9 * most <= total <= most
        resumed = await first.client("user0", resume={"session": cluster.clients[0].welcome["session"]})
        assert resumed.welcome["resumed"] is True
        assert connected(first) + connected(second) == total


async def test_connections_of_a_stopped_node_are_free_for_the_others(redis: RedisProcess) -> None:
    most = 20
    async with nodes(redis, 2, tenant_connections=most) as cluster:
        first, second = cluster.served
        await cluster.permitted(2, 0, 0)
        await fill(cluster, second)
        cluster.served.remove(second)
        await second.greendot.stop()
        del cluster.clients[1]
        await cluster.see_each_other()
        await cluster.permitted(0.5, 0)
        assert await fill(cluster, first) == most


async def test_a_node_that_joins_a_full_tenant_accepts_a_tenth_of_its_part_at_most(redis: RedisProcess) -> None:
    most = 40
    async with one_node(redis, tenant_connections=most) as full:
        assert [await accepted(full, f"guest{number}") for number in range(most + 1)] == [True] * most + [False]
        async with one_node(redis, tenant_connections=most) as joining:
            both = Nodes([full, joining], [])
            await both.see_each_other()
            assert await fill(both, joining) == most // 2 // 10
            assert connected(full) == most


def connected(served: Served) -> int:
    return served.node.connection_limits.counts.get("default", 0)


async def fill(cluster: Nodes, served: Served) -> int:
    """Connect clients until none has been accepted for some time. Return the connections of the node."""
    refused = 0
    while refused < 5:
        refused = 0 if await accepted(served, f"guest{connected(served)}") else refused + 1
        await cluster.permitted(0.5, *[0] * len(cluster.clients))
    return connected(served)


async def accepted(served: Served, user: str) -> bool:
    """Connect a client. Return False if the limit refuses it."""
    client = await served.socket()
    client.send(type="hello", token=served.token(user))
    if (await client.receive())["type"] == "welcome":
        return True
    closed = await client.closed()
    assert (closed.code, closed.reason) == (4003, "this tenant has reached the connection limit; reconnect later")
    return False


async def test_a_stopped_node_gives_its_share_back_and_the_last_node_has_the_whole_limit(redis: RedisProcess) -> None:
    async with nodes(redis, 2) as cluster:
        await cluster.permitted(4, 600, 600)
        stopped, _ = cluster.served.pop(), cluster.clients.pop()
        await stopped.greendot.stop()
        await cluster.see_each_other()
        await cluster.permitted(2, 600)
        assert await cluster.permitted(5, 600) == pytest.approx(LIMIT, rel=0.01)


async def test_one_node_has_the_whole_limit_and_its_burst(redis: RedisProcess) -> None:
    async with nodes(redis, 1) as cluster:
        assert await cluster.permitted(STEP_S, 10_000) == pytest.approx(LIMIT * BURST_S / STEP_S, rel=0.1)
        assert await cluster.permitted(5, 600) == pytest.approx(LIMIT, rel=0.01)
        engine = cluster.served[0].node.engine
        published = engine.counts()["realtime_pubsub_published_total"]
        await cluster.permitted(2, 600)
        assert engine.counts()["realtime_pubsub_published_total"] == published


async def test_without_redis_each_node_has_an_equal_part(redis: RedisProcess) -> None:
    async with nodes(redis, 2) as cluster:
        await cluster.permitted(4, 600, 0)
        redis.stop()
        try:
            cluster.has_bus = False
            await cluster.permitted(6, 600, 600)
            assert within_ten_percent(await cluster.permitted(4, 600, 600))
        finally:
            redis.cont()


async def test_the_refusal_names_the_limit_of_the_tenant(redis: RedisProcess) -> None:
    async with nodes(redis, 2) as cluster:
        await cluster.permitted(2, 600, 600)
        client = cluster.clients[0]
        while True:
            client.send(type="unwatch", users=["nobody"], id="2")
            if (frame := await client.receive())["type"] == "error":
                break
        assert frame["code"] == "rate_limited"
        assert f"this tenant sends more than {LIMIT} commands/s" in frame["message"]
        assert 0 < frame["retry_in_ms"] <= 2_000
