"""Messages that an eavesdropper on Redis receives: no bodies of rooms and kinds with `bus: hint`."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from cluster.nodes import PERIODS, Clients, redis_url
from e2e.processes import Process, running
from redis_servers import Connection, RedisProcess, limited, redis_cluster

CONFIG = '[kinds.secret]\nbus = "hint"\n'
SECRET, OPEN, OVER = "marked body", "open body", "the story is over"


async def story(nodes: list[Process], clients: Clients) -> None:
    """Send all data that has a body, to places with `bus: hint` and without."""
    here, there = nodes
    for room, bus in (("quiet", "hint"), ("loud", "full")):
        answer = await here.ask("PUT", f"/v1/rooms/{room}", {"open": True, "bus": bus})
        assert answer.status in (200, 201), answer
    ann, bob = await clients.join(here, "ann"), await clients.join(there, "bob")
    for person in (ann, bob):
        for room in ("quiet", "loud"):
            await person.request(type="room.join", room=room)
    for room, body in (("quiet", SECRET), ("loud", OPEN)):
        await ann.request(type="room.send", room=room, body=f"{body} 1")
        await ann.request(type="room.edit", room=room, ref=1, body=f"{body} 2")
        said = {"user": "app", "body": f"{body} 3", "key": "k"}
        assert (await there.ask("POST", f"/v1/rooms/{room}/messages", said)).status == 201
        await bob.hears("room.message", room=room, body=f"{body} 3")
        await ann.hears("room.message", room=room, body=f"{body} 3")
    for kind, body in (("secret", SECRET), ("news", OPEN)):
        notice = {"user": "bob", "kind": kind, "body": f"{body} 4"}
        assert (await here.ask("POST", "/v1/notifications", notice)).status == 201
        await bob.hears("notification.created", kind=kind, body=f"{body} 4")
    late = await clients.join(there, "late")
    joined = await late.request(type="room.join", room="quiet", after=0)
    assert [message["body"] for message in joined["messages"]] == [f"{SECRET} {n}" for n in (1, 2, 3)]


async def nodes_on(stack: AsyncExitStack, folder: Path, url: str) -> list[Process]:
    config = folder / "greendot.toml"
    config.write_text(CONFIG)
    flags = ("--host", "127.0.0.1", "--engine", url, "--config", str(config))
    return [await stack.enter_async_context(running(folder, *flags, **PERIODS)) for _ in range(2)]


def heard(spy: Connection, server: RedisProcess) -> bytes:
    """Return all bytes received so far."""
    server.command("PUBLISH", OVER, OVER)
    found = b""
    while OVER.encode() not in found:
        found += flat(spy.read())
    return found


def flat(part: Any) -> bytes:
    return b" ".join(map(flat, part)) if isinstance(part, list) else part if isinstance(part, bytes) else b""


@pytest.mark.parametrize("by", [("MONITOR",), ("PSUBSCRIBE", "*")])
async def test_who_listens_on_redis_finds_no_body_that_is_only_hinted_at(
    by: tuple[str, ...], tmp_path: Path, redis: RedisProcess
) -> None:
    async with AsyncExitStack() as stack:
        nodes = await nodes_on(stack, tmp_path, redis_url(redis.port))
        with redis.connect() as spy:
            spy.call(*by)
            async with Clients() as clients:
                await story(nodes, clients)
            found = heard(spy, redis)
    assert OPEN.encode() in found, "the spy did not receive the bodies of full messages"
    assert SECRET.encode() not in found


@pytest.mark.timeout(120)
async def test_who_listens_on_a_cluster_finds_none_either(tmp_path: Path) -> None:
    with redis_cluster("redis", tmp_path / "cluster", **limited("", cluster=True)) as cluster:
        async with AsyncExitStack() as stack:
            nodes = await nodes_on(stack, tmp_path, cluster.url)
            spies = [stack.enter_context(process.connect()) for process in cluster.processes]
            for spy in spies:
                spy.call("MONITOR")
            async with Clients() as clients:
                await story(nodes, clients)
            found = b"".join(map(heard, spies, cluster.processes))
        assert [process.command("ACL", "LOG") for process in cluster.processes] == [[]] * 3
    assert OPEN.encode() in found
    assert SECRET.encode() not in found
