"""Two tenants whose users, rooms, devices and keys have the same names, on the same two nodes: they never meet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cluster.nodes import Clients, Listener, eventually, redis_url, serving
from e2e.processes import SECRET, Process, greendot
from greendot.clock import SystemClock
from greendot.testing import WireClient
from greendot.tokens import Tokens
from redis_servers import RedisProcess

NAMES = ["ann", "a.b@c=d+e-f", "_", "0", "A" * 128]  # every sign an id may have
ROOM = "r.@=+-x"
ROUTES = [
    "/v1/rooms",
    f"/v1/rooms/{ROOM}",
    f"/v1/rooms/{ROOM}/members",
    f"/v1/rooms/{ROOM}/messages",
    f"/v1/rooms/{ROOM}/present",
    f"/v1/rooms/{ROOM}/typing",
    "/v1/presence/online",
    *(f"/v1/users/{name}/{what}" for name in NAMES for what in ("presence", "sessions", "inbox")),
]


async def enter(clients: Clients, node: Process, user: str, tenant: str) -> Listener:
    token = Tokens(SECRET).make(user, SystemClock().now_ms(), 3600, tenant=tenant, name=f"{user[:20]} of {tenant}")
    client = await WireClient.connect(node.port)
    listener = Listener(client)
    await clients.enter_async_context(listener)
    client.send(type="hello", token=token, device="phone")
    await listener.hears("welcome", tenant=tenant, user=user)
    return listener


async def seen(nodes: list[Process], key: str) -> list[Any]:
    """All that a tenant's backend can find out, on both nodes, without what changes by itself."""
    found = []
    for node in nodes:
        for path in ROUTES:
            answer = (await node.ask("GET", path, key=key)).json()
            for session in answer.get("sessions", ()):
                session.pop("last_heard")
            found.append(answer)
    return found


async def live(nodes: list[Process], key: str, people: list[Listener]) -> None:
    """Everything a tenant does."""
    for at, person in enumerate(people):
        other = NAMES[(at + 1) % len(NAMES)]
        await person.request(type="typing.start", room=ROOM)
        await person.request(type="room.send", room=ROOM, body=f"said by {at}", key="k1")
        await person.request(type="signal.send", room=ROOM, kind="cursor", body=at, key="c")
        await person.request(type="signal.send", user=other, kind="wave", body=at)
        await person.request(type="status.set", status="busy", text=f"text {at}")
        posted = {"user": other, "kind": "k", "body": at, "key": "k1"}
        assert (await nodes[at % 2].ask("POST", "/v1/notifications", posted, key=key)).status == 201
        await person.request(type="room.read", room=ROOM, seq=1)
        await person.request(type="inbox.read", through=1)
    removed = await nodes[0].ask("DELETE", f"/v1/rooms/{ROOM}/members/{NAMES[1]}", key=key)
    assert removed.status == 204
    (session, *_) = (await nodes[1].ask("GET", f"/v1/users/{NAMES[2]}/sessions", key=key)).json()["sessions"]
    assert (await nodes[0].ask("DELETE", f"/v1/sessions/{session['session']}", key=key)).status == 204
    await people[3].end()


@pytest.mark.timeout(120)
async def test_nothing_of_a_tenant_reaches_another_with_the_same_names(tmp_path: Path, redis: RedisProcess) -> None:
    async with serving(tmp_path, *[redis_url(redis.port)] * 2) as nodes, Clients() as clients:
        keys, people = {}, {}
        for tenant in ("acme", "rival"):
            made = await greendot(tmp_path, "keys", "create", "backend", "--tenant", tenant, "--scope", "admin")
            keys[tenant] = key = made.out.strip()
            await nodes[0].ask("PUT", f"/v1/rooms/{ROOM}", {}, key=key)
            for name in NAMES:
                await nodes[0].ask("PUT", f"/v1/rooms/{ROOM}/members/{name}", {}, key=key)
            people[tenant] = [await enter(clients, nodes[at % 2], name, tenant) for at, name in enumerate(NAMES)]
            for person in people[tenant]:
                await person.request(type="room.join", room=ROOM)
                await person.watch(*NAMES)

        # Everybody of the rival is there: what comes from here on would be another's.
        async def settled() -> bool:
            rooms = [(await node.ask("GET", f"/v1/rooms/{ROOM}/present", key=keys["rival"])).json() for node in nodes]
            return all(room["count"] == len(NAMES) for room in rooms)

        await eventually(settled, "all are in the room")
        for person in people["rival"]:
            await eventually(lambda p=person: _knows_all(p), "who came last is known to all")  # type: ignore[misc]
        before, told = await seen(nodes, keys["rival"]), [len(person.told) for person in people["rival"]]

        await live(nodes, keys["acme"], people["acme"])
        # What comes of it is over in its own tenant; whatever there were for others would have come by then, too.
        await people["acme"][0].hears("presence.changed", user=NAMES[3], state="offline")

        assert await seen(nodes, keys["rival"]) == before
        heard = [person.told[count:] for person, count in zip(people["rival"], told, strict=True)]
        assert heard == [[]] * len(NAMES)
        assert all(person.closed is None for person in people["rival"])
        for node in nodes:
            stats = (await node.ask("GET", "/v1/stats", key=keys["rival"])).json()
            assert (stats["sends"], stats["refused"]) == (0, 0)
        assert (await people["rival"][0].request(type="room.send", room=ROOM, body=1, key="k1"))["seq"] == 1


async def _knows_all(person: Listener) -> bool:
    return all(state == "online" for state in person.shown().values())
