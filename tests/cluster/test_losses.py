"""Data loss of Redis: it ends when each live node has restored its sessions, or at most a lease later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from cluster.engines import GRACE_S, LEASE_S, PERIODS, PREFIX, RENEW_S, TENANT, come, findings, state, until
from cluster.nodes import redis_url
from greendot.engine.messages import Part
from greendot.engine.redis import keys, losses
from greendot.engine.redis.partitions import Partitions
from greendot.engine.redis.primary import Primary
from greendot.errors import EngineUnavailable
from greendot.node.needed_nodes import live_nodes, nodes_of_user
from greendot.testing import hold
from hosts import RedisNode
from redis_servers import RedisProcess

LEASES = keys.leases_key(PREFIX)
ROUNDS = losses.ROUNDS
LONG_S = 60.0  # a lease that does not end on a busy machine


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a loss end with the first read of the nodes that allows it."""
    monkeypatch.setattr(losses, "ROUNDS", 0)


@asynccontextmanager
async def engines_by_hand(redis: RedisProcess, lease_s: float = LEASE_S) -> AsyncIterator[tuple[RedisNode, RedisNode]]:
    """Run two manual engines."""
    periods = PERIODS._replace(lease=lease_s)
    nodes = [RedisNode(redis_url(redis.port), PREFIX, periods=periods) for _ in range(2)]
    try:
        for node in nodes:
            await node.start()
        yield nodes[0], nodes[1]
    finally:
        for node in nodes:
            await node.close()


@asynccontextmanager
async def two(redis: RedisProcess, lease_s: float = LEASE_S) -> AsyncIterator[tuple[RedisNode, RedisNode]]:
    """Run two manual engines with a session each, then delete all data of Redis."""
    async with engines_by_hand(redis, lease_s) as nodes:
        for node, user in zip(nodes, ("ann", "bob"), strict=True):
            await come(node, user)
            await node.tick()
        redis.command("FLUSHALL")
        yield nodes


async def is_stale(node: RedisNode, user: str) -> bool:
    return (await node.engine.read(TENANT, [user]))[0].stale


async def restore(node: RedisNode, user: str) -> asyncio.Task[None]:
    """Restore the node's user and report it. The task ends when all nodes have restored."""
    await node.engine.settled()  # the node is registered again
    await come(node, user)
    task = asyncio.get_running_loop().create_task(node.engine.restored(Part(), node.engine.records_state(Part())))
    await asyncio.sleep(0)
    return task


async def test_a_read_finds_the_loss_and_answers_are_stale_until_all_nodes_have_restored(redis: RedisProcess) -> None:
    async with two(redis) as (first, second):
        assert not first.engine.is_restoring(TENANT, "bob"), "no node can have noticed the loss yet"
        assert await is_stale(first, "bob")
        await first.engine.settled()
        assert findings(first) == [False], "the node must be asked to restore its sessions"
        mine = await restore(first, "ann")
        await first.tick()
        assert not mine.done(), "the second node has not restored bob"
        assert await is_stale(first, "bob")
        await second.tick()
        theirs = await restore(second, "bob")
        await second.tick()  # reports it in its lease
        await first.tick()
        await asyncio.gather(mine, theirs)
        assert not await is_stale(first, "bob")
        assert not await is_stale(second, "ann")
        assert await state(first, "bob") == await state(second, "ann") == "online"


async def test_a_loss_that_a_beat_and_a_read_find_is_recovered_once(redis: RedisProcess) -> None:
    """The beat is answered before the node registers again, and evaluated afterwards."""
    async with two(redis) as (first, _):
        async with hold(first.engine.watchdog, "round", at="after") as beating:
            ticking = asyncio.ensure_future(first.tick())
            await beating.reached()
            assert await is_stale(first, "bob")
            await until(lambda: findings(first), "the read has found the loss")
            beating.release()
            await ticking
        assert findings(first) == [False]


