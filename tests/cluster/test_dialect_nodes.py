"""One user with a Pusher client and a Centrifuge client, on two of three nodes: in a room once, for all others."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from centrifuge_clients.javascript import JavaScript, javascript
from cluster.nodes import LAPSE_S, Clients, eventually, redis_url, serving
from e2e.processes import PATIENCE_S, Process, until
from foreign.clients import APP
from foreign.watching import pusher_js
from redis_servers import RedisProcess

pytestmark = pytest.mark.timeout(120)
ON = {f"GREENDOT_PUSHER_{name.upper()}": value for name, value in APP.items()} | {"GREENDOT_CENTRIFUGE_ENABLED": "true"}
CHANNEL = "presence-lobby"


async def centrifuge_js(js: JavaScript, node: Process, user: str) -> None:
    """Subscribe an unmodified client of this user to the channel."""
    url = f"ws://127.0.0.1:{node.port}/connection/websocket"
    await js.call("connect", client=user, url=url, token=node.token(user))
    await js.call("subscribe", client=user, channel=CHANNEL, options={"joinLeave": True})
    await js.event("subscribed", user, channel=CHANNEL)


async def has_one_session(node: Process, user: str) -> bool:
    return len((await node.ask("GET", f"/v1/users/{user}/sessions")).json()["sessions"]) == 1


async def test_a_user_of_two_protocols_on_two_nodes_comes_and_goes_once(tmp_path: Path, redis: RedisProcess) -> None:
    async with (
        serving(tmp_path, *[redis_url(redis.port)] * 3, **ON) as (dying, second, third),
        javascript() as js,
        Clients() as clients,
        AsyncExitStack() as stack,
    ):
        assert (await third.ask("PUT", f"/v1/rooms/{CHANNEL}", {"open": True})).status < 300
        native = await clients.join(third, "nat")
        await native.request(type="room.join", room=CHANNEL)
        pat = await stack.enter_async_context(pusher_js(third.port, "pat", CHANNEL))
        await pat.sees("here", ["nat", "pat"])
        await centrifuge_js(js, third, "cid")

        def seen(*kinds: str) -> dict[str, list[Any]]:
            """Return what watchers have seen of ann, of these kinds: of pusher-js, of ours, of centrifuge-js."""
            added, entered, joined = kinds
            of_cid = [one for one in js.events if one["client"] == "cid" and one["event"] == joined]
            return {
                "pusher": [user for user in pat.of(added) if user == "ann"],
                "native": [data for data in native.of(entered) if data["user"] == "ann"],
                "centrifuge": [one for one in of_cid if one["context"]["info"]["user"] == "ann"],
            }

        def came() -> list[int]:
            return [len(of) for of in seen("added", "room.entered", "join").values()]

        def left() -> list[int]:
            return [len(of) for of in seen("removed", "room.left", "leave").values()]

        ann = await stack.enter_async_context(pusher_js(dying.port, "ann", CHANNEL))
        await ann.sees("here", ["ann", "cid", "nat", "pat"])
        await centrifuge_js(js, second, "ann")
        await until(lambda: came() == [1, 1, 1])
        await js.call("publish", client="ann", channel=CHANNEL, data={"n": 1})
        await pat.sees("message")  # all that was sent before has arrived

        await dying.kill()
        await eventually(
            lambda: has_one_session(second, "ann"), "the session of the dead node ends", LAPSE_S + PATIENCE_S
        )
        await js.call("publish", client="ann", channel=CHANNEL, data={"n": 2})
        await pat.sees("message", count=2)
        assert (came(), left()) == ([1, 1, 1], [0, 0, 0])
        page = (await native.request(type="room.present", room=CHANNEL))["users"]
        assert page == ["ann", "cid", "nat", "pat"]

        await js.call("disconnect", client="ann")
        await until(lambda: left() == [1, 1, 1])
        assert came() == [1, 1, 1]
