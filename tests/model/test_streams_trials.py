"""Trials of rooms with faults of nodes, sockets and the bus: each client ends with exactly 1 … head, in order.

Each device also ends with its user's inbox and the right counters. Each trial is drawn from its seed. `make trials`
runs ten thousand, `make trials TRIALS_FIRST=4711 TRIALS=1` repeats one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from greendot.engine.messages import Part
from greendot.errors import EngineUnavailable, StoreUnavailable
from greendot.inbox import delivery as inboxes
from greendot.node import stream_model
from greendot.rooms import delivery, local_room
from greendot.store.inbox import Notice
from greendot.store.rooms import Draft, Role
from model.listeners import Client
from model.simulated import Faults, SimulatedNode, VirtualLoop, World

TRIALS = int(os.environ.get("TRIALS", "120"))
FIRST = int(os.environ.get("TRIALS_FIRST", "0"))
GROUPS = 10  # number of tests: a failure is easier to find and time limits are useful
HEALED_S = {"rooms": 20.0, "inboxes": 70.0}  # time until a comparison repairs any loss of the bus
TENANT = "default"


class Story:
    """One trial."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        random.seed(seed)  # for the jitter of timers
        chance = self.random
        lag_s = chance.choice((0.001, 0.01, 0.05))
        self.world = World(seed + 1, Faults(store=chance.choice((0, 0, 0.03)), lag_s=lag_s))
        self.nodes: list[SimulatedNode] = []
        self.clients: list[Client] = []
        self.rooms = ["plaza", "den"]
        self.members: set[str] = set()  # known members of the den
        self.away: set[str] = set()  # users whose removal has begun
        self.told: list[str] = []  # keys that the app has sent
        self.unsure: dict[str, Notice] = {}  # keys without a response to the app
        self.notices: dict[str, str] = {}  # all keys with their users
        self.tasks: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        chance = self.random
        self.nodes += [await self.world.node() for _ in range(chance.randint(1, 3))]
        await self._settle_in()
        verbs = [self.say] * 12 + [self.burst, self.app, self.app, self.cut, self.cut, self.cut, self.stall]
        verbs += [self.crash, self.restart, self.gap, self.leave, self.join, self.remove, self.wait]
        verbs += [self.notify] * 5 + [self.mark] * 3
        for _ in range(chance.randint(15, 50)):
            await chance.choice(verbs)()
            await asyncio.sleep(chance.expovariate(1 / 0.03))
        await self.finish()

    async def _settle_in(self) -> None:
        chance, room_messages = self.random, self.nodes[0].node.room_messages
        fault, self.world.faults.store = self.world.faults.store, 0
        await room_messages.put_room(TENANT, "plaza", True, chance.choice(("full", "hint")))
        await room_messages.put_room(TENANT, "den", False, chance.choice(("full", "full", "hint")))
        for number in range(chance.randint(2, 5)):
            user = f"u{number // 2 if chance.random() < 0.3 else number}"
            if user not in self.members:
                await self._admit(user)
            self.clients.append(Client(self.world, self.nodes, user, f"d{number}", self.rooms))
        self.world.faults.store = fault

    async def _admit(self, user: str, role: Role = "member") -> None:
        for client in self.clients:
            if client.user == user:
                client.removed.discard("den")
        while True:
            try:
                await self.up().node.room_messages.put_member(TENANT, "den", user, role)
                break
            except StoreUnavailable:
                await asyncio.sleep(0.1)
        self.members.add(user)
        self.away.discard(user)
        for client in self.clients:
            if client.user == user:
                client.join("den")

    def up(self) -> SimulatedNode:
        return self.random.choice([node for node in self.nodes if node.up])

    # --- events ---

    async def say(self) -> None:
        self.random.choice(self.clients).send(self.random.choice(self.rooms))

    async def burst(self) -> None:
        for _ in range(self.random.choice((5, 20, 60))):
            await self.say()

    async def app(self) -> None:
        node, key = self.up(), f"app-{len(self.told)}"
        self.told.append(key)
        name = self.random.choice(self.rooms)

        async def append() -> None:
            draft = Draft("app", None, f'"{key}"'.encode(), key, self.world.clock.now_ms())
            try:
                await node.node.room_messages.append(TENANT, name, draft)
            except StoreUnavailable:
                pass

        self.tasks.append(asyncio.create_task(append()))

    async def notify(self) -> None:
        """Send one or many notifications to one or many users."""
        node, users, chance = self.up(), sorted({client.user for client in self.clients}), self.random
        notices = []
        for _ in range(chance.choice((1, 1, 2, 20))):
            key, kind = f"n{len(self.notices)}", chance.choice(("note", "note", "secret", "alarm"))
            user = self.notices[key] = chance.choice(users)
            body = f'"{key}"'.encode()
            self.unsure[key] = Notice(TENANT, user, kind, body, key, self.world.clock.now_ms())
            notices.append(self.unsure[key])
        self.tasks.append(asyncio.create_task(self._notify(node, notices)))

    async def _notify(self, node: SimulatedNode, notices: list[Notice]) -> None:
        try:
            await node.node.inbox_service.notify(notices)
        except StoreUnavailable:
            return
        for notice in notices:
            self.unsure.pop(notice.key, None)

    async def mark(self) -> None:
        self.random.choice(self.clients).mark(self.random.choice(("seen", "read", "archive", "ack")))

    async def cut(self) -> None:
        self.random.choice(self.clients).cut()

    async def stall(self) -> None:
        self.random.choice(self.clients).stall(self.random.choice((0.1, 2)))

    async def crash(self) -> None:
        await self._replace(self.up(), SimulatedNode.crash)

    async def restart(self) -> None:
        await self._replace(self.up(), SimulatedNode.stop)

    async def _replace(self, node: SimulatedNode, end: object) -> None:
        new = await self.world.node()
        self.nodes[self.nodes.index(node)] = new
        assert callable(end)
        await end(node)

    async def gap(self) -> None:
        """Simulate a short outage of the engine."""
        self.up().node.found(Part(), intact=self.random.random() < 0.5)

    async def leave(self) -> None:
        self.random.choice(self.clients).leave(self.random.choice(self.rooms))

    async def join(self) -> None:
        self.random.choice(self.clients).join(self.random.choice(self.rooms))

    async def remove(self) -> None:
        """Remove a member from the den, or add it again."""
        user = self.random.choice(self.clients).user
        if user in self.away:
            await self._admit(user)
            return
        self.away.add(user)
        node = self.up().node
        try:
            found = await node.store.room(TENANT, "den")
            assert found is not None
            await node.room_messages.remove_member(TENANT, found, user)
        except (EngineUnavailable, StoreUnavailable):
            return  # unknown result: removal is not guaranteed
        self.members.discard(user)
        for client in self.clients:
            if client.user == user:
                client.removed.add("den")

    async def wait(self) -> None:
        await asyncio.sleep(self.random.choice((1, 6, 20)))

    # --- end ---

    async def finish(self) -> None:
        """Make all users members and wait until they are back, while the bus still loses messages."""
        self.world.faults.store = 0
        if self.tasks:
            _, dead = await asyncio.wait(self.tasks, timeout=5)  # tasks of killed nodes
            for task in dead:
                task.cancel()
        for user in [*self.away]:
            await self._admit(user)
        for client in self.clients:
            client.refused.clear()
        end = self.world.loop.time() + 60
        while not self._is_complete():
            assert self.world.loop.time() < end, "clients are not back"
            await self._return()
        if self.unsure:
            await self._notify(self.up(), [*self.unsure.values()])
        start = self.world.loop.time()
        for healed, within_s in ((self._is_healed, HEALED_S["rooms"]), (self._has_all, HEALED_S["inboxes"])):
            while not healed() and self.world.loop.time() < start + within_s:
                await self._return()
        self._check()
        self._check_inboxes()

    async def _return(self) -> None:
        """Rejoin all rooms, also for clients that learn only now of a temporary removal."""
        for client in self.clients:
            for name in self.rooms:
                client.join(name)
        await asyncio.sleep(0.25)

    def _is_complete(self) -> bool:
        return all(
            client.ready
            and not client.unacknowledged
            and all(stream.joined and not stream.busy for stream in client.streams.values())
            for client in self.clients
        )

    def _is_healed(self) -> bool:
        heads = {name: self._head(name) for name in self.rooms}
        return all(stream.cursor == heads[stream.room] for client in self.clients for stream in client.streams.values())

    def _has_all(self) -> bool:
        return not any(self._missing(client) for client in self.clients) and not any(map(self._miscounts, self.clients))

    def _missing(self, client: Client) -> list[str]:
        """Return the notifications of the user's inbox that the device has not received."""
        sql = "SELECT id FROM notifications WHERE user = ? AND archived_at IS NULL"
        rows = self.world.db.execute(sql, (client.user,)).fetchall()
        return [known for (known,) in rows if known not in client.inbox.ids]

    def _miscounts(self, client: Client) -> bool:
        """Return whether the device's badge is wrong. Without a change it has the badge of the welcome."""
        sql = "SELECT unread, unseen FROM inboxes WHERE user = ?"
        row = self.world.db.execute(sql, (client.user,)).fetchone()
        return client.inbox.badge is not None and client.inbox.badge != (row or (0, 0))

    def _check_inboxes(self) -> None:
        sql = "SELECT seq, id, body, key FROM notifications WHERE user = ? ORDER BY seq"
        for client in self.clients:
            rows = self.world.db.execute(sql, (client.user,)).fetchall()
            assert [row[0] for row in rows] == [*range(1, len(rows) + 1)]
            assert sorted(row[3] for row in rows) == sorted(
                k for k, user in self.notices.items() if user == client.user
            )
            order = {row[1]: row[2].decode().strip('"') for row in rows}
            heard = dict(client.inbox.seen)
            assert [item for item in order.items() if item[0] in heard] == client.inbox.seen
            assert not self._missing(client), f"{client.user}/{client.device}"
            assert not self._miscounts(client), f"{client.user}/{client.device} shows {client.inbox.badge}"
        counted = "SELECT user, SUM(read_at IS NULL), SUM(seen_at IS NULL) FROM notifications GROUP BY user"
        kept = "SELECT user, unread, unseen FROM inboxes"
        assert sorted(self.world.db.execute(counted)) == sorted(self.world.db.execute(kept))

    def _head(self, name: str) -> int:
        (head,) = self.world.db.execute("SELECT head FROM rooms WHERE room = ?", (name,)).fetchone()
        return int(head)

    def _check(self) -> None:
        for client in self.clients:
            if client.wrong is not None:
                raise client.wrong
        written: dict[str, tuple[str, int]] = {}
        for name in self.rooms:
            sql = "SELECT seq, id, body, key FROM messages WHERE room = ? ORDER BY seq"
            rows = self.world.db.execute(sql, (name,)).fetchall()
            assert [row[0] for row in rows] == [*range(1, self._head(name) + 1)]
            said = [(row[1], row[2].decode().strip('"')) for row in rows]
            for client in self.clients:
                assert client.streams[name].seen == said, f"{client.user}/{client.device} in {name}"
            written |= {row[3]: (name, row[0]) for row in rows}
            assert len({row[3] for row in rows}) == len(rows)
        for client in self.clients:
            for key, where in client.acknowledged.items():
                assert written[key] == where

    async def close(self) -> None:
        for client in self.clients:
            await client.end()
        for node in self.nodes:
            if node.up:
                await node.stop()
        await asyncio.sleep(1)  # time for running work to end
        self.world.close()


