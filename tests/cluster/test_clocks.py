"""Wrong and jumping clocks of Redis and of nodes: nothing ends early or late, and no node counts as dead."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster.engines import GRACE_S, LEASE_S, PERIODS, PREFIX, TENANT, come, engines, findings, state, until
from cluster.nodes import Clients, Listener, eventually, now_ms, redis_url, serving
from cluster.working import assert_versions_rise
from e2e.processes import SECRET, Process
from greendot.auth.tokens import Tokens
from greendot.engine.messages import Topic
from greendot.engine.redis import keys
from greendot.engine.redis.nodes import LeasePeriods
from greendot.errors import EngineUnavailable
from greendot.presence.model import Change
from hosts import RedisNode
from redis_servers import RedisProcess, redis_cluster
from redis_servers import clock as shim

HOUR_MS = 3_600_000
EARLY_S = 1.0  # tolerance; jumps are an hour
LATE_S = 8.0  # on a busy machine
LINGER_S = 3.0

Jump = Callable[[RedisProcess], None]


def ahead(redis: RedisProcess) -> None:
    redis.jump(HOUR_MS)


def back(redis: RedisProcess) -> None:
    redis.jump(-HOUR_MS)


every_jump = pytest.mark.parametrize("jump", [ahead, back])


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisProcess]:
    """Run a Redis whose clock can be moved."""
    with RedisProcess("redis", tmp_path / "redis", clock_file=tmp_path / "clock") as process:
        yield process


def long_there(*nodes: RedisNode) -> None:
    """Mark the nodes as long started.

    A node that has just started takes the time of other nodes and accepts it if they do not correct it within 1.5 s. On
    a machine that hangs for that long, such a node would accept a jump as the time.
    """
    for node in nodes:
        node.engine.time._young_until = float("-inf")


async def ends(node: RedisNode, user: str, begin: float) -> float:
    """Poll until the user is offline and return the seconds since `begin`."""
    while await state(node, user) != "offline":
        assert time.monotonic() - begin < 15.0, f"{user} is still not offline"
        await asyncio.sleep(0.02)
    return time.monotonic() - begin


def assert_in_time(took_s: float, lasts_s: float) -> None:
    assert lasts_s - EARLY_S < took_s < lasts_s + LATE_S


def assert_nobody_died(*nodes: RedisNode) -> None:
    for node in nodes:
        assert not [what for what, _ in node.host.told if what != "found"], node.host.told
        assert node.engine.lives.deaths == 0
        assert False not in findings(node)


def assert_versions_rose(node: RedisNode, *users: str) -> None:
    for user in users:
        versions = [change.visible.version for change in changes(node, user) if change.public]
        assert versions == sorted(set(versions))
        assert versions[-1] < now_ms() + 60_000


async def beats(node: RedisNode, seconds: float) -> None:
    """Wait until the node's heartbeat has run for this many seconds."""
    (server, *_) = node.engine.servers.all.values()
    ticks = round(seconds / 0.5)
    heard = server.beat_heard
    await until(lambda: server.beat_heard >= heard + ticks, "the node keeps sending beats")


@pytest.mark.parametrize("jumps", [[back], [ahead, ahead, back]])
async def test_a_linger_ends_in_time_when_the_clock_of_redis_jumps(redis: RedisProcess, jumps: list[Jump]) -> None:
    async with engines(*[redis_url(redis.port)] * 2) as (first, second):
        long_there(first, second)
        await second.engine.subscribe([Topic("watch", TENANT, "ann"), Topic("watch", TENANT, "bob")])
        ann, bob = await come(first, "ann"), await come(first, "bob")
        begin = time.monotonic()
        assert await first.engine.linger(TENANT, "ann", ann, round(LINGER_S * 1000), 0)
        for jump in jumps:
            jump(redis)
            assert await state(second, "ann") == "online"
            assert await first.engine.touch(TENANT, "bob", bob, "default", True, None)
            await beats(first, 0.5)
            await beats(second, 0.5)
        left_ms = await first.engine.leave(TENANT, "ann", ann)
        assert left_ms is not None
        assert_in_time(left_ms / 1000 + time.monotonic() - begin, LINGER_S)
        # A grace that begins after the jump lasts as long.
        await first.engine.linger(TENANT, "bob", bob, round(LINGER_S * 1000), 0)
        later = time.monotonic()
        assert_in_time(await ends(second, "ann", begin), LINGER_S)
        assert_in_time(await ends(second, "bob", later), LINGER_S)
        assert_nobody_died(first, second)
        assert_versions_rose(second, "ann", "bob")


