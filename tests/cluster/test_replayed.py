"""Replay of all bus messages by an attacker on Redis: which are delivered again, and which are not.

Messages of nodes and scripts are signed but not numbered, so a replay counts as new. Nothing important depends on that:
messages have numbers, presence has versions, and membership is looked up.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cluster.nodes import Clients, Listener, eventually, redis_url, serving
from e2e.processes import Process
from redis_servers import Connection, RedisProcess

OVER = "the story is over"
MAY_COME_AGAIN = {"reply", "room.message", "signal", "typing.started", "typing.stopped", "room.entered", "room.left"}
MAY_COME_AGAIN |= {"room.changed", "inbox.badge", "notification.updated"}


async def story(nodes: list[Process], clients: Clients) -> list[Listener]:
    """Cause a bus message of each type."""
    here, there = nodes
    await here.ask("PUT", "/v1/rooms/den", {})
    for user in ("ann", "bob", "eve"):
        await here.ask("PUT", f"/v1/rooms/den/members/{user}", {})
    ann, bob, eve = [await clients.join(node, user) for node, user in ((here, "ann"), (there, "bob"), (there, "eve"))]
    for person in (ann, bob, eve):
        await person.request(type="room.join", room="den")
        await person.watch("ann", "bob", "eve")
    await bob.request(type="status.set", status="busy")
    await ann.sees("bob", "busy")
    await bob.request(type="status.set", status="auto")
    await ann.sees("bob", "busy", "online")
    await ann.request(type="typing.start", room="den")
    await ann.request(type="room.send", room="den", body="said")
    await ann.request(type="room.edit", room="den", ref=1, body="corrected")
    await bob.hears("room.message", seq=2)
    await ann.request(type="signal.send", user="bob", kind="wave")
    await bob.hears("signal")
    await here.ask("POST", "/v1/notifications", {"user": "bob", "kind": "news", "body": 1})
    await bob.hears("notification.created")
    await bob.request(type="inbox.read", through=1)
    await eve.request(type="privacy.set", hide_from=["bob"])
    await eve.request(type="privacy.set", hide_from=[])
    assert (await here.ask("DELETE", "/v1/rooms/den/members/eve")).status == 204
    await here.ask("PUT", "/v1/rooms/den/members/eve", {})
    await eve.request(type="room.join", room="den")
    gone = await clients.join(there, "gone")
    assert (await here.ask("POST", "/v1/tokens/revoke", {"session": gone.client.welcome["session"]})).status == 200

    async def noted() -> bool:
        (notification,) = (await here.ask("GET", "/v1/users/bob/inbox")).json()["notifications"]
        return notification["live_at"] is not None

    await eventually(noted, "the receipt of bob's notification is recorded")
    return [ann, bob, eve]


def everything(spy: Connection, server: RedisProcess) -> list[tuple[bytes, bytes]]:
    """Return all channels and messages published so far."""
    server.command("PUBLISH", OVER, OVER)
    found: list[tuple[bytes, bytes]] = []
    while True:
        _, _, channel, message = spy.read()
        if channel == OVER.encode():
            return found
        found.append((channel, message))


async def known(nodes: list[Process], people: list[Listener]) -> list[Any]:
    """Return the states that clients have and the stored records."""
    shown: list[Any] = [person.shown() for person in people]
    paths = ["/v1/rooms/den/members", "/v1/presence/online", "/v1/users/bob/inbox"]
    for node in nodes:
        shown += [(await node.ask("GET", path)).json() for path in paths]
    return shown


@pytest.mark.timeout(90)
async def test_a_replay_of_bus_messages_changes_no_state_and_shows_no_message_twice(
    tmp_path: Path, redis: RedisProcess
) -> None:
    async with serving(tmp_path, *[redis_url(redis.port)] * 2) as nodes, Clients() as clients:
        with redis.connect() as spy:
            spy.call("PSUBSCRIBE", "*")
            people = await story(nodes, clients)
            published = everything(spy, redis)
        before, told = await known(nodes, people), [len(person.told) for person in people]
        assert len(published) > 20
        for channel, message in published * 2:
            redis.command("PUBLISH", channel, message)
        ann, *others = people
        await ann.request(type="room.send", room="den", body="after")
        for person, count in zip(others, told[1:], strict=True):
            # A member whom a replayed message removed from the room can join again.
            joined = await person.request(type="room.join", room="den", after=2)
            missed = [message["seq"] for message in joined["messages"]]

            async def has_it(person: Listener = person, count: int = count, missed: list[int] = missed) -> bool:
                """Return whether the message came in the reply or live: the node may receive it after the join."""
                live = [frame.data["seq"] for frame in person.told[count:] if frame.type == "room.message"]
                return 3 in (*missed, *live)

            assert missed in ([], [3])
            await eventually(has_it, "message 3 has arrived")
        for person, count in zip(people, told, strict=True):
            again = person.told[count:]
            assert {frame.type for frame in again} <= MAY_COME_AGAIN
            assert [frame.data["seq"] for frame in again if frame.type == "room.message"] in ([], [3])
            assert person.closed is None
        assert await known(nodes, people) == before
