"""Node of the previous version beside one of this version, with one Redis and one PostgreSQL: clients see no
difference.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from cluster.nodes import Clients, Listener, eventually, node, redis_url
from compat.sources import unpacked
from compat.versions import VERSIONS, way_back
from e2e.processes import Process, until
from greendot.presence.model import SessionEpoch
from hosts import RedisNode
from postgres_server import execute, fresh_schema
from redis_servers import RedisProcess

LAST = VERSIONS[-1]
PROGRAM = Path(__file__).with_name("old_program.py")
# A cleanly closed session resumes or ends well within a test.
GRACES = {"GREENDOT_PRESENCE_GRACE_S": "30", "GREENDOT_PRESENCE_CLEAN_GRACE_S": "1", "GREENDOT_NODE_LEASE_S": "15"}


@asynccontextmanager
async def mixed(folder: Path, redis: RedisProcess, postgres: str) -> AsyncIterator[tuple[Process, Process, Path]]:
    """Run a node of the old version and one of this version, and yield them with the old sources.

    The old node creates the tables, and the new one migrates them. At the end the downgrade is tested as well.
    """
    source = unpacked(LAST, folder / "then")
    where = redis_url(redis.port)
    async with fresh_schema(postgres) as place:
        settings = GRACES | {"GREENDOT_STORE_URL": place, "GREENDOT_STORE_MIGRATE": "true"}
        (folder / "a").mkdir()
        (folder / "b").mkdir()
        async with (
            node(folder / "a", where, **settings, PYTHONPATH=str(source)) as old,
            node(folder / "b", where, **settings) as new,
        ):
            assert await where_from(PYTHONPATH=str(source)) == source != await where_from()
            yield old, new, source
        await execute(place, way_back("PostgreSQL"))
        async with node(folder / "a", where, **settings, PYTHONPATH=str(source)) as old:
            assert (await old.ask("GET", "/v1/rooms")).json()["rooms"] != []


def session_of(node: RedisNode, user: str) -> SessionEpoch:
    return SessionEpoch(f"{node.incarnation}-{user}", node.incarnation, 1)


async def where_from(**environment: str) -> Path:
    """Return the sources that a process with this environment runs."""
    words = "import greendot, pathlib; print(pathlib.Path(greendot.__file__).parents[1])"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", words, stdout=PIPE, env=os.environ | environment
    )
    return Path((await process.communicate())[0].decode().strip())


async def everything_works(clients: Clients, here: Process, there: Process, room: str) -> tuple[Listener, Listener]:
    """Check all features between a client of each node, in both directions."""
    await here.ask("PUT", f"/v1/rooms/{room}", {"open": True})
    ann, bob = await clients.join(here, f"ann-{room}"), await clients.join(there, f"bob-{room}")
    for one, other in ((ann, f"bob-{room}"), (bob, f"ann-{room}")):
        assert (await one.watch(other))[other]["state"] == "online"
        await one.request(type="room.join", room=room)
    for one, name, other in ((ann, f"ann-{room}", bob), (bob, f"bob-{room}", ann)):
        await one.request(type="status.set", status="busy", text="Lunch; soon")
        await other.sees(name, "busy")
        assert other.changes(name)[-1].data["status_text"] == "Lunch; soon"
        one.send(type="typing.start", room=room)
        await other.hears("typing.started", user=name)
        said = await one.request(type="room.send", room=room, body=f"by {name}")
        assert (await other.hears("room.message", seq=said["seq"]))["body"] == f"by {name}"
        await other.hears("typing.stopped", user=name)
        await one.request(type="signal.send", room=room, kind="wave", body=1, key="w")
        await other.hears("signal", kind="wave")
        present = await other.request(type="room.present", room=room)
        assert present["users"] == [f"ann-{room}", f"bob-{room}"]
    await everybody_is_notified(here, there, ann, bob, room)
    return ann, bob


async def everybody_is_notified(here: Process, there: Process, ann: Listener, bob: Listener, room: str) -> None:
    for asked, client, name in ((there, ann, f"ann-{room}"), (here, bob, f"bob-{room}")):
        answer = await asked.ask("POST", "/v1/notifications", {"user": name, "kind": "news", "body": room})
        assert answer.status == 201
        made = await client.hears("notification.created", seq=1)
        await client.request(type="inbox.read", ids=[made["id"]])
        await client.hears("inbox.badge", unread=0)
        signals = {"user": name, "kind": "poke", "body": 2}
        assert (await asked.ask("POST", "/v1/signals", signals)).status == 202
        await client.hears("signal", kind="poke")
        sessions = (await asked.ask("GET", f"/v1/users/{name}/sessions")).json()["sessions"]
        assert [each["state"] for each in sessions] == ["online"]


@pytest.mark.timeout(120)
async def test_nodes_of_then_and_now_are_one_server(tmp_path: Path, redis: RedisProcess, postgres: str) -> None:
    async with mixed(tmp_path, redis, postgres) as (old, new, _), Clients() as clients:
        ann, bob = await everything_works(clients, old, new, "one")
        cid, _ = await everything_works(clients, new, old, "two")
        # A disconnect by an operator on the other node.
        (there,) = (await old.ask("GET", "/v1/users/ann-two/sessions")).json()["sessions"]
        assert (await old.ask("DELETE", f"/v1/sessions/{there['session']}")).status == 204
        await until(lambda: cid.closed is not None)
        assert cid.closed is not None
        assert cid.closed.code == 4503
        # A user removed from a room through one node is out of it on the other.
        await old.ask("DELETE", "/v1/rooms/one/members/bob-one")
        assert (await new.ask("POST", "/v1/tokens/revoke", {"user": "ann-one"})).json()["closed"] == 1
        await until(lambda: ann.closed is not None)
        assert ann.closed is not None
        assert ann.closed.code == 4501
        assert bob.closed is None


@pytest.mark.timeout(120)
async def test_a_large_room_has_the_users_of_nodes_of_then_and_now(
    tmp_path: Path, redis: RedisProcess, postgres: str
) -> None:
    async with mixed(tmp_path, redis, postgres) as (old, new, _), Clients() as clients:
        await new.ask("PUT", "/v1/rooms/hall", {"open": True})
        third = RedisNode(redis_url(redis.port), "", driven=True)
        await third.start()
        try:
            crowd = [f"u{number:04}" for number in range(1_100)]
            await asyncio.gather(*(third.engine.enter("default", "hall", u, session_of(third, u)) for u in crowd))
            ann, bob = await clients.join(old, "ann"), await clients.join(new, "bob")
            for user in (ann, bob):
                await user.request(type="room.join", room="hall")

            async def is_right(process: Process) -> bool:
                page = (await process.ask("GET", "/v1/rooms/hall/present?limit=3")).json()
                return (page["count"], page["users"], "stale" in page) == (1_102, ["ann", "bob", "u0000"], False)

            await eventually(lambda: is_right(old), "everybody is there on the old node")
            await eventually(lambda: is_right(new), "everybody is there on the new node")
            old.signal(signal.SIGTERM)
            assert (await old.ended()).code == 0
            assert await is_right(new), "the old node is in its grace"
            ann = await clients.join(new, "ann")
            await ann.request(type="room.join", room="hall")
            assert await is_right(new)
        finally:
            await third.close()


@pytest.mark.timeout(120)
async def test_the_old_node_is_stopped_and_its_clients_go_on_with_the_new_one(
    tmp_path: Path, redis: RedisProcess, postgres: str
) -> None:
    async with mixed(tmp_path, redis, postgres) as (old, new, source), Clients() as clients:
        await new.ask("PUT", "/v1/rooms/hall", {"open": True})
        bob, watcher = await clients.join(old, "bob"), await clients.join(new, "watcher")
        await bob.request(type="room.join", room="hall")
        await bob.request(type="status.set", status="busy")
        await watcher.watch("bob")
        await watcher.request(type="room.join", room="hall")
        for number in range(3):
            await watcher.request(type="room.send", room="hall", body=number)
        await until(lambda: len(bob.of("room.message")) == 3)
        old.signal(signal.SIGTERM)
        await until(lambda: bob.closed is not None)
        assert bob.closed is not None
        assert bob.closed.code == 4000
        await watcher.request(type="room.send", room="hall", body="meanwhile")
        resume = {"session": bob.client.welcome["session"], "rooms": {"hall": 3}, "inbox": 0}
        again = await clients.join(new, "bob", resume=resume)
        assert again.client.welcome["resumed"] is True
        await again.hears("room.message", seq=4)
        assert (await old.ended()).code == 0
        assert watcher.states("bob") == []
        assert [told.type for told in watcher.told if told.type in ("room.entered", "room.left")] == []
        await a_program_of_then_works(new, source, again)


async def a_program_of_then_works(server: Process, source: Path, bob: Listener) -> None:
    """Run a program with the old Python client in its own process."""
    command = (sys.executable, PROGRAM, f"ws://127.0.0.1:{server.port}/v1/connect", server.token("zoe"))
    environment = os.environ | {"PYTHONPATH": str(source)}
    program = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment)
    try:
        assert program.stdout is not None
        assert (await asyncio.wait_for(program.stdout.readline(), 30)) == b"ready\n"
        await bob.hears("room.message", seq=5)
        await bob.request(type="room.send", room="hall", body="to a program of then")
        await bob.request(type="status.set", status="auto")
        await server.ask("POST", "/v1/notifications", {"user": "zoe", "kind": "news", "body": "n"})
        out, err = await asyncio.wait_for(program.communicate(b"go on\n"), 30)
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
    assert program.returncode == 0, err.decode()
    told = msgspec.json.decode(out)
    assert told["messages"] == [[5, "from a program of then"], [6, "to a program of then"]]
    assert told["presence"] == [["bob", "online"]]
    assert told["notifications"] == ["n"]
    assert told["history"] == [1, 2, 3, 4, 5, 6]


@pytest.mark.timeout(120)
async def test_an_old_node_that_comes_back_to_fewer_buckets_finds_everybody_and_nobody_flickers(
    tmp_path: Path, redis: RedisProcess, postgres: str
) -> None:
    source, where = unpacked(LAST, tmp_path / "then"), redis_url(redis.port)
    async with fresh_schema(postgres) as place:
        settings = GRACES | {"GREENDOT_STORE_URL": place, "GREENDOT_STORE_MIGRATE": "true"}
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        async with node(tmp_path / "a", where, **settings, PYTHONPATH=str(source)) as old, Clients() as clients:
            bob = await clients.join(old, "bob")
            old.signal(signal.SIGSTOP)
            redis.command("FLUSHALL")  # a node of this version that starts now knows of no older one
            users = [f"user{number}" for number in range(20)]
            async with node(tmp_path / "b", where, **settings) as new:
                for user in users:
                    await clients.join(new, user)
                watcher = await clients.join(new, "watcher")
                await watcher.watch(*users, "bob")
                assert {watcher.shown()[user] for user in users} == {"online"}
                counts = {redis.command("HGET", name, "~buckets") for name in redis.command("KEYS", "nodes:*")}
                assert counts == {b"1"}
                old.signal(signal.SIGCONT)
                await watcher.sees("bob", "online")
                await bob.watch(*users)
                await until(lambda: {bob.shown()[user] for user in users} == {"online"})
                await until(
                    lambda: not any(redis.command("HGET", n, "~buckets") for n in redis.command("KEYS", "nodes:*"))
                )
                await everything_works(clients, old, new, "three")
                redis.command("FLUSHALL")
                await until(lambda: redis.command("KEYS", "presence:*") != [])
                await everything_works(clients, new, old, "four")
                assert watcher.changes(*users) == []
                assert watcher.states("bob") == ["online"]