@every_jump
async def test_one_node_alone_keeps_the_time_too(redis: RedisProcess, jump: Jump) -> None:
    async with engines(redis_url(redis.port)) as (node,):
        ann = await come(node, "ann")
        begin = time.monotonic()
        await node.engine.linger(TENANT, "ann", ann, round(LINGER_S * 1000), 0)
        jump(redis)
        await beats(node, 1.0)
        jump(redis)  # a second jump before the first is forgotten
        assert_in_time(await ends(node, "ann", begin), LINGER_S)
        assert_nobody_died(node)


@pytest.mark.parametrize(("while_thought_alive", "in_its_grace"), [(ahead, back), (back, ahead)])
async def test_the_grace_of_a_dead_node_is_as_long_when_the_clock_jumps(
    redis: RedisProcess, while_thought_alive: Jump, in_its_grace: Jump
) -> None:
    async with engines(*[redis_url(redis.port)] * 2) as (first, second):
        long_there(first, second)
        await first.engine.subscribe([Topic("watch", TENANT, "ann")])
        dying = RedisNode(redis_url(redis.port), PREFIX, periods=PERIODS)
        await dying.start()
        began = time.monotonic()
        await come(dying, "ann")
        await dying.engine.servers.close()  # without a message
        died = time.monotonic()
        while_thought_alive(redis)
        home = keys.nodes_key(PREFIX, 0)
        await until(lambda: redis.command("HGET", home, dying.incarnation) != b"live", "the node counts as dead")
        in_its_grace(redis)
        assert await state(first, "ann") == "online"
        await until(lambda: any(not c.devices for c in changes(first, "ann")), "the node's user is offline")
        assert_in_time(time.monotonic() - began, LEASE_S + GRACE_S)
        (change,) = [c for c in changes(first, "ann") if not c.devices]
        assert change.visible.state == "offline"
        assert change.visible.last_seen is not None
        assert abs(change.visible.last_seen - now_ms() + (time.monotonic() - died) * 1000) < 2_000, (
            "last_seen must be the time of the node's death"
        )
        assert not any(what == "reborn" for what, _ in first.host.told + second.host.told)
        assert_versions_rose(first, "ann")


@every_jump
async def test_a_node_that_leaves_right_after_a_jump_leaves_its_users_the_grace(
    redis: RedisProcess, jump: Jump
) -> None:
    async with engines(redis_url(redis.port)) as (first,):
        leaving = RedisNode(redis_url(redis.port), PREFIX, periods=PERIODS)
        await leaving.start()
        await come(leaving, "ann")
        jump(redis)
        await leaving.close()  # before any node has noticed the jump
        begin = time.monotonic()
        assert_in_time(await ends(first, "ann", begin), GRACE_S)
        home, entry = keys.nodes_key(PREFIX, 0), leaving.incarnation
        renewed, over = (int(part, 16) for part in redis.command("HGET", home, entry).decode().split(","))
        assert 0 < over - renewed <= GRACE_S * 1000 + 10
        assert_nobody_died(first)


@every_jump
async def test_a_node_that_starts_when_the_clock_has_jumped_takes_the_time_from_those_who_are_there(
    redis: RedisProcess, jump: Jump
) -> None:
    there = RedisNode(redis_url(redis.port), PREFIX)  # works only when ticked
    await there.start()
    ann, begin, lasts_s = await come(there, "ann"), time.monotonic(), 9.0
    try:
        await there.engine.linger(TENANT, "ann", ann, round(lasts_s * 1000), 0)
        jump(redis)
        coming = RedisNode(redis_url(redis.port), PREFIX, driven=True)
        starting = asyncio.create_task(coming.start())
        try:
            await until(lambda: coming.engine.time.known, "the new node has a (wrong) time")
            await there.tick()  # corrects the time before the other node has started, or just after
            await starting
            right = there.engine.time.now
            await until(
                lambda: abs(coming.engine.time.now() - right()) < 1_000, "the new node has the corrected time", 4.0
            )
            assert_in_time(await ends(coming, "ann", begin), lasts_s)
            await there.tick()
            assert_nobody_died(there, coming)
        finally:
            await asyncio.gather(starting, return_exceptions=True)
            await coming.close()
    finally:
        await there.close()


