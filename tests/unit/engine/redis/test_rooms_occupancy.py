"""Occupancy when nodes die: their sessions count until the grace ends, and every other node gets the change once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from greendot.engine.messages import Entered, Topic
from greendot.engine.port import Fenced
from greendot.engine.redis import keys
from greendot.engine.redis.nodes import LeasePeriods
from greendot.presence.model import SessionEpoch
from hosts import RedisNode
from redis_servers import RedisProcess

T, ROOM = "t1", "r1"
KEY = keys.present_key("", T, ROOM)
GRACE_S = 10.0
DAY_MS = 86_400_000


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    with RedisProcess("redis", tmp_path_factory.mktemp("redis")) as process:
        yield process


@asynccontextmanager
async def two(server: RedisProcess) -> AsyncIterator[tuple[RedisNode, RedisNode]]:
    nodes = [RedisNode(f"redis://127.0.0.1:{server.port}", "", periods=LeasePeriods(grace=GRACE_S)) for _ in range(2)]
    for node in nodes:
        await node.start()
    try:
        yield nodes[0], nodes[1]
    finally:
        for node in nodes:
            await node.close()


def session_of(node: RedisNode, name: str) -> SessionEpoch:
    return SessionEpoch(f"{node.incarnation}-{name}", node.incarnation, 1)


async def test_users_of_a_dead_node_stay_in_rooms_until_its_end_and_its_end_is_reported_once(
    server: RedisProcess,
) -> None:
    async with two(server) as (dying, living):
        await dying.engine.enter(T, ROOM, "ann", session_of(dying, "a"))
        await dying.engine.enter(T, ROOM, "bob", session_of(dying, "b"))
        await living.engine.enter(T, ROOM, "bob", session_of(living, "b"))
        await living.engine.lives.bury(dying.incarnation, "")
        await living.tick()
        assert await living.engine.present(T, ROOM) == ["ann", "bob"]
        assert living.host.ends == []
        await living.advance(GRACE_S + 0.1, dying)
        assert await living.engine.present(T, ROOM) == ["bob"]
        for _ in range(3):
            await living.tick()
        assert living.host.ends == [dying.incarnation]


async def test_a_node_that_starts_after_the_death_of_another_receives_its_end(server: RedisProcess) -> None:
    async with two(server) as (dying, living):
        await dying.engine.enter(T, ROOM, "ann", session_of(dying, "a"))
        await dying.close()
        young = RedisNode(f"redis://127.0.0.1:{server.port}", "", periods=LeasePeriods(grace=GRACE_S))
        await young.start()
        try:
            assert await young.engine.present(T, ROOM) == ["ann"]
            await young.advance(GRACE_S + 0.1, living)
            await young.tick()
            assert young.host.ends == [dying.incarnation]
            assert await young.engine.present(T, ROOM) == []
        finally:
            await young.close()


async def test_reading_takes_out_whose_node_is_dead_for_good_and_leaves_whose_node_is_unknown(
    server: RedisProcess,
) -> None:
    async with two(server) as (dying, living):
        await dying.engine.enter(T, ROOM, "ann", session_of(dying, "a"))
        server.command("HSET", KEY, "bob", "gone-b")
        await living.engine.lives.bury(dying.incarnation, "", grace_s=0)
        assert await living.engine.present(T, ROOM) == []
        assert server.command("HGETALL", KEY) == [b"bob", b"gone-b"]
        await living.engine.enter(T, ROOM, "bob", session_of(living, "b"))
        assert server.command("HGETALL", KEY) == [b"bob", session_of(living, "b").session.encode()]


async def test_a_user_who_returns_after_the_grace_of_a_dead_node_enters_again(server: RedisProcess) -> None:
    async with two(server) as (dying, living):
        topic = Topic("room", T, ROOM)
        await dying.engine.enter(T, ROOM, "ann", session_of(dying, "a"))
        await living.engine.subscribe([topic])
        await living.engine.lives.bury(dying.incarnation, "")
        await living.engine.enter(T, ROOM, "ann", session_of(living, "a"))
        await living.engine.exit(T, ROOM, "ann", session_of(living, "a"))
        await living.settle()
        assert living.heard == [], "the session on the dead node still counts"
        await living.advance(GRACE_S + 0.1, dying)
        await living.engine.enter(T, ROOM, "ann", session_of(living, "a"))
        await living.settle()
        assert living.heard == [(topic, Entered("ann"))]


async def test_a_dead_node_cannot_enter_users_and_continues_under_a_new_name(server: RedisProcess) -> None:
    async with two(server) as (dying, living):
        await dying.engine.enter(T, ROOM, "ann", session_of(dying, "a"))
        await living.engine.lives.bury(dying.incarnation, "")
        with pytest.raises(Fenced):
            await dying.engine.enter(T, ROOM, "bob", session_of(dying, "b"))
        await dying.engine.settled()
        name = dying.engine.lives.incarnation
        assert name != dying.incarnation
        await dying.engine.enter(T, ROOM, "ann", session_of(dying, "a")._replace(incarnation=name))
        await living.advance(GRACE_S + 0.1, dying)
        assert await living.engine.present(T, ROOM) == ["ann"]
        await dying.engine.exit(T, ROOM, "ann", session_of(dying, "a")._replace(incarnation=name))
        assert server.command("EXISTS", KEY) == 0


async def test_a_room_without_new_entries_expires_after_a_day(server: RedisProcess) -> None:
    async with two(server) as (node, _):
        await node.engine.enter(T, ROOM, "ann", session_of(node, "a"))
        server.command("PEXPIRE", KEY, 1_000)
        await node.engine.exit(T, ROOM, "ann", session_of(node, "other"))
        assert server.command("PTTL", KEY) <= 1_000
        await node.engine.enter(T, ROOM, "ann", session_of(node, "a"))
        assert DAY_MS - 5_000 < server.command("PTTL", KEY) <= DAY_MS