async def test_just_after_a_loss_all_nodes_that_lived_before_must_confirm_changes(redis: RedisProcess) -> None:
    async with two(redis) as (first, second):
        both = {node.engine.lives.incarnation for node in (first, second)}
        assert await live_nodes(first.engine) == both
        assert not first.engine.is_restoring(TENANT, "bob"), "no node can have noticed the loss yet"
        assert await nodes_of_user(first.engine, TENANT, "bob") == both


async def set_time(seconds: float, since_ms: int, *nodes: RedisNode) -> None:
    """Set the clock to this many seconds after `since_ms`, independent of the test's duration."""
    first, *others = nodes
    await first.advance(seconds - (first.engine.time.now() - since_ms) / 1000, *others)


async def test_a_restore_waits_for_other_nodes_no_longer_than_a_lease(redis: RedisProcess) -> None:
    async with two(redis) as (first, second):
        begin_ms = first.engine.time.now()
        await first.tick()
        mine = await restore(first, "ann")
        end_ms = first.engine.time.now()
        await set_time(LEASE_S - 1.0, begin_ms, first, second)
        await first.tick()
        assert not mine.done()
        await set_time(LEASE_S + 0.1, end_ms, first, second)
        await first.tick()
        await mine
        assert not await is_stale(first, "bob")


def report(node: RedisNode, user: str) -> asyncio.Task[None]:
    """Report that the node has restored the partition of this user. The task ends when all nodes have."""
    part = Partitions([keys.partition_of(TENANT, user)], node.engine.servers)
    restored = node.engine.restored(part, node.engine.records_state(part))
    return asyncio.get_running_loop().create_task(restored)


async def test_a_partition_that_all_nodes_have_restored_does_not_wait_for_the_others(redis: RedisProcess) -> None:
    async with two(redis, lease_s=LONG_S) as (first, second):
        for node in (first, second):
            await node.tick()
            await come(node, "ann" if node is first else "bob")
        waits = [report(first, "ann"), report(first, "bob"), report(second, "ann")]
        await asyncio.sleep(0)
        await second.tick()
        await first.tick()
        assert [wait.done() for wait in waits] == [True, False, False]
        assert (await is_stale(first, "ann"), await is_stale(first, "bob")) == (False, True)
        await second.tick()
        assert waits[2].done()
        report(second, "bob")
        await asyncio.sleep(0)
        await second.tick()
        await first.tick()
        await asyncio.gather(*waits)
        assert not await is_stale(first, "bob")


async def test_a_partition_that_was_lost_again_is_not_taken_for_restored(redis: RedisProcess) -> None:
    async with two(redis, lease_s=LONG_S) as (first, second):
        await second.tick()
        report(second, "bob")
        await asyncio.sleep(0)
        await second.tick()
        redis.command("FLUSHALL")
        redis.command("HSET", LEASES, second.incarnation, f"99,0,0,{second.engine.losses.report()}")
        await first.tick()
        wait = report(first, "bob")
        await asyncio.sleep(0)
        await first.tick()
        assert not wait.done(), "the second node has restored the data before the second loss only"
        await second.tick()
        report(second, "bob")
        await asyncio.sleep(0)
        await second.tick()
        await first.tick()
        await wait


async def test_a_node_that_goes_on_restoring_is_waited_for_beyond_a_lease_but_not_for_ever(
    redis: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losses, "LONGEST_S", 4 * LEASE_S)
    async with two(redis) as (first, second):
        await first.tick()
        await second.tick()
        mine = await restore(first, "ann")
        for step in range(4):
            await first.advance(0.8 * LEASE_S, second)
            report(second, f"u{step}")
            await asyncio.sleep(0)
            await second.tick()
            await first.tick()
            assert not mine.done()
        await first.advance(0.9 * LEASE_S, second)
        report(second, "u4")
        await asyncio.sleep(0)
        await second.tick()
        await first.tick()
        await mine


