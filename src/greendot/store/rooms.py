"""Port for rooms, members and messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from msgspec import Struct

from greendot.ids import Bound, Key

Role = Literal["reader", "member", "admin"]  # receives; also sends; may also change messages of other users
BusMode = Literal["full", "hint"]  # the bus carries the content, or only a hint that there is something to read
# erased: the content is gone, because the app deleted the message, or because its author was erased (`UserDataStore`)
Op = Literal["edit", "delete", "react", "unreact", "erased"]


class Room(Struct, frozen=True, gc=False):
    """Room with the head of its messages."""

    tenant: str
    room: str
    open: bool
    head: int  # number of the newest message, 0 if there is none
    members_rev: int  # raised by every change of its members or of `open`
    bus: BusMode = "full"
    receipts: bool = False  # users see how far others have read
    archived: bool = False  # takes no messages and signals; can be read
    erasures: int = 0  # raised when the content of a message is erased
    epoch: int = 0  # random number; a room that was deleted and created again has another
    slow_mode_s: int = 0  # seconds between two messages of one user; 0: no slow mode


class Member(NamedTuple):
    """Member of a room with a role."""

    user: str
    role: Role


class MembersWritten(NamedTuple):
    """Result of adding, changing or removing a member."""

    members_rev: int  # of the room at commit
    changed: bool  # False: nothing was to change, and the revision is the same as before


class UserRoom(NamedTuple):
    """Room with one user's role and read marker."""

    room: Room
    role: Role | None  # None: the room is open and the user is not a member
    marker: int  # number of the last message read
    muted: int = 0  # end of a mute in the room, milliseconds UTC; 0: none
    banned: int = 0  # end of a ban from the room, likewise


class MemberState(NamedTuple):
    """Role and read marker of a user in a room, and restrictions there."""

    role: Role | None  # None: not a member
    marker: int  # number of the last message read
    muted: int = 0  # end of a mute in the room, milliseconds UTC; 0: none
    banned: int = 0  # end of a ban from the room, likewise


class Record(Struct, frozen=True, gc=False):
    """Message of a room, or a change of an earlier message."""

    room: str
    seq: int
    id: str
    user: str
    name: str | None
    body: bytes  # JSON
    at: int
    ref: int | None = None  # number of the message that this record edits, deletes or reacts to
    op: Op | None = None
    traceparent: str | None = None  # trace context of the write, if it was given


class Draft(Struct, frozen=True, gc=False):
    """Message to be written."""

    user: str
    name: str | None
    body: bytes
    key: str  # idempotency key within the room and user
    at: int
    ref: int | None = None
    op: Op | None = None
    traceparent: str | None = None
    members_rev: int | None = None  # revision at which the author was admitted; None: sent by the app, no admission
    reaction: str = ""  # with the operations `react` and `unreact`
    paced: bool = False  # slow mode of the room applies


class Written(NamedTuple):
    """Result of writing a draft."""

    record: Record
    new: bool  # False: nothing was written, and `record` is the earlier one with the same key or effect
    members_rev: int  # of the room at commit
    bus: BusMode  # of the room


MOST_OPEN = 10_000  # open rooms in a list of a user's rooms


NewRoom = Literal["closed", "open", "provisional"]  # what a room is if it does not exist yet


class RoomStore(Protocol):
    """Port for rooms and their members."""

    async def put_room(
        self,
        tenant: str,
        room: str,
        *,
        open: bool | None = None,
        bus: BusMode | None = None,
        receipts: bool | None = None,
        new: NewRoom = "closed",
    ) -> Room:
        """Create or change the room; its messages and members stay.

        None keeps the current value; a new room is `new`, `full` and without receipts. Opening or closing raises
        `members_rev`. A provisional room is open until a call with `new` "closed", which creates it: it is closed then,
        unless `open`.
        RoomBeingDeleted if a room of this name was deleted and still has rows.
        """
        ...

    async def room(self, tenant: str, room: str) -> Room | None: ...

    async def rooms(self, tenant: str, after: str | None, limit: int) -> list[Room]:
        """Return a page of the tenant's rooms, ordered by name."""
        ...

    async def rooms_of(self, tenant: str, user: str, most_open: int = MOST_OPEN) -> list[UserRoom]:
        """Return the rooms that the user is a member of, and the first `most_open` open rooms, ordered by name.

        Rooms that the user is banned from are in the list.
        """
        ...

    async def put_member(self, tenant: str, room: str, user: str, role: Role = "member") -> MembersWritten | None:
        """Add the user or change the role; return None if the room does not exist. Idempotent.

        Every change raises `members_rev` by one, so a node notices a missing change.
        """
        ...

    async def remove_member(self, tenant: str, room: str, user: str) -> MembersWritten | None:
        """Remove the member; return None if the room does not exist. Idempotent."""
        ...

    async def role(self, tenant: str, room: str, user: str) -> Role | None:
        """Return the user's role; None if the user is not a member."""
        ...

    async def members(self, tenant: str, room: str, after: str | None, limit: int) -> list[Member]:
        """Return a page of the room's members, ordered by user id."""
        ...

    async def member_counts(self, rooms: Sequence[Key]) -> dict[Key, int]:
        """Count the members of these rooms, in one read. Rooms without members are left out.

        For operators only: counting is slow.
        """
        ...

    async def member_states(self, members: Sequence[tuple[str, str, str]]) -> dict[tuple[str, str, str], MemberState]:
        """Return the states of these (tenant, room, user), in one read.

        Users who are no members, have read nothing and are not restricted are left out.
        """
        ...

    async def user_rooms(self, members: Sequence[tuple[str, str, str]]) -> dict[tuple[str, str, str], UserRoom]:
        """Return the rooms among these (tenant, room, user) that the user is a member of or that are open, in one read.

        A room that is closed to the user is left out, as is one that does not exist. One read serves both cases, so
        that the response time does not reveal which it is.
        """
        ...

    async def heads(self, rooms: Sequence[Key]) -> dict[Key, Room]:
        """Return these rooms with their heads, in one read. Rooms that do not exist are left out."""
        ...


class MessageStore(Protocol):
    """Port for the messages of rooms."""

    async def append(self, tenant: str, room: str, draft: Draft) -> Written | None:
        """Write a message and number it. None if there is no such room.

        StaleMembers if the room's `members_rev` is not the draft's. Both are compared in the transaction that writes,
        so an author removed before the commit writes nothing. For a known key the earlier message is returned.
        RoomArchived if the room is archived. NoSuchMessage for a change of a message that is no message any more.

        Restricted if the draft has a `members_rev` and its author is muted or banned in the tenant at the draft's time.
        SlowMode if the draft is `paced` and the author's last paced message in the room is younger than `slow_mode_s`.
        Both are decided in the transaction that writes. Restrictions in the room raise `members_rev`.

        A reaction is written only if it changes the reactions to its message. Otherwise the record that made them so is
        returned: the one that set the reaction, or the message itself. NoSuchMessage if there is no message `ref` to
        react to. Refused if the message has too many different reactions.
        """
        ...

    async def messages(
        self, tenant: str, room: str, *, after: Bound = None, before: Bound = None, limit: int
    ) -> list[Record]:
        """Return a page in ascending order, with exclusive bounds.

        With `after`, the oldest messages after it; otherwise the newest, before `before` if that is given.
        """
        ...

    async def message(self, tenant: str, room: str, seq: int) -> Record | None: ...

    async def message_by_key(self, tenant: str, room: str, user: str, key: str) -> Record | None:
        """Return the record that the user wrote with this idempotency key."""
        ...
