"""Port for read markers and read receipts.

A marker is the number of the last message that a user has read. It is private. A receipt is what other users may know
of it: in a room with receipts, it follows the marker while the user is neither invisible nor hides the last-seen time.
What a user reads while hidden never becomes a receipt, also not when the user is shown again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

MemberKey = tuple[str, str, str]  # tenant, room and user


class Marked(NamedTuple):
    """Result of moving a read marker."""

    marker: int
    head: int  # of the room
    counts: bool  # the marker has moved, in a room with receipts


class Receipt(NamedTuple):
    """Number of the last message that a user has read, as others may know it."""

    user: str
    seq: int


class Reader(NamedTuple):
    """User who has read in a room with receipts."""

    marker: int = 0
    receipt: int = 0  # below `marker` if the last messages were read while hidden
    is_hidden: bool = True  # the user is invisible or hides the last-seen time
    hides: bool = True  # the user hides from some users, or did when the receipt was written
    members: int = 0  # members of the room, at most the requested number


class MarkerStore(Protocol):
    """Port for read markers and receipts."""

    async def put_marker(self, tenant: str, room: str, user: str, seq: int, now: int | None = None) -> Marked:
        """Move the read marker to `seq`, never back and never beyond the head.

        In a room with receipts, a marker that moves takes the receipt along, unless the user is invisible at `now` or
        hides the last-seen time. The receipt keeps the users from whom the reader hides at that moment. Without `now`
        the receipt stays. The whole is one transaction. All numbers are 0 if there is no such room.
        """
        ...

    async def marker(self, tenant: str, room: str, user: str) -> int:
        """Return the user's read marker; 0 if the user has read nothing."""
        ...

    async def readers(self, keys: Sequence[MemberKey], now: int, most: int) -> Mapping[MemberKey, Reader]:
        """Return these users as readers, in one read. `members` is counted up to `most`."""
        ...

    async def receipts(
        self, tenant: str, room: str, viewer: str | None, after: str | None, limit: int
    ) -> list[Receipt] | None:
        """Return a page of receipts, ordered by user id; None if the room does not exist or has no receipts.

        Users who hide the last-seen time are left out, as are those who hide from the viewer, or did when the receipt
        was written. The viewer's own entry has the marker. Without a viewer, lists of users to hide from do not count.
        """
        ...

    async def receipt_count(self, tenant: str, room: str, seq: int) -> int | None:
        """Count the users with a receipt of at least `seq` who hide neither the last-seen time nor from any user.

        None if the room does not exist or has no receipts. The number is the same whoever asks.
        """
        ...