@contextmanager
def limits(seed: int) -> Iterator[None]:
    """Lower the limits in some trials, so that they are reached."""
    with pytest.MonkeyPatch.context() as patch:
        if seed % 4 == 3:
            for module in (delivery, local_room, inboxes):
                patch.setattr(module, "RECOVER", 12)
            patch.setattr(stream_model, "MOST_HELD", 5)
        yield


async def run(seed: int) -> None:
    story = Story(seed)
    try:
        await story.run()
    except BaseException as error:
        lines = sorted(
            (line for client in story.clients for line in client.log), key=lambda line: float(line.split()[0])
        )
        error.add_note("\n".join([*lines[-80:], *map(str, story.clients)]))
        raise
    finally:
        await story.close()


def trial(seed: int) -> None:
    with limits(seed), asyncio.Runner(loop_factory=VirtualLoop) as runner:
        try:
            runner.run(run(seed))
        except BaseException as error:
            error.add_note(f"repeat it: make trials TRIALS_FIRST={seed} TRIALS=1")
            raise


@pytest.mark.parametrize("group", range(min(GROUPS, TRIALS)))
def test_every_client_ends_with_the_whole_stream(group: int, caplog: pytest.LogCaptureFixture) -> None:
    for seed in range(FIRST + group, FIRST + TRIALS, GROUPS):
        trial(seed)
        broken = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert not broken, f"in trial {seed}: {broken[0].getMessage()}\n{broken[0].exc_text}"
        caplog.clear()
