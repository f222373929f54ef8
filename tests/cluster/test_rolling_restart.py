"""Three nodes behind a load balancer are restarted one after the other, while hundreds of clients send.

`ROLLING_CLIENTS` sets their number.
"""

from __future__ import annotations

import asyncio
import os
import random
import resource
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median

import pytest

from cluster.balancer import Balancer
from cluster.nodes import meanwhile, redis_url
from e2e.processes import API_KEY, SECRET, Process, ask, running, until
from greendot.auth.tokens import Tokens
from greendot.client import Client, body_of
from greendot.client.session import ATTEMPT_S
from greendot.clock import SystemClock
from greendot.protocol.events import NotificationCreated, Presence, RoomEntered, RoomLeft, RoomMessage, Welcome
from postgres_server import migrated_schema
from redis_servers import RedisProcess

CLIENTS = int(os.environ.get("ROLLING_CLIENTS", "240"))
ROOM_OF, WATCHED = 20, 10  # members per room; watched users per client
GRACE_S = 120.0  # reconnects may take long on a busy machine, and this test does not measure them
WITHIN_S = 120.0
SETTINGS = {
    "GREENDOT_STORE_MIGRATE": "true",
    "GREENDOT_SERVER_DRAIN_NOTICE_S": "0.5",
    "GREENDOT_PRESENCE_GRACE_S": f"{GRACE_S:g}",
    "GREENDOT_NODE_LEASE_S": "5",
    "GREENDOT_NODE_RENEW_S": "1",
    # Other tests make the machine busy and loops late, which this test does not measure.
    "GREENDOT_OVERLOAD_LAG_S": "10",
    "GREENDOT_OVERLOAD_BUS_LAG_S": "10",
}


class Person:
    """Client with the frames it received and the times it was disconnected."""

    def __init__(self, number: int, port: int) -> None:
        self.name, self.room = f"user{number}", f"room{number // ROOM_OF}"
        self.watched = [f"user{(number + step) % CLIENTS}" for step in range(1, WATCHED + 1)]
        self.messages: list[RoomMessage] = []
        self.notifications: list[str] = []
        self.welcomes: list[Welcome] = []
        self.changes: list[object] = []  # unexpected presence changes of others
        self.away: list[float] = []  # seconds
        self._lost_at = 0.0
        tokens = Tokens(SECRET)
        self.client = Client(
            f"ws://127.0.0.1:{port}/v1/connect",
            lambda: tokens.make(self.name, SystemClock().now_ms(), 3600, name=self.name),
        )

    async def come(self) -> None:
        self.client.on(RoomMessage, self.messages.append)
        self.client.on(NotificationCreated, lambda event: self.notifications.append(body_of(event)))
        self.client.on(Welcome, self.welcomes.append)
        await self.client.__aenter__()
        await self.client.join(self.room)
        await self.client.watch(*self.watched)

    def look(self) -> None:
        """Record all presence changes from now on; none is expected."""
        visibles = {user: (entry.state, entry.version) for user, entry in self.client.people.items()}

        def looked_at(entry: Presence) -> None:
            # A client that was disconnected receives the state of all users again, unchanged.
            if (entry.state, entry.version) != visibles[entry.user]:
                self.changes.append(entry)

        self.client.on(Presence, looked_at)
        for kind in (RoomEntered, RoomLeft):
            self.client.on(kind, self.changes.append)
        self.client.on("state", self._moved)

    def _moved(self, change: object) -> None:
        state = getattr(change, "state", "")
        if state == "reconnecting":
            self._lost_at = time.monotonic()
        elif state == "connected":
            self.away.append(time.monotonic() - self._lost_at)


class Talk:
    """Load: one message per second in each room, and ten notifications per second."""

    def __init__(self, people: Sequence[Person], balancer: Balancer) -> None:
        self.said: dict[str, list[str]] = {person.room: [] for person in people}
        self.notified: dict[str, list[str]] = {person.name: [] for person in people}
        self.retried = 0  # requests without a response
        self._people, self._balancer = people, balancer
        self._numbers = 0

    @asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        speakers = self._people[::ROOM_OF]
        async with meanwhile(*(lambda each=each: self._say(each) for each in speakers), self._notify):
            yield

    async def _say(self, person: Person) -> None:
        body = f"{person.name} {len(self.said[person.room])}"
        self.said[person.room].append(body)
        await person.client.send(person.room, body)
        await asyncio.sleep(random.uniform(0.8, 1.2))

    async def _notify(self) -> None:
        """Send a notification with a key, as an app does, and retry until it is answered."""
        self._numbers += 1
        person, title = random.choice(self._people), f"notice-{self._numbers}"
        self.notified[person.name].append(title)
        body = {"user": person.name, "kind": "test", "body": title, "key": title}
        while not await self._posted(body):
            self.retried += 1
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.1)

    async def _posted(self, body: dict[str, str]) -> bool:
        try:
            key = f"Bearer {API_KEY}"
            answer = await ask(self._balancer.port, "POST", "/v1/notifications", body, Authorization=key)
        except (OSError, IndexError):  # the connection was cut
            return False
        assert answer.status in (200, 201, 503), answer
        return answer.status != 503


