"""Partitions with few users have few buckets and grow with their users, while all nodes go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from cluster.engines import PERIODS, PREFIX, TENANT
from cluster.nodes import redis_url
from greendot.engine import results
from greendot.engine.messages import Deliver, Topic
from greendot.engine.redis import keys
from greendot.engine.redis.nodes import HOME
from greendot.engine.results import Known
from greendot.presence.model import Change, ManualStatus, SessionEpoch
from greendot.testing import hold
from hosts import RedisNode
from redis_servers import RedisProcess

PARTITION = 7
USERS = [user for user in (f"u{number}" for number in range(60_000)) if keys.partition_of(TENANT, user) == PARTITION]


@asynccontextmanager
async def nodes(redis: RedisProcess, count: int) -> AsyncIterator[list[RedisNode]]:
    """Run engines whose periodic work the test drives."""
    async with AsyncExitStack() as stack:
        made = []
        for _ in range(count):
            node = RedisNode(redis_url(redis.port), PREFIX, periods=PERIODS)
            await node.start()
            stack.push_async_callback(node.close)
            made.append(node)
        yield made


def ref(node: RedisNode, user: str) -> SessionEpoch:
    return SessionEpoch(f"{node.incarnation}-{user}", node.incarnation, 1)


async def come(node: RedisNode, users: Sequence[str]) -> None:
    known = Known("default", False, None, 0, ManualStatus())
    await asyncio.gather(*(node.engine.restore(TENANT, user, ref(node, user), known) for user in users))


async def settled(*all_nodes: RedisNode) -> None:
    for node in all_nodes:
        await node.engine.settled()


def count_of(node: RedisNode) -> int:
    return node.engine.servers.bucket_counts[PARTITION]


def sizes(redis: RedisProcess, kind: str = "presence") -> list[int]:
    """Return the number of users in each bucket of the partition."""
    tag = keys.TAGS[PARTITION]
    return [redis.command("HLEN", name) for name in redis.command("KEYS", f"{PREFIX}{kind}:{{{tag}}}:*")]


async def grow(node: RedisNode, steps: int = 1) -> None:
    for _ in range(steps):
        await node.engine.growth.grow(PARTITION)


async def states(node: RedisNode, users: Sequence[str]) -> set[str]:
    return {snapshot.visible.state for snapshot in await node.engine.read(TENANT, users)}


async def test_a_partition_begins_with_one_bucket_and_gets_more_with_its_users(redis: RedisProcess) -> None:
    users = USERS[:400]
    async with nodes(redis, 2) as (one, two):
        assert {*one.engine.servers.bucket_counts} == {1}
        for at in range(0, len(users), 20):
            node = (one, two)[at // 20 % 2]
            await come(node, users[at : at + 20])
            await settled(one, two)
        assert 8 < count_of(one) < 40
        assert sum(sizes(redis)) == len(users)
        assert max(sizes(redis)) <= 100
        for node in (one, two):
            assert await states(node, users) == {"online"}
            assert (await node.engine.online(TENANT, None, 1_000)).users == sorted(users)
        for at in range(0, len(users), 20):  # last-seen entries make a partition grow, too
            node = (one, two)[at // 20 % 2]
            work = (node.engine.linger(TENANT, user, ref(node, user), 0, 0) for user in users[at : at + 20])
            assert [*await asyncio.gather(*work)] == [0] * 20
        assert (sum(sizes(redis)), sum(sizes(redis, "seen"))) == (0, len(users))
        assert await states(two, users) == {"offline"}


async def test_users_who_are_offline_make_a_partition_grow(redis: RedisProcess) -> None:
    async with nodes(redis, 1) as (one,):
        for user in USERS[:300]:
            await come(one, [user])
            await one.engine.linger(TENANT, user, ref(one, user), 0, 0)
        await settled(one)
        assert count_of(one) > 4
        assert max(sizes(redis, "seen")) <= 100


async def test_a_node_that_does_not_know_of_the_growth_misses_nothing(redis: RedisProcess) -> None:
    users = USERS[:40]
    async with nodes(redis, 2) as (one, two):
        await come(one, users)
        await settled(one)
        since = count_of(one)

        async def behind(after: int) -> None:
            """Let the partition grow once more, and the second node know only of `after` buckets."""
            await grow(one)
            two.engine.servers.bucket_counts[PARTITION] = after

        await behind(since)
        assert await states(two, users) == {"online"}
        await behind(since)
        assert [len(await two.engine.sessions(TENANT, user)) for user in users] == [1] * len(users)
        await behind(since)
        await come(two, users)
        await behind(since)
        assert {(await two.engine.set_status(TENANT, user, ManualStatus(rev=1))).visible.state for user in users} == {
            "online"
        }
        await behind(since)
        for user in users:
            two.engine.publish(Topic("user", TENANT, user), Deliver(b"x"))
            two.engine.servers.bucket_counts[PARTITION] = since
        await two.settle()
        await one.settle()
        assert {topic.name for topic, message in one.heard if isinstance(message, Deliver)} == {*users}
        await behind(since)
        for node in (one, two):
            for user in users:
                assert await node.engine.linger(TENANT, user, ref(node, user), 0, 0) == 0
                two.engine.servers.bucket_counts[PARTITION] = since
        await behind(since)
        for user in users[:20]:
            await two.engine.forget(TENANT, user)
            two.engine.servers.bucket_counts[PARTITION] = since
        assert sum(sizes(redis, "seen")) == 20


async def test_each_change_is_published_once_while_the_partition_grows(redis: RedisProcess) -> None:
    users = USERS[:200]
    async with nodes(redis, 3) as (one, two, watcher):
        await watcher.engine.subscribe([Topic("watch", TENANT, user) for user in users])

        async def growing() -> None:
            for _ in range(30):
                await grow(watcher)

        await asyncio.gather(growing(), *(come((one, two)[index % 2], [user]) for index, user in enumerate(users)))
        await settled(one, two, watcher)
        await asyncio.gather(
            *(grow(watcher, 3) for _ in range(5)),
            *(
                node.engine.linger(TENANT, user, ref(node, user), 0, 0)
                for index, user in enumerate(users)
                for node in [(one, two)[index % 2]]
            ),
        )
        await watcher.settle()
        told = [(topic.name, message.visible.state) for topic, message in watcher.heard if isinstance(message, Change)]
        assert sorted(told) == sorted((user, state) for user in users for state in ("online", "offline"))


async def test_pages_list_everybody_once_although_partitions_grow_between_them(
    redis: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "ORDERED", 10)
    users = USERS[:120]
    async with nodes(redis, 2) as (one, two):
        await come(one, users)
        await settled(one)
        found: list[str] = []
        after: str | None = None
        while True:
            page = await two.engine.online(TENANT, after, 7)
            found += page.users
            assert page.total == len(users)
            if (after := page.next) is None:
                break
            await grow(one)
        assert sorted(found) == sorted(users)
        assert count_of(one) > 12


@pytest.mark.parametrize("visited", [1, 2, 3])
async def test_a_pass_over_all_buckets_misses_nobody_who_moves_meanwhile(redis: RedisProcess, visited: int) -> None:
    users = USERS[:150]
    async with nodes(redis, 2) as (one, two):
        await come(two, users)
        await settled(two)
        await grow(two, max(0, 4 - count_of(two)))
        await one.engine.lives.register([PARTITION])
        await one.engine.lives.bury(two.incarnation, "", grace_s=0)
        await one.advance(1, two)
        calls = 0

        def later(partition: int, name: str, *_: Any) -> bool:
            nonlocal calls
            calls += name == "reap" and partition == PARTITION
            return name == "reap" and partition == PARTITION and calls > visited

        async with hold(one.engine.servers, "run", when=later) as held:
            reaping = asyncio.create_task(one.engine.sweeper.reap(await one.engine.lives.table()))
            await held.reached()
            await grow(two, 3)
        swept = await reaping
        assert swept is not None
        assert (swept.sessions, swept.users) == (len(users), len(users))
        assert (sum(sizes(redis)), sum(sizes(redis, "seen"))) == (0, len(users))


async def test_an_audit_ends_each_session_once_although_users_move_meanwhile(redis: RedisProcess) -> None:
    users = USERS[:100]
    async with nodes(redis, 2) as (one, two):
        await come(one, users)
        await settled(one)
        await grow(one, 20 - count_of(one))  # two scripts list the sessions, and only the first before the growth
        second = keys.buckets(PREFIX, PARTITION, keys.bucket_names(20)[-1])[0]
        async with hold(one.engine.servers, "run", when=lambda _, name, names, *__: second in names) as held:
            auditing = asyncio.create_task(one.engine.audit(lambda session: False))
            await held.reached()
            await two.engine.lives.register([PARTITION])
            await grow(two, 3)
        assert await auditing == len(users)
        assert sum(sizes(redis)) == 0


async def test_after_a_loss_a_partition_begins_again_with_one_bucket(redis: RedisProcess) -> None:
    users = USERS[:100]
    async with nodes(redis, 2) as (one, two):
        await come(one, users)
        await settled(one)
        await grow(one, 3)
        redis.command("FLUSHALL")
        await come(one, users)
        await come(two, users)
        await settled(one, two)
        assert sum(sizes(redis)) == len(users)
        for node in (one, two):
            assert await states(node, users) == {"online"}
        assert [len(await two.engine.sessions(TENANT, user)) for user in users] == [2] * len(users)


def older_node(redis: RedisProcess, name: str = "old1") -> None:
    """Register a node of an older version, which does not mark itself."""
    for partition in range(keys.PARTITIONS):
        redis.command("HSET", keys.nodes_key(PREFIX, partition), name, "live")
    redis.command("HSET", keys.leases_key(PREFIX), name, f"1,{2**42},0,")


async def test_where_an_older_node_joins_everybody_moves_to_the_buckets_it_knows(redis: RedisProcess) -> None:
    users = USERS[:100]
    async with nodes(redis, 2) as (one, two):
        await come(one, users)
        await settled(one)
        older_node(redis)
        # The older node has already written a session of one of the users.
        (where,) = [keys.user_keys(PREFIX, TENANT, users[-1])]
        redis.command("HSET", where.buckets(128)[0], where.field, "o5||Ann|a||old1-s1")
        epoch = redis.command("HGET", keys.nodes_key(PREFIX, HOME), "~epoch")
        for node in (one, two):
            await node.tick()
        for partition in range(keys.PARTITIONS):
            assert redis.command("HEXISTS", keys.nodes_key(PREFIX, partition), "~buckets") == 0
        assert redis.command("HGET", keys.nodes_key(PREFIX, HOME), "~epoch") != epoch
        assert await states(one, users) == await states(two, users) == {"online"}
        for node in (one, two):
            await node.tick()
            assert ("found", False) in node.host.told, "sessions are restored as after a loss"
        again = redis.command("HGET", keys.nodes_key(PREFIX, HOME), "~epoch")
        await come(one, users)
        nodes_then = {session.node for session in await two.engine.sessions(TENANT, users[-1])}
        assert nodes_then == {"old1", one.incarnation}
        for node in (one, two):
            await node.tick()
        assert redis.command("HGET", keys.nodes_key(PREFIX, HOME), "~epoch") == again
        where_all = [keys.user_keys(PREFIX, TENANT, user) for user in users]
        assert all(redis.command("HGET", w.buckets(128)[0], w.field) for w in where_all)


async def test_with_an_older_node_alive_a_lost_partition_begins_with_all_buckets(redis: RedisProcess) -> None:
    async with nodes(redis, 1) as (one,):
        older_node(redis)
        await one.tick()
        redis.command("FLUSHALL")
        await come(one, USERS[:50])
        assert {*one.engine.servers.bucket_counts} == {keys.BUCKETS}
        assert len(sizes(redis)) > 20
