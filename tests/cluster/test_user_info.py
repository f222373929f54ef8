"""Names and info of users on two nodes with one Redis and both stores."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cluster.inside import Inside
from cluster.nodes import Listener, eventually
from cluster.test_last_seen import stores, two
from greendot.engine.messages import Message, ProfileChanged, Topic
from greendot.testing import hold
from redis_servers import RedisProcess

BLUE, RED = {"colour": "#06f"}, {"colour": "#f00"}


async def put(node: Inside, **body: Any) -> None:
    answer = await node.ask("PUT", "/v1/users/ann/info", body)
    assert answer.status == 200, answer


async def come(node: Inside, user: str) -> Listener:
    client = await node.join(user)
    await client.request(type="room.join", room="hall")
    return client


@asynccontextmanager
async def deaf(node: Inside) -> AsyncIterator[None]:
    """Lose announcements of changed profiles on the way to this node."""
    receive = node.node.receive

    def received(topic: Topic, message: Message) -> None:
        if not isinstance(message, ProfileChanged):
            receive(topic, message)

    node.node.receive = received  # type: ignore[method-assign]
    try:
        yield
    finally:
        node.node.receive = receive  # type: ignore[method-assign]


@stores
async def test_a_change_on_one_node_is_shown_by_the_other(
    store: str, redis: RedisProcess, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with two(store, redis, tmp_path, request) as (home, away):
        await home.ask("PUT", "/v1/rooms/hall", {"open": True})
        bob = await come(away, "bob")
        await bob.watch("ann")
        ann = await come(home, "ann")
        entered = await bob.hears("room.entered", user="ann")
        assert entered["name"] == "Ann"
        page = await bob.request(type="room.present", room="hall")
        assert page["profiles"] == {"ann": {"name": "Ann"}, "bob": {"name": "Bob"}}
        await put(home, info=BLUE)
        await bob.hears("presence.changed", user="ann", info=BLUE)
        await bob.hears("room.profile", user="ann", info=BLUE, name="Ann")
        await ann.hears("room.profile", user="ann", info=BLUE)
        page = await bob.request(type="room.present", room="hall")
        assert page["profiles"]["ann"] == {"name": "Ann", "info": BLUE}
        ann.send(type="typing.start", room="hall")
        await bob.hears("typing.started", user="ann", info=BLUE)
        await ann.request(type="room.send", room="hall", body="hi")
        await bob.hears("room.message", user="ann", info=BLUE)
        await put(away, info=RED, name="Anne")
        for client in (ann, bob):
            await client.hears("room.profile", user="ann", info=RED, name="Anne")
        await ann.request(type="room.send", room="hall", body="again")
        await bob.hears("room.message", user="ann", info=RED, name="Anne")


@stores
async def test_a_change_whose_announcement_was_lost_is_found_in_the_log(
    store: str, redis: RedisProcess, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with two(store, redis, tmp_path, request) as (home, away):
        await put(home, info=BLUE)
        bob = await away.join("bob")
        (entry,) = (await bob.request(type="watch", users=["ann"]))["presence"]
        assert entry["info"] == BLUE
        async with deaf(away):
            await put(home, info=RED)
            await bob.request(type="presence.get", users=["bob"])
            assert bob.of("presence.changed") == []
            away.node.profiles.compare()  # as after messages were missed, and every 30 s
            await bob.hears("presence.changed", user="ann", info=RED)


@stores
async def test_a_change_during_the_first_read_of_a_user_is_not_lost(
    store: str, redis: RedisProcess, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with two(store, redis, tmp_path, request) as (home, away):
        await put(home, info=BLUE)
        bob = await away.join("bob")
        announced = away.node.profiles._announced.get("default", 0)
        async with hold(away.node.store, "profiles", at="after") as held:
            bob.send(type="watch", users=["ann"], id="watch")
            await held.reached()
            await put(home, info=RED)

            async def is_told() -> bool:
                return away.node.profiles._announced.get("default", 0) > announced

            await eventually(is_told, "the change is announced")
        (entry,) = (await bob.request(type="presence.get", users=["ann"]))["presence"]
        assert entry["info"] == RED
        (entry,) = (await bob.request(type="watch", users=["ann"]))["presence"]
        assert entry["info"] == RED