async def test_a_node_that_does_not_report_restored_sessions_gets_a_renewal_and_two_seconds(
    redis: RedisProcess,
) -> None:
    async with two(redis, lease_s=10.0) as (first, second):
        begin_ms = first.engine.time.now()
        await first.tick()
        mine = await restore(first, "ann")
        end_ms = first.engine.time.now()
        await second.tick()
        await set_time(RENEW_S, begin_ms, first, second)
        await second.tick()
        lease = redis.command("HGET", LEASES, second.incarnation).decode()
        silent = ",".join(lease.split(",")[:3])  # as the first version writes it
        redis.command("HSET", LEASES, second.incarnation, silent)
        await first.tick()
        assert not mine.done()
        await set_time(RENEW_S + 1.5, begin_ms, first, second)
        await first.tick()
        assert not mine.done()
        await set_time(RENEW_S + 2.1, end_ms, first, second)
        await first.tick()
        await mine


async def test_a_node_that_is_dead_is_not_waited_for(redis: RedisProcess) -> None:
    async with two(redis) as (first, second):
        await first.tick()
        await second.tick()
        mine = await restore(first, "ann")
        await second.engine.lives.end()
        await first.tick()
        await mine


async def test_a_waiting_restore_fails_when_redis_goes_away(redis: RedisProcess) -> None:
    async with two(redis) as (first, _):
        await first.tick()
        mine = await restore(first, "ann")
        redis.kill()
        with pytest.raises(EngineUnavailable):
            await mine
        assert first.engine.is_restoring(TENANT, "ann")