@every_jump
async def test_a_verb_is_repeated_until_a_repair_of_the_time_lasts(
    redis: RedisProcess, jump: Jump, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another node that repairs the same jump can replace the correction of this node."""
    node = RedisNode(redis_url(redis.port), PREFIX)
    await node.start()
    try:
        ann = await come(node, "ann")
        repair, replaced = node.engine.watchdog.mend, iter([True, True])

        async def repair_at_the_third_time(partition: int) -> None:
            if not next(replaced, False):
                await repair(partition)

        monkeypatch.setattr(node.engine.watchdog, "mend", repair_at_the_third_time)
        jump(redis)
        assert await node.engine.touch(TENANT, "ann", ann, "default", True, None)
        assert next(replaced, None) is None
    finally:
        await node.close()


@every_jump
async def test_a_reap_cut_short_by_a_jump_is_not_put_off_by_it(redis: RedisProcess, jump: Jump) -> None:
    dead, alive = (
        RedisNode(redis_url(redis.port), PREFIX, periods=LeasePeriods(3.0, 1.0, grace=0.0)) for _ in range(2)
    )
    await alive.start()
    try:
        await dead.start()
        await come(dead, "ann")
        await dead.close()
        table = await alive.engine.lives.table()
        ((_, over),) = table.dead()
        await until(lambda: alive.engine.time.now() > over, "the grace is over")
        jump(redis)
        with pytest.raises(EngineUnavailable, match="CLOCK"):
            await alive.engine.sweeper.reap(table)
        await alive.tick()
        assert await alive.engine.sweeper.reap(table) is not None
        assert await state(alive, "ann") == "offline"
    finally:
        await alive.close()


def changes(node: RedisNode, user: str) -> list[Change]:
    return [message for topic, message in node.heard if isinstance(message, Change) and topic.name == user]


@every_jump
async def test_typing_is_held_and_throttled_as_long_when_the_clock_jumps(redis: RedisProcess, jump: Jump) -> None:
    room = Topic("room", TENANT, "lobby")
    times = {"typing_ttl_ms": 3_000, "typing_throttle_ms": 1_500}
    async with engines(*[redis_url(redis.port)] * 2, **times) as (first, second):
        long_there(first, second)
        await second.engine.subscribe([room])
        begin = time.monotonic()
        first.engine.typing_start(TENANT, "lobby", "ann", "Ann")
        await until(lambda: second.heard, "the start is received")
        jump(redis)
        begun = len(second.heard)

        def heard() -> bool:  # a start may be lost until the next beat detects the jump
            first.engine.typing_start(TENANT, "lobby", "bob", "Bob")
            return len(second.heard) > begun

        await until(heard, "typing works after the jump", 2.0)
        assert "bob" in [typist.user for typist in await second.engine.typers(TENANT, "lobby")]
        # Keys with an expiry use Redis's clock: after a jump ahead one typist may disappear early.

        async def gone() -> bool:
            return "ann" not in [typist.user for typist in await second.engine.typers(TENANT, "lobby")]

        await eventually(gone, "typing ends")
        if jump is back:
            assert_in_time(time.monotonic() - begin, 3.0)
        assert_nobody_died(first, second)


async def test_when_nothing_happens_a_jump_of_the_clock_changes_nothing(redis: RedisProcess) -> None:
    async with engines(*[redis_url(redis.port)] * 3) as nodes:
        long_there(*nodes)
        users = {f"user{number}": node for number, node in enumerate(nodes)}
        for user, node in users.items():
            await come(node, user)
        before = await nodes[0].engine.read(TENANT, [*users])
        for jump in (ahead, back):
            jump(redis)
            await asyncio.gather(*(beats(node, LEASE_S + 0.5) for node in nodes))
        assert_nobody_died(*nodes)
        assert await nodes[1].engine.read(TENANT, [*users]) == before
        assert {info.state for info in await nodes[2].engine.nodes()} == {"live"}
        corrections = {redis.command("HGET", keys.nodes_key(PREFIX, p), "~clock") for p in range(keys.PARTITIONS)}
        assert len(corrections) == 1, "all partitions of one server must have the same correction"


async def test_all_clocks_of_a_cluster_jump(tmp_path: Path) -> None:
    with redis_cluster("redis", tmp_path, clock_file=tmp_path / "clock") as cluster:
        async with engines(cluster.url, cluster.url) as (first, second):
            long_there(first, second)
            users = [f"user{number}" for number in range(12)]
            refs = {user: await come(first, user) for user in users}
            begin = time.monotonic()
            for user in users:
                await first.engine.linger(TENANT, user, refs[user], round(LINGER_S * 1000), 0)
            for jump in (ahead, back):
                jump(cluster.processes[0])  # all processes share a clock
                for user in users:
                    assert await state(second, user) == "online"
                await beats(first, 0.5)
            took = [await ends(second, user, begin) for user in users]
            assert_in_time(min(took), LINGER_S)
            assert_in_time(max(took), LINGER_S)
            assert_nobody_died(first, second)


# --- clocks of nodes ---


def token(user: str) -> str:
    """Return a token that is valid on a node whose clock is an hour off."""
    return Tokens(SECRET).make(user, now_ms() - 2 * HOUR_MS, 86_400, name=user.capitalize())


class Skewed(Clients):
    async def come(self, node: Process, user: str) -> Listener:
        from greendot.testing import WireClient

        client = await WireClient.connect(node.port)
        listener = await self.enter_async_context(Listener(client))
        listener.send(type="hello", token=token(user))
        await listener.hears("welcome")
        return listener


@pytest.mark.parametrize("off_ms", [HOUR_MS, -HOUR_MS])
async def test_a_node_whose_clock_is_an_hour_off_or_jumps_shows_nothing_early_or_late(
    tmp_path: Path, redis: RedisProcess, off_ms: int
) -> None:
    file = tmp_path / "node-clock"
    environment = shim.environment(file, shim.compiler() or "")
    shim.jump(file, off_ms)
    begin_ms = now_ms()
    async with serving(tmp_path, *[redis_url(redis.port)] * 2, **environment) as nodes, Skewed() as clients:
        redis.command("CONFIG", "RESETSTAT")
        watchers = [await clients.come(node, f"watcher{number}") for number, node in enumerate(nodes)]
        people = [await clients.come(nodes[0], user) for user in ("ann", "bob", "cid")]
        for watcher in watchers:
            seen = await watcher.watch("ann", "bob", "cid")
            assert [seen[user]["state"] for user in ("ann", "bob", "cid")] == ["online"] * 3
        for number, jumped_ms in enumerate((0, -off_ms, off_ms)):
            shim.jump(file, jumped_ms)
            begin = time.monotonic()
            until_ms = now_ms() + 1_200
            await people[0].request(type="status.set", status="busy", until=until_ms, text=f"round {number}")
            for watcher in watchers:
                await until(
                    lambda w=watcher, n=number: w.states("ann") == ["busy", "online"] * (n + 1),
                    "the status busy has ended",
                )
            assert_in_time(time.monotonic() - begin, 1.2)
        begin = time.monotonic()
        await people[1].end()  # lingers for the grace of a lost connection
        shim.jump(file, off_ms)
        for watcher in watchers:
            await watcher.sees("bob", "offline")
        assert_in_time(time.monotonic() - begin, GRACE_S)
        for watcher in watchers:
            assert watcher.states("cid") == []
            assert_versions_rise(watcher)
            for told in watcher.changes():
                assert begin_ms - 1_000 <= told.data["since"] <= now_ms() + 1_000, (
                    "`since` must be the engine's time, not the node's"
                )
        calls = sum(
            int(row.split(",")[0].split("=")[1]) for n, row in redis.info("commandstats").items() if "evalsha" in n
        )
        assert calls < 400, "too many commands to Redis"
