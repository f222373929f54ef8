"""State that a client knows, and which events are new. Pure: no sockets, no tasks; the time is an argument."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from types import MappingProxyType

from msgspec.structs import replace

from greendot.client.codec import Truncated
from greendot.client.records import Cursors, Records, room_stream
from greendot.protocol.events import (
    InboxBadge,
    NotificationCreated,
    Presence,
    Refresh,
    Resync,
    RoomChanged,
    RoomMessage,
    TypingCount,
    TypingStarted,
    TypingStopped,
    TypingTimes,
    Welcome,
)
from greendot.protocol.replies import BadgeReply, InboxReply, JoinReply

TYPING_SLACK_S = 1.0  # tolerated delay of a repeated start before the user seems to stop typing
THROTTLE_SLACK_S = 0.1  # margin for network jitter: a start must not arrive within the server's throttle


def _is_unknown(entry: Presence) -> bool:
    """Return whether the server does not know the state: it restores lost data, and `offline` is no fact."""
    return entry.version == 0 and entry.stale is True and entry.state == "offline"


def _news(entry: Presence) -> tuple[object, ...]:
    """Return the fields whose change is new to the program."""
    return entry.version, entry.stale, entry.mode, entry.recently_active, entry.name, entry.info


class People:
    """Newest known presence of each user. Versions only grow; only version 0, "unknown", replaces any."""

    def __init__(self) -> None:
        self._known: dict[str, Presence] = {}
        self.known: Mapping[str, Presence] = MappingProxyType(self._known)
        self.polled: set[str] = set()  # known users whose changes the server does not send

    def apply(self, entry: Presence) -> bool:
        """Keep `entry` unless it is older than the known one; return whether it is new to the program."""
        known = self._known.get(entry.user)
        # Version 0 is not an old state but none: the server restarted without its memory, or the user is now hidden
        # from this client. Treated as old, it would leave the user online here for ever.
        if known is not None and 0 < entry.version < known.version:
            return False
        if known is not None and known.version > 0 and _is_unknown(entry):
            entry = replace(known, stale=True)
        # An equal version is not new but may contain more: snapshots name the devices, changes do not. A change of
        # `stale` or `mode` is new: whether the server can still follow the user, and whether it sends changes. A new
        # name or info does not change the version.
        self._known[entry.user] = entry
        (self.polled.add if entry.mode == "poll" else self.polled.discard)(entry.user)
        return known is None or _news(entry) != _news(known)

    def age(self) -> list[Presence]:
        """Mark all states as stale after a time without a connection; return the changed entries."""
        aged = [replace(entry, stale=True) for entry in self._known.values() if entry.stale is not True]
        self._known.update({entry.user: entry for entry in aged})
        return aged

    def forget(self, user: str) -> None:
        self._known.pop(user, None)
        self.polled.discard(user)


class Badge:
    """Counters of unread and unseen notifications. The latest values count."""

    def __init__(self) -> None:
        self.unread = 0
        self.unseen = 0

    def apply(self, said: InboxBadge | BadgeReply | InboxReply) -> bool:
        """Set the counters; return whether they changed."""
        news = (said.unread, said.unseen) != (self.unread, self.unseen)
        self.unread, self.unseen = said.unread, said.unseen
        return news


class Typists:
    """Typing users by room. Each entry expires, with or without another event."""

    def __init__(self) -> None:
        self._rooms: dict[str, dict[str, tuple[str, float]]] = {}  # room → user → (name to show, end)
        self._counts: dict[str, tuple[int, float]] = {}  # large room → (number of users, end)

    def started(self, room: str, user: str, name: str | None, end: float) -> None:
        self._rooms.setdefault(room, {})[user] = (name or user, end)

    def stopped(self, room: str, user: str) -> bool:
        """Remove a typing user; return whether the user was typing."""
        typists = self._rooms.get(room)
        if typists is None or typists.pop(user, None) is None:
            return False
        if not typists:
            del self._rooms[room]
        return True

    def counted(self, room: str, count: int, end: float) -> None:
        """Set the number of typing users of a large room, and drop their names: large rooms have none."""
        self._rooms.pop(room, None)
        if count > 0:
            self._counts[room] = (count, end)
        else:
            self._counts.pop(room, None)

    def leave(self, room: str) -> None:
        self._rooms.pop(room, None)
        self._counts.pop(room, None)

    def current(self, room: str, now: float) -> dict[str, str]:
        """Return user → name to show, in the order in which they started."""
        return {user: name for user, (name, end) in self._rooms.get(room, {}).items() if end > now}

    def count(self, room: str, now: float) -> int:
        """Return the number of typing users, named or not."""
        number, end = self._counts.get(room, (0, now))
        return number if end > now else len(self.current(room, now))

    def expire(self, now: float) -> list[TypingStopped | TypingCount]:
        """Remove expired entries; return their events."""
        over = [
            TypingStopped(room, user)
            for room, typists in self._rooms.items()
            for user, (_, end) in typists.items()
            if end <= now
        ]
        for gone in over:
            self.stopped(gone.room, gone.user)
        silent = [room for room, (_, end) in self._counts.items() if end <= now]
        for room in silent:
            del self._counts[room]
        return [*over, *(TypingCount(room, 0, 0) for room in silent)]

    def next_end(self) -> float | None:
        """Return when the next entry expires; None if there is none."""
        named = (end for typists in self._rooms.values() for _, end in typists.values())
        return min(chain(named, (end for _, end in self._counts.values())), default=None)


class Throttle:
    """Throttle of typing frames: one per room and `repeat_ms`; after a stop, as soon as the server accepts one."""

    def __init__(self) -> None:
        self._announced: dict[str, tuple[float, bool]] = {}  # time of the last start, and whether it still holds

    def start(self, room: str, now: float, times: TypingTimes) -> bool:
        """Return whether to send a start now, at the pace the server asks for."""
        at, holds = self._announced.get(room, (float("-inf"), False))
        again_s = times.repeat_ms / 1000 if holds else times.throttle_ms / 1000 + THROTTLE_SLACK_S
        if now - at < again_s:
            return False
        self._announced[room] = (now, True)
        return True

    def stop(self, room: str) -> bool:
        """End the typing in `room`; return whether a start has to be taken back."""
        at, holds = self._announced.get(room, (0.0, False))
        if holds:
            self._announced[room] = (at, False)
        return holds

    def forget(self, room: str) -> None:
        """Forget a start that was not sent."""
        self._announced.pop(room, None)

    def clear(self) -> None:
        self._announced.clear()


class View:
    """State of one client, updated by events in the order of arrival."""

    def __init__(self, cursors: Cursors | None = None) -> None:
        self.watched: dict[str, None] = {}  # ordered set, in the order of watching
        self.people = People()
        self.records = Records(cursors)
        self.badge = Badge()
        self.typists = Typists()
        self.typing_times = TypingTimes()

    def apply(self, event: object, now: float) -> bool:
        """Apply `event`; return whether it is new and goes to the program."""
        match event:
            case Welcome():
                self.typing_times = event.typing
            case Presence():
                return self.people.apply(event)
            case RoomMessage() | NotificationCreated():
                return self.records.accept(event)
            case InboxBadge():
                return self.badge.apply(event)
            case Resync():
                return not self.records.missed(event.scope)
            case Refresh():
                return not self.records.unread(event.of)
            case TypingStarted():
                end = now + event.expires_in_ms / 1000 + TYPING_SLACK_S
                self.typists.started(event.room, event.user, event.name, end)
            case TypingStopped():
                return self.typists.stopped(event.room, event.user)
            case TypingCount():
                self.typists.counted(event.room, event.count, now + event.expires_in_ms / 1000 + TYPING_SLACK_S)
            case RoomChanged(removed=True):
                self.leave(event.room)
        return True

    def watch(self, entries: Iterable[Presence]) -> None:
        """Apply a snapshot of users that are watched from now on."""
        for entry in entries:
            self.watched[entry.user] = None
            self.people.apply(entry)

    def asked(self, entries: Iterable[Presence]) -> None:
        """Apply a snapshot of users; entries of users who are not watched are ignored."""
        for entry in entries:
            if entry.user in self.watched:
                self.people.apply(entry)

    def unwatch(self, users: Iterable[str]) -> None:
        for user in users:
            self.watched.pop(user, None)
            self.people.forget(user)

    def joined(self, reply: JoinReply, after: int | None, now: float) -> Truncated | None:
        """Apply the reply to a join; the program has its messages.

        If the reply is truncated, the missing messages are fetched and delivered like later ones. If there are too many
        to fetch, return the Truncated event for the program.
        """
        self.typing_in(reply, now)
        stream = room_stream(reply.room)
        if after is None:
            # In a room that was joined before, undelivered messages are still delivered, unless the reply has them.
            line = self.records.follow(stream, reply.head)
            if reply.messages and reply.messages[0].seq <= line.last + 1:
                line.skip(reply.head)
            return None
        if reply.truncated:
            self.records.follow(stream, after)
            return self.records.reach(stream, reply.head)
        self.records.follow(stream, reply.head).skip(reply.head)
        return None

    def typing_in(self, reply: JoinReply, now: float) -> None:
        """Set the typing users of a room from the reply."""
        self.typists.leave(reply.room)
        for typer in reply.typing:
            end = now + typer.expires_in_ms / 1000 + TYPING_SLACK_S
            self.typists.started(reply.room, typer.user, typer.name, end)
        if reply.typing_count > len(reply.typing):  # a large room: a number without names and times
            end = now + self.typing_times.hold_ms / 1000 + TYPING_SLACK_S
            self.typists.counted(reply.room, reply.typing_count, end)

    def leave(self, room: str) -> None:
        self.records.leave(room_stream(room))
        self.typists.leave(room)
