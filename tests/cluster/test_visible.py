"""Visibility on real nodes with one Redis and one PostgreSQL: acknowledged changes apply on all nodes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from asked import asked
from cluster.nodes import Clients, Listener, eventually, redis_url, serving
from e2e.processes import Process
from postgres_server import migrated_schema
from redis_servers import RedisProcess


@asynccontextmanager
async def nodes(folder: Path, redis: RedisProcess, postgres: str, **environment: str) -> AsyncIterator[list[Process]]:
    async with migrated_schema(postgres) as place:
        environment = {"GREENDOT_STORE_URL": place, "GREENDOT_STORE_MIGRATE": "true"} | environment
        async with serving(folder, *[redis_url(redis.port)] * 2, **environment) as processes:
            yield processes


async def states(client: Listener, *users: str) -> list[str]:
    reply = await client.request(type="presence.get", users=[*users])
    return [entry["state"] for entry in reply["presence"]]


async def put(node: Process, user: str, other: str, method: str = "PUT", **body: Any) -> None:
    answer = await node.ask(method, f"/v1/users/{user}/contacts/{other}", body or None)
    assert answer.status in (200, 204), answer


async def test_what_a_user_hides_is_hidden_on_every_node_when_it_is_acknowledged(
    tmp_path: Path, redis: RedisProcess, postgres: str
) -> None:
    async with nodes(tmp_path, redis, postgres) as (home, away), Clients() as clients:
        await home.ask("PUT", "/v1/rooms/hall", {"open": True})
        ann = await clients.join(home, "ann")
        bobs = [await clients.join(node, "bob", device=f"d{number}") for number, node in enumerate((home, away))]
        eves = [await clients.join(node, "eve", device=f"d{number}") for number, node in enumerate((home, away))]
        for client in (*bobs, *eves):
            await client.watch("ann")
            await client.request(type="room.join", room="hall")
        await ann.request(type="room.join", room="hall")
        for client in (*bobs, *eves):
            await client.hears("room.entered", user="ann")

        await ann.request(type="privacy.set", hide_from=["bob"])
        for bob in bobs:
            # Requested at once, without waiting.
            assert await states(bob, "ann") == ["offline"]
            assert (await bob.request(type="room.present", room="hall"))["users"] == ["bob", "eve"]
            assert bob.states("ann") == ["offline"]
            assert [told["user"] for told in bob.of("room.left")] == ["ann"]
        ann.send(type="typing.start", room="hall")
        await ann.request(type="status.set", status="busy")
        for eve in eves:
            await eve.sees("ann", "busy")
            await eve.hears("typing.started", user="ann")
        assert [bob.states("ann") for bob in bobs] == [["offline"]] * 2
        assert [bob.of("typing.started") for bob in bobs] == [[], []]

        await ann.request(type="privacy.set", hide_from=[])
        for bob in bobs:
            await bob.sees("ann", "offline", "busy")
            versions = [told.data["version"] for told in bob.changes("ann")]
            assert versions == sorted({*versions})
            assert await states(bob, "ann") == ["busy"]


async def test_the_last_seen_is_hidden_on_every_node(tmp_path: Path, redis: RedisProcess, postgres: str) -> None:
    async with nodes(tmp_path, redis, postgres) as (home, away), Clients() as clients:
        ann = await clients.join(home, "ann")
        watchers = await clients.watchers((home, away), "ann")
        await ann.request(type="privacy.set", last_seen="hidden")
        ann.send(type="bye")
        for watcher in watchers:
            await watcher.sees("ann", "offline")
            (told,) = watcher.changes("ann")
            assert (told.data["last_seen"], told.data["since"], told.data["version"]) == (None, None, 0)
            (entry,) = (await watcher.request(type="presence.get", users=["ann"]))["presence"]
            assert (entry["last_seen"], entry["since"], entry["version"]) == (None, None, 0)
        assert (await away.ask("GET", "/v1/users/ann/presence")).json()["last_seen"] is not None, (
            "the app must see all users"
        )


async def test_contacts_are_known_on_every_node_when_it_is_answered(
    tmp_path: Path, redis: RedisProcess, postgres: str
) -> None:
    policy = {"GREENDOT_VISIBILITY_POLICY": "contacts"}
    async with nodes(tmp_path, redis, postgres, **policy) as (home, away), Clients() as clients:
        ann, bob = await clients.join(home, "ann"), await clients.join(away, "bob")
        assert (await ann.watch("bob"))["bob"]["state"] == (await bob.watch("ann"))["ann"]["state"] == "offline"
        await put(away, "ann", "bob")
        await put(home, "bob", "ann", last_contact_at=5)
        assert await states(ann, "bob") == await states(bob, "ann") == ["online"]
        assert (ann.states("bob"), bob.states("ann")) == (["online"], ["online"])
        await put(away, "bob", "ann", "DELETE")
        assert await states(ann, "bob") == await states(bob, "ann") == ["offline"]
        assert (ann.states("bob"), bob.states("ann")) == (["online", "offline"], ["online", "offline"])


async def test_who_shares_no_room_any_more_is_seen_on_no_node(
    tmp_path: Path, redis: RedisProcess, postgres: str
) -> None:
    policy = {"GREENDOT_VISIBILITY_POLICY": "shared_rooms"}
    async with nodes(tmp_path, redis, postgres, **policy) as (home, away), Clients() as clients:
        await home.ask("PUT", "/v1/rooms/den", {"open": False})
        for user in ("ann", "bob"):
            assert (await home.ask("PUT", f"/v1/rooms/den/members/{user}")).status == 200
        await clients.join(home, "ann")
        bob = await clients.join(away, "bob")
        assert (await bob.watch("ann"))["ann"]["state"] == "online"
        assert (await home.ask("DELETE", "/v1/rooms/den/members/ann")).status == 204
        assert await states(bob, "ann") == ["offline"]
        assert bob.states("ann") == ["offline"]


async def test_an_app_is_asked_by_every_node(tmp_path: Path, redis: RedisProcess, postgres: str) -> None:
    async with asked(("bob", "ann")) as app:
        policy = {f"GREENDOT_VISIBILITY_{name.upper()}": value for name, value in app.settings.items()}
        policy["GREENDOT_WEBHOOKS_ALLOW_PRIVATE"] = "127.0.0.0/8"
        async with nodes(tmp_path, redis, postgres, **policy) as (home, away), Clients() as clients:
            await clients.join(home, "ann")
            for node in (home, away):
                bob, eve = await clients.join(node, "bob"), await clients.join(node, "eve")
                assert await states(bob, "ann") == ["online"]
                assert await states(eve, "ann") == ["offline"]


LONG_LEASE = {"GREENDOT_NODE_LEASE_S": "60"}


async def test_a_killed_node_does_not_fail_a_change(tmp_path: Path, redis: RedisProcess, postgres: str) -> None:
    async with nodes(tmp_path, redis, postgres, **LONG_LEASE) as (home, away), Clients() as clients:
        ann, bob = await clients.join(home, "ann"), await clients.join(home, "bob")
        await bob.watch("ann")
        away.signal(signal.SIGKILL)
        await ann.request(type="privacy.set", hide_from=["bob"])
        await bob.sees("ann", "offline")


@pytest.mark.parametrize("loses_messages", [False, True])
async def test_a_stopped_node_does_not_fail_a_change_and_shows_nothing_old_when_it_continues(
    tmp_path: Path, redis: RedisProcess, postgres: str, loses_messages: bool
) -> None:
    async with nodes(tmp_path, redis, postgres, **LONG_LEASE) as (home, away), Clients() as clients:
        await home.ask("PUT", "/v1/rooms/hall", {"open": True})
        ann = await clients.join(home, "ann")
        bob, eve = await clients.join(away, "bob"), await clients.join(away, "eve")
        for client in (bob, eve):
            await client.watch("ann")
            await client.request(type="room.join", room="hall")
        await ann.request(type="room.join", room="hall")
        for client in (bob, eve):
            await client.hears("room.entered", user="ann")
        # A change that both nodes confirm: this node then knows that the other one notices changes it has missed.
        await eventually(lambda: hides(ann), "both nodes have confirmed a change")
        away.signal(signal.SIGSTOP)
        try:
            if loses_messages:  # those of the other node, too, which connects again
                redis.command("CLIENT", "KILL", "TYPE", "pubsub")
                await eventually(lambda: hides(ann, "bob"), "the change is accepted")
            await ann.request(type="privacy.set", hide_from=["bob"])
            # Events and requests wait in the sockets of the stopped node, in any order.
            ann.send(type="typing.start", room="hall")
            await ann.request(type="status.set", status="busy")
            asked = [asyncio.ensure_future(bob.answer(type="presence.get", users=["ann"])) for _ in range(3)]
            present = asyncio.ensure_future(bob.answer(type="room.present", room="hall"))
            await asyncio.sleep(0.1)
        finally:
            away.signal(signal.SIGCONT)
        frames = [await answer for answer in asked]  # Redis may be away for a moment when messages were lost
        replies = [frame for frame in frames if frame["type"] == "reply" or not loses_messages]
        assert {frame["data"]["presence"][0]["state"] for frame in replies} <= {"offline"}
        assert (await present)["data"]["users"] == ["bob", "eve"]
        await eve.sees("ann", "busy")
        await bob.sees("ann", "offline")
        assert bob.of("typing.started") == []


async def hides(client: Listener, *others: str) -> bool:
    return (await client.answer(type="privacy.set", hide_from=[*others]))["type"] == "reply"
