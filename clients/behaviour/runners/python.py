"""Runner of the Python client: commands as JSON lines on standard input, events as JSON lines on standard output."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from greendot.client import Client, body_of
from greendot.client.backoff import Backoff
from greendot.client.codec import StateChanged, Truncated
from greendot.errors import GreendotError
from greendot.protocol.events import NotificationCreated, Presence, RoomChanged, RoomMessage

KEYSTROKE_S = 0.03
REAL_TIME = time.time
STATES = {"connected": "online", "reconnecting": "waiting", "closed": "closed"}

Command = dict[str, Any]


def write(**line: Any) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


class Person:
    """One client and the events of it that the suite compares."""

    def __init__(self, runner: Runner, command: Command) -> None:
        self.name: str = command["client"]
        self._runner = runner
        backoff = command["backoff"]
        self.client = Client(
            command["url"],
            lambda: runner.token(self.name),
            device=command["device"],
            backoff=Backoff(backoff["base_ms"] / 1000, backoff["cap_ms"] / 1000, give_up_s=60),
        )
        self._typers: dict[str, list[str]] = {}
        self.states: dict[str, str] = {}  # last known states of watched users
        listeners: dict[str, Callable[[Any], None]] = {
            "state": self._state,
            "room.message": self.message,
            "truncated": self._gap,
            "notification.created": self._notification,
            "typing.started": self._typing,
            "typing.stopped": self._typing,
            "presence.changed": self._presence,
            "room.changed": self._changed,
            "error": lambda event: self._write("error", code=event.code),
        }
        for kind, listener in listeners.items():
            self.client.on(kind, listener)
        self.opening = runner.spawn(self._open())

    async def _open(self) -> None:
        with suppress(GreendotError):  # the event `state` reports it
            await self.client.__aenter__()

    async def close(self, *, bye: bool) -> None:
        await (self.client.bye() if bye else self.client.close())
        self.opening.cancel()

    def _write(self, event: str, **fields: Any) -> None:
        write(event=event, client=self.name, **fields)

    def _state(self, change: StateChanged) -> None:
        state = STATES.get(change.state)
        if state == "closed":
            self._runner.spawn(self._closed())
        elif state is not None:
            retry_in_ms = None if change.retry_in_s is None else change.retry_in_s * 1000
            self._write("state", state=state, code=change.code, retry_in_ms=retry_in_ms)

    async def _closed(self) -> None:
        """Report why the client is closed: every call raises the reason."""
        code: object = "closed"
        text = ""
        try:
            await self.client.rooms()
        except GreendotError as error:
            code, text = getattr(error, "code", None) or "closed", str(error)
        self._write("state", state="closed", code=code, text=text)

    def message(self, event: RoomMessage) -> None:
        self._write("message", room=event.room, seq=event.seq, user=event.user, body=body_of(event))

    def _gap(self, event: Truncated) -> None:
        self._write("gap", stream=event.stream, after=event.after, head=event.head)

    def _notification(self, event: NotificationCreated) -> None:
        self._write("notification", seq=event.seq, kind=event.kind, body=body_of(event))

    def _typing(self, event: Any) -> None:
        users = [*self.client.typers(event.room)]
        if users != self._typers.get(event.room, []):
            self._typers[event.room] = users
            self._write("typing", room=event.room, users=users)

    def _changed(self, event: RoomChanged) -> None:
        if event.removed:
            self._write("removed", room=event.room)

    def _presence(self, event: Presence) -> None:
        if self.states.get(event.user) != event.state:
            self.states[event.user] = event.state
            self._write("presence", user=event.user, state=event.state)


class Runner:
    """Program that performs the commands of the driver. Several clients run at the same time."""

    def __init__(self) -> None:
        self._people: dict[str, Person] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._requests: dict[int, asyncio.Future[str]] = {}
        self._last = 0

    async def run(self) -> None:
        """Perform commands until the input ends."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=2**22)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            command = json.loads(line)
            if command["do"] == "token":
                self._give(command)
            else:
                self.spawn(self._perform(command))
        for person in self._people.values():
            await person.close(bye=True)

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def token(self, client: str) -> str:
        """Request a token from the driver, which is the backend of the app."""
        self._last += 1
        future = self._requests[self._last] = asyncio.get_running_loop().create_future()
        write(event="token", client=client, request=self._last)
        token: str = await future
        return token

    def _give(self, command: Command) -> None:
        future = self._requests.pop(command["request"])
        if future.done():
            return
        if "error" in command:
            future.set_exception(RuntimeError(command["error"]))
        else:
            future.set_result(command["token"])

    async def _perform(self, command: Command) -> None:
        try:
            done = await getattr(self, command["do"])(command)
        except Exception as error:
            code = getattr(error, "code", None) or type(error).__name__
            write(id=command["id"], error={"code": code, "message": str(error)})
        else:
            write(id=command["id"], ok=done or {})

    def _client(self, command: Command) -> Client:
        return self._people[command["client"]].client

    # Commands

    async def connect(self, command: Command) -> None:
        old = self._people.get(command["client"])
        if old is not None:
            await old.close(bye=False)
        self._people[command["client"]] = Person(self, command)

    async def close(self, command: Command) -> None:
        await self._people[command["client"]].close(bye=command.get("bye", True))

    async def join(self, command: Command) -> dict[str, Any]:
        person = self._people[command["client"]]
        reply = await person.client.join(command["room"], command.get("after"), history=command.get("history"))
        for message in reply.messages if "after" in command else ():
            person.message(message)
        return {"messages": [body_of(message) for message in reply.messages]}

    async def leave(self, command: Command) -> None:
        await self._client(command).leave(command["room"])

    async def send(self, command: Command) -> dict[str, Any]:
        return {"seq": (await self._client(command).send(command["room"], command["body"])).seq}

    async def type(self, command: Command) -> dict[str, Any]:
        """Report keystrokes for a time, and a last one after it."""
        client, room, began = self._client(command), command["room"], time.monotonic()
        while (time.monotonic() - began) * 1000 < command.get("for_ms", 0):
            await client.typing(room)
            await asyncio.sleep(KEYSTROKE_S)
        await client.typing(room)
        return {"ms": (time.monotonic() - began) * 1000}

    async def stop_typing(self, command: Command) -> None:
        await self._client(command).stop_typing(command["room"])

    async def watch(self, command: Command) -> dict[str, Any]:
        person = self._people[command["client"]]
        (watched,) = await person.client.watch(command["user"])
        person.states[watched.user] = watched.state
        return {"state": watched.state}

    async def now(self, command: Command) -> dict[str, Any]:
        return {"ms": self._client(command).now_ms()}

    async def sync(self, command: Command) -> None:
        """Return after all events that the server has sent are printed."""
        person = self._people[command["client"]]
        if person.client.state == "connected":
            with suppress(GreendotError):
                await person.client.rooms()

    async def clock(self, command: Command) -> None:
        """Set the system clock of this process wrong."""
        shift_s = command["shift_ms"] / 1000
        time.time = lambda: REAL_TIME() + shift_s

    async def end(self, command: Command) -> None:
        """End a client and forget it."""
        await self._people.pop(command["client"]).close(bye=True)


if __name__ == "__main__":
    asyncio.run(Runner().run())
