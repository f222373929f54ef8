"""Port: rooms, members and messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from msgspec import Struct

from greendot.ids import Bound, Key

Role = Literal["reader", "member", "admin"]  # listens; speaks too; may change what others said
BusMode = Literal["full", "hint"]  # whether content travels on the bus, or only that there is something to read
Op = Literal["edit", "delete", "erased"]  # erased: with its author, see `UserDataStore`


class Room(Struct, frozen=True, gc=False):
    """A room and where its messages stand."""

    tenant: str
    room: str
    open: bool
    head: int  # number of the newest message, 0 if there is none
    members_rev: int  # grows with every change of who may be in it
    bus: BusMode = "full"


class Member(NamedTuple):
    """Who belongs to a room, and as what."""

    user: str
    role: Role


class UserRoom(NamedTuple):
    """A room as one user has it."""

    room: Room
    role: Role | None  # None: open, and the user is not a member
    marker: int  # read up to here


class MemberState(NamedTuple):
    """A user in a room."""

    role: Role | None  # None: not a member
    marker: int  # read up to here


class Record(Struct, frozen=True, gc=False):
    """One message of a room, or the change of an earlier one."""

    room: str
    seq: int
    id: str
    user: str
    name: str | None
    body: bytes  # JSON
    at: int
    ref: int | None = None  # the number of the message this edits or deletes
    op: Op | None = None
    traceparent: str | None = None  # in the course of what it was written, where that was said


class Draft(Struct, frozen=True, gc=False):
    """A message to be written."""

    user: str
    name: str | None
    body: bytes
    key: str  # the same key in the same room by the same user is the same message
    at: int
    ref: int | None = None
    op: Op | None = None
    traceparent: str | None = None
    members_rev: int | None = None  # under which its author was admitted; None: the app, which needs no admission


class Written(NamedTuple):
    """What became of a draft."""

    record: Record
    new: bool  # False: its key was written before, and this is what was written then
    members_rev: int  # of the room when it was committed
    bus: BusMode  # of the room


class RoomStore(Protocol):
    """Rooms and who belongs to them."""

    async def put_room(self, tenant: str, room: str, *, open: bool | None = None, bus: BusMode | None = None) -> Room:
        """Create the room or change it; its messages and members stay. None keeps what is (new: closed, full).

        Opening or closing it raises `members_rev`.
        """
        ...

    async def room(self, tenant: str, room: str) -> Room | None: ...

    async def rooms(self, tenant: str, after: str | None, limit: int) -> list[Room]:
        """A page of the tenant's rooms, by name."""
        ...

    async def rooms_of(self, tenant: str, user: str) -> list[UserRoom]:
        """The rooms the user is a member of, and all open ones, by name."""
        ...

    async def put_member(self, tenant: str, room: str, user: str, role: Role = "member") -> bool:
        """False if the room does not exist. Adding twice is adding once; another role is a change."""
        ...

    async def remove_member(self, tenant: str, room: str, user: str) -> bool:
        """Whether the user was a member."""
        ...

    async def role(self, tenant: str, room: str, user: str) -> Role | None:
        """None if the user is not a member."""
        ...

    async def members(self, tenant: str, room: str, after: str | None, limit: int) -> list[Member]:
        """A page of the room's members, by user id."""
        ...

    async def member_counts(self, rooms: Sequence[Key]) -> dict[Key, int]:
        """How many members these rooms have, in one read; those without any are left out. For operators: it counts."""
        ...

    async def put_marker(self, tenant: str, room: str, user: str, seq: int) -> tuple[int, int]:
        """Read up to `seq`, but never back and never beyond the head. Answers the marker and the head."""
        ...

    async def marker(self, tenant: str, room: str, user: str) -> int:
        """0 if nothing was ever read."""
        ...

    async def member_states(self, members: Sequence[tuple[str, str, str]]) -> dict[tuple[str, str, str], MemberState]:
        """These (tenant, room, user), in one read; who is no member and has read nothing is left out."""
        ...

    async def user_rooms(self, members: Sequence[tuple[str, str, str]]) -> dict[tuple[str, str, str], UserRoom]:
        """The rooms of these (tenant, room, user) that the user is a member of, or that are open, in one read.

        A room that is closed to the user is left out as one that does not exist: telling them apart would take time.
        """
        ...

    async def heads(self, rooms: Sequence[Key]) -> dict[Key, Room]:
        """Where these rooms stand, in one read; those that do not exist are left out."""
        ...


class MessageStore(Protocol):
    """What was said in a room."""

    async def append(self, tenant: str, room: str, draft: Draft) -> Written | None:
        """Write a message and number it. None if there is no such room.

        StaleMembers if the room's `members_rev` is not the draft's, compared in the transaction that writes: an author
        removed before the commit has written nothing. A key that was written before is answered with what was written.
        """
        ...

    async def messages(
        self, tenant: str, room: str, *, after: Bound = None, before: Bound = None, limit: int
    ) -> list[Record]:
        """A page in ascending order, bounds exclusive: the oldest after `after`, else the newest (before `before`)."""
        ...

    async def message(self, tenant: str, room: str, seq: int) -> Record | None: ...