@asynccontextmanager
async def crowd(balancer: Balancer) -> AsyncIterator[list[Person]]:
    people = [Person(number, balancer.port) for number in range(CLIENTS)]
    try:
        for start in range(0, CLIENTS, 50):
            await asyncio.gather(*(person.come() for person in people[start : start + 50]))
        yield people
    finally:
        await asyncio.gather(*(person.client.close() for person in people))


async def restart(node: Process, balancer: Balancer, start: Callable[[], Awaitable[Process]]) -> None:
    """Stop a node as a service manager does, and start another in its place."""
    node.signal(signal.SIGTERM)
    ended = await node.ended(WITHIN_S)
    assert (ended.code, "Traceback" in ended.err) == (0, False), ended.err
    balancer.nodes.remove(node.port)
    new = await start()
    balancer.nodes.append(new.port)
    await until(lambda: new.port in balancer.ready, WITHIN_S)


@pytest.mark.timeout(300)
async def test_no_client_notices_a_rolling_restart_and_nothing_is_lost(
    tmp_path: Path, redis: RedisProcess, postgres: str
) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    async with AsyncExitStack() as stack:
        settings = SETTINGS | {"GREENDOT_STORE_URL": await stack.enter_async_context(migrated_schema(postgres))}

        async def start() -> Process:
            flags = ("--host", "127.0.0.1", "--engine", redis_url(redis.port))
            return await stack.enter_async_context(running(tmp_path, *flags, **settings))

        nodes = [await start() for _ in range(3)]
        balancer = await stack.enter_async_context(Balancer())
        balancer.nodes = [node.port for node in nodes]
        await until(lambda: len(balancer.ready) == 3)
        for number in range(CLIENTS // ROOM_OF):
            await nodes[0].ask("PUT", f"/v1/rooms/room{number}", {"open": True})
        people = await stack.enter_async_context(crowd(balancer))
        talk = Talk(people, balancer)
        async with talk.going_on():
            await asyncio.sleep(1)
            for person in people:
                person.look()
            for node in nodes:
                await restart(node, balancer, start)
                await until(lambda: all(person.client.state == "connected" for person in people), WITHIN_S)
        await until(lambda: all_was_heard(people, talk), WITHIN_S)
        assert [person.name for person in people if person.client.state != "connected"] == []
        assert [change for person in people for change in person.changes] == []
        assert {state.state for person in people for state in person.client.people.values()} == {"online"}
        for person in people:
            assert [message.seq for message in person.messages] == [*range(1, len(talk.said[person.room]) + 1)]
            assert [body_of(message) for message in person.messages] == talk.said[person.room]
            assert sorted(person.notifications) == sorted(talk.notified[person.name])
        # A client without a welcome in this time gives up the attempt, and the session it may have received.
        in_time = [person for person in people if max(person.away, default=0.0) < ATTEMPT_S]
        assert all(welcome.resumed for person in in_time for welcome in person.welcomes[1:])
        assert sum(len(person.welcomes) - 1 for person in people) >= CLIENTS
        await all_were_handed_over(in_time, balancer.nodes)
        away = sorted(gap for person in people for gap in person.away)
        gaps = f"without a connection {median(away):.2f} s at the median, {away[-1]:.2f} s at most"
        print(f"{len(away)} moves, {talk.retried} requests repeated; {gaps}")


async def all_were_handed_over(people: Sequence[Person], ports: Sequence[int]) -> None:
    """Check that each user has one session, with a socket, on a live node, so that none goes offline later."""
    key = {"Authorization": f"Bearer {API_KEY}"}
    nodes = (await ask(ports[0], "GET", "/v1/nodes", **key)).json()["nodes"]
    live = {node["node"] for node in nodes if node["state"] == "live"}
    assert len(live) == len(ports)
    for person in random.sample(people, min(200, len(people))):
        answer = await ask(random.choice(ports), "GET", f"/v1/users/{person.name}/sessions", **key)
        ((state, node),) = [(each["state"], each["node"]) for each in answer.json()["sessions"]]
        assert (state, node in live) == ("online", True)


def all_was_heard(people: Sequence[Person], talk: Talk) -> bool:
    return all(
        len(person.messages) == len(talk.said[person.room])
        and len(person.notifications) == len(talk.notified[person.name])
        for person in people
    )
