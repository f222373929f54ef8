"""Counts of users: each node counts its share, from Redis itself."""

from __future__ import annotations

import pytest

from cluster.engines import PREFIX, engines
from cluster.nodes import redis_url
from greendot.engine.redis import keys, metrics
from greendot.engine.redis.metrics import UserCounts
from redis_servers import RedisProcess

PARTITION = 7
ONE = "o1a||Ann|a|19|k3Fa-1"  # record with one session
TWO = "o1a||Ann|a|19|k3Fa-1;k3Fa-2,phone"


def fill(redis: RedisProcess, users: int) -> None:
    """Create users evenly over the buckets, every second one with two sessions."""
    with redis.connect() as connection:
        # A partition of an older version: it has all buckets.
        connection.call("HSETNX", keys.nodes_key(PREFIX, PARTITION), "~epoch", "older")
        for number in range(users):
            bucket, _ = keys.buckets(PREFIX, PARTITION, number % keys.BUCKETS)
            connection.call("HSET", bucket, f"default/u{number}", TWO if number // keys.BUCKETS % 2 else ONE)


async def test_all_users_are_counted_and_very_many_are_estimated_from_a_sample(
    redis: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(redis, 10 * keys.BUCKETS)
    async with engines(redis_url(redis.port)) as (one,):
        count, name = one.engine.census, one.engine.lives.incarnation
        assert await count.visit(PARTITION, name, [name])
        assert count._counted[PARTITION] == UserCounts(1280, 1920)
        monkeypatch.setattr(metrics, "MOST", 50)  # five buckets of ten users
        assert await count.visit(PARTITION, name, [name])
        assert count._counted[PARTITION] == UserCounts(1280, 1920)  # all buckets are equal here


async def test_what_is_another_s_is_counted_once_and_then_left_to_it_and_a_stranger_is_not_known(
    redis: RedisProcess,
) -> None:
    fill(redis, keys.BUCKETS)
    async with engines(redis_url(redis.port)) as (one,):
        count, name = one.engine.census, one.engine.lives.incarnation
        count._counted.clear()
        mine = [name, *sorted(f"{name}{letter}" for letter in "ab")]  # three nodes, of which this one is the first
        assert PARTITION % 3 != 0
        assert await count.visit(PARTITION, name, mine)
        assert count._counted[PARTITION] == UserCounts(128, 128)
        fill(redis, 3 * keys.BUCKETS)
        assert await count.visit(PARTITION, name, mine)
        assert count._counted[PARTITION] == UserCounts(128, 128)
        assert await count.visit(PARTITION, name, [name])  # the other nodes have stopped
        assert count._counted[PARTITION] == UserCounts(384, 512)
        assert not await count.visit(PARTITION, "nobody", [name])
