"""Users of a run: people who stay, people who come and go, and an app, and the comparison of everything they see."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from chaos.checker import LATE_S, Checker
from chaos.devices import KINDS, Device, Setting
from chaos.javascript import Browser, JavaScriptDevice, missing
from chaos.nodes import Node
from chaos.world import World
from e2e.processes import SECRET
from greendot.auth.tokens import Tokens

ROOMS = tuple(f"room{number}" for number in range(4))
WATCHED = 20
TALK_S, TYPE_S, NOTIFY_S = 0.4, 0.25, 0.8
HOUR_MS = 3_600_000
LEAVE_S = 20.0
PAGE = 300
Problem = tuple[str, str]  # invariant and text


class Crowd:
    """All devices of a run and their drivers."""

    def __init__(self, world: World, checker: Checker, seed: int, count: int, javascript: bool) -> None:
        self.world, self.checker = world, checker
        self.random = random.Random(seed)
        self.setting = Setting(checker, world.port, token, self.random)
        self.kinds = KINDS
        self.browser: Browser | None = None
        if not javascript:
            pass
        elif (reason := missing()) is None:
            self.browser = JavaScriptDevice.browser = Browser()
            self.kinds += (JavaScriptDevice,)
        else:
            checker.story.show("RUN", f"no JavaScript clients: {reason}")
        walkers = count // 4
        self.users = [f"user{number}" for number in range(count)]
        self.walking = {*self.users[:walkers]}
        self.devices = [self._device(number, user) for number, user in enumerate(self.users)]
        self.steady = [device for device in self.devices if device.user not in self.walking]
        self.observers = [
            kind(self.setting, f"observer{number}", self.users, ROOMS, "desk")
            for number, kind in enumerate(self.kinds * 2)
        ]
        self.notified: dict[str, int] = {}  # user → number of confirmed notifications
        self._number = 0
        self._sending: set[asyncio.Task[Any]] = set()
        self._tasks: list[asyncio.Task[Any]] = []

    def _device(self, number: int, user: str) -> Device:
        kind = self.kinds[number % len(self.kinds)]
        watched = self.random.sample(self.users, min(WATCHED, len(self.users)))
        return kind(self.setting, user, watched, [ROOMS[number // len(self.kinds) % len(ROOMS)]], "phone")

    @property
    def staying(self) -> list[Device]:
        """Return the devices that must always be connected."""
        return [*self.steady, *self.observers]

    @property
    def everybody(self) -> list[Device]:
        return [*self.devices, *self.observers]

    # --- drivers ---

    @asynccontextmanager
    async def living(self) -> AsyncIterator[None]:
        """Let all devices come, and drive them until the end of the block."""
        if self.browser is not None:
            await self.browser.start()
        for room in ROOMS:
            await self._until_done(self.world.nodes[0], "PUT", f"/v1/rooms/{room}", {"open": True})
        for number, device in enumerate(self.staying):
            await device.come()
            if number % 10 == 9:
                await asyncio.sleep(0.1)
        walkers = [device for device in self.devices if device.user in self.walking]
        steps: list[Awaitable[None]] = [self._walk(device) for device in walkers]
        steps += [
            self._repeat(TALK_S, self._talk),
            self._repeat(TYPE_S, self._type),
            self._repeat(NOTIFY_S, self._notify),
        ]
        self._tasks = [asyncio.ensure_future(step) for step in steps]
        try:
            yield
        finally:
            await self._stop()
            await self._leave()

    async def _leave(self) -> None:
        """Disconnect all devices. A client that does not end must not hold up the end of the run."""
        leaving = [asyncio.ensure_future(device.leave("lost")) for device in self.everybody]
        _, late = await asyncio.wait(leaving, timeout=LEAVE_S)
        for task in late:
            self.checker.story.add("RUN", "a client does not end")
            task.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)
        if self.browser is not None:
            await self.browser.runner.stop()

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def quiet(self, within_s: float) -> None:
        """Stop sending, and wait until every message is confirmed."""
        await self._stop()
        if self._sending:
            await asyncio.wait(self._sending, timeout=within_s)
        for task in self._sending:
            self.checker.fail("heals", f"a message was not confirmed within {within_s:.0f} s: {task.get_name()}")

    def failed(self) -> Iterator[str]:
        """Yield the errors of drivers, which are mistakes of this program."""
        for task in self._tasks:
            if task.done() and not task.cancelled() and task.exception() is not None:
                yield f"{task.exception()!r}"

    async def _repeat(self, pause_s: float, step: Callable[[], Any]) -> None:
        while True:
            step()
            await asyncio.sleep(pause_s * (0.5 + self.random.random()))

    async def _walk(self, device: Device) -> None:
        """Come and go for ever."""
        await asyncio.sleep(self.random.random() * 10)
        while True:
            await device.come()
            await asyncio.sleep(6 + self.random.random() * 20)
            how = self.random.choice(device.ways)
            self.checker.story.add(str(device), f"leaves: {how}")
            await device.leave(how)
            await asyncio.sleep(2 + self.random.random() * 40)

    def _key(self) -> str:
        self._number += 1
        return f"k{self._number}"

    def _talk(self) -> None:
        device = self.random.choice(self.steady)
        if device.is_ready:
            self._send(device.say(self.random.choice(device.rooms), self._key()), str(device))

    def _type(self) -> None:
        device = self.random.choice(self.steady)
        device.type(self.random.choice(device.rooms))

    def _notify(self) -> None:
        user = self.random.choice(self.steady).user
        self._send(self._notified(user, self._key()), f"the app to {user}")

    def _send(self, work: Any, name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._sending.add(task)
        task.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Task[Any]) -> None:
        self._sending.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.checker.fail("heals", f"{task.get_name()} failed: {error!r}")

    async def _notified(self, user: str, key: str) -> None:
        body = {"user": user, "kind": "news", "body": {"key": key}, "key": key}
        self.checker.records.sending(f"inbox:{user}", key)
        await self._until_done(None, "POST", "/v1/notifications", body)
        self.notified[user] = self.notified.get(user, 0) + 1

    async def _until_done(self, node: Node | None, method: str, path: str, body: Any) -> bytes:
        """Send a request to a node, or to any, until it succeeds."""
        while True:
            chosen = node or self.random.choice(self.world.nodes)
            with suppress(OSError, TimeoutError, ValueError, IndexError):
                status, answer = await chosen.ask(method, path, body)
                if status < 300:
                    return answer
                self.checker.seen[f"requests refused ({status})"] += 1
            await asyncio.sleep(0.5)

    # --- comparison ---

    async def problems(self) -> list[Problem]:
        """Return everything that is not in step: processes, clients, screens, answers of nodes, occupants."""
        found: list[Problem] = []
        ready = await asyncio.gather(*(node.ready() for node in self.world.nodes))
        for node, is_ready in zip(self.world.nodes, ready, strict=True):
            if not is_ready:
                found.append(("heals", f"{node} is not ready"))
        away = [str(device) for device in self.staying if not device.is_ready]
        if away:
            found.append(("heals", f"{len(away)} clients have no connection: {', '.join(away[:5])}"))
        for device in self.everybody:
            if device.is_ready:
                found += self.checker.wrong_screen(device.user, device.shown())
        found += self.checker.stuck_typing()
        if not all(ready):
            return found
        for wrong in await asyncio.gather(*(self._wrong_answers(node) for node in self.world.nodes)):
            found += wrong
        return found

    async def _wrong_answers(self, node: Node) -> list[Problem]:
        """Return the differences between the answers of a node and the truth."""
        try:
            entries = msgspec.json.decode(await self._read(node, "POST", "/v1/presence/query", {"users": self.users}))
            found = [
                (invariant, f"{node}: {text}")
                for invariant, text in self.checker.wrong_screen(
                    "", {entry["user"]: entry for entry in entries["presence"]}
                )
            ]
            for room in ROOMS:
                answer = msgspec.json.decode(await self._read(node, "GET", f"/v1/rooms/{room}/present?limit=1000"))
                found += self._wrong_occupants(node, room, {*answer["users"]}, stale=answer.get("stale", False))
        except (OSError, TimeoutError, ValueError, IndexError) as error:
            return [("heals", f"{node} does not answer: {error!r}")]
        return found

    def _wrong_occupants(self, node: Node, room: str, users: set[str], *, stale: bool) -> Iterator[Problem]:
        if stale:
            yield "occupancy-true", f"{node}: the occupants of {room} are stale"
        for device in self.everybody:
            if room not in device.rooms:
                continue
            self.checker.checked["occupancy-true"] += 1
            if device.is_ready and device.user not in users:
                yield "occupancy-true", f"{node}: {device} is not among the occupants of {room}"
            elif device.user in users and self.checker.is_there(device.user) is False:
                yield "occupancy-true", f"{node}: {device} is among the occupants of {room}"

    async def _read(self, node: Node, method: str, path: str, body: Any = None) -> bytes:
        status, answer = await node.ask(method, path, body)
        if status != 200:
            raise ValueError(f"{method} {path}: status {status}")
        return answer

    async def probe(self) -> list[Problem]:
        """Publish a message through each node, and return the clients that do not get it in time."""
        found: list[Problem] = []
        for number, node in enumerate(self.world.nodes):
            room, key = ROOMS[number % len(ROOMS)], self._key()
            stream = f"room:{room}"
            self.checker.records.sending(stream, key)
            body = {"user": "app", "body": {"key": key}, "key": key}
            try:
                status, answer = await node.ask("POST", f"/v1/rooms/{room}/messages", body)
            except (OSError, TimeoutError) as error:
                return [("heals", f"{node} does not accept a message: {error!r}")]
            if status not in (200, 201):
                return [("heals", f"{node} does not accept a message: status {status}")]
            seq = msgspec.json.decode(answer)["seq"]
            self.checker.records.confirm(stream, key, seq)
            found += await self._missing(node, room, seq)
        return found

    async def _missing(self, node: Node, room: str, seq: int) -> list[Problem]:
        end = time.monotonic() + LATE_S
        while True:
            late = [d for d in self.staying if room in d.rooms and d.last.get(f"room:{room}", 0) < seq]
            if not late:
                return []
            if time.monotonic() > end:
                first = ", ".join(map(str, late[:5]))
                return [
                    ("heals", f"number {seq} of {room}, sent to {node}, does not reach {len(late)} clients: {first}")
                ]
            await asyncio.sleep(0.05)

    # --- end ---

    async def recount(self) -> None:
        """Compare the stored records with everything that was sent and received."""
        node = self.world.nodes[0]
        for room in ROOMS:
            history: list[tuple[int, str]] = []
            after = 0
            while True:
                path = f"/v1/rooms/{room}/messages?after={after}&limit={PAGE}"
                page = msgspec.json.decode(await self._read(node, "GET", path))["messages"]
                history += [(message["seq"], message["body"]["key"]) for message in page]
                if not page:
                    break
                after = page[-1]["seq"]
            self.checker.records.compare(f"room:{room}", history)
        for user, count in self.notified.items():
            answer = msgspec.json.decode(await self._read(node, "GET", f"/v1/users/{user}/inbox?limit=300"))
            self.checker.checked["counters-true"] += 1
            self.checker.checked["records-kept"] += count
            if (answer["head"], answer["unread"]) != (count, count):
                text = f"the inbox of {user} has head {answer['head']}, {answer['unread']} unread"
                self.checker.fail("counters-true", f"{text}; {count} notifications were confirmed")
        for device in self.steady:
            if (last := device.last.get("inbox")) is not None and last > self.notified.get(device.user, 0):
                self.checker.fail("records-in-order", f"{device} has notification {last}")


def token(user: str) -> str:
    """Return a token that is valid on a node whose clock is an hour off."""
    return Tokens(SECRET).make(user, round(time.time() * 1000) - 2 * HOUR_MS, 86_400, name=user.capitalize())
