"""Port: inboxes and their notifications."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from msgspec import Struct

from greendot.ids import Bound, Key
from greendot.push.policy_model import Importance

Mark = Literal["seen", "read", "archive", "ack"]
Filter = Literal["all", "unread", "unseen", "archived"]  # all: all but the archived


class Notification(Struct, frozen=True, gc=False):
    """One entry of a user's inbox."""

    seq: int
    id: str
    kind: str
    body: bytes  # JSON
    created_at: int
    expires_at: int | None = None
    live_at: int | None = None  # first given to a connected device
    push_at: int | None = None  # first given to a push provider
    seen_at: int | None = None
    read_at: int | None = None
    archived_at: int | None = None
    acked_at: int | None = None
    traceparent: str | None = None  # as a message's
    ack: bool = False  # whether it is to be acknowledged


class Notice(Struct, frozen=True, gc=False):
    """A notification to be written."""

    tenant: str
    user: str
    kind: str
    body: bytes
    key: str  # the same key in the same inbox is the same notification
    created_at: int
    expires_at: int | None = None
    ack: bool = False
    push: bool = True  # to devices of those who are away, if the tenant pushes
    importance: Importance = "normal"
    room: str | None = None  # it is about a message of this room
    collapse: str | None = None  # on a device it takes the place of the one before with the same
    traceparent: str | None = None

    def as_entry(self, seq: int, id: str) -> Notification:
        """What it is in the inbox, as nobody has heard of it yet."""
        times = (self.created_at, self.expires_at)
        return Notification(seq, id, self.kind, self.body, *times, traceparent=self.traceparent, ack=self.ack)

    @property
    def texts(self) -> tuple[str | None, ...]:
        """All text in it but the body, which is bytes."""
        return self.tenant, self.user, self.kind, self.key, self.room, self.collapse, self.traceparent


class Created(NamedTuple):
    """What became of a notice."""

    notification: Notification
    new: bool


class Inbox(NamedTuple):
    """Where a user's inbox stands."""

    head: int = 0
    unread: int = 0  # neither read nor archived
    unseen: int = 0  # neither seen nor archived


class Marked(NamedTuple):
    """What a mark changed."""

    ids: list[str]  # those it changed, in order
    inbox: Inbox  # afterwards


class InboxStore(Protocol):
    """What a user must not miss."""

    async def notify(self, notices: Sequence[Notice]) -> list[Created]:
        """Write them all, each numbered in its own inbox, in order. All are written, or none."""
        ...

    async def inbox(self, tenant: str, user: str) -> Inbox: ...

    async def inboxes(self, users: Sequence[Key]) -> dict[Key, Inbox]:
        """Where these inboxes stand, in one read; the empty ones are left out."""
        ...

    async def notifications(
        self, tenant: str, user: str, *, after: Bound = None, before: Bound = None, limit: int, only: Filter = "all"
    ) -> list[Notification]:
        """A page in ascending order, bounds exclusive, as for `messages`."""
        ...

    async def mark(
        self,
        tenant: str,
        user: str,
        mark: Mark,
        *,
        ids: Sequence[str] | None = None,
        through: int | None = None,
        at: int,
    ) -> Marked:
        """Mark these, or all up to and including number `through`. What is marked already, or is not the user's, is
        passed over. Read implies seen; archived and acknowledged imply read.

        Very many are marked in several commits: one that fails half-way has marked the older ones.
        """
        ...

    async def pending(self, users: Sequence[Key], *, limit: int) -> dict[Key, list[Notification]]:
        """What these users are to acknowledge and have not, for each the oldest `limit`, in one read; who has nothing
        to acknowledge is left out."""
        ...

    async def delivered(self, seqs: Mapping[Key, Sequence[int]], how: Literal["live", "push"], at: int) -> None:
        """Note when these, of several inboxes, were first delivered."""
        ...

    async def prune(self, now: int, *, keep_ms: int, limit: int) -> dict[Key, Inbox]:
        """Remove at most `limit` notifications that have expired or are older than `keep_ms`, and forget their keys.
        Answers the inboxes it removed from."""
        ...

    async def recount(self, *, fix: bool) -> list[tuple[Key, Inbox, Inbox]]:
        """Inboxes whose counters are not what a count finds: key, kept, counted. With `fix`, they are set right.

        Reads all there is: for operators.
        """
        ...
