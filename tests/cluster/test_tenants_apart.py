"""Isolation of two tenants with equal names of users, rooms, devices and keys on the same two nodes."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from cluster.nodes import Clients, Listener, eventually, redis_url, serving
from e2e.processes import SECRET, Answer, Process, greendot
from greendot.auth.tokens import Tokens
from greendot.clock import SystemClock
from greendot.testing import WireClient
from model.apart import CLOSED, OPEN, SLOTS, VERBS, WORDS, Names, Step, Story
from postgres_server import migrated_schema
from redis_servers import RedisProcess

NAMES = ["ann", "a.b@c=d+e-f", "_", "0", "A" * 128]  # all characters that an id may have
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
    """Return all that a tenant's backend can read on both nodes, without values that change by themselves."""
    found = []
    for node in nodes:
        for path in ROUTES:
            answer = (await node.ask("GET", path, key=key)).json()
            for session in answer.get("sessions", ()):
                session.pop("last_heard")
            found.append(answer)
    return found


async def live(nodes: list[Process], key: str, people: list[Listener]) -> None:
    """Use all features of a tenant."""
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

        # All users of the rival tenant are connected: later events would come from the other tenant.
        async def settled() -> bool:
            rooms = [(await node.ask("GET", f"/v1/rooms/{ROOM}/present", key=keys["rival"])).json() for node in nodes]
            return all(room["count"] == len(NAMES) for room in rooms)

        await eventually(settled, "all users are in the room")
        for person in people["rival"]:
            await eventually(lambda p=person: _knows_all(p), "all clients have received the last user who entered")  # type: ignore[misc]
        before, told = await seen(nodes, keys["rival"]), [len(person.told) for person in people["rival"]]

        await live(nodes, keys["acme"], people["acme"])
        # The effects in the own tenant are complete, so effects on the other would have arrived, too.
        await people["acme"][0].hears("presence.changed", user=NAMES[3], state="offline")

        assert await seen(nodes, keys["rival"]) == before
        heard = [person.told[count:] for person, count in zip(people["rival"], told, strict=True)]
        assert heard == [[]] * len(NAMES)
        assert all(person.closed is None for person in people["rival"])
        for node in nodes:
            stats = (await node.ask("GET", "/v1/stats", key=keys["rival"])).json()
            assert (stats["sends"], stats["refused"]) == (0, 0)
        assert (await people["rival"][0].request(type="room.send", room=ROOM, body=1, key="k1"))["seq"] == 1