async def test_a_loss_is_not_forgotten_when_the_connection_that_found_it_fails(
    redis: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two(redis) as (first, _):
        await first.tick()
        await (await restored_by_both(first, _))
        resubscribe, attempts = first.engine.bus.resubscribe, 0

        async def once_lost(server: Primary, partitions: set[int]) -> None:
            nonlocal attempts
            attempts += 1
            if attempts == 1:
                raise EngineUnavailable("the connection was lost")
            await resubscribe(server, partitions)

        monkeypatch.setattr(first.engine.bus, "resubscribe", once_lost)
        told = len(findings(first))
        redis.restart()
        await until(lambda: len(findings(first)) > told, "the node is connected again")
        assert attempts > 1
        assert findings(first)[told:] == [False], "the node must be asked to restore its sessions"


async def restored_by_both(first: RedisNode, second: RedisNode) -> asyncio.Task[None]:
    mine = await restore(first, "ann")
    await second.tick()
    theirs = await restore(second, "bob")
    await second.tick()
    await first.tick()
    await second.tick()
    await theirs
    return mine


async def test_nodes_that_register_later_are_waited_for_after_a_restart(redis: RedisProcess) -> None:
    async with two(redis, lease_s=LONG_S) as (first, second):
        await first.tick()
        await (await restored_by_both(first, second))
        told = len(findings(first))
        async with hold(first.engine.bus, "resubscribe") as connecting, hold(second.engine.lives, "register"):
            redis.restart()
            await connecting.reached()
            await first.engine.tick()  # reads the nodes: the first is registered again, the second is not
            connecting.release()
            await until(lambda: len(findings(first)) > told, "the node is connected again")
            mine = await restore(first, "ann")
            await first.tick()
            assert not mine.done(), "the second node has not restored bob"
            assert await is_stale(first, "bob")
            mine.cancel()


async def test_a_node_that_started_just_before_a_loss_is_waited_for(
    redis: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losses, "ROUNDS", ROUNDS)
    async with engines_by_hand(redis, LONG_S) as (first, second):
        await come(second, "bob")
        assert second.incarnation not in first.engine.live_nodes(), "the first node must not have read the nodes since"
        redis.command("FLUSHALL")
        await first.tick()
        mine = await restore(first, "ann")
        await first.tick()
        assert not mine.done(), "the second node may not have found the loss yet"
        await second.tick()
        await first.advance(ROUNDS * PERIODS.sample, second)
        await first.tick()
        assert not mine.done(), "the second node has not restored bob"
        theirs = await restore(second, "bob")
        await second.tick()
        await first.tick()
        await asyncio.gather(mine, theirs)
        assert await state(first, "bob") == "online"


@asynccontextmanager
async def started(redis: RedisProcess, lease_s: float = LONG_S) -> AsyncIterator[RedisNode]:
    """Start another engine by hand."""
    node = RedisNode(redis_url(redis.port), PREFIX, periods=PERIODS._replace(lease=lease_s))
    try:
        await node.start()
        yield node
    finally:
        await node.close()


async def test_a_node_that_starts_during_a_loss_answers_stale_until_the_others_have_restored(
    redis: RedisProcess,
) -> None:
    async with two(redis, lease_s=LONG_S) as (first, second):
        await first.tick()  # finds the loss
        await first.tick()  # publishes that nothing is restored yet
        async with started(redis) as fresh:
            assert await is_stale(fresh, "ann"), "the first node has not restored ann"
            await fresh.tick()
            assert findings(fresh) == [False], "the node must read again what was read meanwhile"
            waits = [await restore(fresh, "fay"), await restore(first, "ann")]
            for node in (first, second, fresh):
                await node.tick()
            assert await is_stale(fresh, "ann"), "the second node has not restored bob"
            assert not any(wait.done() for wait in waits)
            waits.append(await restore(second, "bob"))
            for node in (second, first, fresh, second):
                await node.tick()
            await asyncio.gather(*waits)
            assert not await is_stale(fresh, "ann")
            assert await state(fresh, "ann") == await state(fresh, "bob") == "online"
            await fresh.tick()
            assert findings(fresh) == [False], "a loss that is over must not be joined again"


async def test_a_node_that_starts_before_the_others_find_the_loss_takes_part_in_it(redis: RedisProcess) -> None:
    async with two(redis, lease_s=LONG_S) as (first, _), started(redis) as fresh:
        await first.tick()  # finds the loss
        await first.tick()  # publishes that nothing is restored yet
        await fresh.tick()
        assert await is_stale(fresh, "ann"), "the first node has not restored ann"
        assert findings(fresh) == [False]


def pretend(redis: RedisProcess, lease: str) -> None:
    """Register a node that does nothing, with this lease."""
    redis.command("HSET", keys.nodes_key(PREFIX, 0), "elder", "live", "~elder", "1")
    redis.command("HSET", LEASES, "elder", lease)


async def test_a_node_that_starts_waits_a_lease_at_most_for_one_that_reports_no_progress(redis: RedisProcess) -> None:
    async with engines_by_hand(redis) as (first, _):
        pretend(redis, f"1,{first.engine.time.now()},0,0123456789ab")  # of other data; the version before has no marks
        async with started(redis, LEASE_S) as fresh:
            assert await is_stale(fresh, "ann"), "the node may have sessions that it has not restored"
            for step in range(3):
                await fresh.advance(LEASE_S / 2, first)
                pretend(redis, f"{step + 2},{fresh.engine.time.now()},0,0123456789ab")  # it lives
                await fresh.tick()
            assert not await is_stale(fresh, "ann")
            assert findings(fresh) == [False]


@pytest.mark.parametrize("report", ["", f",{losses.NOTHING}"], ids=["older", "starting"])
async def test_a_node_that_starts_does_not_wait_for_one_without_a_report(redis: RedisProcess, report: str) -> None:
    async with engines_by_hand(redis) as (first, _):
        pretend(redis, f"1,{first.engine.time.now()},0{report}")
        async with started(redis) as fresh:
            await fresh.tick()
            assert not await is_stale(fresh, "ann")
            assert findings(fresh) == []


async def test_a_loss_is_not_joined_by_a_node_that_finds_it_when_it_is_connected_again(redis: RedisProcess) -> None:
    """Another node reports the loss first. One recovery is enough."""
    async with engines_by_hand(redis, LONG_S) as (first, second):
        await come(first, "ann")
        async with hold(second.engine.lives, "register") as connecting:
            redis.restart()
            await until(lambda: findings(first), "the first node is connected again")
            restored = await restore(first, "ann")
            await first.tick()  # publishes that ann is restored
            await connecting.reached()
            entry = keys.nodes_key(PREFIX, 0), second.incarnation, "live", f"~{second.incarnation}", "1"
            redis.command("HSET", *entry)  # as after a failover to a replica
            await second.engine.tick()
            connecting.release()
            await until(lambda: second.engine.servers.of(0).up, "the second node is connected again")
        await second.tick()
        assert findings(second) == [False]
        restored.cancel()


async def test_a_node_that_is_cut_off_after_its_start_joins_a_loss_when_it_is_connected_again(
    redis: RedisProcess,
) -> None:
    """The node registered after the loss, so it cannot find the loss by itself. Meanwhile a lease has passed."""
    async with two(redis, lease_s=LONG_S) as (first, second), started(redis, LEASE_S) as fresh:
        server = fresh.engine.servers.of(0)
        async with hold(fresh.engine.bus, "resubscribe") as connecting:
            server.fail("cut off by the test")
            await connecting.reached()
            await first.tick()  # finds the loss
            await first.tick()  # publishes that nothing is restored yet
            await fresh.engine.tick()
            await fresh.advance(LEASE_S, first, second)
            connecting.release()
            await until(lambda: server.up, "the node is connected again")
        await fresh.tick()
        assert findings(fresh) == [True, False]
        assert await is_stale(fresh, "ann"), "the first node has not restored ann"
        await fresh.tick()
        assert findings(fresh) == [True, False]


async def test_a_node_that_started_long_ago_finds_losses_by_itself_only(redis: RedisProcess) -> None:
    async with engines_by_hand(redis) as (first, second):
        await first.advance(LEASE_S, second)
        await first.tick()
        pretend(redis, f"1,{first.engine.time.now()},0,0123456789ab")
        await first.tick()
        assert not await is_stale(first, "ann")


async def test_a_renewal_that_was_not_written_is_repeated_with_the_next_read(redis: RedisProcess) -> None:
    async with two(redis) as (first, second):
        lives = first.engine.lives
        await first.advance(RENEW_S, second)
        await lives.refresh()  # Redis has lost the entry of the node, and refuses the renewal
        assert redis.command("HGET", LEASES, first.incarnation) is None
        await lives.register(range(keys.PARTITIONS))
        await lives.refresh()
        assert redis.command("HGET", LEASES, first.incarnation) is not None


async def test_a_node_that_was_seen_dead_is_buried_again_when_a_snapshot_brings_it_back(redis: RedisProcess) -> None:
    nodes = [RedisNode(redis_url(redis.port), PREFIX, periods=PERIODS) for _ in range(2)]
    first, second = nodes
    try:
        await first.start()
        await second.start()
        await come(second, "bob")
        redis.command("SAVE")
        await second.engine.lives.end()
        await first.advance(GRACE_S + 0.1, second)
        await first.tick()
        assert await state(first, "bob") == "offline"
        redis.kill()
        server = first.engine.servers.of(0)
        await until(lambda: not server.up, "the node knows that Redis is away")
        redis.start()
        redis.ready()
        await until(lambda: server.up, "the node is connected again")
        await first.engine.settled()
        assert (await first.engine.lives.table()).lives[second.incarnation] == "live", (
            "the snapshot has the node as live"
        )
        await first.tick()
        assert (await first.engine.lives.table()).lives[second.incarnation] != "live"
        assert await state(first, "bob") == "offline"
    finally:
        for node in nodes:
            await node.close()


async def test_a_record_that_is_lost_before_it_is_settled_is_not_taken_for_an_absence(redis: RedisProcess) -> None:
    node = RedisNode(redis_url(redis.port), PREFIX, periods=PERIODS)
    try:
        await node.start()
        ann = await come(node, "ann")
        await node.engine.linger(TENANT, "ann", ann, 1_000, 0)
        await node.advance(1.1)
        async with hold(node.engine, "_settled") as held:
            reading = asyncio.get_running_loop().create_task(is_stale(node, "ann"))
            await held.reached()
            redis.command("FLUSHALL")
        assert await reading
    finally:
        await node.close()
