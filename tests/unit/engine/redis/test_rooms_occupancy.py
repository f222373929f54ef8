"""Occupancy when nodes die: their sessions count until the grace ends, and every other node gets the change once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from greendot.engine.messages import Entered, Topic
from greendot.engine.port import Fenced
from greendot.engine.redis import keys
from greendot.engine.redis.nodes import LeasePeriods
from greendot.engine.results import OccupantPage
from greendot.presence.model import SessionEpoch
from greendot.testing import hold
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


# --- the index of a room's users ---

INDEX = keys.present_index_key("", T, ROOM)


async def enter_many(node: RedisNode, count: int, name: str) -> list[str]:
    users = [f"{name}{number:04}" for number in range(count)]
    await asyncio.gather(*(node.engine.enter(T, ROOM, user, session_of(node, user)) for user in users))
    return users


def make_old(server: RedisProcess, node: RedisNode) -> None:
    """Make a node look like one of version 0.1.0-rc.1, which does not write the index."""
    for partition in range(keys.PARTITIONS):
        server.command("HDEL", keys.nodes_key("", partition), f"~{node.incarnation}")


def make_new(server: RedisProcess, node: RedisNode) -> None:
    for partition in range(keys.PARTITIONS):
        server.command("HSET", keys.nodes_key("", partition), f"~{node.incarnation}", 1)


def enter_as_old(server: RedisProcess, node: RedisNode, user: str) -> None:
    server.command("HSET", KEY, user, session_of(node, user).session)


async def test_the_users_of_a_dead_node_leave_a_large_room_after_its_grace(server: RedisProcess) -> None:
    async with two(server) as (dying, living):
        gone, stay = await enter_many(dying, 1_500, "d"), await enter_many(living, 1_500, "l")
        both = "d0007"
        await living.engine.enter(T, ROOM, both, session_of(living, both))
        await living.engine.lives.bury(dying.incarnation, "")
        assert (await living.engine.present_page(T, ROOM, None, 0)).total == 3_000
        await living.advance(GRACE_S + 0.1, dying)
        assert await living.engine.present_page(T, ROOM, None, 1, gone[0]) == OccupantPage([both], 1_501)
        assert await living.engine.present(T, ROOM) == [both, *stay]
        assert await living.engine.room_nodes(T, ROOM) == {living.incarnation}
        assert server.command("HLEN", KEY) == 1_501
        assert server.command("ZCARD", INDEX) == 1_502  # and the mark of the living node


async def test_one_node_removes_the_users_of_a_dead_node_and_the_others_wait(server: RedisProcess) -> None:
    async with two(server) as (dying, living):
        await enter_many(dying, 1_500, "d")
        users = await enter_many(living, 1_500, "l")
        await living.engine.present_page(T, ROOM, None, 0)
        await living.engine.lives.bury(dying.incarnation, "", grace_s=0)
        reader = RedisNode(f"redis://127.0.0.1:{server.port}", "")
        await reader.start()
        try:
            async with hold(living.engine._verbs, "on_room", when=lambda name, *_: name == "prune") as held:
                first = asyncio.ensure_future(living.engine.present_page(T, ROOM, None, 1))
                await held.reached()
                second = asyncio.ensure_future(reader.engine.present_page(T, ROOM, None, 1))
                await asyncio.sleep(0.15)  # the reader has asked again
                assert not second.done()
            assert await first == await second == OccupantPage(users[:1], 1_500)
            assert server.command("EXISTS", keys.claim_key("", f"{T}/{ROOM}")) == 0
        finally:
            await reader.close()


async def test_users_of_a_node_that_does_not_write_the_index_are_in_every_page(server: RedisProcess) -> None:
    async with two(server) as (old, new):
        make_old(server, old)
        users = await enter_many(new, 1_200, "n")
        enter_as_old(server, old, "eve")
        enter_as_old(server, old, "zoe")
        users = sorted([*users, "eve", "zoe"])
        assert await new.engine.present_page(T, ROOM, None, 2, "zoe") == OccupantPage(users[:2], 1_202, is_there=True)
        assert await new.engine.present_page(T, ROOM, "n1198", 9, "x") == OccupantPage(["n1199", "zoe"], 1_202)
        assert await new.engine.present(T, ROOM) == users
        assert await new.engine.room_nodes(T, ROOM) == {old.incarnation, new.incarnation}
        await new.engine.lives.bury(old.incarnation, "", grace_s=0)
        assert (await new.engine.present_page(T, ROOM, None, 0)).total == 1_200
        assert server.command("HLEN", KEY) == 1_200, "building the index cleans the hash"


async def test_what_old_nodes_leave_behind_does_not_count_after_their_end(server: RedisProcess) -> None:
    async with two(server) as (old, new):
        make_old(server, old)
        enter_as_old(server, old, "eve")
        enter_as_old(server, old, "bob")
        make_new(server, old)
        users = await enter_many(new, 1_200, "n")
        assert (await new.engine.present_page(T, ROOM, None, 0)).total == 1_202  # builds the index
        make_old(server, old)
        await new.engine.enter(T, ROOM, "bob", session_of(new, "bob"))  # bob also has a session on the old node
        await new.engine.exit(T, ROOM, "bob", session_of(new, "bob"))
        await new.engine.lives.bury(old.incarnation, "")
        await new.advance(GRACE_S + 0.1, old)
        assert await new.engine.present_page(T, ROOM, None, 1, "eve") == OccupantPage(users[:1], 1_200)
        assert await new.engine.present(T, ROOM) == users


async def test_the_index_ends_with_its_room(server: RedisProcess) -> None:
    async with two(server) as (node, _):
        users = await enter_many(node, 1_100, "u")
        assert (await node.engine.present_page(T, ROOM, None, 0)).total == 1_100
        server.command("PEXPIRE", INDEX, 1_000)
        await node.engine.enter(T, ROOM, "ann", session_of(node, "a"))
        assert DAY_MS - 5_000 < server.command("PTTL", INDEX) <= DAY_MS
        await asyncio.gather(*(node.engine.exit(T, ROOM, user, session_of(node, user)) for user in users))
        assert server.command("EXISTS", INDEX) == 0
        assert await node.engine.present_page(T, ROOM, None, 9) == OccupantPage(["ann"], 1)
        await node.engine.exit(T, ROOM, "ann", session_of(node, "a"))
        assert server.command("EXISTS", KEY, INDEX) == 0


async def test_a_large_room_is_read_without_an_index_while_redis_is_out_of_memory(server: RedisProcess) -> None:
    async with two(server) as (node, _):
        users = await enter_many(node, 1_100, "u")
        server.command("CONFIG", "SET", "maxmemory", 1)
        assert await node.engine.present_page(T, ROOM, None, 1) == OccupantPage(users[:1], 1_100)
        assert await node.engine.present(T, ROOM) == users
        server.command("CONFIG", "SET", "maxmemory", 0)
        assert await node.engine.present_page(T, ROOM, None, 1) == OccupantPage(users[:1], 1_100)
        assert server.command("ZCARD", INDEX) == 1_101
