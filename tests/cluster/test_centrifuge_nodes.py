"""Centrifuge clients on several nodes: one room for all, recovery on another node after a kill."""

from __future__ import annotations

from pathlib import Path

from centrifuge_clients.javascript import javascript
from cluster.balancer import Balancer
from cluster.nodes import Clients, redis_url, serving
from e2e.processes import API_KEY, ask, until
from redis_servers import RedisProcess

ON = {"GREENDOT_CENTRIFUGE_ENABLED": "true"}


async def test_a_client_of_a_killed_node_recovers_on_another_and_others_see_no_leave(
    tmp_path: Path, redis: RedisProcess
) -> None:
    nodes = serving(tmp_path, *[redis_url(redis.port)] * 3, **ON)
    async with nodes as (dying, second, third), Balancer() as balancer, javascript() as js, Clients() as clients:
        key = {"Authorization": f"Bearer {API_KEY}"}
        assert (await ask(third.port, "PUT", "/v1/rooms/lobby", {"open": True}, **key)).status < 300
        balancer.nodes = [dying.port]
        await until(lambda: balancer.ready == [dying.port])
        url = f"ws://127.0.0.1:{balancer.port}/connection/websocket"
        await js.call("connect", url=url, token=dying.token("ann"), options={"channels": ["lobby"]})
        await js.event("subscribed", channel="lobby")
        await js.call(
            "connect", client="b", url=url.replace(str(balancer.port), str(second.port)), token=second.token("bob")
        )
        await js.call("subscribe", client="b", channel="lobby", options={"joinLeave": True})
        await js.event("subscribed", "b", channel="lobby")
        native = await clients.join(third, "cem")
        await native.request(type="room.join", room="lobby")
        assert (await js.event("join", "b", channel="lobby"))["info"]["user"] == "cem"
        await js.call("publish", channel="lobby", data=1)
        for client in "ab":
            assert (await js.event("publication", client, channel="lobby"))["offset"] == 1

        balancer.nodes = [second.port]
        await dying.kill()
        await js.event("connecting")
        for number in (2, 3):
            await native.request(type="room.send", room="lobby", body=number)
        again = await js.event("subscribed", channel="lobby")
        assert (again["wasRecovering"], again["recovered"]) == (True, True)
        missed = [await js.event("publication", channel="lobby") for _ in range(2)]
        assert [(one["offset"], one["data"]) for one in missed] == [(2, 2), (3, 3)]
        stats = await js.call("presenceStats", client="b", channel="lobby")
        assert stats == {"numClients": 3, "numUsers": 3}
        await js.call("publish", client="b", channel="lobby", data=4)
        assert (await js.event("publication", channel="lobby"))["offset"] == 4
        assert not [said for said in js.events if said["event"] == "leave"]
        answer = await ask(third.port, "POST", "/api/presence", {"channel": "lobby"}, **{"X-API-Key": API_KEY})
        assert answer.json()["result"]["presence"].keys() == {"ann", "bob", "cem"}
        # The app subscribes a client of another node.
        order = {"user": "bob", "channel": "inbox:bob"}
        assert (await ask(third.port, "POST", "/api/subscribe", order, **{"X-API-Key": API_KEY})).json() == {
            "result": {}
        }
        while (await js.event("subscribed", "b"))["channel"] != "inbox:bob":
            pass
