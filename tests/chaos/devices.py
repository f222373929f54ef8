"""Devices of users: raw sockets, event streams and the Python client library, each checked at every frame."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from chaos.checker import HEARTBEAT_S, Checker, Contact
from greendot.client import Backoff, Client, Cursors, Failure, StateChanged
from greendot.errors import GreendotError
from greendot.testing import Closed, WireClient
from greendot.testing.event_stream import EventStreamClient

RETURN_S = 1.0  # longest pause before a device connects again, unless the server asks for a longer one
SILENT_S = 2 * HEARTBEAT_S + 1  # without a frame for this time a connection is dead
ANSWER_S = 10.0
WELCOME_S = 8.0  # shorter than a server waits for a hello
INVITED = (4000, 4001, 4003, 4004, 4005)  # close codes after which a session lasts for the grace


class Setting(msgspec.Struct):
    """Things that all devices share."""

    checker: Checker
    port: int  # of the load balancer
    token: Any  # user → token
    random: random.Random


class Device:
    """One device of a user. It watches users, is in rooms and sends, and connects again while it is wanted."""

    kind = ""
    beats = False  # whether a library sends the heartbeats: this program does not see them
    ways: tuple[str, ...] = ("bye", "clean", "lost", "silent")  # to leave

    def __init__(self, setting: Setting, user: str, watched: Sequence[str], rooms: Sequence[str], name: str) -> None:
        self.checker, self.setting = setting.checker, setting
        self.user, self.name, self.watched, self.rooms = user, name, [*watched], [*rooms]
        self.is_wanted = False
        self.is_ready = False
        self.contact: Contact | None = None
        self.screen: dict[str, dict[str, Any]] = {}
        self.last: dict[str, int] = {}  # stream → number of the last record
        self.listed = 0  # head of the inbox when it was first listed; events up to it may come later
        self.away_since = time.time()

    def __str__(self) -> str:
        return f"{self.user}/{self.name}"

    # --- for drivers ---

    async def come(self) -> None:
        """Connect, and stay connected until `leave`. Return at once."""
        raise NotImplementedError

    async def leave(self, how: str) -> None:
        """Leave with `bye`, `clean`, `lost` or `silent`."""
        raise NotImplementedError

    def type(self, room: str) -> None:
        raise NotImplementedError

    async def say(self, room: str, key: str) -> None:
        """Send a message until the server confirms it."""
        raise NotImplementedError

    # --- for subclasses ---

    def _begin(self) -> Contact:
        now = time.time()
        contact = self.contact = Contact(self.user, self.name, now, float("inf") if self.beats else now)
        self.checker.began(contact)
        return contact

    def _ready(self) -> None:
        if not self.is_ready:
            self.is_ready = True
            self.checker.took("time without a connection", time.time() - self.away_since)

    def _ended(self, how: str, code: int = 0) -> None:
        if self.is_ready:
            self.is_ready = False
            self.away_since = time.time()
            self.checker.seen["connections lost"] += self.is_wanted and how in ("lost", "server")
        if self.contact is not None:
            if how == "server" and (code == 1006 or code in INVITED):
                how = "lost"
            self.checker.ended(self.contact, how, code)

    def _record(self, stream: str, number: int, key: str) -> None:
        if stream == "inbox" and number <= self.listed:
            return
        if self.contact is not None:
            name = f"inbox:{self.user}" if stream == "inbox" else stream
            self.checker.records.delivered(self.contact, name, self.last.get(stream), number, key)
        self.last[stream] = max(number, self.last.get(stream, 0))

    def shown(self) -> dict[str, dict[str, Any]]:
        """Return the presence of each watched user, as a program shows it."""
        return self.screen

    def _show(self, entry: dict[str, Any]) -> None:
        shown = self.screen.get(entry["user"])
        if shown is None or not entry["version"] or entry["version"] >= shown["version"]:
            self.screen[entry["user"]] = entry


class WireDevice(Device):
    """Device on a raw WebSocket."""

    kind = "socket"
    transport: type[WireClient] = WireClient

    def __init__(self, setting: Setting, user: str, watched: Sequence[str], rooms: Sequence[str], name: str) -> None:
        super().__init__(setting, user, watched, rooms, name)
        self.session: str | None = None
        self._client: WireClient | None = None
        self._task: asyncio.Task[None] | None = None
        self._asked: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._number = 0
        self._retry_s = 0.0
        self._frame_at = 0.0
        self._background: set[asyncio.Task[Any]] = set()

    async def come(self) -> None:
        if not self.is_wanted:
            self.is_wanted, self.away_since = True, time.time()
            self._task = asyncio.create_task(self._stay(), name=f"{self}")
            self._task.add_done_callback(self._stayed)

    def _stayed(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.checker.fail("heals", f"the program of {self} failed: {error!r}")

    async def leave(self, how: str) -> None:
        self.is_wanted = False
        if (client := self._client) is not None and self.is_ready:
            try:
                if how == "bye":
                    self._send(type="bye")
                    self.session = None
                elif how == "clean":
                    client.send_frame(0x8, (1000).to_bytes(2, "big"))
                elif how == "lost":
                    await client.reset()
            except (OSError, RuntimeError):  # a fault has just ended the socket
                how = "lost"
            self._ended(how)
            if how == "silent":
                await asyncio.sleep(30.0)  # longer than the server waits; the socket stays open
            elif how != "lost":
                await asyncio.sleep(1.0)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        self._ended("lost")

    def type(self, room: str) -> None:
        if self.is_ready:
            self.checker.typed(self.user, room)
            self._send(type="typing.start", room=room)

    async def say(self, room: str, key: str) -> None:
        stream = f"room:{room}"
        self.checker.records.sending(stream, key)
        while self.is_wanted:
            if self.is_ready:
                with suppress(TimeoutError, ConnectionError):
                    frame = await self.ask(type="room.send", room=room, body={"key": key}, key=key)
                    if frame["type"] == "reply":
                        self.checker.records.confirm(stream, key, frame["data"]["seq"])
                        return
                    self.checker.seen[f"sends refused ({frame['code']})"] += 1
                    await asyncio.sleep(frame.get("retry_in_ms", 0) / 1000)
            await asyncio.sleep(0.5)

    async def ask(self, **command: Any) -> dict[str, Any]:
        """Send a command; return its reply or error. Raise ConnectionError or TimeoutError without one."""
        self._number += 1
        number = f"{self._number}"
        future = self._asked[number] = asyncio.get_running_loop().create_future()
        self._send(**command, id=number)
        try:
            async with asyncio.timeout(ANSWER_S):
                return await future
        finally:
            self._asked.pop(number, None)

    # --- connection ---

    async def _stay(self) -> None:
        while self.is_wanted:
            contact = self._begin()
            client: WireClient | None = None
            try:
                client = self._client = await self.transport.connect(self.setting.port)
                await self._serve(client, contact)
            except Closed as closed:
                self._ended("server", closed.code)
                if self.is_wanted:
                    self.checker.seen[f"closed with {closed.code}"] += 1
                if closed.code >= 4500:
                    self.checker.fail("heals", f"{self} is closed with {closed.code} {closed.reason}")
            except (OSError, TimeoutError, asyncio.IncompleteReadError, RuntimeError) as error:
                # asyncio raises RuntimeError for a write to a socket that has just been closed.
                self._ended("lost")
                self.checker.seen["connection attempts failed" if contact.welcomed_at is None else "sockets lost"] += 1
                self.checker.story.add(str(self), f"loses its connection: {type(error).__name__}: {str(error)[:60]}")
            finally:
                self._ended("lost")
                self._forget()
                if client is not None:
                    self._later(client.end())
            retry_s, self._retry_s = self._retry_s, 0.0
            await asyncio.sleep(retry_s + self.setting.random.random() * RETURN_S)

    async def _serve(self, client: WireClient, contact: Contact) -> None:
        resume = {"session": self.session, "rooms": self._cursors(), "inbox": self.last.get("inbox", 0)}
        hello = {"token": self.setting.token(self.user), "device": self.name}
        client.send(type="hello", **hello, **({"resume": resume} if self.session or self.last else {}))
        async with asyncio.timeout(WELCOME_S):
            while (frame := await client.receive())["type"] != "welcome":
                self._frame(contact, frame)
        welcome = frame["data"]
        self.session, contact.node = welcome["session"], welcome["node"]
        self.checker.welcomed(contact)
        self._frame_at = time.time()
        tasks = [
            asyncio.create_task(step)
            for step in (self._read(client, contact), self._beat(client, contact), self._restore(welcome))
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, client: WireClient, contact: Contact) -> None:
        while True:
            frame = await client.receive()
            self._frame_at = time.time()
            self._frame(contact, frame)

    async def _beat(self, client: WireClient, contact: Contact) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            if contact.ended_at is None:
                self._send(type="heartbeat")
            if contact.how != "silent" and time.time() - self._frame_at > SILENT_S:
                raise TimeoutError("no frame")
            if isinstance(client, RepeatingStream) and client.refused:
                raise ConnectionError(f"a request got {client.refused}")

    async def _restore(self, welcome: dict[str, Any]) -> None:
        """Watch, join the rooms that the resume did not join, and fetch what was left out."""
        await self._again(self._watch)
        for room in self.rooms:
            stream = f"room:{room}"
            state = welcome["rooms"].get(room)
            if state is None:
                await self._again(lambda room=room: self._join(room))
            elif state["truncated"]:
                self.checker.fail("records-in-order", f"{self} gets a truncated {stream} after {self.last.get(stream)}")
        if "inbox" not in self.last:
            await self._again(self._read_inbox)
        self._ready()

    async def _again(self, step: Any) -> None:
        while (frame := await step())["type"] == "error":
            self.checker.seen[f"commands refused ({frame['code']})"] += 1
            await asyncio.sleep(max(0.3, (frame.get("retry_in_ms") or 0) / 1000))

    async def _watch(self) -> dict[str, Any]:
        return await self.ask(type="watch", users=self.watched)

    async def _join(self, room: str) -> dict[str, Any]:
        stream = f"room:{room}"
        after = {"after": self.last[stream]} if stream in self.last else {}
        return await self.ask(type="room.join", room=room, **after)

    async def _read_inbox(self) -> dict[str, Any]:
        frame = await self.ask(type="inbox.list", limit=1)
        if frame["type"] == "reply" and "inbox" not in self.last:
            self.last["inbox"] = self.listed = frame["data"]["head"]
        return frame

    async def _fetch(self, stream: str) -> None:
        """Read the records after the last one, after the server has left some out."""
        self.checker.seen["streams fetched"] += 1
        if stream == "inbox":
            command: dict[str, Any] = {"type": "inbox.list", "after": self.last.get("inbox", 0), "limit": 300}
        else:
            command = {"type": "room.history", "room": stream.removeprefix("room:"), "limit": 300}
            command["after"] = self.last.get(stream, 0)
        with suppress(TimeoutError, ConnectionError):
            frame = await self.ask(**command)
            while frame["type"] == "error":
                await asyncio.sleep(0.5)
                frame = await self.ask(**command)
            for record in frame["data"].get("messages", frame["data"].get("notifications", [])):
                if record["seq"] > self.last.get(stream, 0):
                    self._record(stream, record["seq"], record["body"]["key"])

    # --- frames ---

    def _frame(self, contact: Contact, frame: dict[str, Any]) -> None:
        kind, data = frame["type"], frame.get("data", {})
        if (future := self._asked.get(frame.get("id", ""))) is not None and kind in ("reply", "error"):
            if not future.done():
                self._take_reply(contact, data)
                future.set_result(frame)
            return
        match kind:
            case "presence.changed":
                self._show(data)
            case "room.message":
                self._record(f"room:{data['room']}", data["seq"], data["body"]["key"])
            case "notification.created":
                self._record("inbox", data["seq"], data["body"]["key"])
            case "resync":
                self._later(self._fetch(data["scope"]))
            case "drain" | "overloaded":
                self._retry_s = data["retry_in_ms"] / 1000
                self.checker.seen[kind] += 1
        self.checker.received(contact, kind, data)

    def _take_reply(self, contact: Contact, data: dict[str, Any]) -> None:
        """Apply a reply before the frames that follow it: changes follow a snapshot, live messages the head."""
        if isinstance(entries := data.get("presence"), list):
            self.checker.snapshot(contact, entries)
            for entry in entries:
                self._show(entry)
        if "messages" not in data or "room" not in data:
            return
        stream = f"room:{data['room']}"
        if stream not in self.last:
            self.last[stream] = data["head"]
        elif data["truncated"]:
            self.checker.fail("records-in-order", f"{self} gets a truncated {stream} after {self.last[stream]}")
        else:
            for message in data["messages"]:
                self._record(stream, message["seq"], message["body"]["key"])

    def _send(self, **command: Any) -> None:
        if self._client is not None and self.contact is not None and self.contact.ended_at is None:
            self.contact.last_frame_at = time.time()
            self._client.send(**command)

    def _cursors(self) -> dict[str, int]:
        return {stream.removeprefix("room:"): last for stream, last in self.last.items() if stream != "inbox"}

    def _forget(self) -> None:
        self._client = None
        for future in self._asked.values():
            if not future.done():
                future.set_exception(ConnectionError("the connection was lost"))
                future.exception()  # the waiting task may be gone
        self._asked.clear()

    def _later(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._background.discard(task)
        if not task.cancelled():
            task.exception()


class RepeatingStream(EventStreamClient):
    """Event stream that repeats a request which got no answer, or 503, as the protocol demands."""

    refused = 0  # status of a request that must not be repeated

    async def _post_all(self) -> None:
        try:
            while self._unsent and not self.refused:
                try:
                    status = await self.post(self._unsent[0])
                except (OSError, TimeoutError, ValueError, IndexError):
                    status = 0
                if status in (0, 429) or status >= 500:
                    await asyncio.sleep(0.3)
                    continue
                self._unsent.popleft()
                self.refused = status if status != 202 else 0
        finally:
            self._posting = None

    async def end(self) -> None:
        if self._posting is not None:
            self._posting.cancel()
        await super().end()


class StreamDevice(WireDevice):
    """Device on an event stream, whose requests may reach any node."""

    kind = "event stream"
    transport = RepeatingStream


class LibraryDevice(Device):
    """Device that uses the Python client."""

    kind = "Python client"
    beats = True
    ways = ("bye", "clean")  # the library neither loses its socket nor becomes silent while it runs

    def __init__(self, setting: Setting, user: str, watched: Sequence[str], rooms: Sequence[str], name: str) -> None:
        super().__init__(setting, user, watched, rooms, name)
        self._client: Client | None = None
        self._cursors: Cursors | None = None  # of the last run
        self._opening: asyncio.Task[None] | None = None
        self._typing: asyncio.Task[None] | None = None

    async def come(self) -> None:
        if not self.is_wanted:
            self.is_wanted, self.away_since = True, time.time()
            self._opening = asyncio.create_task(self._open(), name=f"{self}")

    async def _open(self) -> None:
        client = self._client = Client(
            f"ws://127.0.0.1:{self.setting.port}/v1/connect",
            lambda: self.setting.token(self.user),
            device=self.name,
            backoff=Backoff(base_s=0.3, cap_s=1.5, give_up_s=120.0),
            cursors=self._cursors,
        )
        client.on("state", self._state)
        for kind in ("presence.changed", "typing.started", "typing.stopped"):
            client.on(kind, self._event)
        client.on("room.message", lambda m: self._record(f"room:{m.room}", m.seq, msgspec.json.decode(m.body)["key"]))
        client.on("notification.created", lambda n: self._record("inbox", n.seq, msgspec.json.decode(n.body)["key"]))
        client.on("truncated", self._truncated)
        client.on("error", self._refused)
        self._begin()
        await client.__aenter__()
        await self._again(lambda: client.watch(*self.watched))
        for room in self.rooms:
            if f"room:{room}" not in self.last:  # otherwise the cursors join the room
                await self._again(lambda room=room: self._join(client, room))
        if client.state == "connected":
            self._ready()

    async def _join(self, client: Client, room: str) -> None:
        reply = await client.join(room)
        self.last.setdefault(f"room:{room}", reply.head)

    async def _again(self, step: Any) -> None:
        while True:
            try:
                await step()
            except GreendotError as error:
                self.checker.seen[f"calls failed ({type(error).__name__})"] += 1
                await asyncio.sleep(0.5)
            else:
                return

    async def leave(self, how: str) -> None:
        self.is_wanted = False
        client, self._client = self._client, None
        if client is None or self._opening is None:
            return
        self._opening.cancel()
        await asyncio.gather(self._opening, return_exceptions=True)
        # If the library is connected, it sends `bye` or a close frame also before it has joined all rooms.
        self._ended(how)
        await (client.bye() if how == "bye" else client.close())
        self._cursors = client.cursors  # afterwards: records may arrive until the end

    def _state(self, change: StateChanged) -> None:
        if self._client is None:
            return
        if change.state == "connected":
            welcome = self._client.welcome
            assert welcome is not None
            if self.contact is None or self.contact.ended_at is not None:
                self._begin()
            assert self.contact is not None
            self.contact.node = welcome.node
            self.checker.welcomed(self.contact)
            if self._opening is not None and self._opening.done():
                self._ready()
        elif change.state == "reconnecting":
            if self.contact is not None and self.contact.ended_at is None and self.contact.welcomed_at is not None:
                self.checker.seen[f"closed with {change.code or 1006}"] += 1
                self._ended("server", change.code or 1006)
        elif change.state == "closed":
            self._ended("server", change.code or 1006)
            if self.is_wanted:
                self.checker.fail("heals", f"{self} is closed for good: {change.code} {change.reason}")

    def _event(self, event: Any) -> None:
        data = msgspec.to_builtins(event)
        if self.contact is not None and self.contact.ended_at is None:
            self.checker.received(self.contact, event.type, data)

    def shown(self) -> dict[str, dict[str, Any]]:
        people = {} if self._client is None else self._client.people
        return {user: msgspec.to_builtins(entry) for user, entry in people.items()}

    def _truncated(self, event: Any) -> None:
        self.checker.fail("records-in-order", f"{self} misses {event.stream} from {event.after} to {event.head}")

    def _refused(self, failure: Failure) -> None:
        self.checker.seen[f"commands refused ({failure.code})"] += 1

    def type(self, room: str) -> None:
        if self.is_ready and self._client is not None:
            self.checker.typed(self.user, room)
            self._typing = asyncio.ensure_future(self._types(self._client, room))

    @staticmethod
    async def _types(client: Client, room: str) -> None:
        with suppress(GreendotError):
            await client.typing(room)

    async def say(self, room: str, key: str) -> None:
        stream = f"room:{room}"
        self.checker.records.sending(stream, key)
        while self.is_wanted and (client := self._client) is not None:
            try:
                reply = await client.send(room, {"key": key}, key=key)
            except GreendotError as error:
                self.checker.seen[f"sends refused ({getattr(error, 'code', type(error).__name__)})"] += 1
                await asyncio.sleep(0.5)
            else:
                self.checker.records.confirm(stream, key, reply.seq)
                return


KINDS: tuple[type[Device], ...] = (WireDevice, StreamDevice, LibraryDevice)