class Nodes(Story):
    """Two nodes with a shared Redis and PostgreSQL that run the steps in real time."""

    def __init__(self, nodes: list[Process], names: Names, keys: dict[int, str]) -> None:
        super().__init__(None, names, keys)  # type: ignore[arg-type]
        self.nodes = nodes
        self.keys = self.spare_keys = keys

    async def begin(self) -> None:
        for tenant in self.tenants:
            for room, is_open in ((CLOSED, False), (OPEN, True)):
                path = f"/v1/rooms/{self.names.rooms[room]}"
                assert (await self.answer(self.keys[tenant], "PUT", path, {"open": is_open})).status == 200
                for user in self.names.users:
                    await self.answer(self.keys[tenant], "PUT", f"{path}/members/{user}")
            for slot in range(SLOTS):
                await self.come(tenant, slot)
        self.first.update(self.sessions)

        async def known() -> bool:
            return all([await self._has_come(tenant) for tenant in self.tenants])

        await eventually(known, "Redis has published that all users have entered")

    async def _has_come(self, tenant: int) -> bool:
        """Return whether the occupants of all rooms are complete, on both nodes. They are written after the reply."""
        paths = [f"/v1/rooms/{self.names.rooms[room]}/present" for room in (CLOSED, OPEN)]
        pages = [await node.ask("GET", path, key=self.keys[tenant]) for node in self.nodes for path in paths]
        return all(page.json()["count"] == len(self.names.users) for page in pages)

    async def come(self, tenant: int, slot: int) -> None:
        await self.connect(tenant, slot)
        client = self.clients[tenant, slot]
        await client.request(type="watch", users=[*self.names.users])
        for room in (CLOSED, OPEN):
            await client.request(type="room.join", room=self.names.rooms[room])

    def make_token(self, user: str, **claims: Any) -> str:
        return Tokens(SECRET).make(user, SystemClock().now_ms(), 3600, **claims)

    async def socket(self, slot: int) -> WireClient:
        return await WireClient.connect(self.nodes[slot % 2].port)

    async def answer(self, key: str, method: str, path: str, body: Any = None) -> Answer:
        return await self.nodes[len(path) % 2].ask(method, path, body, key=key)

    async def gone(self) -> None:
        pass

    async def found(self, tenant: int) -> list[Any]:
        """Return all that a tenant's backend can read, without values that change by themselves."""
        names, found = self.names, list[Any]()
        paths = ["/v1/rooms", "/v1/presence/online", "/v1/stats"]
        paths += [
            f"/v1/rooms/{room}{what}" for room in names.rooms for what in ("", "/members", "/messages", "/present")
        ]
        paths += [f"/v1/users/{user}/{what}" for user in names.users for what in ("presence", "sessions", "inbox")]
        for node in self.nodes:
            for path in paths:
                answer = (await node.ask("GET", path, key=self.keys[tenant])).json()
                for session in answer.get("sessions", ()):
                    session.pop("last_heard")
                found.append(answer)
        return found

    async def heard(self, tenant: int) -> list[list[Any]]:
        return [await client.quiet() for (at, _), client in self.clients.items() if at == tenant]

    async def settled(self, tenant: int) -> None:
        """Wait until all events of the tenant's own connections have arrived."""

        async def quiet() -> bool:
            return not any(await self.heard(tenant))

        for _ in range(3):
            await eventually(quiet, "no more events arrive")

    async def end(self, tenant: int) -> None:
        """Reconnect all users and send each an event: events for others have arrived by then."""
        self.revoked[tenant] += 1
        await asyncio.sleep(1.1)  # the revocation covers tokens of the same second
        for slot in range(SLOTS):
            await self.leave(Step(tenant, "bye", slot, 0, 0.0), bye=True)
            assert (await self.connect(tenant, slot))["type"] == "welcome"
        for user in self.names.users:
            signal = {"user": user, "kind": "end", "body": WORDS[tenant]}
            assert (await self.answer(self.keys[tenant], "POST", "/v1/signals", signal)).status == 202
        for slot in range(SLOTS):
            while (await self.clients[tenant, slot].receive())["type"] != "signal":
                pass
        await self.settled(tenant)

    async def close(self) -> None:
        for client in self.clients.values():
            await client.end()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(2))
async def test_actions_of_a_tenant_are_not_visible_to_another_with_the_same_names(
    tmp_path: Path, redis: RedisProcess, postgres: str, seed: int
) -> None:
    chance = random.Random(seed)
    names = Names(("a", "a.b"), ("c", "b.c"), ("c", "b.c", "b-c"), "b.c", "k.@=+-")
    async with migrated_schema(postgres) as place:
        stored = {"GREENDOT_STORE_URL": place, "GREENDOT_STORE_MIGRATE": "true"}
        async with serving(tmp_path, *[redis_url(redis.port)] * 2, **stored) as nodes:
            keys = {}
            for number, tenant in enumerate(names.tenants):
                made = await greendot(
                    tmp_path, "keys", "create", "backend", "--tenant", tenant, "--scope", "admin", **stored
                )
                keys[number] = made.out.strip()
            story = Nodes(nodes, names, keys)
            try:
                await story.begin()
                await story.settled(1)
                before = await story.found(1)
                for _ in range(150):
                    verb = chance.choice([verb for verb in VERBS if verb != "remove key"])
                    step = Step(0, verb, chance.randrange(SLOTS), chance.randrange(12), 0.0)
                    assert WORDS[1] not in str(await VERBS[verb](story, step)), step
                await story.end(0)
                assert await story.heard(1) == [[]] * SLOTS
                assert await story.found(1) == before
                assert WORDS[0] not in str(before)
            finally:
                await story.close()


async def _knows_all(person: Listener) -> bool:
    return all(state == "online" for state in person.shown().values())
