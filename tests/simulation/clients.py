"""Devices of users: they connect, resume, watch all users, join rooms, type, send, and leave in every way."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from model.listeners import Wrong
from simulation.network import Wire
from simulation.nodes import ROOM, TENANT, ClusterNode, World
from simulation.records import Records

if TYPE_CHECKING:
    from simulation.promises import Promises

BEAT_S = 25.0
REPEAT_S = 3.0  # between two starts of a user who keeps typing
PATIENCE_S = 12.0  # for a welcome; then the client tries another node
OVERLOADED, REPLACED = 4003, 4505
LATE_S = 90.0  # time in which a node may execute the hello of a lost connection (`greendot.client.session.LATE_S`)


class Contact(Struct):
    """One connection of a device, with the times that decide what others may see."""

    device: Device
    node: ClusterNode
    hello_at: float
    welcomed_at: float | None = None  # when the node wrote the welcome
    last_frame_at: float = 0.0  # when the client sent its last frame
    ended_at: float | None = None  # when the client or the network ended it
    how: str = ""  # lost, half_open, clean, bye, silent, server
    noticed_s: float = 0.0  # time until the node notices a lost socket
    superseded_at: float | None = None  # when the same device sent its next hello
    closed_code: int = 0
    closed_at: float | None = None  # when the node wrote its close frame
    lost_hello_at: float | None = None  # when the device's previous connection was lost before its welcome

    @property
    def hello_lost_at(self) -> float | None:
        """Return when the connection was lost before its welcome. None if it was not, or if its node has closed it."""
        return self.ended_at if self.welcomed_at is None and self.how in ("lost", "half_open") else None


class Device:
    """One device of a user. It connects again while it wants to be online."""

    def __init__(
        self,
        world: World,
        promises: Promises,
        user: str,
        name: str,
        tell: Callable[[str, str], None],
        tenant: str = TENANT,
    ) -> None:
        self.world = world
        self.universe = world.universe
        self.promises = promises
        self.user = user
        self.name = name
        self.tenant = tenant
        self.is_stranger = tenant != TENANT
        self.tell = lambda text: tell(f"{user}/{name}", text)
        self.is_wanted = False
        self.contact: Contact | None = None
        self.wire: Wire | None = None
        self.session: str | None = None
        self.is_ready = False
        self.is_silent = False
        self.typing_until = 0.0
        self.screen: dict[str, dict[str, Any]] = {}
        self._asked: dict[int, Callable[[dict[str, Any]], None]] = {}
        self._number = 0
        self._tries = 0
        self.records = Records(self)
        self._was_welcome = False

    def __str__(self) -> str:
        return f"{self.user}/{self.name}"

    # --- connection ---

    def come(self, choice: int) -> None:
        self.is_wanted = True
        if self.contact is None or self.contact.ended_at is not None:
            self._connect(choice)

    def _connect(self, choice: int = 0) -> None:
        if not self.is_wanted or (self.contact is not None and self.contact.ended_at is None):
            return
        up = [node for node in self.world.nodes if node.is_up]
        if not up or (not self.is_stranger and self.user in self.world.revoking):
            self._again(1.0)
            return
        self._tries += 1
        node = up[(choice + self._tries) % len(up)]
        now = self.universe.now
        if self.contact is not None and self.contact.superseded_at is None:
            self.contact.superseded_at = now
        lost_hello_at = None if self.contact is None else self.contact.hello_lost_at
        contact = self.contact = Contact(self, node, now, last_frame_at=now, lost_hello_at=lost_hello_at)
        if not self.is_stranger:
            self.promises.contacts.append(contact)
        self.is_ready = self.is_silent = False
        self._asked = {}
        self.typing_until = 0.0
        wire = self.wire = Wire(
            self.universe,
            self.world.backend.lag,
            lambda frame: self._written(contact, frame),
            lambda frame: self._arrived(contact, frame),
        )
        node.accept(wire)
        token = self.world.token(node, self.user, self.tenant)
        resume = self.records.resume(rooms=self._was_welcome) | ({"session": self.session} if self.session else {})
        hello: dict[str, Any] = {"token": token, "device": self.name, "resume": resume}
        self.tell(f"says hello to {node}{' with a resume' if self.session else ''}")
        wire.say(type="hello", **hello)
        self.universe.after(PATIENCE_S, self._lose_patience, contact)
        self.universe.after(BEAT_S, self._beat, contact)

    def _lose_patience(self, contact: Contact) -> None:
        if contact.ended_at is None and contact.welcomed_at is None:
            self.tell("gets no welcome and tries again")
            self._end("lost", 0.1)
            self._again(0.5)

    def _beat(self, contact: Contact) -> None:
        if contact.ended_at is None and contact is self.contact:
            if not self.is_silent:
                self._say(type="heartbeat")
            self.universe.after(BEAT_S, self._beat, contact)

    def _again(self, delay_s: float) -> None:
        self.universe.after(delay_s, self._connect)

    def _end(self, how: str, noticed_s: float | None = 0.0) -> bool:
        contact, wire = self.contact, self.wire
        if contact is None or wire is None or contact.ended_at is not None:
            return False
        contact.ended_at, contact.how = self.universe.now, how
        contact.noticed_s = noticed_s or 0.0
        self.is_ready = False
        self.records.lost()
        self.promises.ended(contact)
        if how in ("lost", "half_open"):
            wire.cut(noticed_s)
        return True

    def drop(self, noticed_s: float | None, back_s: float | None) -> None:
        """Lose the socket. `noticed_s` None: half-open. Come back after `back_s`, or not at all."""
        if self._end("half_open" if noticed_s is None else "lost", noticed_s):
            self.tell(f"loses its socket, noticed after {noticed_s} s, back after {back_s} s")
            self.is_wanted = back_s is not None
            if back_s is not None:
                self._again(back_s)

    def close(self) -> None:
        if self.wire is not None and self.is_ready:
            self.tell("closes cleanly")
            self.is_wanted = False
            self.wire.say_close(1000)
            self._end("clean")

    def bye(self) -> None:
        if self.is_ready:
            self.tell("says bye")
            self.is_wanted = False
            self._say(type="bye")
            self._end("bye")
            self.session = None

    def go_silent(self) -> None:
        if self.is_ready:
            self.tell("goes silent")
            self.is_silent, self.is_wanted = True, False

    def stall(self, seconds: float) -> None:
        if self.wire is not None and self.is_ready:
            self.tell(f"stops reading for {seconds} s")
            self.promises.stalled(self.contact, self.universe.now + seconds)
            self.wire.stall(seconds)

    # --- commands ---

    def _say(self, **command: Any) -> None:
        if self.contact is not None and self.contact.ended_at is None and self.wire is not None:
            self.contact.last_frame_at = self.universe.now
            self.wire.say(**command)

    def ask(self, answered: Callable[[dict[str, Any]], None], **command: Any) -> None:
        self._number += 1
        self._asked[self._number] = answered
        self._say(**command, id=self._number)

    def type(self, seconds: float, stops: bool) -> None:
        if self.is_ready:
            self.tell(f"types for {seconds} s{', then stops' if stops else ''}")
            self.typing_until = self.universe.now + seconds
            self._type(self.contact, stops)

    def _type(self, contact: Contact | None, stops: bool) -> None:
        if contact is not self.contact or not self.is_ready or self.is_silent:
            return
        if self.universe.now < self.typing_until:
            self.promises.typed(self.user)
            self._say(type="typing.start", room=ROOM)
            self.universe.after(REPEAT_S, self._type, contact, stops)
        elif stops:
            self._say(type="typing.stop", room=ROOM)

    def set_status(self, status: str) -> None:
        if not self.is_ready or self.is_silent:
            return
        self.tell(f"sets the status {status}")
        self.promises.status_sent(self.user)

        def answered(frame: dict[str, Any]) -> None:
            if frame["type"] == "reply":
                self.tell(f"has the status {status}")
                self.promises.status_set(self.user, status)

        self.ask(answered, type="status.set", status=status)

    # --- receiving ---

    def _written(self, contact: Contact, frame: dict[str, Any] | None) -> None:
        if frame is not None and contact is self.contact:
            if frame["type"] == "welcome":
                contact.welcomed_at = self.universe.now
            elif frame["type"] == "closed":
                contact.closed_at = self.universe.now
            self.promises.written(contact, frame)

    def _arrived(self, contact: Contact, frame: dict[str, Any] | None) -> None:
        if contact is not self.contact or contact.ended_at is not None:
            return
        if frame is None:
            self._closed(contact)
            return
        try:
            self._take(contact, frame)
        except Wrong as error:
            self.promises.fail("records", f"{self}: {error}")

    def _take(self, contact: Contact, frame: dict[str, Any]) -> None:
        data = frame.get("data", {})
        match frame["type"]:
            case "welcome":
                self._welcomed(data)
            case "closed":
                contact.closed_code = data["code"]
                if contact.closed_code == REPLACED and not self.is_stranger:
                    self._replaced(contact)
            case "reply" | "error":
                answered = self._asked.pop(frame.get("id", 0), None)
                if answered is not None:
                    answered(frame)
            case "presence.changed":
                self._show(data)
            case kind:
                self.records.received(kind, data)

    def _replaced(self, contact: Contact) -> None:
        """Check that the device itself has taken the session elsewhere.

        A node may execute the hello of a lost connection late, after the device has resumed the session on another
        node. Nodes cannot know which hello is newer. Clients connect again then, once (docs/protocol.md, resume).
        """
        lost_at = contact.lost_hello_at
        if contact.superseded_at is None and (lost_at is None or self.universe.now >= lost_at + LATE_S):
            self.promises.fail("intruder", f"{self} was replaced, and has not resumed elsewhere")

    def _closed(self, contact: Contact) -> None:
        self.tell(f"is closed with {contact.closed_code}")
        self._end("server")
        if self.is_wanted:
            self._again(2.0 if contact.closed_code == OVERLOADED else 0.3)

    def _welcomed(self, data: dict[str, Any]) -> None:
        self.tell(f"is welcome on {data['node']}{', resumed' if data['resumed'] else ''}")
        self.session, self.is_ready = data["session"], True
        self._was_welcome = True
        self._watch(self.contact)
        self.records.welcomed(data["rooms"], data["unread"])

    def _watch(self, contact: Contact | None) -> None:
        if contact is not self.contact or not self.is_ready:
            return

        def answered(frame: dict[str, Any]) -> None:
            if frame["type"] == "reply":
                for entry in frame["data"]["presence"]:
                    self._show(entry)
            else:
                self.universe.after(1.0, self._watch, contact)

        self.ask(answered, type="watch", users=self.promises.users)

    def _show(self, entry: dict[str, Any]) -> None:
        shown = self.screen.get(entry["user"])
        if shown is None or not entry["version"] or entry["version"] >= shown["version"]:
            self.screen[entry["user"]] = entry
