"""Sessions of a user over HTTP: complete whichever node is asked, and nodes that do not answer are named."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.inside import Inside, inside, passing
from cluster.nodes import Clients, eventually, redis_url, serving
from e2e.processes import Process, until
from greendot.testing import hold
from redis_servers import KINDS, Proxy, RedisProcess, redis_cluster

PATH = "/v1/users/ann/sessions"
DETAILS = ("client", "connected_at", "last_heard", "ip_hash", "agent_hash")
Session = dict[str, Any]


async def asked(node: Process | Inside) -> tuple[dict[str, Session], list[str], bool]:
    """Return the sessions of ann by device, the nodes without details, and whether the answer is stale."""
    answer = (await node.ask("GET", PATH)).json()
    return {it["device"]: it for it in answer["sessions"]}, answer["incomplete"], answer.get("stale", False)


def details(session: Session) -> list[Any]:
    return [session[name] for name in DETAILS]


@pytest.fixture(params=[*KINDS, "cluster"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Run an engine of each kind and return its URL."""
    if request.param == "cluster":
        with redis_cluster("redis", tmp_path / "cluster", primaries=3, replicas=0) as cluster:
            yield cluster.url
    else:
        with RedisProcess(request.param, tmp_path / "redis") as redis:
            yield redis_url(redis.port)


async def test_every_node_gives_the_same_complete_answer(engine: str) -> None:
    async with inside(*[engine] * 3) as nodes:
        first, second, third = nodes
        phone = await first.join("ann", device="phone", client={"name": "web", "version": "1"})
        laptop = await second.join("ann", device="laptop", client={"name": "app", "version": "2"})
        await laptop.end()
        await passing(lambda: all(it.connection is None for it in second.node.registry.sessions.values()))
        answers = [await asked(node) for node in (first, second, third)]
        for sessions, incomplete, stale in answers:
            assert (sessions.keys(), incomplete, stale) == ({"phone", "laptop"}, [], False)
            assert sessions["phone"]["client"] == {"name": "web", "version": "1"}
            assert sessions["laptop"]["client"] == {"name": "app", "version": "2"}
            assert sessions["phone"]["session"] == phone.client.welcome["session"]
            assert None not in details(sessions["phone"])[:-1]  # the test's client sends no User-Agent
            assert sessions["phone"]["ip_hash"] == sessions["laptop"]["ip_hash"]
            assert (sessions["phone"]["state"], sessions["phone"]["ends_in_ms"]) == ("online", None)
            assert sessions["laptop"]["state"] == "lingering"
            assert 0 < sessions["laptop"]["ends_in_ms"] <= 60_000
            assert [sessions[name]["node"] for name in ("phone", "laptop")] == [
                node.node.incarnation for node in (first, second)
            ]
        (one, _, _), *others = answers
        for other, _, _ in others:
            assert {name: it | {"ends_in_ms": 0, "last_heard": 0} for name, it in other.items()} == {
                name: it | {"ends_in_ms": 0, "last_heard": 0} for name, it in one.items()
            }


async def test_a_node_that_does_not_answer_in_time_is_named_and_its_sessions_are_listed(
    tmp_path: Path, redis: RedisProcess
) -> None:
    async with (
        serving(tmp_path, *[redis_url(redis.port)] * 2, GREENDOT_NODE_LEASE_S="30") as nodes,
        Clients() as clients,
    ):
        here, there = nodes
        await clients.join(here, "ann", device="phone")
        laptop = await clients.join(there, "ann", device="laptop")
        name, session = laptop.client.welcome["node"], laptop.client.welcome["session"]
        there.signal(signal.SIGSTOP)
        try:
            sessions, incomplete, stale = await asked(here)
        finally:
            there.signal(signal.SIGCONT)
        assert (incomplete, stale) == ([name], False)
        assert (sessions["laptop"]["session"], sessions["laptop"]["node"]) == (session, name)
        assert (sessions["laptop"]["state"], details(sessions["laptop"])) == ("online", [None] * 5)
        assert None not in details(sessions["phone"])[:-1]
        sessions, incomplete, _ = await asked(here)
        assert incomplete == []
        assert sessions["laptop"]["connected_at"] > 0


