"""Two nodes act as one server: rooms, signals, typing, removals and operators' commands reach all clients."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from cluster.nodes import Clients, Listener, redis_url, serving
from e2e.processes import Process, until
from redis_servers import RedisProcess


class Two(NamedTuple):
    """Ann on both nodes, and Bob on the second."""

    nodes: list[Process]
    clients: Clients
    ann: Listener
    ann_too: Listener
    bob: Listener


@asynccontextmanager
async def two_nodes(folder: Path, redis: RedisProcess) -> AsyncIterator[Two]:
    async with serving(folder, *[redis_url(redis.port)] * 2) as nodes, Clients() as clients:
        ann = await clients.join(nodes[0], "ann", device="laptop")
        ann_too = await clients.join(nodes[1], "ann", device="phone")
        yield Two(nodes, clients, ann, ann_too, await clients.join(nodes[1], "bob"))


async def test_a_room_is_one_room_on_all_nodes(tmp_path: Path, redis: RedisProcess) -> None:
    async with two_nodes(tmp_path, redis) as two:
        assert (await two.nodes[0].ask("PUT", "/v1/rooms/den", {})).status < 300
        for user, at in (("ann", 0), ("bob", 1)):
            assert (await two.nodes[at].ask("PUT", f"/v1/rooms/den/members/{user}", {})).status < 300
        everybody = (two.ann, two.ann_too, two.bob)
        for client in everybody:
            await client.request(type="room.join", room="den")

        for number in range(1, 21):
            speaker = everybody[number % 3]
            assert (await speaker.request(type="room.send", room="den", body=number))["seq"] == number
        for client in everybody:
            await client.hears("room.message", seq=20)
            assert [message["seq"] for message in client.of("room.message")] == [*range(1, 21)]

        two.ann.send(type="typing.start", room="den")
        assert (await two.bob.hears("typing.started", room="den"))["user"] == "ann"
        two.ann_too.send(type="typing.stop", room="den")  # another device on another node
        await two.bob.hears("typing.stopped", room="den", user="ann")
        two.ann.send(type="signal.send", room="den", kind="wave")
        for client in (two.ann_too, two.bob):
            await client.hears("signal", kind="wave", room="den")
        assert two.ann.of("signal") == two.ann.of("typing.started") == two.ann_too.of("typing.started") == []

        assert (await two.nodes[0].ask("DELETE", "/v1/rooms/den/members/bob")).status < 300
        await two.bob.hears("room.changed", room="den", removed=True)
        await two.ann.request(type="room.send", room="den", body="without bob")
        await two.ann_too.hears("room.message", seq=21)
        refusal = await two.bob.answer(type="room.send", room="den", body="let me in")
        assert refusal["code"] == "not_a_member"
        assert len(two.bob.of("room.message")) == 20


async def test_a_removal_is_503_until_every_node_with_the_user_has_let_go(tmp_path: Path, redis: RedisProcess) -> None:
    async with two_nodes(tmp_path, redis) as two:
        assert (await two.nodes[0].ask("PUT", "/v1/rooms/den", {})).status < 300
        for user in ("ann", "bob"):
            assert (await two.nodes[0].ask("PUT", f"/v1/rooms/den/members/{user}", {})).status < 300
        for client in (two.ann, two.bob):
            await client.request(type="room.join", room="den")
        two.nodes[1].signal(signal.SIGSTOP)
        try:
            answer = await two.nodes[0].ask("DELETE", "/v1/rooms/den/members/bob")
        finally:
            two.nodes[1].signal(signal.SIGCONT)
        assert answer.status == 503
        assert (await two.nodes[0].ask("DELETE", "/v1/rooms/den/members/bob")).status == 204
        await two.ann.request(type="room.send", room="den", body="without bob")
        await two.ann.hears("room.message", seq=1)
        await two.bob.hears("room.changed", room="den", removed=True)
        await two.bob.request(type="room.list")  # earlier events have arrived before this reply
        assert two.bob.of("room.message") == []


async def test_signals_reach_a_user_on_every_node_and_operators_any_session(
    tmp_path: Path, redis: RedisProcess
) -> None:
    async with two_nodes(tmp_path, redis) as two:
        (watcher,) = await two.clients.watchers(two.nodes[:1], "ann", "bob")
        for number in range(50):
            two.bob.send(type="signal.send", user="ann", kind="poke", body=number)
        two.ann.send(type="signal.send", user="ann", kind="self")
        for client in (two.ann, two.ann_too):
            await until(lambda client=client: len([s for s in client.of("signal") if s["kind"] == "poke"]) == 50)
            assert [s["body"] for s in client.of("signal") if s["kind"] == "poke"] == [*range(50)], (
                "messages are out of order"
            )
        await two.ann_too.hears("signal", kind="self")
        assert [s for s in two.ann.of("signal") if s["kind"] == "self"] == [], "the sender received its own signal"

        for node in two.nodes:
            sessions = (await node.ask("GET", "/v1/users/ann/sessions")).json()["sessions"]
            assert sorted((s["device"], s["node"]) for s in sessions) == [
                ("laptop", two.ann.client.welcome["node"]),
                ("phone", two.ann_too.client.welcome["node"]),
            ]
        session = two.ann_too.client.welcome["session"]
        assert (await two.nodes[0].ask("DELETE", f"/v1/sessions/{session}")).status == 204
        await until(lambda: two.ann_too.closed is not None)
        assert two.ann_too.closed is not None
        assert two.ann_too.closed.code == 4503
        two.bob.send(type="bye")
        await watcher.sees("bob", "offline")
        assert watcher.states("ann") == []
        unknown = f"{two.ann.client.welcome['node']}-nobody"
        assert (await two.nodes[1].ask("DELETE", "/v1/sessions/zzzz-nobody")).status == 404
        assert (await two.nodes[0].ask("DELETE", f"/v1/sessions/{unknown}")).status == 404

        status = {"status": "busy", "text": "by the app"}
        assert (await two.nodes[1].ask("PUT", "/v1/users/ann/status", status)).status == 200
        await watcher.sees("ann", "busy")
        assert (await two.nodes[1].ask("GET", "/v1/presence/online")).json()["users"] == ["ann", "watcher0"]
