"""Devices that use the JavaScript client, all in one process of Node.js.

The process is the runner of the behaviour suite (clients/behaviour). It reports states without versions, so their
order is not checked; screens and records are.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from behaviour_driver.runner import Runner, RunnerError
from chaos.devices import Device, Setting

CLIENTS = Path(__file__).parents[2] / "clients"
SUFFIX = ".page"  # of the names of clients
PROGRAM = CLIENTS / "behaviour" / "runners" / "javascript.mjs"


def missing() -> str | None:
    """Return why there are no JavaScript clients in this run; None if there are."""
    if shutil.which("node") is None:
        return "Node.js is not installed"
    return None if (CLIENTS / "node_modules" / "ws").exists() else "run `npm ci` in clients/ first"


class Browser:
    """Process of Node.js with all JavaScript clients."""

    def __init__(self) -> None:
        self.runner = Runner("node", ["node", str(PROGRAM)])
        self.devices: dict[str, JavaScriptDevice] = {}

    async def start(self) -> None:
        self.runner.subscribe(SUFFIX, self._event)
        await self.runner.start()

    def _event(self, event: dict[str, Any]) -> None:
        if (device := self.devices.get(event["client"])) is not None:
            device.event(event)


class JavaScriptDevice(Device):
    """Device that uses the JavaScript client."""

    kind = "JavaScript client"
    beats = True
    ways = ("bye", "clean")
    browser: Browser  # of the run

    def __init__(self, setting: Setting, user: str, watched: Sequence[str], rooms: Sequence[str], name: str) -> None:
        super().__init__(setting, user, watched, rooms, name)
        self._opening: asyncio.Task[None] | None = None
        self._is_online = False
        self._number = 0
        self._client = f"{user}{SUFFIX}"
        self.browser.devices[self._client] = self

    async def come(self) -> None:
        if not self.is_wanted:
            self.is_wanted, self.away_since = True, time.time()
            self.last.clear()  # a new client begins at the newest records, with an empty screen
            self.screen.clear()
            self._opening = asyncio.create_task(self._open(), name=f"{self}")

    async def _open(self) -> None:
        call = self.browser.runner.call
        url = f"ws://127.0.0.1:{self.setting.port}/v1/connect"
        await call("connect", client=self._client, url=url, device=self.name, backoff={"base_ms": 300, "cap_ms": 1500})
        for user in self.watched:
            answer = await self._until_done("watch", user=user)
            self.screen.setdefault(user, self._entry(user, answer["state"]))
        for room in self.rooms:
            await self._until_done("join", room=room)
        self._opened()

    async def _until_done(self, do: str, **fields: Any) -> dict[str, Any]:
        while True:
            try:
                return await self.browser.runner.call(do, client=self._client, **fields)
            except RunnerError as error:
                self.checker.seen[f"calls failed ({error.code})"] += 1
                await asyncio.sleep(0.5)

    def _opened(self) -> None:
        if self._is_online:
            self._ready()

    async def leave(self, how: str) -> None:
        if self._opening is None:
            return
        self.is_wanted = False
        self._opening.cancel()
        await asyncio.gather(self._opening, return_exceptions=True)
        self._ended(how)  # also before it has joined all rooms
        self._is_online = False
        await self.browser.runner.call("close", client=self._client, bye=how == "bye")

    def event(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "token":
                self.browser.runner.send(do="token", request=event["request"], token=self.setting.token(self.user))
            case "state":
                self._state(event)
            case "presence":
                self.screen[event["user"]] = self._entry(event["user"], event["state"])
            case "message":
                self._record(f"room:{event['room']}", event["seq"], event["body"]["key"])
            case "notification":
                self._record("inbox", event["seq"], event["body"]["key"])
            case "gap":
                text = f"{self} misses {event['stream']} from {event['after']} to {event['head']}"
                self.checker.fail("records-in-order", text)
            case "error":
                self.checker.seen[f"commands refused ({event['code']})"] += 1

    def _state(self, event: dict[str, Any]) -> None:
        if not self.is_wanted:
            return
        self._is_online = event["state"] == "online"
        if self._is_online:
            self.checker.welcomed(self._begin())
            if self._opening is not None and self._opening.done():
                self._ready()
        else:
            code = event["code"] if isinstance(event["code"], int) else 1006
            if self.contact is not None and self.contact.ended_at is None:
                self.checker.seen[f"closed with {code}"] += 1
                self._ended("server", code)
            if event["state"] == "closed":
                self.checker.fail("heals", f"{self} is closed for good: {event['code']} {event['text']}")

    @staticmethod
    def _entry(user: str, state: str) -> dict[str, Any]:
        return {"user": user, "state": state, "version": 0}

    def type(self, room: str) -> None:
        if self.is_ready:
            self.checker.typed(self.user, room)
            self._number += 1
            self.browser.runner.send(id=-self._number, do="type", client=self._client, room=room)

    async def say(self, room: str, key: str) -> None:
        stream = f"room:{room}"
        while self.is_wanted:
            self.checker.records.sending(stream, key)
            try:
                answer = await self.browser.runner.call("send", client=self._client, room=room, body={"key": key})
            except RunnerError as error:
                self.checker.seen[f"sends refused ({error.code})"] += 1
                key += "'"  # the runner gives each call a key of its own: the refused message may be stored, too
                await asyncio.sleep(0.5)
            else:
                self.checker.records.confirm(stream, key, answer["seq"])
                return