async def test_sessions_of_a_dead_node_are_listed_at_once_with_their_end(tmp_path: Path, redis: RedisProcess) -> None:
    periods = {"GREENDOT_PRESENCE_GRACE_S": "60"}
    async with serving(tmp_path, *[redis_url(redis.port)] * 2, **periods) as nodes, Clients() as clients:
        here, there = nodes
        name = (await clients.join(there, "ann", device="laptop")).client.welcome["node"]
        await there.kill()

        async def is_dead() -> bool:
            known = (await here.ask("GET", "/v1/nodes")).json()["nodes"]
            return {it["node"]: it["state"] for it in known}[name] == "dead"

        await eventually(is_dead, "the node is dead")
        sessions, incomplete, _ = await asked(here)
        assert incomplete == [name]
        assert sessions["laptop"]["state"] == "lingering"
        assert 0 < sessions["laptop"]["ends_in_ms"] <= 65_000
        assert details(sessions["laptop"]) == [None] * 5


async def test_a_session_that_moves_while_it_is_looked_for_is_in_the_answer_once_and_complete(
    redis: RedisProcess,
) -> None:
    async with inside(*[redis_url(redis.port)] * 3) as (first, second, third):
        ann = await second.join("ann", device="phone")
        session = ann.client.welcome["session"]
        async with hold(first.node.engine, "sessions", at="after") as held:
            asking = asyncio.ensure_future(asked(first))
            await held.reached()  # the engine's list has the session on the second node
            moved = (await third.join("ann", device="phone", resume={"session": session})).client.welcome
            assert moved["resumed"]
            await until(lambda: session not in second.node.registry.sessions)
        sessions, incomplete, stale = await asking
        assert (incomplete, stale) == ([], False)
        assert [it["session"] for it in sessions.values()] == [moved["session"]]
        assert sessions["phone"]["node"] == third.node.incarnation
        assert sessions["phone"]["connected_at"] > 0


async def test_while_redis_is_away_the_answer_is_stale_and_names_the_other_nodes(tmp_path: Path) -> None:
    with RedisProcess("redis", tmp_path / "redis") as redis, Proxy(redis.port) as network:
        async with inside(*[redis_url(network.port)] * 2) as (first, second):
            await first.join("ann", device="phone")
            await second.join("ann", device="laptop")
            other = second.node.incarnation
            await passing(lambda: other in first.node.engine.live_nodes())
            network.cut()
            await passing(lambda: first.node.engine.trouble is not None)
            sessions, incomplete, stale = await asked(first)
            assert (sessions.keys(), incomplete, stale) == ({"phone"}, [other], True)
            network.heal()
            await passing(lambda: first.node.engine.trouble is None and second.node.engine.trouble is None)


async def test_sessions_whose_records_redis_lost_are_listed_by_their_nodes(redis: RedisProcess) -> None:
    periods = {"lease_s": 60.0, "renew_s": 0.5}
    async with inside(*[redis_url(redis.port)] * 2, node=periods) as (first, second):
        await first.join("ann", device="phone")
        await second.join("ann", device="laptop")
        await passing(lambda: second.node.incarnation in first.node.engine.live_nodes())
        async with hold(first.node.engine, "restore"), hold(second.node.engine, "restore") as restoring:
            redis.command("FLUSHALL")
            for node in (first, second):  # also the first request, before a node has noticed the loss
                sessions, incomplete, stale = await asked(node)
                assert (sessions.keys(), incomplete, stale) == ({"phone", "laptop"}, [], True)
                assert None not in [it["connected_at"] for it in sessions.values()]
            await restoring.reached()

        async def is_restored() -> bool:
            sessions, incomplete, stale = await asked(first)
            return (sessions.keys(), incomplete, stale) == ({"phone", "laptop"}, [], False)

        await eventually(is_restored, "the sessions are restored")
