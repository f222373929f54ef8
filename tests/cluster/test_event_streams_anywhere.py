"""Event streams in a cluster: a request may reach any node, and a session goes on at another node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.inside import Inside, inside, passing
from cluster.nodes import redis_url, serving
from e2e.processes import Process
from greendot.testing.event_stream import EventStreamClient
from redis_servers import KINDS, RedisProcess, redis_cluster


@pytest.fixture(params=[*KINDS, "cluster"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Run an engine of each kind and return its URL."""
    if request.param == "cluster":
        with redis_cluster("redis", tmp_path / "cluster", primaries=3, replicas=0) as cluster:
            yield cluster.url
    else:
        with RedisProcess(request.param, tmp_path / "redis") as redis:
            yield redis_url(redis.port)


async def opened(node: Inside | Process, user: str, through: Inside | Process | None = None) -> EventStreamClient:
    """Open a stream at a node. Its requests go to the node `through`, as a load balancer may decide."""
    client = await EventStreamClient.connect(node.port)
    client.port = (through or node).port
    await client.hello(node.token(user))
    return client


async def test_requests_that_reach_another_node_are_forwarded_in_order(engine: str) -> None:
    async with inside(*[engine] * 2) as (here, there):
        await passing(lambda: there.node.incarnation in here.node.engine.live_nodes())
        await here.node.store.put_room("default", "lobby", open=True)
        async with await opened(here, "ann", through=there) as ann:
            await ann.request(type="room.join", room="lobby")
            for number in range(1, 21):
                client = here if number % 2 else there
                ann.port = client.port
                assert (await ann.request(type="room.send", room="lobby", body=number))["seq"] == number
            assert {*ann.statuses} == {202}
            # A repeated request has no effect, whichever node gets it.
            again = {"seq": ann.seq, "commands": [{"type": "room.send", "room": "lobby", "body": "again"}]}
            for node in (here, there):
                ann.port = node.port
                assert await ann.post(again) == 202
            frames = await ann.quiet()
            assert [frame["data"]["body"] for frame in frames if frame["type"] == "room.message"] == [*range(1, 21)]
        assert there.node.metrics.realtime_event_posts_forwarded_total >= 11
        assert here.node.metrics.realtime_event_posts_forwarded_total == 0


async def test_an_ended_or_made_up_stream_is_unknown_at_every_node(engine: str) -> None:
    async with inside(*[engine] * 2) as (here, there):
        ann = await opened(here, "ann")
        await ann.end()
        await passing(lambda: len(here.node.streams) == 0)
        beat = {"seq": 2, "commands": [{"type": "heartbeat"}]}
        for node in (here, there):
            ann.port = node.port
            assert await ann.post(beat) == 404
        forwarded = there.node.metrics.realtime_event_posts_forwarded_total
        assert await ann.post(beat, f"{ann.stream[:-16]}{'0' * 16}") == 404
        assert there.node.metrics.realtime_event_posts_forwarded_total == forwarded == 1


async def test_after_kill_9_the_session_goes_on_at_another_node_without_a_gap(
    tmp_path: Path, redis: RedisProcess
) -> None:
    async with serving(tmp_path, *[redis_url(redis.port)] * 2) as (first, second):
        await second.ask("PUT", "/v1/rooms/lobby", {"open": True})
        ann = await opened(first, "ann", through=second)
        await ann.request(type="room.join", room="lobby")
        session = ann.welcome["session"]
        await first.kill()
        assert (await ann.closed()).code == 1006
        assert await ann.post({"seq": ann.seq + 1, "commands": []}) in (404, 503)
        await second.ask("POST", "/v1/rooms/lobby/messages", {"user": "app", "body": "meanwhile"})
        async with await EventStreamClient.connect(second.port) as again:
            await again.hello(second.token("ann"), resume={"session": session, "rooms": {"lobby": 0}})
            assert again.welcome["resumed"]
            frames = await again.quiet()
            assert [frame["data"]["body"] for frame in frames if frame["type"] == "room.message"] == ["meanwhile"]
