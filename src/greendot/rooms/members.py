"""Membership checks: which users may be in a room.

The store has the members. A node remembers the members of rooms with local listeners, as of one revision
(`members_rev`). The memory is not out of date for long: each change is published on the room's topic, records carry
the revision, and heads are compared periodically. Reads of many clients that arrive at once are batched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from msgspec import UNSET, UnsetType, structs

from greendot.auth.model import Grants
from greendot.engine.messages import Topic
from greendot.errors import Refused, RoomBeingDeleted, StoreUnavailable
from greendot.ids import Key
from greendot.node.batching import BatchedReads
from greendot.node.context import NodeContext
from greendot.node.session import Session
from greendot.node.subscriptions import Subscriptions
from greendot.protocol.codes import Err
from greendot.rooms.local_room import LocalRoom
from greendot.rooms.members_model import NONE, Applicable
from greendot.store.port import Store
from greendot.store.restrictions import FOREVER
from greendot.store.rooms import MemberState, Role, Room, UserRoom

T = TypeVar("T")
STORE_S = 1.0  # time for the store to answer whether a room exists
AGAIN_MS = 10_000  # a room that is being deleted can usually be created again after this time
STATES = 500  # states in one read: more would hold the loop too long
NOBODY = MemberState(None, 0)
# Reasons of the removal of a listener, as clients get them.
REMOVED, BANNED, DELETED = "removed by the app", "banned by the app", "room deleted"
UNSTORED = -1  # epoch of a room that the store does not have: it carries signals only
MemberKey = tuple[str, str, str]  # tenant, room and user


class RoomAccess(NamedTuple):
    """Access of a user to a room."""

    room: Room
    role: Role | None  # None: not a member, but the room is open or the token grants the room
    marker: int  # number of the last message that the user has read
    muted: int = 0  # end of a mute in the room, milliseconds UTC; 0: none
    banned: int = 0  # end of a ban from the room, likewise


class RoomMembers:
    """Members of rooms, from this node's memory or from the store."""

    def __init__(
        self,
        store: Store,
        context: NodeContext,
        local: Subscriptions[LocalRoom],
        created: Callable[[Topic], None],  # called for a room that a joining session has created
        mute_changed: Callable[[LocalRoom, str], None],  # called for a known user whose mute in the room has changed
        is_awaited: Callable[[], bool],  # returns whether this node knows all removals (`visibility.freshness`)
    ) -> None:
        self._store = store
        self._created = created
        self._mute_changed = mute_changed
        self._is_awaited = is_awaited
        self._context = context
        self._registry = context.registry
        self._local = local
        self._rooms: BatchedReads[Key, Room | None] = BatchedReads(context, store.heads, None)
        self._user_rooms: BatchedReads[MemberKey, UserRoom | None] = BatchedReads(context, store.user_rooms, None)
        self._member_states: BatchedReads[MemberKey, MemberState] = BatchedReads(context, store.member_states, NOBODY)

    async def admit(self, session: Session, room: str, *, make: bool = False, fresh: bool = False) -> RoomAccess:
        """Return the session's access to a room; raise Refused if the session may not be in the room.

        With `make`, create a missing room that the token grants. With `fresh`, read the store even if the access is
        remembered: only then is the marker current. A refusal always comes from the store, for two reasons. A user
        who became a member a moment ago must not be refused. The time that a refusal takes must not show whether the
        room exists or has listeners. Only a user whose token grants the room learns that the room does not exist.
        """
        admitted = None if fresh else self._remembered(session, room)
        if admitted is None:
            admitted = await self._asked(session, room, make)
        if admitted is None and is_unstored(session, room):
            return RoomAccess(Room(session.tenant, room, open=False, head=0, members_rev=0, epoch=UNSTORED), None, 0)
        if admitted is None:
            raise _no_such_room(room) if session.grants.may_join(room) else not_a_member(room)
        if admitted.banned > (now := self._context.clock.now_ms()):
            raise banned(room, admitted.banned, now)
        return admitted

    async def erasures(self, tenant: str, room: str) -> int | None:
        """Read how often content of the room was erased; None if the room does not exist."""
        found = await self._rooms.get((tenant, room))
        return None if found is None else found.erasures

    async def admits(self, grants: Grants, room: str) -> bool:
        """Return whether a user with these grants may be in the room; False if the room does not exist."""
        local = self._known(grants.tenant, room)
        found = local.room if local is not None else await self._rooms.get((grants.tenant, room))
        if found is None:
            return False
        state = await self._member_state((grants.tenant, room, grants.user), fresh=False)
        return self._stays(grants, found, state)

    async def is_member(self, tenant: str, room: str, user: str) -> bool:
        """Return whether the user is a member whom the app has not banned. Read the store in any case."""
        state = await self._member_states.get((tenant, room, user))
        return state.role is not None and not self._is_banned(state)

    async def throughout(self, session: Session, room: str, read: Callable[[], Awaitable[T]]) -> T:
        """Return what `read` returns, for a session admitted before and after the read; raise Refused otherwise.

        Read again if the user was removed from a room meanwhile.
        """
        while True:
            removals = session.removals
            await self.admit(session, room)
            found = await read()
            await self.admit(session, room)  # the room may have been closed during the read
            if session.removals == removals:
                return found

    def _remembered(self, session: Session, room: str) -> RoomAccess | None:
        local = self._known(session.tenant, room)
        if local is None or local.room is None or (state := local.roles.get(session.user)) is None:
            return None
        if local.members_rev == NONE or not self._is_awaited():
            return None
        return RoomAccess(local.room, *state) if self._stays(session.grants, local.room, state) else None

    async def _asked(self, session: Session, room: str, make: bool) -> RoomAccess | None:
        """Read the access from the store: the same read for a missing room and for a closed one."""
        if session.grants.may_join(room):
            return await self._opened(session, room, make)
        key = session.tenant, room, session.user
        local = self._known(session.tenant, room)
        revision = local.members_rev if local is not None else 0
        found = await self._user_rooms.get(key)
        if found is None:
            return None
        if local is not None and local.members_rev == revision:
            self.remember(local, {session.user: MemberState(*found[1:])})
        return RoomAccess(*found)

    async def _opened(self, session: Session, room: str, make: bool) -> RoomAccess | None:
        """Read a room that the token grants; None if the room does not exist and `make` is False."""
        found, state = await asyncio.gather(
            self._rooms.get((session.tenant, room)),
            self._member_state((session.tenant, room, session.user), fresh=True),
        )
        if found is None and make and not is_unstored(session, room):
            try:
                found = await self._store.put_room(session.tenant, room)
                self._created(Topic("room", session.tenant, room))
            except RoomBeingDeleted:
                raise Refused(
                    Err.NO_SUCH_ROOM, f"room {room!r} was deleted a moment ago; try again later", retry_in_ms=AGAIN_MS
                ) from None
        return None if found is None else RoomAccess(found, *state)

    async def _member_state(self, member: MemberKey, *, fresh: bool) -> MemberState:
        tenant, room, user = member
        local = self._known(tenant, room)
        if local is not None and user in local.roles and not fresh:
            return local.roles[user]
        revision = local.members_rev if local is not None else 0
        state = await self._member_states.get(member)
        if local is not None and local.members_rev == revision:  # else the role may have changed during the read
            self.remember(local, {user: state})
        return state

    async def find(self, tenant: str, room: str) -> Room | UnsetType | None:
        """Return the room, for the app; None if it does not exist, UNSET if the store does not answer within a second.

        Signals do not depend on the store, so they do not wait for it for long.
        """
        local = self._known(tenant, room)
        if local is not None:
            return local.room
        try:
            async with asyncio.timeout(STORE_S):
                return await self._rooms.get((tenant, room))
        except (StoreUnavailable, TimeoutError):
            return UNSET

    def remembers(self, tenant: str, room: str) -> bool:
        """Return whether this node remembers the room's members."""
        return self._known(tenant, room) is not None

    def _known(self, tenant: str, room: str) -> LocalRoom | None:
        """Return the local room; None if there is none, while it opens, or while its members are read again."""
        local = self._local.get(Topic("room", tenant, room))
        if local is None or local.opening is not None or local.room is None or local.unchecked is not None:
            return None
        return local

    # --- changes of members ---

    async def refresh(self, local: LocalRoom) -> dict[str, str]:
        """Read the members who listen; return the listening users who may not stay in the room, each with the reason.

        The revision is read first: the states read later have at least this revision. No session joins meanwhile.
        """
        room = await self._read_room(local)
        if local.is_another(room):
            room = None
        states = dict[str, MemberState]()
        sessions = {c.session.user: c.session for c in local.channel.listeners if c.session is not None}
        async for some in self._context.slices.cut([*sessions], STATES):
            states |= await self._read_states(local, some)
        local.room, local.members_rev = room, room.members_rev if room else max(0, local.members_rev)
        before, local.roles = local.roles, {}
        self.remember(local, states, before)
        if room is None:  # clients of foreign protocols may stay in a room that the store does not have
            name = local.channel.topic.name
            joined = [c.session for c in local.channel.listeners if c.session is not None and name in (c.rooms or ())]
            sessions = {session.user: session for session in joined if not is_unstored(session, name)}
        return self._leaving([session.grants for session in sessions.values()], room, states)

    async def refresh_some(self, local: LocalRoom, changes: Applicable, users: list[str]) -> dict[str, str]:
        """Read the changed members who listen (`users`), and apply the changes. For the result see `refresh`."""
        room = await self._read_room(local)
        states = await self._read_states(local, users)
        # Deleted, or the store was restored.
        if room is None or local.is_another(room) or room.members_rev < changes.revision:
            return await self.refresh(local)
        self.apply(local, room, changes, states)
        sessions = [c.session for user in users for c in self._registry.connections_in(local.channel, user)]
        return self._leaving([s.grants for s in sessions if s is not None], room, states)

    def apply(self, local: LocalRoom, room: Room, changes: Applicable, states: Mapping[str, MemberState]) -> None:
        """Set the revision, and in the same turn the states of changed members. Forget those that were not read.

        `room` may be newer than the changes. Then the changes up to its revision follow.
        """
        before = {user: local.roles.pop(user) for user in changes.users if user in local.roles}
        local.room = structs.replace(room, members_rev=changes.revision)
        local.members_rev = changes.revision
        self.remember(local, states, before)

    def remember(
        self, local: LocalRoom, states: Mapping[str, MemberState], before: Mapping[str, MemberState] | None = None
    ) -> None:
        """Set the states of users, and report each mute that differs from the state before.

        A user without a state before has no device in the room: a join sets the state.
        """
        before = local.roles if before is None else before
        changed = [user for user, state in states.items() if user in before and before[user].muted != state.muted]
        local.roles.update(states)
        for user in changed:
            self._mute_changed(local, user)

    def _leaving(
        self, listening: Iterable[Grants], room: Room | None, states: Mapping[str, MemberState]
    ) -> dict[str, str]:
        leaving = [grants.user for grants in listening if not self._stays(grants, room, states[grants.user])]
        if room is None:
            return dict.fromkeys(leaving, DELETED)
        return {user: BANNED if self._is_banned(states[user]) else REMOVED for user in leaving}

    def _is_banned(self, state: MemberState) -> bool:
        return bool(state.banned) and state.banned > self._context.clock.now_ms()

    def _stays(self, grants: Grants, room: Room | None, state: MemberState) -> bool:
        """Return whether a user may be in the room now."""
        if room is None or self._is_banned(state):
            return False
        return may_be_in(grants, room, state.role)

    async def is_behind(self, local: LocalRoom) -> bool:
        """Return whether the store has an older revision than this node had before the read."""
        revision, room = (
            local.members_rev,
            await self._rooms.get((local.channel.topic.tenant, local.channel.topic.name)),
        )
        return room is None or room.members_rev < revision

    async def _read_room(self, local: LocalRoom) -> Room | None:
        key = local.channel.topic.tenant, local.channel.topic.name
        return (await self._store.heads([key])).get(key)

    async def _read_states(self, local: LocalRoom, users: Sequence[str]) -> dict[str, MemberState]:
        topic = local.channel.topic
        found = await self._store.member_states([(topic.tenant, topic.name, user) for user in users])
        return {user: found.get((topic.tenant, topic.name, user), NOBODY) for user in users}


