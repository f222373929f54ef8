"""Read receipts on two nodes: each reader is shown once and in order, and hidden readers nowhere."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cluster.inside import Inside, inside, passing
from cluster.nodes import Listener, redis_url
from postgres_server import migrated_schema
from redis_servers import RedisProcess

Two = Callable[[], AbstractAsyncContextManager[list[Inside]]]


@pytest.fixture(params=["sqlite", "postgres"])
def two(redis: RedisProcess, tmp_path: Path, request: pytest.FixtureRequest) -> Two:
    """Return a function that runs two nodes on one Redis and one store."""
    postgres = request.getfixturevalue("postgres") if request.param == "postgres" else None

    @asynccontextmanager
    async def run() -> AsyncIterator[list[Inside]]:
        async with AsyncExitStack() as stack:
            url = f"sqlite:///{tmp_path / 'greendot.db'}"
            if postgres is not None:
                url = await stack.enter_async_context(migrated_schema(postgres))
            on = inside(*[redis_url(redis.port)] * 2, store={"url": url, "migrate": True})
            yield await stack.enter_async_context(on)

    return run


async def furnished(one: Inside, *joining: tuple[Inside, str]) -> list[Listener]:
    """Make a room with receipts and five messages; return clients that have joined it."""
    await one.ask("PUT", "/v1/rooms/hall", {"open": True, "receipts": True})
    for _ in range(5):
        await one.ask("POST", "/v1/rooms/hall/messages", {"user": "app", "body": "hi"})
    clients = [await node.join(user) for node, user in joining]
    for client in clients:
        await client.request(type="room.join", room="hall")
    return clients


def receipts(client: Listener) -> list[tuple[str, int]]:
    return [(told.data["user"], told.data["seq"]) for told in client.told if told.type == "room.receipt"]


async def listed(client: Listener) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await client.request(type="room.receipts", room="hall"))["receipts"]
    return found


async def test_a_reader_on_another_node_is_shown_once_and_never_goes_back(two: Two) -> None:
    async with two() as (here, there):
        ann, bob, carl = await furnished(here, (here, "ann"), (there, "bob"), (here, "carl"))
        for seq in (2, 4, 3, 4):
            await ann.request(type="room.read", room="hall", seq=seq)
        for other in (bob, carl):
            await passing(lambda other=other: ("ann", 4) in receipts(other))
            seqs = [seq for user, seq in receipts(other) if user == "ann"]
            assert seqs == sorted(set(seqs))
            assert await listed(other) == [{"user": "ann", "seq": 4}]
        for node in (here, there):
            answer = await node.ask("GET", "/v1/rooms/hall/receipts")
            assert answer.json()["receipts"] == [{"user": "ann", "seq": 4}]


async def test_an_invisible_reader_is_shown_on_no_node(two: Two) -> None:
    async with two() as (here, there):
        ann, bob, carl = await furnished(here, (here, "ann"), (there, "bob"), (there, "carl"))
        await ann.request(type="status.set", status="invisible")
        await ann.request(type="room.read", room="hall", seq=5)
        await carl.request(type="room.read", room="hall", seq=5)
        await passing(lambda: ("carl", 5) in receipts(bob))
        await ann.request(type="status.set", status="auto")
        assert receipts(bob) == [("carl", 5)]
        assert await listed(bob) == [{"user": "carl", "seq": 5}]
