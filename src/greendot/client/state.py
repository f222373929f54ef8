"""What the client knows, and what it takes for news. Pure: no sockets, no tasks; the time is an argument."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from greendot.protocol.events import (
    Presence,
    RoomChanged,
    RoomMessage,
    RoomState,
    TypingStarted,
    TypingStopped,
)
from greendot.protocol.replies import JoinReply

TYPING_SLACK_S = 1.0  # a repeated start may be late by so much before the typer seems to stop
TYPING_REPEAT_S = 3.0  # a typing person is announced again at most so often
TYPING_AGAIN_S = 2.1  # the same after a stop or a message: earlier the server would drop it, and 3 s would be lost


class People:
    """The newest known presence of each user. Moves forward by version; only version 0, "unknown", replaces any."""

    def __init__(self) -> None:
        self._known: dict[str, Presence] = {}
        self.known: Mapping[str, Presence] = MappingProxyType(self._known)

    def apply(self, entry: Presence) -> bool:
        """Whether `entry` is newer than what was known, and now is what is known."""
        known = self._known.get(entry.user)
        # Version 0 is not an old state but none: the server restarted without its memory, or the user is hidden
        # from us now. Held to be old, it would leave them online here for ever.
        if known is not None and 0 < entry.version < known.version:
            return False
        # An equal version is no news but may say more: snapshots name the devices, changes do not. Whether the server
        # can still follow the user is news.
        self._known[entry.user] = entry
        return known is None or (entry.version, entry.stale) != (known.version, known.stale)

    def forget(self, user: str) -> None:
        self._known.pop(user, None)


class Cursors:
    """The rooms joined, and the number of the last message seen in each."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        self.rooms: Mapping[str, int] = MappingProxyType(self._last)

    def accept(self, message: RoomMessage) -> bool:
        """Whether `message` was not seen before, and now is."""
        last = self._last.get(message.room)
        if last is None:  # not a room of ours: nothing to compare with, nothing to remember
            return True
        if message.seq <= last:
            return False
        self._last[message.room] = message.seq
        return True

    def joined(self, reply: JoinReply) -> None:
        """Everything up to the head of `reply` counts as seen: its messages are in the caller's hands."""
        if not self.skip(reply.room, reply):
            self._last[reply.room] = max(reply.head, self._last.get(reply.room, 0))

    def skip(self, room: str, state: RoomState | JoinReply) -> bool:
        """Whether messages were skipped, so that the room goes on from its head."""
        # That may be backwards: a server that lost messages numbers again from its head, and with the old cursor
        # every new message would be dropped as a duplicate.
        if state.truncated:
            self._last[room] = state.head
        return state.truncated

    def leave(self, room: str) -> None:
        self._last.pop(room, None)


class Typists:
    """Who is typing where, each until their time is over, whether or not anything more is heard of them."""

    def __init__(self) -> None:
        self._rooms: dict[str, dict[str, tuple[str, float]]] = {}  # room → user → (shown name, end)

    def started(self, room: str, user: str, name: str | None, end: float) -> None:
        self._rooms.setdefault(room, {})[user] = (name or user, end)

    def stopped(self, room: str, user: str) -> None:
        if typists := self._rooms.get(room):
            typists.pop(user, None)
            if not typists:
                del self._rooms[room]

    def leave(self, room: str) -> None:
        self._rooms.pop(room, None)

    def current(self, room: str, now: float) -> dict[str, str]:
        """User → name to show, who began first comes first."""
        return {user: name for user, (name, end) in self._rooms.get(room, {}).items() if end > now}

    def expire(self, now: float) -> list[TypingStopped]:
        """Forget those whose time is over, and say who they were."""
        over = [
            TypingStopped(room, user)
            for room, typists in self._rooms.items()
            for user, (_, end) in typists.items()
            if end <= now
        ]
        for gone in over:
            self.stopped(gone.room, gone.user)
        return over

    def next_end(self) -> float | None:
        """When `expire` will next find somebody, if nothing more is heard."""
        return min((end for typists in self._rooms.values() for _, end in typists.values()), default=None)


class Throttle:
    """Lets one announcement of typing through per room and TYPING_REPEAT_S (after a stop, TYPING_AGAIN_S)."""

    def __init__(self) -> None:
        self._announced: dict[str, tuple[float, bool]] = {}  # when, and whether it still holds

    def start(self, room: str, now: float) -> bool:
        """Whether to announce now that the person is typing."""
        at, holds = self._announced.get(room, (float("-inf"), False))
        if now - at < (TYPING_REPEAT_S if holds else TYPING_AGAIN_S):
            return False
        self._announced[room] = (now, True)
        return True

    def stop(self, room: str) -> bool:
        """Whether there is an announcement to take back."""
        at, holds = self._announced.get(room, (0.0, False))
        if holds:
            self._announced[room] = (at, False)
        return holds

    def forget(self, room: str) -> None:
        """The announcement was not sent after all."""
        self._announced.pop(room, None)

    def clear(self) -> None:
        self._announced.clear()


class View:
    """All of the above, fed with events in the order they arrive."""

    def __init__(self) -> None:
        self.watched: dict[str, None] = {}  # a set in the order of watching
        self.people = People()
        self.cursors = Cursors()
        self.typists = Typists()

    def apply(self, event: object, now: float) -> bool:
        """Take `event` in; whether it is news, to be shown to the program."""
        match event:
            case Presence():
                return self.people.apply(event)
            case RoomMessage():
                return self.cursors.accept(event)
            case TypingStarted():
                end = now + event.expires_in_ms / 1000 + TYPING_SLACK_S
                self.typists.started(event.room, event.user, event.name, end)
            case TypingStopped():
                self.typists.stopped(event.room, event.user)
            case RoomChanged(removed=True):
                self.leave(event.room)
        return True

    def watch(self, entries: Iterable[Presence]) -> None:
        """A snapshot of users that are watched from now on."""
        for entry in entries:
            self.watched[entry.user] = None
            self.people.apply(entry)

    def unwatch(self, users: Iterable[str]) -> None:
        for user in users:
            self.watched.pop(user, None)
            self.people.forget(user)

    def joined(self, reply: JoinReply, now: float) -> None:
        """A room was joined: its typers are those of the reply, and its messages are seen."""
        self.cursors.joined(reply)
        self.typists.leave(reply.room)
        for typer in reply.typing:
            end = now + typer.expires_in_ms / 1000 + TYPING_SLACK_S
            self.typists.started(reply.room, typer.user, typer.name, end)

    def leave(self, room: str) -> None:
        self.cursors.leave(room)
        self.typists.leave(room)


def typing_text(names: Iterable[str]) -> str:
    """A line to show under a conversation: up to two names, then "several people"; empty when nobody types."""
    match list(names):
        case []:
            return ""
        case [one]:
            return f"{one} is typing…"
        case [one, other]:
            return f"{one} and {other} are typing…"
        case _:
            return "several people are typing…"
