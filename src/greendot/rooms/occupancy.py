"""Occupancy of a room, as its listeners on this node see it.

The node keeps a copy of the occupants. The copy is read when the room is opened, updated by the engine's messages, and
read again when a message may have been missed or a node has died. A query therefore costs no engine read. Each node
announces the differences to its own listeners.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Sequence
from itertools import islice

from msgspec import UNSET

from greendot.engine.messages import Entered, Left
from greendot.engine.port import Engine
from greendot.node.channel import Channel, RoomKey
from greendot.node.context import NodeContext
from greendot.node.timer_model import has_come
from greendot.presence.status import StatusService
from greendot.protocol.codec import encode_event
from greendot.protocol.events import Event, RoomCount, RoomEntered, RoomLeft
from greendot.protocol.replies import PresentReply
from greendot.rooms.announcer import RoomAnnouncer
from greendot.rooms.session_rooms import SessionRooms
from greendot.visibility.cache import VisibilityCache

RETRY_S = 1.0  # seconds until visibility facts are read again after the store failed


def page(
    ordered: Sequence[str],
    also: str | None,
    after: str | None,
    limit: int,
    count: int | None = None,
    *,
    stale: bool = False,
) -> PresentReply:
    """Return a page of users by id, `also` among them, and the number of all users.

    `count` is the number of users where `ordered` does not contain all of them.
    """
    at = 0 if after is None else bisect_right(ordered, after)
    users = [*ordered[at : at + limit]]
    if also is not None and (after is None or also > after):
        insort(users, also)
    there = len(ordered) if count is None else count
    return PresentReply(users[:limit], there + (also is not None), stale or UNSET)


class RoomOccupancy(RoomAnnouncer):
    """Occupants of one room with local listeners."""

    __slots__ = (
        "_held_until",
        "_left",
        "_newest",
        "_order",
        "_readings",
        "_reads",
        "_session_rooms",
        "_statuses",
        "_unknown",
        "_users",
        "stale",
    )

    ROLE, LAPSES = "present", False

    def __init__(
        self,
        channel: Channel,
        context: NodeContext,
        statuses: StatusService,
        session_rooms: SessionRooms,
        visibility: VisibilityCache,
        large: int,
    ) -> None:
        super().__init__(channel, context, visibility, large, lambda: self._users)
        self._statuses = statuses
        self._session_rooms = session_rooms
        self._unknown: set[str] = set()  # entered; the facts that decide who sees them are being read
        self._users: set[str] = set()
        self._order: list[str] | None = None  # `_users` sorted by id; None until requested
        self._reads = self._newest = 0  # number of readings, and the latest one that was applied
        self._readings: dict[int, dict[str, bool]] = {}  # under way, with the users who entered (True) or left
        self._held_until = float("-inf")  # monotonic seconds
        self._left: set[str] = set()  # users who left while held, unless they entered again
        self.stale = False  # occupants may be missing: read while the engine's lost data was being restored

    # --- reads ---

    def count(self, reader: str) -> int:
        """Return the number of occupants visible to `reader`, including the reader."""
        return self.room_view.count(reader) + (self.unseen(reader) is not None)

    @property
    def users(self) -> Collection[str]:
        """Return all occupants, visible to a listener or not."""
        return self._users

    def ordered(self) -> Sequence[str]:
        """Return all occupants, sorted by id."""
        if self._order is None:
            self._order = sorted(self._users)
        return self._order

    def is_viewer(self, reader: str) -> bool:
        """Return whether the reader listens on this node: only then is the reader's view known here."""
        return bool(self._devices(reader))

    def page(self, reader: str, after: str | None, limit: int) -> PresentReply:
        """Return a page of the occupants visible to a viewer, and the number of all visible ones."""
        ordered, sees = self.ordered(), self.room_view.sees
        at = 0 if after is None else bisect_right(ordered, after)
        seen = (ordered[number] for number in range(at, len(ordered)) if sees(reader, ordered[number]))
        some, count = [*islice(seen, limit)], self.room_view.count(reader)
        return page(some, self.unseen(reader), after, limit, count, stale=self.stale)

    def unseen(self, reader: str | None) -> str | None:
        """Return the reader if present but unseen by all other users (invisible, or about to enter); None otherwise."""
        return reader if reader is not None and reader not in self._users and self._devices(reader) else None

    async def read(self, engine: Engine) -> None:
        """Read the occupants from the engine and announce the differences.

        Do nothing while held: a missing user may not have been restored yet. Of several reads, the latest one wins.
        """
        if self.is_held:
            return
        self._reads += 1
        number, meanwhile = self._reads, dict[str, bool]()
        self._readings[number] = meanwhile
        stale = engine.is_restoring(self._tenant, self._room)
        try:
            found = {*await engine.present(self._tenant, self._room)}
            is_known = await self._look_up(found)
            if number < self._newest or self.is_held:
                return
            self._newest = number
            self.stale = stale or engine.is_restoring(self._tenant, self._room)
            self._order = None
            # While the engine's data is being restored, a user missing from the reading has not left.
            different = found - self._users if self.stale else found ^ self._users
            async for users in self._context.slices.cut([*different]):
                if number < self._newest or self.is_held:
                    return
                for user in users:
                    # Messages received since the reading began are newer than the reading.
                    if user not in meanwhile:
                        self._correct(user, is_there=user in found, is_known=is_known)
        finally:
            del self._readings[number]
        if not self.stale:
            self._unknown &= found.union(user for user, entered in meanwhile.items() if entered)

    def _correct(self, user: str, *, is_there: bool, is_known: bool) -> None:
        """Apply the engine's state of a user."""
        if not is_there:
            self._leave(user)
        elif is_known and self._visibility.knows(self._tenant, user, [user]):
            self._enter(user)
        else:
            self._arrive(user)

    def hold(self, seconds: float) -> None:
        """Keep all occupants for `seconds`: the engine lost them, and the nodes restore their sessions meanwhile."""
        self._held_until = self._context.timers.now() + seconds
        self._left.clear()

    @property
    def is_held(self) -> bool:
        """Return whether the occupants are kept, because the engine may lack some."""
        return not has_come(self._held_until, self._context.timers.now())

    # --- from the bus ---

    def receive(self, message: Entered | Left) -> bool:
        """Apply a message; return whether it shows a loss in the engine that this node has not noticed yet."""
        user, entered = message.user, isinstance(message, Entered)
        for meanwhile in self._readings.values():
            meanwhile[user] = entered
        if isinstance(message, Left):
            self._leave(user)
            return False
        self._left.discard(user)
        was_there = user in self._users
        self._arrive(user)
        return message.restored and was_there and not self.is_held

    def left_meanwhile(self, user: str) -> None:
        """Note a user whose last session in the engine left while held. Other sessions may be missing there."""
        for meanwhile in self._readings.values():
            meanwhile[user] = False
        self._left.add(user)

    def confirm_left(self, user: str) -> None:
        """Remove such a user, because no node has a session in the room, unless the user entered again meanwhile."""
        if user in self._left:
            self._leave(user)

    def close(self) -> None:
        self._counting.close()
        self._unknown.clear()

    # --- visibility ---

    def _arrive(self, user: str) -> None:
        """Add the user as soon as the facts that decide who sees the user are known."""
        if user in self._users or self._visibility.is_ready(self._tenant, user):
            self._enter(user)
        elif user not in self._unknown:
            self._unknown.add(user)
            self._context.tasks.spawn(self._learn(user))

    async def _learn(self, user: str) -> None:
        is_known = await self._look_up([user])
        if user not in self._unknown:
            return  # the user left meanwhile
        if is_known:
            self._enter(user)
        else:
            self._context.timers.set(RETRY_S, self._learn_again, user)

    def _learn_again(self, user: str) -> None:
        if user in self._unknown:
            self._context.tasks.spawn(self._learn(user))

    # --- announcements ---

    def _enter(self, user: str) -> None:
        self._unknown.discard(user)
        if user not in self._users:
            self._users.add(user)
            self.room_view.appears(user)
            if self._order is not None:
                insort(self._order, user)
            if self._is_large:
                self._counting.soon()
            else:
                self._announce(user, RoomEntered(self._room, user), self.room_view.skipped(user))

    def _leave(self, user: str) -> None:
        # The engine may not know yet of a session on this node.
        if self._session_rooms.is_inside(self._tenant, user, self._room):
            return
        self._unknown.discard(user)
        if user in self._users:
            self._users.discard(user)
            if self._order is not None:
                del self._order[bisect_left(self._order, user)]
            self._announce_gone(user)

    @property
    def _is_large(self) -> bool:
        return max(len(self._channel.listeners), len(self._users)) > self._large

    def _event(self, user: str, *, seen: bool) -> Event:
        return RoomEntered(self._room, user) if seen else RoomLeft(self._room, user)

    def _announce_count(self) -> None:
        """Send each listener the count of visible occupants. Invisible listeners count themselves in addition."""
        hidden = [user for user in self._statuses.invisible(self._tenant) if self._devices(user)]
        self.room_view.deliver_count(self._count_frame, RoomKey(self._room, (self.ROLE,)), hidden, 1)

    def _count_frame(self, count: int) -> bytes:
        return encode_event(RoomCount(self._room, count), self._context.clock.now_ms())
