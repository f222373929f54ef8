"""Occupancy of a room: the users in the room, as the listeners on this node see them.

- An occupant is a user with a session in the room, on any node. The engine has the occupants of all rooms.
- A listener is a connection on this node that gets the frames of the room. A viewer is a user with a listener.
- A reader is the user for whom a query is answered. This reader is not the role `reader` of a member.
- A hider is a user whom some other users do not see in rooms.
- The visibility facts of a user decide who sees the user.
- A reading is one read of the occupants from the engine. It also collects the users who enter or leave meanwhile.
- A loss means that the engine has lost occupants or sessions. Each node then restores its own sessions: it writes the
  sessions, and their rooms, to the engine again.
- A held room keeps its occupants after a loss, until all nodes have restored their sessions, or until a time limit.
- A large room has many listeners or occupants (more than `large`). In a large room, listeners get the number of
  occupants instead of an event for each user.

When a room is opened on this node, the node reads the occupants and makes a copy. Messages of the engine update the
copy, so a query needs no read from the engine. If a message may have been missed, or if a node has died, the node reads
the occupants again. Each node announces the differences to its own listeners.

A counted room has no copy, because the room has too many occupants. The node keeps only the number of occupants and the
hiders among them. Queries read a page from the engine. The number for a viewer leaves out the hiders whom the viewer
does not see, so the node must know all hiders. In some tenants, the node cannot list all hiders
(`VisibilityCache.lists_hiders`), for example if users see only their contacts. Then the node copies every room.

In all other tenants: if a reading finds more than `_most_copied` occupants, the room becomes counted. Otherwise the
room gets a copy. There are two exceptions: a counted room stays counted if nodes were restoring sessions during the
reading, or if the store does not answer.

Between readings, when users enter or leave, other limits apply, so that a room near `_most_copied` does not change back
and forth. A room with a copy becomes counted above twice `_most_copied`. A counted room is read again, to get a copy,
at half of `_most_copied`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice

from msgspec import UNSET

from greendot.engine.messages import Entered, Left
from greendot.engine.port import Engine
from greendot.errors import EngineUnavailable
from greendot.node.channel import Channel, RoomKey
from greendot.node.context import NodeContext
from greendot.node.timer_model import has_come
from greendot.presence.profile_model import shown_name
from greendot.presence.profiles import ProfileService
from greendot.protocol.codec import encode_event
from greendot.protocol.events import Event, RoomCount, RoomEntered, RoomLeft, RoomProfile
from greendot.protocol.replies import PresentReply, UserProfile
from greendot.rooms.announcer import RoomAnnouncer
from greendot.rooms.session_rooms import SessionRooms
from greendot.visibility.cache import VisibilityCache

RETRY_S = 1.0  # seconds until profiles and visibility facts are read again after the store failed
MOST_COPIED = 1_000  # occupants that one command of the engine returns; a room with more is usually counted
HIDERS = 500  # maximum number of hiders that one read of the engine looks for in a room


class CountedUsers(Collection[str]):
    """Occupants of a counted room: their number, and the hiders among them. An iteration yields only the hiders."""

    __slots__ = ("hiders", "total")

    def __init__(self, total: int, hiders: set[str]) -> None:
        self.total = total
        self.hiders = hiders

    def __len__(self) -> int:
        return self.total

    def __iter__(self) -> Iterator[str]:
        return iter(self.hiders)

    def __contains__(self, user: object) -> bool:
        return user in self.hiders


def present_reply(
    ordered: Sequence[str],
    also: str | None,
    after: str | None,
    limit: int,
    count: int | None = None,
    *,
    stale: bool = False,
) -> PresentReply:
    """Return a page of at most `limit` users, beginning after the id `after`, and the number of all users.

    `ordered` has the users, sorted by id. `also` is a further user, who is not in `ordered`. If `ordered` has only some
    of the users, `count` is the number of all users except `also`.
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
        "_engine",
        "_held_until",
        "_left",
        "_newest",
        "_occupants",
        "_order",
        "_readings",
        "_reads",
        "_session_rooms",
        "_statuses",
        "_unknown",
        "stale",
    )

    ROLE, LAPSES = "present", False

    def __init__(
        self,
        channel: Channel,
        context: NodeContext,
        engine: Engine,
        session_rooms: SessionRooms,
        visibility: VisibilityCache,
        profiles: ProfileService,
        large: int,
    ) -> None:
        # `RoomAnnouncer` gets a function that returns the occupants. If this function referred to `self`, only the
        # garbage collector would free the objects. So the occupants are in a list of one element.
        occupants: list[set[str] | CountedUsers] = [set()]
        super().__init__(channel, context, visibility, profiles, large, lambda: occupants[0])
        self._occupants = occupants
        self._engine = engine
        self._statuses = session_rooms.statuses
        self._session_rooms = session_rooms
        # Users who have entered but are not in the copy yet, because the node still reads their profiles and visibility
        # facts. Each has the display name of the token.
        self._unknown: dict[str, str | None] = {}
        self._order: list[str] | None = None  # `_users` sorted by id; None until requested
        self._reads = self._newest = 0  # numbers of the latest reading that has begun, and of the latest one applied
        # Readings under way, by number. Each has the users who have entered (True) or left (False) since it began.
        self._readings: dict[int, dict[str, bool]] = {}
        self._held_until = float("-inf")  # monotonic seconds
        self._left: set[str] = set()  # users who have left while the room is held, unless they entered again
        self.stale = False  # True if occupants may be missing, because nodes were restoring sessions during the reading

    @property
    def _users(self) -> set[str] | CountedUsers:
        return self._occupants[0]

    @_users.setter
    def _users(self, users: set[str] | CountedUsers) -> None:
        self._occupants[0] = users

    # --- reads ---

    @property
    def is_counted(self) -> bool:
        """Return whether the node has no copy, but only the number of occupants and the hiders among them."""
        return isinstance(self._users, CountedUsers)

    def count(self, reader: str, total: int | None = None) -> int:
        """Return the number of occupants whom `reader` sees, including the reader.

        `total` is the number of all occupants of a counted room, from `count_with`. If `total` is None, use the number
        that the node knows.
        """
        if total is not None:
            return total - (len(self._users) - self.room_view.count(reader))
        return self.room_view.count(reader) + (self.unseen(reader) is not None)

    async def count_with(self, reader: str) -> int | None:
        """Read the number of all occupants of a counted room, including hiders. If the room has a copy, return None.

        The reader is joining, so count the reader even if the engine does not have the reader in the room yet. If the
        engine is away or the room is held, return the number that the node knows.
        """
        if not self.is_counted:
            return None
        try:
            found = await self._engine.present_page(self._tenant, self._room, None, 0, reader)
        except EngineUnavailable:
            return len(self._users)
        return len(self._users) if self.is_held else found.total + (not found.is_there)

    @property
    def users(self) -> Collection[str]:
        """Return all occupants, including those whom no listener sees. For a counted room, return `CountedUsers`."""
        return self._users

    def ordered(self) -> Sequence[str]:
        """Return all occupants, sorted by id. In a counted room, return only the hiders."""
        if self._order is None:
            self._order = sorted(self._users)
        return self._order

    def is_viewer(self, reader: str) -> bool:
        """Return whether the reader has a listener on this node. The rules of visibility are known only for viewers."""
        return bool(self._devices(reader))

    def page(self, reader: str, after: str | None, limit: int) -> PresentReply:
        """Return a page of the occupants whom a viewer sees, and their number. The room must not be counted."""
        ordered, sees = self.ordered(), self.room_view.sees
        at = 0 if after is None else bisect_right(ordered, after)
        seen = (ordered[number] for number in range(at, len(ordered)) if sees(reader, ordered[number]))
        some, count = [*islice(seen, limit)], self.room_view.count(reader)
        return present_reply(some, self.unseen(reader), after, limit, count, stale=self.stale)

    def unseen(self, reader: str | None) -> str | None:
        """Return the reader if the reader has a listener here but is not in the copy. Otherwise return None.

        Such a reader is invisible or about to enter. Only the reader's own devices show the reader as an occupant. In a
        counted room, always return None.
        """
        if reader is None or self.is_counted or reader in self._users:
            return None
        return reader if self._devices(reader) else None

    async def read(self) -> None:
        """Read the occupants from the engine and announce the differences.

        If the room is held, do nothing: users may be missing in the engine, because their sessions are not restored
        yet. If a later reading was applied meanwhile, discard the result.
        """
        if self.is_held:
            return
        number, meanwhile = self._begin()
        was_restoring = self._engine.is_restoring(self._tenant, self._room)
        try:
            found = await self._engine.present_page(self._tenant, self._room, None, MOST_COPIED)
            users, hiders = found.users, set[str]()
            if found.total > self._most_copied:
                await self._look_up(())  # looks up no user, but reads the tenant's list of hiders if it is not known
                hiders = await self._hiders_inside()
            is_copy = found.total <= self._most_copied or self._needs_copy
            if is_copy and found.total > len(users):
                users = await self._engine.present(self._tenant, self._room)
            is_known = is_copy and await self._look_up(users)
            if self._is_superseded(number):
                return
            self._newest = number
            self.stale = was_restoring or self._engine.is_restoring(self._tenant, self._room)
            if not is_copy:
                self._count(found.total, hiders, meanwhile)
            elif self.stale and self.is_counted and not self._needs_copy:
                pass  # occupants may be missing; the room is read again after the recovery
            elif is_known and (self.is_counted or not self._channel.listeners):
                await self._copy(users, number)
            else:
                await self._compare({*users}, number, is_known=is_known)
        finally:
            del self._readings[number]

    def _begin(self) -> tuple[int, dict[str, bool]]:
        """Begin a reading. Return its number, and a dict that collects users who enter or leave meanwhile."""
        self._reads += 1
        meanwhile = self._readings[self._reads] = {}
        return self._reads, meanwhile

    def _is_superseded(self, number: int) -> bool:
        return number < self._newest or self.is_held

    @property
    def _most_copied(self) -> int:
        """Return the number of occupants up to which a reading makes a copy.

        Up to `_large` occupants, listeners may get events of single users, so the node needs a copy.
        """
        return max(MOST_COPIED, self._large)

    @property
    def _needs_copy(self) -> bool:
        """Return whether the node keeps a copy of any size, because it cannot list all hiders."""
        return not self._visibility.lists_hiders(self._tenant)

    async def _hiders_inside(self) -> set[str]:
        """Read from the engine which hiders are in the room, including users who begin to hide during the read."""
        inside, asked = set[str](), set[str]()
        while not self._needs_copy and (more := [*({*self._visibility.hiders(self._tenant)} - asked)]):
            asked.update(more)
            inside |= await self._inside(more)
        return inside

    async def _inside(self, users: list[str]) -> set[str]:
        """Read from the engine which of these users are in the room."""
        inside = set[str]()
        async for some in self._context.slices.cut(users, HIDERS):
            inside.update(await self._engine.sessions_in_room(self._tenant, self._room, some))
        return inside

    def _count(self, total: int, hiders: set[str], meanwhile: Mapping[str, bool]) -> None:
        """Replace the copy, or the earlier number, by a new number of occupants and the hiders among them.

        While nodes restore sessions (`stale`), the number does not fall: occupants may be missing in the engine.
        `meanwhile` has the users who have entered or left since the reading began. These are newer than `hiders`.
        """
        known, before = (
            len(self._users),
            {user for user in self._users if self._visibility.is_hider(self._tenant, user)},
        )
        entered = {user for user, is_there in meanwhile.items() if is_there}
        hiders = {user for user in hiders | entered if self._visibility.is_hider(self._tenant, user)}
        hiders = {user for user in hiders if meanwhile.get(user, True)}
        for user in before - hiders:
            self.room_view.goes(user)
        self._users, self._order = CountedUsers(max(known, total) if self.stale else total, hiders), None
        for user in hiders - before:
            self.room_view.appears(user)
        self._unknown.clear()
        if len(self._users) != known or before != hiders:
            self._counting.soon(self._announce_count)

    async def find(self, users: Collection[str] | None) -> None:
        """Read which of these users are in a counted room, and add these occupants to its hiders.

        Call this when users may have begun to hide. With None, do this for all hiders of the tenant.
        """
        if isinstance(self._users, CountedUsers):
            if self._needs_copy:
                await self.read()
                return
            known = self._users
            number, meanwhile = self._begin()
            try:
                inside = await (self._hiders_inside() if users is None else self._inside([*users]))
            finally:
                del self._readings[number]
            if self._users is known:  # otherwise a reading has replaced the number meanwhile
                known.hiders |= {user for user in inside if meanwhile.get(user, True)}
            else:
                await self.find(users)

    async def _copy(self, users: list[str], number: int) -> None:
        """Make a copy of the occupants. `users` are sorted by id.

        Listeners, if any, get only the new number of occupants, and no events of single users.
        """
        async for some in self._context.slices.cut(users):
            if self._is_superseded(number):
                return
            for user in some:
                self.room_view.appears(user)
        meanwhile, order, there = self._readings[number], [*users], {*users}
        for user, entered in meanwhile.items():  # messages received since the reading began
            if entered and user not in there:
                self.room_view.appears(user)
                insort(order, user)
            elif not entered and user in there:
                self.room_view.goes(user)
                del order[bisect_left(order, user)]
        self._users, self._order = {*order}, order
        if self._channel.listeners:
            self._deliver_count(only_new=True)

    async def _compare(self, found: set[str], number: int, *, is_known: bool) -> None:
        """Apply the differences between a reading and the copy to the copy, in slices."""
        meanwhile, known = self._readings[number], {*self._users}
        self._order = None
        # While nodes restore sessions, a user who is missing in the reading may still be in the room.
        different = found - known if self.stale else found ^ known
        async for users in self._context.slices.cut([*different]):
            if self._is_superseded(number):
                return
            for user in users:
                # Messages received since the reading began are newer than the reading.
                if user not in meanwhile:
                    self._correct(user, is_there=user in found, is_known=is_known)
        if not self.stale:
            stay = found.union(user for user, entered in meanwhile.items() if entered)
            self._unknown = {user: name for user, name in self._unknown.items() if user in stay}

    def _correct(self, user: str, *, is_there: bool, is_known: bool) -> None:
        """Add or remove a user who differs between a reading and the copy.

        `is_known` is True if the node has read the user's profile and visibility facts.
        """
        if not is_there:
            self._leave(user)
        elif is_known and self._visibility.knows(self._tenant, user, [user]):
            self._enter(user)
        else:
            self._arrive(user)

    def hold(self, seconds: float) -> None:
        """Hold the room for `seconds` after a loss: keep all occupants while the nodes restore their sessions."""
        self._held_until = self._context.timers.now() + seconds
        self._left.clear()

    @property
    def is_held(self) -> bool:
        """Return whether the room is held: the engine may lack occupants, so all occupants are kept."""
        return not has_come(self._held_until, self._context.timers.now())

    # --- from the bus ---

    def receive(self, message: Entered | Left) -> bool:
        """Apply a message of the engine. Return whether the message shows a loss that this node has not noticed."""
        user, entered = message.user, isinstance(message, Entered)
        for meanwhile in self._readings.values():
            meanwhile[user] = entered
        if isinstance(self._users, CountedUsers):
            if not self.is_held:
                self._hider_moved(self._users.hiders, user, entered=entered)
                self._counting.soon(self._announce_count)
            return not self.is_held and isinstance(message, Entered) and message.restored
        if isinstance(message, Left):
            self._leave(user)
            return False
        self._left.discard(user)
        was_there = user in self._users
        self._arrive(user, message.name)
        return message.restored and was_there and not self.is_held

    def left_meanwhile(self, user: str) -> None:
        """Record that a user has left while the room is held, as far as the engine knows.

        The user stays an occupant for now, because the engine may have lost other sessions of the user.
        """
        for meanwhile in self._readings.values():
            meanwhile[user] = False
        self._left.add(user)

    def confirm_left(self, user: str) -> None:
        """Remove a user whom `left_meanwhile` has recorded, unless the user has entered again.

        Call this when all nodes have confirmed that they have no session of the user in the room.
        """
        if user in self._left:
            self._leave(user)

    def _hider_moved(self, hiders: set[str], user: str, *, entered: bool) -> None:
        """Add a hider who has entered a counted room to its hiders, or remove a hider who has left."""
        if entered and user not in hiders and self._visibility.is_hider(self._tenant, user):
            hiders.add(user)
            self.room_view.appears(user)
        elif not entered and user in hiders:
            hiders.discard(user)
            self.room_view.goes(user)

    def close(self) -> None:
        self._counting.close()
        self._unknown.clear()

    # --- visibility ---

    def _arrive(self, user: str, name: str | None = None) -> None:
        """Add a user to the copy as soon as the node knows the user's profile and visibility facts."""
        if user in self._users or self._is_known(user):
            self._enter(user, name)
        elif user not in self._unknown:
            self._unknown[user] = name
            self._context.tasks.spawn(self._learn(user))

    async def _learn(self, user: str) -> None:
        is_known = await self._look_up([user])
        if user not in self._unknown:
            return  # the user left meanwhile
        if is_known:
            self._enter(user, self._unknown[user])
        else:
            self._context.timers.set(RETRY_S, self._learn_again, user)

    def _learn_again(self, user: str) -> None:
        if user in self._unknown:
            self._context.tasks.spawn(self._learn(user))

    # --- announcements ---

    def _enter(self, user: str, name: str | None = None) -> None:
        self._unknown.pop(user, None)
        if isinstance(self._users, set) and user not in self._users:
            self._users.add(user)
            self.room_view.appears(user)
            if self._order is not None:
                insort(self._order, user)
            if self._is_large:
                self._counting.soon(self._announce_count)
            else:
                self._announce(user, self._entered(user, name), self.room_view.skipped(user))
            if len(self._users) > 2 * self._most_copied and not self._needs_copy:
                hiders = {user for user in self._users if self._visibility.is_hider(self._tenant, user)}
                self._users, self._order = CountedUsers(len(self._users), hiders), None

    def _leave(self, user: str) -> None:
        # If a session on this node is in the room, the user stays: the engine may not have this session yet.
        if self._session_rooms.is_inside(self._tenant, user, self._room):
            return
        self._unknown.pop(user, None)
        if isinstance(self._users, set) and user in self._users:
            self._users.discard(user)
            if self._order is not None:
                del self._order[bisect_left(self._order, user)]
            self._announce_gone(user)

    @property
    def _is_large(self) -> bool:
        return max(len(self._channel.listeners), len(self._users)) > self._large

    def _event(self, user: str, *, seen: bool) -> Event:
        return self._entered(user) if seen else RoomLeft(self._room, user)

    def _entered(self, user: str, name: str | None = None) -> RoomEntered:
        """Return the event with the user's profile. If the profile has no name, use the name of the token."""
        profile = self._profiles.of(self._tenant, user)
        return RoomEntered(self._room, user, shown_name(profile, name or self._name_here(user)), profile.wire)

    def _name_here(self, user: str) -> str | None:
        """Return the name in the token of a session on this node."""
        sessions = self._context.registry.sessions_of(self._tenant, user)
        return sessions[0].grants.name if sessions else None

    def announce_profile(self, user: str, profile: UserProfile) -> None:
        """Announce the changed profile of an occupant. Large rooms get no such events."""
        if user in self._users and not self.is_counted and not self._is_large and self._channel.listeners:
            event = RoomProfile(self._room, user, profile.name, profile.info)
            frame, key = encode_event(event, self._context.clock.now_ms()), RoomKey(self._room, ("profile", user))
            self._context.hub.offer(self._channel, frame, key=key, skip=self.room_view.blind(user))

    def _announce_count(self) -> None:
        """Send each listener the number of occupants whom the listener sees. In a counted room, read the number."""
        if self.is_counted:
            self._context.tasks.spawn(self._recount())
        else:
            self._deliver_count()

    async def _recount(self) -> None:
        """Read the number of occupants of a counted room, and send it to the listeners.

        If the room has become small, or if the node can no longer list all hiders, read the room to make a copy.
        """
        try:
            found = await self._engine.present_page(self._tenant, self._room, None, 0)
            if self.is_held or self._engine.is_restoring(self._tenant, self._room) or not self.is_counted:
                return  # a reading has made a copy meanwhile, or follows after the recovery
            if found.total <= self._most_copied // 2 or self._needs_copy:
                await self.read()
                return
        except EngineUnavailable:
            return
        assert isinstance(self._users, CountedUsers)
        self._users.total = found.total
        self._deliver_count()

    def _deliver_count(self, *, only_new: bool = False) -> None:
        """Send each listener the number of occupants whom the listener sees.

        The number for an invisible user includes this user. With `only_new`, send only changed numbers.
        """
        hidden = [user for user in self._statuses.invisible(self._tenant) if self._devices(user)]
        key = RoomKey(self._room, (self.ROLE,))
        self.room_view.deliver_count(self._count_frame, key, hidden, 1, only_new=only_new)

    def _count_frame(self, count: int) -> bytes:
        return encode_event(RoomCount(self._room, count), self._context.clock.now_ms())
