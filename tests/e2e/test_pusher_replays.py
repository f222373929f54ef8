"""Replayed requests to the Pusher HTTP API: refused on every node, also while Redis is away."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from backends import on_each_pair, serving_on
from e2e.processes import ask
from greendot.testing import Served, serving
from redis_servers import RedisProcess
from unit.compat.pusher.test_http import BASE, event, target
from unit.compat.pusher.wire import APP

BODY = json.dumps(event()).encode()


async def status(served: Served, path: str) -> int:
    return (await ask(served.port, "POST", path, BODY)).status


def three_seconds_later(*nodes: Served) -> None:
    """Move the time that each node keeps of Redis by three seconds.

    `advance` would also run the timers that compare this time with Redis, whose clock does not advance. A node that has
    other nodes beside it then sets its time back.
    """
    for served in nodes:
        served.node.engine.time.shift(3_000)


@on_each_pair
async def test_a_request_is_refused_when_it_comes_again(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres, pusher=APP) as served:
        path = target(served, "POST", f"{BASE}/events", BODY)
        assert [await status(served, path) for _ in range(2)] == [200, 200]  # two equal events in one second
        await served.advance(3)
        assert await status(served, path) == 401
        later = target(served, "POST", f"{BASE}/events", BODY)
        assert await status(served, later) == 200


async def test_a_request_is_refused_by_another_node_and_while_redis_is_away(tmp_path: Path) -> None:
    with RedisProcess("redis", tmp_path) as redis:
        engine = {"url": f"redis://127.0.0.1:{redis.port}"}
        async with AsyncExitStack() as stack:
            one, two = [await stack.enter_async_context(serving(engine=engine, pusher=APP)) for _ in range(2)]
            path = target(one, "POST", f"{BASE}/events", BODY)
            assert await status(one, path) == 200
            assert await status(two, path) == 200  # an equal event of the same second may reach any node
            three_seconds_later(one, two)
            assert [await status(node, path) for node in (one, two)] == [401, 401]

            known_to_one = target(one, "POST", f"{BASE}/events", BODY, at=3)
            assert await status(one, known_to_one) == 200
            redis.stop()
            three_seconds_later(one, two)
            assert await status(one, known_to_one) == 401
            new = target(one, "POST", f"{BASE}/events", BODY, at=6)
            assert await status(two, new) == 200  # the app's events are not lost because Redis is away


@pytest.mark.parametrize("seconds", [-600, 600])
async def test_a_request_whose_clock_is_off_is_still_refused_the_second_time(seconds: int) -> None:
    async with serving(pusher=APP) as served:
        path = target(served, "POST", f"{BASE}/events", BODY, at=seconds)
        assert await status(served, path) == 200
        for _ in range(5):
            await served.advance(250)
            assert await status(served, path) == 401
