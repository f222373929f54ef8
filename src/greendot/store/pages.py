"""The part of the store port for pages: records together with the head or the counters of their stream.

Each method is one consistent read. A page contains every record up to the head it names, within its limit and filter,
and its counters count the records of that moment. Two reads, one of the records and one of the head, would not: what is
committed between them is in one and not in the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:  # the whole port includes this part of it
    from greendot.ids import Bound
    from greendot.store.inbox import Filter, Inbox, Notification
    from greendot.store.rooms import Member, Record, Room


class InboxPage(NamedTuple):
    """Notifications in ascending order, and the inbox's head and counters."""

    notifications: list[Notification]
    inbox: Inbox


class RoomPage(NamedTuple):
    """Messages in ascending order, and the room they are in."""

    messages: list[Record]
    room: Room


class MemberPage(NamedTuple):
    """Members by user id, how many the room has in all, and the room."""

    members: list[Member]
    total: int
    room: Room


class SnapshotStore(Protocol):
    """Pages of streams, each read at one moment."""

    async def inbox_page(
        self, tenant: str, user: str, *, after: Bound = None, before: Bound = None, limit: int, only: Filter = "all"
    ) -> InboxPage:
        """Read what `InboxStore.notifications` and `InboxStore.inbox` answer, at one moment."""
        ...

    async def room_page(
        self, tenant: str, room: str, *, after: Bound = None, before: Bound = None, limit: int
    ) -> RoomPage | None:
        """Read what `MessageStore.messages` and `RoomStore.room` answer, at one moment. None: there is no such room."""
        ...

    async def member_page(self, tenant: str, room: str, after: str | None, limit: int) -> MemberPage | None:
        """Read a page of members with the room. None: there is no such room. For operators: it counts all members."""
        ...
