"""Redis without free memory: new data is refused, users can leave, and service resumes when there is room."""

from __future__ import annotations

from pathlib import Path

from cluster.nodes import GRACE_S, LEASE_S, Clients, counted, eventually, now_ms, redis_url, serving
from e2e.processes import greendot
from greendot.testing import WireClient
from redis_servers import RedisProcess


async def test_while_redis_is_full_clients_are_asked_to_come_later_and_may_leave(
    tmp_path: Path, redis: RedisProcess
) -> None:
    users = [f"user{number}" for number in range(10)]
    async with serving(tmp_path, *[redis_url(redis.port)] * 2) as (node, other), Clients() as clients:
        crowd = await clients.crowd(node, [*users, "leaves", "vanishes"])
        (watcher,) = await clients.watchers((other,), *users, "leaves", "vanishes", "late")
        redis.command("CONFIG", "SET", "maxmemory", "1")
        full_ms = now_ms()
        async with await WireClient.connect(node.port) as refused:
            refused.send(type="hello", token=node.token("late"))
            assert (await refused.receive("overloaded"))["data"]["retry_in_ms"] > 0
            assert (await refused.closed()).code == 4003
        refusal = await crowd[users[0]].answer(type="status.set", status="busy")
        assert (refusal["type"], refusal["retry"]) == ("error", True), refusal
        crowd["leaves"].send(type="bye")
        await watcher.sees("leaves", "offline")
        await crowd["vanishes"].end()
        await watcher.sees("vanishes", "offline")
        assert {client.closed for client in crowd.values() if client is not crowd["leaves"]} == {None}

        async def for_long() -> bool:
            nodes = (await node.ask("GET", "/v1/nodes")).json()["nodes"]
            assert {life["state"] for life in nodes} == {"live"}
            return all(life["renewed_at"] > full_ms + (LEASE_S + GRACE_S) * 1000 for life in nodes)

        await eventually(for_long, "leases are renewed")
        redis.command("CONFIG", "SET", "maxmemory", "0")
        await clients.join(node, "late")
        await watcher.sees("late", "online")
        await crowd[users[0]].request(type="status.set", status="busy")
        await watcher.sees(users[0], "busy")
        assert watcher.changes(*users[1:]) == [], "the states of other users changed"
        assert await counted(other, "presence_node_deaths_total") == 0


async def test_a_redis_that_would_evict_is_refused_at_the_start(tmp_path: Path, redis: RedisProcess) -> None:
    redis.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    ended = await greendot(tmp_path, "serve", "--port", "0", "--engine", redis_url(redis.port))
    assert ended.code != 0
    assert "maxmemory-policy allkeys-lru" in ended.err
    assert "Set noeviction (redis-cli CONFIG SET maxmemory-policy noeviction" in ended.err
    assert "Traceback" not in ended.err
