"""Typists of one room, as announced to the room's subscribers on this node (the listeners).

A typist is a user who is typing (`Typer` on the wire). The engine (memory, or Redis) keeps the typists of all nodes.
The bus is the part of the engine that carries each start and stop to the nodes. The node sets a timer for each typist
(`typing.ttl_s`). The timer removes the typist even if the bus loses the stop, a client disappears or another node dies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple, Protocol

from greendot.engine.messages import Topic, Typing
from greendot.ids import Key
from greendot.node.channel import Channel, RoomKey
from greendot.node.context import NodeContext
from greendot.node.timer_model import Timer
from greendot.presence.profiles import ProfileService
from greendot.protocol.codec import encode_event
from greendot.protocol.events import Event, TypingCount, TypingStarted, TypingStopped
from greendot.protocol.replies import Typer
from greendot.rooms.announcer import RoomAnnouncer
from greendot.rooms.typing_model import Typist
from greendot.visibility.cache import VisibilityCache

# In a large room, clients get the number of typists. Clients drop the number after `ttl_ms`. While users type, the
# number is sent again after this fraction of `ttl_ms`.
REPEAT_COUNT = 0.4
AGAIN_S = 0.2  # a typist whose time is over while this node may have missed removals from the room is looked at again


class HiddenTypists(Protocol):
    """Users who have become invisible a moment ago (`rooms.hidden_typing`)."""

    def is_doubtful(self, key: Key) -> bool: ...
    async def is_newer(self, topic: Topic, user: str) -> bool: ...


class _Entry(NamedTuple):
    name: str | None
    timer: Timer


class RoomTyping(RoomAnnouncer):
    """Typists of one room that has listeners on this node."""

    __slots__ = ("_entries", "_hidden", "_ttl_ms", "_unknown")

    ROLE, LAPSES = "typing", True

    def __init__(
        self,
        channel: Channel,
        context: NodeContext,
        visibility: VisibilityCache,
        profiles: ProfileService,
        hidden: HiddenTypists,
        large: int,
        ttl_ms: int,
    ) -> None:
        entries = dict[str, _Entry]()
        super().__init__(channel, context, visibility, profiles, large, entries.keys)
        self._hidden = hidden
        self._ttl_ms = ttl_ms
        self._entries = entries
        self._unknown: dict[str, Typing] = {}  # last start of each typist who is being looked up

    def seed(self, typists: Iterable[Typist]) -> None:
        """Add the typists that the engine listed when this node opened the room.

        Skip typists whom this node already knows: their starts, which came over the bus, are newer than the list.
        """
        for user, name, remaining in typists:
            if user not in self._entries and self._hidden.is_doubtful((self._tenant, user)):
                self.receive(Typing(user, name, remaining))
            elif user not in self._entries:
                self._hold(user, name, remaining)

    def resync(self, typists: Iterable[Typist]) -> None:
        """Add the typists that the engine lists, because the node may have missed starts from the bus.

        Keep typists whom the engine does not list. Such a typist may have started on this node while Redis was
        unreachable. Redis then does not know of the start. If the node missed a stop, the timer removes the typist.
        """
        for user, name, remaining in typists:
            if user not in self._entries:
                self.receive(Typing(user, name, remaining))

    def receive(self, typing: Typing) -> None:
        """Apply a start, a repeated start or a stop from the bus."""
        if typing.expires_in_ms <= 0:
            self._unknown.pop(typing.user, None)
            self._stop(typing.user)
        elif typing.user in self._entries or self._is_known(typing.user):
            self._start(typing)
        else:
            if typing.user not in self._unknown:
                self._context.tasks.spawn(self._learn(typing.user))
            self._unknown[typing.user] = typing

    def _is_known(self, user: str) -> bool:
        return not self._hidden.is_doubtful((self._tenant, user)) and super()._is_known(user)

    async def _learn(self, user: str) -> None:
        is_known = await self._look_up([user]) and await self._hidden.is_newer(self._channel.topic, user)
        typing = self._unknown.pop(user, None)
        # None: the typist stopped, or the room closed. After a failed lookup, the next repeated start tries again.
        if is_known and typing is not None:
            self._start(typing)

    def _start(self, typing: Typing) -> None:
        known = typing.user in self._entries
        self._hold(typing.user, typing.name, typing.expires_in_ms)
        if not self._is_large:
            info = self._profiles.of(self._tenant, typing.user).wire
            event = TypingStarted(self._room, typing.user, typing.name, typing.expires_in_ms, info)
            self._announce(typing.user, event, self.room_view.skipped(typing.user))
        elif not known or self._context.timers.now() - self._counting.sent_at >= REPEAT_COUNT * self._ttl_ms / 1000:
            self._counting.soon(self._announce_count)

    def typers(self, reader: str) -> list[Typer]:
        """Return the typists whom the joining user `reader` may see, without `reader`. A large room has no list."""
        if self._is_large:
            return []
        return [
            Typer(user, entry.name, self._left_ms(entry), self._profiles.of(self._tenant, user).wire)
            for user, entry in self._entries.items()
            if user != reader and self.room_view.sees(reader, user)
        ]

    def _left_ms(self, entry: _Entry) -> int:
        return max(1, round((entry.timer.due - self._context.timers.now()) * 1000))

    @property
    def users(self) -> Collection[str]:
        """Return all typists, including typists whom some listeners may not see."""
        return self._entries.keys()

    def count(self, reader: str) -> int:
        return self.room_view.count(reader) - (reader in self._entries)

    def close(self) -> None:
        for entry in self._entries.values():
            self._context.timers.cancel(entry.timer)
        self._entries.clear()
        self._unknown.clear()
        self._counting.close()

    def _hold(self, user: str, name: str | None, ms: int) -> None:
        entry = self._entries.pop(user, None)
        if entry is not None:
            self._context.timers.cancel(entry.timer)
        self._entries[user] = _Entry(name, self._context.timers.set(ms / 1000, self._lapse, user))
        if entry is None:
            self.room_view.appears(user)

    def _lapse(self, user: str) -> None:
        """Remove a typist whose time is over. First, if the process was stopped, learn which listeners may not stay."""
        if self._visibility.freshness.is_fresh():
            self._stop(user)
        else:
            timer = self._context.timers.set(AGAIN_S, self._lapse, user)
            self._entries[user] = self._entries[user]._replace(timer=timer)

    def _stop(self, user: str) -> None:
        entry = self._entries.pop(user, None)
        if entry is not None:
            self._context.timers.cancel(entry.timer)
            self._announce_gone(user)

    def _event(self, user: str, *, seen: bool) -> Event:
        if not seen:
            return TypingStopped(self._room, user)
        entry = self._entries[user]
        info = self._profiles.of(self._tenant, user).wire
        return TypingStarted(self._room, user, entry.name, self._left_ms(entry), info)

    def _announce_count(self) -> None:
        """Send each listener the number of other typists whom the listener may see."""
        key = RoomKey(self._room, (self.ROLE,))
        self.room_view.deliver_count(self._count_frame, key, [*self._entries], -1, lapses=True)

    def _count_frame(self, count: int) -> bytes:
        return encode_event(TypingCount(self._room, count, self._ttl_ms), self._context.clock.now_ms())
