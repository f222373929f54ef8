"""Pusher clients on several nodes: members once per user, and a return to another node after kill -9."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from cluster.balancer import Balancer
from cluster.nodes import LAPSE_S, Clients, redis_url, serving
from e2e.processes import until
from foreign.clients import APP, HERE, installed
from foreign.watching import pusher_js
from greendot.testing.wire import WireClient
from redis_servers import RedisProcess
from unit.compat.pusher.wire import QUERY, PusherClient

pytestmark = pytest.mark.timeout(120)
KEYS = {f"GREENDOT_PUSHER_{name.upper()}": value for name, value in APP.items()}
CHANNEL = "presence-lobby"


async def trigger(port: int, event: str, data: object) -> None:
    """Publish an event with the library for Node."""
    installed()
    script = f"""
      const Pusher = require("pusher");
      const app = {{ appId: "{APP["app_id"]}", key: "{APP["key"]}", secret: "{APP["secret"]}" }};
      const server = new Pusher({{ ...app, host: "127.0.0.1", port: {port}, useTLS: false }});
      server.trigger("{CHANNEL}", "{event}", {json.dumps(data)}).then(() => process.exit(0), () => process.exit(1));
    """
    process = await asyncio.create_subprocess_exec("node", "-e", script, cwd=HERE)
    assert await process.wait() == 0


async def test_members_are_added_and_removed_once_per_user_on_three_nodes(tmp_path: Path, redis: RedisProcess) -> None:
    async with serving(tmp_path, *[redis_url(redis.port)] * 3, **KEYS) as nodes, AsyncExitStack() as stack:
        one, two, three = nodes
        ann = await stack.enter_async_context(pusher_js(one.port, "ann", CHANNEL))
        await ann.sees("here", ["ann"])
        async with pusher_js(two.port, "bob", CHANNEL) as bob, pusher_js(three.port, "bob", CHANNEL) as phone:
            await bob.sees("here")
            await phone.sees("here")
            await ann.sees("added", "bob")
            bob.trigger("client-wave", {"n": 1})
            await ann.sees("client-wave", {"n": 1})
            await phone.sees("client-wave", {"n": 1})
            await trigger(three.port, "news", {"text": "all"})
            for client in (ann, bob, phone):
                await client.sees("news", {"text": "all"})
        await ann.sees("removed", "bob")
        assert ann.of("added", "removed") == ["bob", "bob"]


async def test_a_client_returns_to_another_node_after_kill_9(tmp_path: Path, redis: RedisProcess) -> None:
    async with (
        serving(tmp_path, *[redis_url(redis.port)] * 3, **KEYS) as (dying, second, third),
        Clients() as clients,
        Balancer() as balancer,
    ):
        balancer.nodes = [dying.port]
        await until(lambda: balancer.ready == [dying.port])
        native = await clients.join(third, "nat")
        async with AsyncExitStack() as stack:
            ann = await stack.enter_async_context(pusher_js(balancer.port, "ann", CHANNEL))
            await ann.sees("here")
            bob = await stack.enter_async_context(pusher_js(second.port, "bob", CHANNEL))
            await bob.sees("here", ["ann", "bob"])
            await native.watch("ann")
            await dying.kill()
            balancer.nodes = [third.port]
            await ann.sees("here", count=2)
            await trigger(second.port, "after", {"n": 1})
            await ann.sees("after", {"n": 1})
            await bob.sees("after", {"n": 1})
            async with asyncio.timeout(LAPSE_S + 10):  # the session of the dead node ends
                while len((await second.ask("GET", "/v1/users/ann/sessions")).json()["sessions"]) > 1:  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
            assert bob.of("added", "removed") == []
            assert [told.data["state"] for told in native.changes("ann")] == []


async def test_a_room_for_members_that_another_node_creates_is_closed_to_listeners(
    tmp_path: Path, redis: RedisProcess
) -> None:
    async with (
        serving(tmp_path, *[redis_url(redis.port)] * 2, **KEYS) as (one, two),
        await WireClient.connect(one.port, f"/app/{APP['key']}?{QUERY}") as socket,
    ):
        guest = PusherClient(socket, APP["secret"], APP["key"])
        await guest.establish()
        await guest.subscribe("plan")
        assert (await two.ask("PUT", "/v1/rooms/plan", {})).status in (200, 201)
        await guest.receive("pusher:subscription_error")
