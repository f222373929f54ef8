"""Clients of the simulation. They require each message in order and once; otherwise the trial fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from model.simulated import Link, SimulatedNode, World

AGAIN_S = 0.5  # pause after a retryable error


class Wrong(AssertionError):
    """Violation of a guarantee."""


class Stream:
    """One room as one client has received it."""

    def __init__(self, room: str) -> None:
        self.room = room
        self.seen: list[tuple[str, Any]] = []  # id and body of message 1, 2, 3 …
        self.joined = False
        self.wanted = True
        self.busy = False  # a join or leave is in progress
        self.filling: list[dict[str, Any]] | None = None  # live messages that wait while older ones are fetched
        self.turn = 0  # replies to requests of earlier turns are ignored
        self.again = False  # another gap appeared during the fetch
        self.fetched = 0  # fetched up to here, so live messages up to this number may come again

    @property
    def cursor(self) -> int:
        return len(self.seen)

    def left(self) -> None:
        """Reset the state when the connection or the room was left."""
        self.joined = self.again = False
        self.filling, self.fetched = None, 0
        self.turn += 1

    def live(self, message: dict[str, Any]) -> None:
        if self.filling is not None:
            self.filling.append(message)
        elif message["seq"] > self.fetched:
            self.take(message)

    def take(self, message: dict[str, Any]) -> None:
        if message["seq"] != self.cursor + 1:
            raise Wrong(f"{self.room}: after {self.cursor} came {message['seq']}")
        self.seen.append((message["id"], message["body"]))

    def filled(self) -> None:
        held, self.filling, self.fetched = self.filling or [], None, self.cursor
        for message in held:
            self.live(message)


class Notices(Stream):
    """Inbox of one device. Numbers may be missing if a notification was archived before its delivery."""

    def __init__(self) -> None:
        super().__init__("inbox")
        self.joined = True
        self.last = 0
        self.ids: set[str] = set()
        self.urgent: set[str] = set()  # redelivered out of order, because they must be acknowledged
        self.badge: tuple[int, int] | None = None

    @property
    def cursor(self) -> int:
        return self.last

    def left(self) -> None:
        super().left()
        self.joined, self.badge = True, None

    def live(self, message: dict[str, Any]) -> None:
        if message.get("ack") and (message["id"] in self.ids or message["seq"] <= self.last):
            self.urgent.add(message["id"])  # a redelivery, or a notification from before this device connected
        else:
            super().live(message)

    def take(self, message: dict[str, Any]) -> None:
        if message["seq"] <= self.last:
            raise Wrong(f"inbox: after {self.last} came {message['seq']}")
        self.last = message["seq"]
        self.ids.add(message["id"])
        self.seen.append((message["id"], message["body"]))


class Client:
    """Device of a user. It reconnects, resumes and resends unacknowledged messages."""

    def __init__(self, world: World, nodes: list[SimulatedNode], user: str, device: str, rooms: list[str]) -> None:
        self.world = world
        self.user = user
        self.device = device
        self.streams = {room: Stream(room) for room in rooms}
        self.inbox = Notices()
        self.unacknowledged: dict[str, str] = {}  # key to room
        self.acknowledged: dict[str, tuple[str, int]] = {}  # key to room and number
        self.refused: set[str] = set()
        self.removed: set[str] = set()  # rooms that must deliver nothing more
        self.ready = False  # welcomed
        self.wrong: Exception | None = None
        self.log: list[str] = []
        self.link: Link | None = None
        self._nodes = nodes
        self._session: str | None = None
        self._asked: dict[str, Callable[[dict[str, Any]], None]] = {}
        self._numbers = 0
        self._gone: asyncio.Future[None] | None = None
        self._shaky = False  # old frames may arrive late on this connection
        self._life = world.loop.create_task(self._live())

    # --- connection ---

    async def _live(self) -> None:
        chance = self.world.random
        while True:
            up = [node for node in self._nodes if node.up]
            if not up:
                await asyncio.sleep(0.1)
                continue
            node = chance.choice(up)
            self._gone = self.world.loop.create_future()
            self._shaky = chance.random() < 0.2
            self.link = Link(self.world, await node.socket(self._shaky), self._came, self._heard)
            resume = {s.room: s.cursor for s in self.streams.values() if s.wanted}
            self._note(f"hello to {node.node.incarnation} after {resume}")
            token = node.node.tokens.make(self.user, self.world.clock.now_ms(), 86_400)
            resumed = {"rooms": resume, "inbox": self.inbox.cursor, "session": self._session}
            self.link.say(type="hello", token=token, device=self.device, resume=resumed)
            while not self._gone.done():
                await asyncio.wait([self._gone], timeout=25)
                self.link.say(type="heartbeat")
            self.link.close()
            await asyncio.sleep(chance.choice((0, 0.05, 0.5, 3)))

    def cut(self) -> None:
        if self.link is not None and self._gone is not None and not self._gone.done():
            self._note("cut")
            self.link.cut()
            self._lost()

    def stall(self, seconds: float) -> None:
        if self.link is not None:
            self._shaky = True
            self.link.stall(seconds)

    async def end(self) -> None:
        self._life.cancel()
        await asyncio.wait([self._life])
        if self.link is not None:
            self.link.close()
        if not self._life.cancelled() and (error := self._life.exception()) is not None:
            raise error

    def _lost(self) -> None:
        self.ready = False
        self._asked.clear()
        for stream in (*self.streams.values(), self.inbox):
            stream.busy = False
            stream.left()
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    # --- sending ---

    def ask(self, answered: Callable[[dict[str, Any]], None], **command: Any) -> None:
        """Send a command. `answered` gets its reply or error, unless the connection ends first."""
        self._numbers += 1
        number = f"q{self._numbers}"
        self._asked[number] = answered
        assert self.link is not None
        self.link.say(**command, id=number)

    def send(self, room: str) -> None:
        self._numbers += 1
        key = f"{self.user}-{self.device}-{self._numbers}"
        self.unacknowledged[key] = room
        self._say(key)
        if self.world.random.random() < 0.1:
            self._say(key)  # and a duplicate

    def _say(self, key: str) -> None:
        if not self.ready or key not in self.unacknowledged:
            return
        room = self.unacknowledged[key]

        def answered(frame: dict[str, Any]) -> None:
            if frame["type"] == "reply":
                self.unacknowledged.pop(key, None)
                before = self.acknowledged.setdefault(key, (room, frame["data"]["seq"]))
                if before != (room, frame["data"]["seq"]):
                    raise Wrong(f"{key} was acknowledged as {before} and as {frame['data']['seq']}")
            elif frame["retry"]:
                self.world.loop.call_later(AGAIN_S, self._say, key)
            elif self.unacknowledged.pop(key, None) is not None:
                self.refused.add(key)

        self.ask(answered, type="room.send", room=room, body=key, key=key)

    def join(self, room: str) -> None:
        """Join the room again, from the last received message."""
        stream = self.streams[room]
        stream.wanted = True
        if not self.ready or stream.joined or stream.busy:
            return
        stream.busy = True

        def answered(frame: dict[str, Any]) -> None:
            stream.busy = False
            if frame["type"] == "error":
                self._note(f"join of {room} refused: {frame['code']}")
                return
            stream.joined = True
            for message in frame["data"]["messages"]:
                stream.take(message)
            if frame["data"]["truncated"]:
                self._fill(stream)

        self._note(f"join {room} after {stream.cursor}")
        self.ask(answered, type="room.join", room=room, after=stream.cursor)

    def leave(self, room: str) -> None:
        stream = self.streams[room]
        stream.wanted = False
        if not self.ready or not stream.joined or stream.busy or stream.filling is not None:
            return
        stream.busy = True

        def answered(frame: dict[str, Any]) -> None:
            stream.busy = False
            stream.left()

        self._note(f"leave {room} at {stream.cursor}")
        self.ask(answered, type="room.leave", room=room)

    def _fill(self, stream: Stream) -> None:
        """Fetch missed messages that the server does not send."""
        self._note(f"fill {stream.room} after {stream.cursor}")
        if stream.filling is not None:
            stream.again = True
            return
        stream.filling = []
        self._fetch(stream, stream.turn)

    def _fetch(self, stream: Stream, turn: int) -> None:
        if not self.ready or stream.turn != turn:
            return

        def answered(frame: dict[str, Any]) -> None:
            if stream.turn != turn:
                return
            if frame["type"] == "error":
                self.world.loop.call_later(AGAIN_S, self._fetch, stream, turn)
                return
            page = frame["data"].get("messages") or frame["data"].get("notifications") or []
            for message in page:
                stream.take(message)
            if page or stream.again:
                stream.again = False
                self._fetch(stream, turn)
            else:
                stream.filled()

        if stream is self.inbox:
            self.ask(answered, type="inbox.list", after=stream.cursor, limit=7)
        else:
            self.ask(answered, type="room.history", room=stream.room, after=stream.cursor, limit=7)

    def mark(self, how: str) -> None:
        """Mark some or all notifications of the inbox."""
        chance, ids = self.world.random, [known for known, _ in self.inbox.seen]
        if not self.ready or not ids:
            return
        some: dict[str, Any] = {"ids": chance.sample(ids, min(len(ids), 3))}
        if chance.random() < 0.3:
            some = {"through": chance.randint(1, self.inbox.last)}

        def answered(frame: dict[str, Any]) -> None:
            if frame["type"] == "reply":
                self.inbox.badge = frame["data"]["unread"], frame["data"]["unseen"]

        self.ask(answered, type=f"inbox.{how}", **some)

    # --- receiving ---

    def _came(self, frame: dict[str, Any] | None) -> None:
        if frame is not None and frame["type"] == "room.message" and not self._shaky:
            room = frame["data"]["room"]
            if room in self.removed:
                self.wrong = self.wrong or Wrong(f"{self.user} was removed from {room} and hears {frame['data']}")

    def _heard(self, frame: dict[str, Any] | None) -> None:
        try:
            if frame is None:
                self._note("closed")
                self._lost()
            else:
                self._take(frame)
        except Exception as error:
            if self.wrong is None:
                self._note(f"WRONG {error!r}")
                self.wrong = error

    def _take(self, frame: dict[str, Any]) -> None:
        data = frame.get("data", {})
        match frame["type"]:
            case "welcome":
                self._welcomed(data)
            case "room.message":
                self.streams[data["room"]].live(data)
            case "reply" | "error":
                if (answered := self._asked.pop(frame["id"], None)) is not None:
                    answered(frame)
            case "room.changed" if data.get("removed"):
                self._note(f"removed from {data['room']}")
                self.streams[data["room"]].left()
            case "notification.created":
                self.inbox.live(data)
            case "inbox.badge":
                self.inbox.badge = data["unread"], data["unseen"]
            case "resync" if data["scope"] == "inbox":
                self._fill(self.inbox)
            case "resync":
                self._fill(self.streams[data["scope"].removeprefix("room:")])

    def _welcomed(self, data: dict[str, Any]) -> None:
        self._note(f"welcome {data['rooms']}")
        self._session, self.ready = data["session"], True
        for room, stream in self.streams.items():
            if room in data["rooms"]:
                stream.joined = True
                if data["rooms"][room]["truncated"]:
                    self._fill(stream)
                if not stream.wanted:
                    self.leave(room)
            elif stream.wanted:
                self.join(room)
        for key in self.unacknowledged:
            self._say(key)

    def __str__(self) -> str:
        all_streams = (*self.streams.values(), self.inbox)
        streams = [f"{s.room} {s.cursor}{'' if s.joined else ' not joined'}" for s in all_streams]
        waits = f"not acknowledged: {[*self.unacknowledged]}"
        return f"{self.user}/{self.device}: {', '.join(streams)}; {'' if self.ready else 'not '}welcomed; {waits}"

    def _note(self, what: str) -> None:
        self.log.append(f"{self.world.loop.time():.3f} {self.user}/{self.device} {what}")
