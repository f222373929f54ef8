"""Port for pages: records together with the head or the counters of their stream.

Each method is one consistent read. A page contains every record up to the head it names, within its limit and filter,
and its counters count the records of that moment. Two separate reads could disagree: a record committed between them
would be in only one of the results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:  # `port` imports this module
    from greendot.ids import Bound
    from greendot.store.inbox import Filter, Inbox, Notification
    from greendot.store.reactions import ReactionCount
    from greendot.store.rooms import Member, Record, Room


class InboxPage(NamedTuple):
    """Page of notifications in ascending order, with the head and counters of the inbox."""

    notifications: list[Notification]
    inbox: Inbox


class RoomPage(NamedTuple):
    """Page of messages in ascending order, with their room and their reactions."""

    messages: list[Record]
    room: Room
    reactions: dict[int, list[ReactionCount]]  # by number of the message, in their order; empty if all were removed


class MemberPage(NamedTuple):
    """Page of members ordered by user id, with the number of all members and the room."""

    members: list[Member]
    total: int
    room: Room


class SnapshotStore(Protocol):
    """Port for pages of streams, each read at one moment."""

    async def inbox_page(
        self, tenant: str, user: str, *, after: Bound = None, before: Bound = None, limit: int, only: Filter = "all"
    ) -> InboxPage:
        """Return the results of `InboxStore.notifications` and `InboxStore.inbox`, read at one moment."""
        ...

    async def room_page(
        self,
        tenant: str,
        room: str,
        *,
        after: Bound = None,
        before: Bound = None,
        limit: int,
        reader: str | None = None,
    ) -> RoomPage | None:
        """Return the results of `MessageStore.messages` and `RoomStore.room` with the reactions, read at one moment.

        The reactions include every record up to the head of the room, also records that are not in the page. `reader`
        decides which of them are `mine`. None if there is no such room.
        """
        ...

    async def member_page(self, tenant: str, room: str, after: str | None, limit: int) -> MemberPage | None:
        """Return a page of members with the room; None if there is no such room.

        For operators only: counts all members.
        """
        ...
