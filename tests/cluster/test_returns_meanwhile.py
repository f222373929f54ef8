"""Clients that try to resume while Redis is away keep their session and their rooms."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cluster.inside import Inside, inside, passing
from cluster.nodes import Listener, redis_url
from greendot.testing import WireClient, hold
from redis_servers import Proxy, RedisProcess


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Proxy]:
    """Run a proxy to a Redis that a test may cut."""
    with RedisProcess("redis", tmp_path / "redis") as redis, Proxy(redis.port) as proxy:
        yield proxy


@asynccontextmanager
async def two(network: Proxy, grace_s: float = 30.0) -> AsyncIterator[tuple[Inside, Inside]]:
    async with inside(*[redis_url(network.port)] * 2, presence={"grace_s": grace_s}) as (first, second):
        yield first, second


def is_away(*nodes: Inside) -> bool:
    return all(node.node.engine.trouble is not None for node in nodes)


def is_back(*nodes: Inside) -> bool:
    return all(node.node.engine.trouble is None for node in nodes)


async def refused(node: Inside, user: str, session: str) -> None:
    """Try to resume the session and expect a retry time."""
    async with await WireClient.connect(node.port) as client:
        client.send(type="hello", token=node.token(user), resume={"session": session})
        assert (await client.receive("overloaded"))["data"]["retry_in_ms"] > 0
        assert (await client.closed()).code == 4003


def lingers(node: Inside, session: str) -> bool | None:
    """Return whether Redis knows that the session lingers; None if the node has dropped the session."""
    held = node.node.registry.sessions.get(session)
    if held is None:
        return None
    return held.leave_timer is not None and held.leave_timer.due - node.node.timers.now() > 10


async def resumed(node: Inside, user: str, session: str) -> bool:
    return bool((await node.join(user, resume={"session": session})).client.welcome["resumed"])


@pytest.mark.parametrize("socket", ["lost", "open"])
async def test_a_refused_resume_keeps_the_session_whatever_redis_receives_first_after_an_outage(
    network: Proxy, socket: str
) -> None:
    async with two(network) as (first, second):
        ann = await first.join("ann")
        watcher: Listener = await second.join("watcher")
        assert (await watcher.watch("ann"))["ann"]["state"] == "online"
        session = ann.client.welcome["session"]
        network.cut()
        await passing(lambda: is_away(first, second))
        if socket == "lost":
            await ann.end()
            await passing(lambda: first.node.registry.sessions[session].connection is None)
        for _ in range(2):
            await refused(first, "ann", session)
        # Recovery is held: the linger of the refused attempt is the first command for this session that Redis receives.
        async with hold(first.node.recovery, "_refresh") as recovery:
            network.heal()
            await recovery.reached()
            await passing(lambda: is_back(first, second))
            await passing(lambda: lingers(first, session) is not False)
            # The last step of recovery ends sessions that the node does not hold.
            assert await first.node.engine.audit(first.node.sessions.holds) == 0
        assert await resumed(first, "ann", session)
        assert (await second.query("ann"))["ann"]["state"] == "online"
        assert watcher.states("ann") == []


async def test_a_resume_elsewhere_that_redis_executes_after_its_refusal_keeps_the_user_online(tmp_path: Path) -> None:
    with RedisProcess("redis", tmp_path / "redis") as redis:
        async with inside(*[redis_url(redis.port)] * 2, presence={"grace_s": 8.0}) as (first, second):
            ann, watcher = await first.join("ann"), await first.join("watcher")
            await watcher.watch("ann", "marker")
            session = ann.client.welcome["session"]
            read = second.node.recovery.resyncs
            redis.stop()
            await refused(second, "ann", session)
            await ann.end()
            # The first node does not restore the session, which would hide its end, before the second one has read all.
            async with hold(first.node.recovery, "_refresh"):
                redis.cont()
                await passing(lambda: is_back(first, second) and second.node.recovery.resyncs > read)
                # The last step of recovery ends sessions that the node does not hold.
                await second.node.engine.audit(second.node.sessions.holds)
            marker = await second.join("marker")
            marker.send(type="bye")
            await watcher.sees("marker", "online", "offline")
            back = await second.join("ann", resume={"session": session})
            assert watcher.states("ann") == []
            back.send(type="bye")
            # The session that was in doubt, and the one that the first node restores, last until their grace is over.
            await watcher.sees("ann", "offline")


async def test_who_types_while_redis_is_away_goes_on_typing_when_it_is_back(network: Proxy) -> None:
    async with inside(redis_url(network.port), typing={"ttl_s": 30.0}) as (node,):
        assert (await node.ask("PUT", "/v1/rooms/den", {"open": True})).status < 300
        ann, bob = await node.join("ann"), await node.join("bob")
        for person in (ann, bob):
            await person.request(type="room.join", room="den")
        network.cut()
        await passing(lambda: is_away(node))
        ann.send(type="typing.start", room="den")
        await bob.hears("typing.started", user="ann")
        read = node.node.recovery.resyncs
        network.heal()
        async with hold(node.node.recovery, "_audit") as audit:  # runs after all data was read again
            await audit.reached()
            assert node.node.recovery.resyncs > read
            await bob.request(type="room.present", room="den")  # all earlier events have been received
            assert bob.of("typing.stopped") == []


async def test_a_session_whose_grace_ends_while_redis_is_away_can_be_resumed_elsewhere_when_it_is_back(
    network: Proxy,
) -> None:
    told: list[int] = []  # graces sent to Redis after the outage

    def is_told(tenant: str, user: str, ref: object, grace_ms: int, silent_ms: int) -> bool:
        if is_back(first):
            told.append(grace_ms)
        return is_back(first)

    async with two(network, grace_s=1.0) as (first, second):
        ann, watcher = await first.join("ann"), await second.join("watcher")
        await watcher.watch("ann")
        session = ann.client.welcome["session"]
        network.cut()
        await passing(lambda: is_away(first, second))
        await ann.end()
        await refused(second, "ann", session)
        held = first.node.registry.sessions[session]
        await passing(lambda: held.leaving is not None and held.leaving.at < first.node.timers.now() - 1.5)
        async with hold(first.node.engine, "linger", when=is_told) as linger:
            network.heal()
            await linger.reached()
            await passing(lambda: is_back(second))
            # The node that refused ann may still extend her grace, which sends it twice.
            assert told
            assert all(0 < grace_ms <= 1_000 for grace_ms in told), (
                "the grace must be short but positive: ann could not resume during the outage"
            )
            assert await resumed(second, "ann", session)
        assert watcher.states("ann") == []
