"""Rooms and inbox of one device: it joins, sends, marks and fetches, and follows each stream of records."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from model.listeners import Notices, Stream, Wrong
from simulation.nodes import DEN, ROOM

if TYPE_CHECKING:
    from simulation.clients import Device

AGAIN_S = 0.5  # pause after an error that allows another attempt
PAGE = 7  # records in one page of history or inbox
Answer = Callable[[dict[str, Any]], None]


class Records:
    """Streams of one device, and the messages that it has sent."""

    def __init__(self, device: Device) -> None:
        self.rooms = {ROOM: Stream(ROOM), DEN: Stream(DEN)}
        self.inbox = Notices()
        self.unread = 0  # notifications, as of the welcome, the last badge or the last mark
        self.acknowledged: dict[str, tuple[str, int]] = {}  # key of a message → room and number
        self._unacknowledged: dict[str, str] = {}  # key → room
        self._admitted: set[str] = set()  # rooms to join again if the pending join is refused, or after a removal
        self._device = device
        self._universe = device.universe
        self._sent = 0

    def resume(self, *, rooms: bool) -> dict[str, Any]:
        """Return the fields of `hello.resume` about records; with `rooms` False, the rooms are joined later."""
        cursors = {name: room.cursor for name, room in self.rooms.items()} if rooms else {}
        return {"rooms": cursors, "inbox": self.inbox.cursor}

    def lost(self) -> None:
        """Note the end of the connection."""
        for stream in (*self.rooms.values(), self.inbox):
            stream.busy = False
            stream.left()

    def welcomed(self, rooms: dict[str, Any], unread: int) -> None:
        self.unread = unread
        for name, room in self.rooms.items():
            if name in rooms:
                room.joined = True
                if rooms[name]["truncated"]:
                    self._fill(room)
            else:
                self.join(name)
        for key in [*self._unacknowledged]:
            self._send(key)

    # --- commands ---

    def join(self, name: str) -> None:
        """Join a room after the last message that the device has. Members only may join the den."""
        stream, contact = self.rooms[name], self._device.contact
        if stream.busy or stream.joined:
            # The pending answer, or an unread event of an earlier removal, may be from before the user became a member.
            self._admitted.add(name)
        if not self._device.is_ready or stream.joined or stream.busy:
            return
        stream.busy = True
        self._admitted.discard(name)

        def answered(frame: dict[str, Any]) -> None:
            stream.busy = False
            if frame["type"] == "error":
                if frame.get("code") not in ("not_a_member", "no_such_room") or name in self._admitted:
                    self._universe.after(AGAIN_S, lambda: contact is self._device.contact and self.join(name))
                return
            stream.joined = True
            for message in frame["data"]["messages"]:
                stream.take(message)
            if frame["data"]["truncated"]:
                self._fill(stream)

        self._device.ask(answered, type="room.join", room=name, after=stream.cursor)

    def say(self, name: str, count: int) -> None:
        """Send some messages. Each is repeated, with its key, until the node has acknowledged or refused it."""
        if not self._device.is_ready or self._device.is_silent:
            return
        self._device.tell(f"sends {count} messages to {name}")
        for _ in range(count):
            self._sent += 1
            key = f"{self._device.user}-{self._device.name}-{self._sent}"
            self._unacknowledged[key] = name
            self._send(key)
            if self._sent % 9 == 0:
                self._send(key)  # and a duplicate

    def _send(self, key: str) -> None:
        name, contact = self._unacknowledged.get(key), self._device.contact
        if name is None or not self._device.is_ready or self._device.is_silent:
            return

        def answered(frame: dict[str, Any]) -> None:
            if frame["type"] == "reply":
                self._unacknowledged.pop(key, None)
                place = (name, frame["data"]["seq"])
                if self.acknowledged.setdefault(key, place) != place:
                    raise Wrong(f"{key} was acknowledged as {self.acknowledged[key]} and as {place}")
            elif frame.get("retry"):
                self._universe.after(AGAIN_S, lambda: contact is self._device.contact and self._send(key))
            else:
                self._unacknowledged.pop(key, None)

        self._device.ask(answered, type="room.send", room=name, body=f"{name}:{key}", key=key)

    def mark(self, how: str, part: float) -> None:
        """Mark the notifications up to a part of those that the device has."""
        if not self._device.is_ready or self._device.is_silent or not self.inbox.seen:
            return
        some: dict[str, Any] = {"through": max(1, round(self.inbox.last * part))}
        if part < 0.3:
            some = {"ids": [known for known, _ in self.inbox.seen][-3:]}
        self._device.tell(f"marks as {how}: {some}")

        def answered(frame: dict[str, Any]) -> None:
            if frame["type"] == "reply":
                self._count(frame["data"])

        self._device.ask(answered, type=f"inbox.{how}", **some)

    def _count(self, badge: dict[str, Any]) -> None:
        self.inbox.badge = self.unread, _ = badge["unread"], badge["unseen"]

    # --- fetching ---

    def _fill(self, stream: Stream) -> None:
        """Fetch missed records that the node does not send."""
        if stream.filling is not None:
            stream.again = True
            return
        stream.filling = []
        self._fetch(stream, stream.turn)

    def _fetch(self, stream: Stream, turn: int) -> None:
        if not self._device.is_ready or stream.turn != turn:
            return

        def answered(frame: dict[str, Any]) -> None:
            if stream.turn != turn:
                return
            if frame["type"] == "error":
                self._universe.after(AGAIN_S, self._fetch, stream, turn)
                return
            page = frame["data"].get("messages") or frame["data"].get("notifications") or []
            for record in page:
                stream.take(record)
            if page or stream.again:
                stream.again = False
                self._fetch(stream, turn)
            else:
                stream.filled()

        if stream is self.inbox:
            self._device.ask(answered, type="inbox.list", after=stream.cursor, limit=PAGE)
        else:
            self._device.ask(answered, type="room.history", room=stream.room, after=stream.cursor, limit=PAGE)

    # --- receiving ---

    def received(self, kind: str, data: dict[str, Any]) -> None:
        match kind:
            case "room.message":
                self.rooms[data["room"]].live(data)
            case "room.changed" if data.get("removed"):
                self.rooms[data["room"]].left()
                if data["room"] in self._admitted:
                    self.join(data["room"])
            case "notification.created":
                self.inbox.live(data)
            case "inbox.badge":
                self._count(data)
            case "resync" if data["scope"] == "inbox":
                self._fill(self.inbox)
            case "resync":
                self._fill(self.rooms[data["scope"].removeprefix("room:")])
