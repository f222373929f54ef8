"""The store port: what must survive.

Every adapter passes `greendot.testing.store_suite` unchanged. What holds for all of it:

- A method that returns has committed; one that raises `StoreUnavailable` may or may not have.
- Writes to one room are numbered 1, 2, 3 … without gaps, in the order they are committed.
- Going online or offline writes nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from greendot.core.presence import Manual


class Room(Struct, frozen=True, gc=False):
    """A room and where its messages stand."""

    tenant: str
    room: str
    open: bool
    head: int  # number of the newest message, 0 if there is none
    members_rev: int  # grows with every change of the membership


class Record(Struct, frozen=True, gc=False):
    """One message of a room."""

    room: str
    seq: int
    id: str
    user: str
    name: str | None
    body: bytes  # JSON
    at: int  # milliseconds UTC


class Draft(Struct, frozen=True, gc=False):
    """A message to be written."""

    user: str
    name: str | None
    body: bytes
    key: str  # the same key in the same room by the same user is the same message
    at: int


class RoomStore(Protocol):
    """Rooms and who belongs to them."""

    async def put_room(self, tenant: str, room: str, *, open: bool | None) -> Room:
        """Create the room or change it; its messages and members stay. `open` None keeps it (a new one is closed)."""
        ...

    async def room(self, tenant: str, room: str) -> Room | None: ...

    async def rooms(self, tenant: str, after: str | None, limit: int) -> list[Room]:
        """A page of the tenant's rooms, by name."""
        ...

    async def rooms_of(self, tenant: str, user: str) -> list[Room]:
        """The rooms the user is a member of, and all open ones, by name."""
        ...

    async def add_member(self, tenant: str, room: str, user: str) -> bool:
        """False if the room does not exist. Adding twice is adding once."""
        ...

    async def remove_member(self, tenant: str, room: str, user: str) -> bool:
        """Whether the user was a member."""
        ...

    async def is_member(self, tenant: str, room: str, user: str) -> bool: ...

    async def members(self, tenant: str, room: str, after: str | None, limit: int) -> list[str]:
        """A page of the room's members, by user id."""
        ...


class MessageStore(Protocol):
    """What was said in a room."""

    async def append(self, tenant: str, room: str, draft: Draft) -> tuple[Record, bool] | None:
        """Write a message and number it. True with it if it is new, False if its key was written before (then the
        first one is returned). None if there is no such room."""
        ...

    async def messages(
        self, tenant: str, room: str, *, after: int | None = None, before: int | None = None, limit: int
    ) -> list[Record]:
        """A page in ascending order, bounds exclusive: the oldest after `after`, or the newest before `before`."""
        ...


class StatusStore(Protocol):
    """What users set by hand."""

    async def put_status(self, tenant: str, user: str, manual: Manual) -> Manual:
        """Keep it; the returned copy carries the next revision (the given one is not looked at)."""
        ...

    async def statuses(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Manual]:
        """The settings of these (tenant, user), in one read; who never set one is left out."""
        ...


class Store(RoomStore, MessageStore, StatusStore, Protocol):
    """All of it, and its life."""

    async def start(self) -> None:
        """Open and bring the schema up to date. ConfigError if the place cannot be used."""
        ...

    async def close(self) -> None: ...

    async def ping(self) -> None:
        """Raise StoreUnavailable unless the store answers."""
        ...
