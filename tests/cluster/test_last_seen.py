"""Last seen when Redis loses its data, a node dies, or a user is erased, with nodes on one Redis and both stores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from cluster.inside import Inside, inside
from cluster.nodes import GRACE_S, LEASE_S, RENEW_S, Clients, Listener, eventually, redis_url
from cluster.nodes import node as process
from greendot.app.adapters import make_store
from greendot.cli._revoked_sessions import revocation_until_now, revoke_and_end
from greendot.cli.user import _erase
from greendot.testing import hold
from greendot.testing.user_data_suite import all_of
from postgres_server import fresh_schema
from redis_servers import RedisProcess

T = "default"
ANN = (T, "ann")
stores = pytest.mark.parametrize("store", ["sqlite", "postgres"])


@asynccontextmanager
async def two(
    store: str, redis: RedisProcess, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[tuple[Inside, Inside]]:
    """Run two nodes on one Redis and one store."""
    async with AsyncExitStack() as stack:
        url = f"sqlite:///{tmp_path / 'greendot.db'}"
        if store == "postgres":
            url = await stack.enter_async_context(fresh_schema(request.getfixturevalue("postgres")))
        on = inside(*[redis_url(redis.port)] * 2, store={"url": url, "migrate": True})
        one, other = await stack.enter_async_context(on)
        yield one, other


async def leave(node: Inside, client: Listener) -> int:
    """End the session of ann, and return the time that others see."""
    client.send(type="bye")

    async def is_gone() -> bool:
        return (await node.query("ann"))["ann"]["last_seen"] is not None

    await eventually(is_gone, "ann is offline")
    at: int = (await node.query("ann"))["ann"]["last_seen"]
    return at


async def stored(node: Inside) -> int | None:
    return (await node.node.store.last_seen([ANN])).get(ANN)


@stores
async def test_last_seen_is_there_after_a_flush_of_redis(
    store: str, redis: RedisProcess, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with two(store, redis, tmp_path, request) as (one, other):
        ann, eve, watcher = await one.join("ann"), await one.join("eve"), await other.join("watcher")
        at = await leave(one, ann)
        before = (await watcher.watch("ann", "eve"))["ann"]
        assert (before["state"], before["last_seen"]) == ("offline", at)
        await one.node.last_seen.flush()
        redis.command("FLUSHALL")

        async def is_restored() -> bool:
            found = [entry for node in (one, other) for entry in (await node.query("ann", "eve")).values()]
            return not any(entry.get("stale") for entry in found)

        await eventually(is_restored, "both nodes have restored their sessions")
        assert redis.command("KEYS", "seen:*") == []
        for node in (one, other):
            found = await node.query("ann", "eve")
            assert (found["ann"]["state"], found["ann"]["last_seen"]) == ("offline", at)
            assert (found["eve"]["state"], found["eve"]["last_seen"]) == ("online", None)
        (asked,) = (await watcher.request(type="presence.get", users=["ann"]))["presence"]
        again = (await watcher.watch("ann"))["ann"]
        assert asked["last_seen"] == again["last_seen"] == at
        assert again["version"] == before["version"], "the version that a watcher has seen does not go back"
        newcomer = await one.join("newcomer")
        assert (await newcomer.watch("ann"))["ann"]["last_seen"] == at
        await eve.request(type="presence.get", users=["eve"])
        changes = [told for client in (watcher, newcomer) for told in client.told if told.type == "presence.changed"]
        assert changes == [], "nobody has come or gone"
        back = await one.join("ann")
        await watcher.sees("ann", "online")
        await leave(one, back)
        await watcher.sees("ann", "online", "offline")


async def test_users_of_a_killed_node_are_written_by_the_node_that_ends_their_sessions(
    redis: RedisProcess, tmp_path: Path
) -> None:
    url, path = redis_url(redis.port), tmp_path / "greendot.db"
    periods = {"lease_s": LEASE_S, "renew_s": RENEW_S}
    on = inside(url, store={"url": f"sqlite:///{path}"}, node=periods, presence={"grace_s": GRACE_S})
    one = process(tmp_path, url, GREENDOT_STORE_URL=f"sqlite:///{path}")
    async with on as (other,), one as doomed, Clients() as clients:
        await clients.join(doomed, "ann")
        await other.node.last_seen.flush()
        assert await stored(other) is None
        await doomed.kill()

        async def is_gone() -> bool:
            return (await other.query("ann"))["ann"]["last_seen"] is not None

        await eventually(is_gone, "ann is offline")
        await other.node.last_seen.flush()
        assert await stored(other) == (await other.query("ann"))["ann"]["last_seen"]


@stores
@pytest.mark.parametrize("late", [False, True], ids=["written before", "written after"])
async def test_nothing_is_stored_of_a_user_who_was_erased_while_online(
    store: str, late: bool, redis: RedisProcess, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Erase a user while a node writes the user's last-seen time, which the node read before."""
    async with two(store, redis, tmp_path, request) as (one, other):
        await one.join("ann")
        settings = one.greendot.settings
        beside = make_store(settings)
        await beside.start()
        async with hold(one.node.store, "put_last_seen", at="before" if late else "after") as writing:
            flushing = asyncio.create_task(one.node.last_seen.flush())
            await writing.reached()
            assert (await stored(one) is None) is late
            ended = await revoke_and_end(settings, beside, revocation_until_now(settings, T, "user", "ann"))
            assert (ended.sure, ended.left) == (True, 0)
            await _erase(beside, T, "ann")
        await flushing
        for node in (one, other):
            await node.node.last_seen.close()
        assert await all_of(beside, "ann", T) == []
        assert (await other.query("ann"))["ann"]["last_seen"] is None
        await beside.close()
