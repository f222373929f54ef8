"""Time until a silent node counts as dead, in the engine's time, so that the machine's speed does not matter."""

from __future__ import annotations

from cluster.engines import GRACE_S, LEASE_S, PERIODS, PREFIX, RENEW_S, come, state
from cluster.nodes import redis_url
from hosts import RedisNode
from redis_servers import RedisProcess

STEP_S = 0.25


async def test_users_of_a_silent_node_are_online_for_its_lease_and_grace_and_offline_when_these_are_over(
    redis: RedisProcess,
) -> None:
    """Real time passes during the steps, so each event is located between two readings of the engine's clock."""
    living, silent = (RedisNode(redis_url(redis.port), PREFIX, periods=PERIODS) for _ in range(2))
    try:
        for node in (living, silent):
            await node.start()
        now = living.engine.time.now
        await come(silent, "bob")
        await living.tick()
        refreshing_ms = now()
        await silent.tick()
        renewed_ms = now()

        async def is_dead() -> bool:
            await living.tick()
            return (await living.engine.lives.table()).lives[silent.incarnation] != "live"

        # Time of the last check that found the node alive, and of the first that found it dead.
        alive_ms = dead_ms = renewed_ms
        while not await is_dead():
            alive_ms = dead_ms
            await living.advance(STEP_S, silent)
            dead_ms = now()
            assert await state(living, "bob") == "online"
        found_ms = now()
        assert found_ms >= refreshing_ms + LEASE_S * 1000, "the node died before the end of its lease"
        assert alive_ms <= renewed_ms + (LEASE_S + RENEW_S) * 1000

        online_ms = found_ms
        while (looking_ms := now()) and await state(living, "bob") == "online":
            online_ms = looking_ms
            await living.advance(STEP_S, silent)
            await living.tick()
        assert now() >= alive_ms + GRACE_S * 1000, "the user went offline before the end of the grace"
        assert online_ms <= found_ms + GRACE_S * 1000
    finally:
        for node in (living, silent):
            await node.close()
