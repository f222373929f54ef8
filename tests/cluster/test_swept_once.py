"""A sweep by a job or by hand is not repeated by the engine."""

from __future__ import annotations

from cluster.engines import PREFIX, engines
from cluster.nodes import redis_url
from greendot.engine.redis import keys
from greendot.engine.redis.sweeper import SWEEP_EVERY_MS
from redis_servers import RedisProcess


async def test_the_engine_sweeps_by_itself_only_when_no_other_node_has_swept(redis: RedisProcess) -> None:
    async with engines(*[redis_url(redis.port)] * 2) as (one, two):
        assert await one.engine.sweeper.sweep_if_due() is not None
        assert await two.engine.sweeper.sweep_if_due() is None
        redis.command("DEL", keys.claim_key(PREFIX, "sweep"))
        await one.engine.sweep()
        assert await two.engine.sweeper.sweep_if_due() is None
        left_ms = redis.command("PTTL", keys.claim_key(PREFIX, "sweep"))
        assert left_ms > SWEEP_EVERY_MS + 60_000, "the claim must outlast the interval of the job"