def is_unstored(session: Session, room: str) -> bool:
    """Return whether the session may be in the room even if the store has no such room."""
    return session.unstored is not None and room in session.unstored


def may_be_in(grants: Grants, room: Room, role: Role | None) -> bool:
    return room.open or role is not None or grants.may_join(room.room)


def not_a_member(room: str) -> Refused:
    """Return the refusal for a user who may not know whether the room exists."""
    return Refused(Err.NOT_A_MEMBER, f"room {room!r} does not exist, or you are not a member; the app can add you")


def reader_only(room: str) -> Refused:
    """Return the refusal of a message or signal of a reader."""
    return Refused(Err.FORBIDDEN, f"a reader may not send to room {room!r}; the app can change the role")


def archived(room: str) -> Refused:
    """Return the refusal of a message or signal in an archived room."""
    return Refused(Err.FORBIDDEN, f"room {room!r} is archived: it can only be read; the app can end this")


def banned(room: str, until: int, now: int) -> Refused:
    """Return the refusal for a user who is banned from the room."""
    return Refused(Err.BANNED, f"the app has banned you from room {room!r}", retry_in_ms=time_left(until, now))


def muted(where: str, until: int, now: int) -> Refused:
    """Return the refusal of a message or signal of a muted user."""
    return Refused(Err.MUTED, f"the app has muted you {where}; you can only read", retry_in_ms=time_left(until, now))


def time_left(until: int, now: int) -> int | None:
    """Return the milliseconds until the end of a restriction; None if it has no end."""
    return None if until == FOREVER else max(1, until - now)


def _no_such_room(room: str) -> Refused:
    return Refused(Err.NO_SUCH_ROOM, f"there is no room {room!r} yet; join the room or send to it to create it")
