"""Announcements of a room's occupants or typists to its listeners on this node.

A small room gets an event for each user, sent only to listeners who may see the user. A large room gets counts.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from itertools import islice
from typing import ClassVar

from greendot.errors import StoreUnavailable
from greendot.node.channel import Channel, RoomKey
from greendot.node.context import NodeContext
from greendot.node.session import Connection
from greendot.node.time_slices import STEP
from greendot.node.timer_model import Timer
from greendot.node.timers import Timers
from greendot.presence.profiles import ProfileService
from greendot.protocol.codec import encode_event
from greendot.protocol.events import Event
from greendot.visibility.cache import VisibilityCache
from greendot.visibility.room_view import RoomView, VisibilityChange

COUNT_EVERY_S = 1.0  # minimum seconds between two counts for a large room
AGAIN_S = 0.05  # seconds until a count is tried again that could not be sent


class CountThrottle:
    """Throttle of a room's count: `soon` sends a count now, or later if the last count is younger than `COUNT_EVERY_S`.

    The throttle does not keep `send`, which refers to the owner of the throttle: such a reference cycle would wait for
    the garbage collector.
    """

    __slots__ = ("_is_fresh", "_timer", "_timers", "sent_at")

    def __init__(self, timers: Timers, is_fresh: Callable[[], bool]) -> None:
        self._timers = timers
        self._is_fresh = is_fresh  # whether this node knows all removals from rooms (`visibility.freshness`)
        self._timer: Timer | None = None  # set while a count waits
        self.sent_at = float("-inf")  # monotonic seconds

    def soon(self, send: Callable[[], None]) -> None:
        wait_s = self.sent_at + COUNT_EVERY_S - self._timers.now()
        if wait_s <= 0:
            self._now(send)
        elif self._timer is None:
            self._timer = self._timers.set(wait_s, self._now, send)

    def _now(self, send: Callable[[], None]) -> None:
        self.close()
        if not self._is_fresh():
            self._timer = self._timers.set(AGAIN_S, self._now, send)
            return
        self.sent_at = self._timers.now()
        send()

    def close(self) -> None:
        self._timers.cancel(self._timer)
        self._timer = None


class RoomAnnouncer(ABC):
    """Announcer of one room's users in one role. Subclasses keep the users (`users`) and make their events."""

    __slots__ = ("_channel", "_context", "_counting", "_large", "_profiles", "_visibility", "room_view")

    ROLE: ClassVar[str]  # part of the signals' key: the latest signal of a user and role replaces queued ones
    LAPSES: ClassVar[bool]  # whether signals expire at the client; then counts are repeated, and signals may be shed

    def __init__(
        self,
        channel: Channel,
        context: NodeContext,
        visibility: VisibilityCache,
        profiles: ProfileService,
        large: int,
        users: Callable[[], Collection[str]],
    ) -> None:
        self._channel = channel
        self._context = context
        self._visibility = visibility
        self._profiles = profiles
        self._large = large
        self._counting = CountThrottle(context.timers, visibility.freshness.is_fresh)
        self.room_view = RoomView(channel, context, visibility, users)

    @abstractmethod
    def _event(self, user: str, *, seen: bool) -> Event:
        """Return the event for listeners to whom a user appears (`seen`) or disappears."""

    @abstractmethod
    def _announce_count(self) -> None:
        """Send each listener the count of users visible to them."""

    @property
    def _tenant(self) -> str:
        return self._channel.topic.tenant

    @property
    def _room(self) -> str:
        return self._channel.topic.name

    @property
    def _is_large(self) -> bool:
        return len(self._channel.listeners) > self._large

    def _devices(self, user: str) -> list[Connection]:
        return self._context.registry.connections_in(self._channel, user)

    def _is_known(self, user: str) -> bool:
        """Return whether the user can be announced now: the node knows the profile and who sees the user."""
        if not self._visibility.is_ready(self._tenant, user):
            return False
        return self._is_large or self._profiles.is_ready(self._tenant, user)

    async def _look_up(self, users: Collection[str]) -> bool:
        """Load the facts that decide who sees these users, and their profiles; return False if the store is away."""
        try:
            if not self._is_large:
                await self._profiles.learn(self._tenant, users)
            await self._visibility.know(self._tenant, self.room_view.viewers(), users)
        except StoreUnavailable:
            return False
        return True

    def _announce(self, user: str, event: Event, skip: list[Connection]) -> None:
        """Send an event to all listeners except `skip`."""
        if self._channel.listeners:
            frame, key = encode_event(event, self._context.clock.now_ms()), RoomKey(self._room, (self.ROLE, user))
            self._context.hub.offer(self._channel, frame, key=key, skip=skip, low=self.LAPSES)
            if not self.LAPSES:
                self.room_view.named()

    def _announce_gone(self, user: str) -> None:
        """Announce that a user has left the role. The caller has removed the user from `users`."""
        skip = self.room_view.skipped(user)
        self.room_view.goes(user)
        if self._is_large:
            self._counting.soon(self._announce_count)
        else:
            self._announce(user, self._event(user, seen=False), skip)

    async def review(self, users: Collection[str] | None) -> None:
        """Decide again whom these users see and who sees them (None: all users), in slices. Announce each difference.

        Earlier frames must not arrive after the differences, so waiting frames are sent before each slice.
        """
        targets = self.room_view.everyone() if users is None else [*users]
        async for some in self._context.slices.cut(targets):
            pairs = self.room_view.pairs(some, () if users is None else some)
            while chosen := [*islice(pairs, STEP)]:
                await self._review_pairs(chosen)

    async def _review_pairs(self, pairs: Sequence[tuple[str, str]]) -> None:
        await self._context.slices.turn()
        while self._channel.pending or self._channel.queued:
            self._context.hub.flush()
            await asyncio.sleep(0)
        for viewer, target in pairs:
            if (change := self.room_view.decide(viewer, target)) is not None:
                self._announce_change(change)

    def _announce_change(self, change: VisibilityChange) -> None:
        if self._is_large:
            self._counting.soon(self._announce_count)
            return
        frame = encode_event(self._event(change.target, seen=change.sees), self._context.clock.now_ms())
        key = RoomKey(self._room, (self.ROLE, change.target))
        self._context.hub.send_each(self._devices(change.viewer), frame, key=key)
