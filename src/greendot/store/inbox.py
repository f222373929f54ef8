"""Port for inboxes and their notifications."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from msgspec import Struct

from greendot.ids import Bound, Key
from greendot.push.policy_model import Importance

Mark = Literal["seen", "read", "archive", "ack"]
Filter = Literal["all", "unread", "unseen", "archived"]  # "all" excludes archived notifications


class Notification(Struct, frozen=True, gc=False):
    """Entry of a user's inbox."""

    seq: int
    id: str
    kind: str
    body: bytes  # JSON
    created_at: int
    expires_at: int | None = None
    live_at: int | None = None  # first delivery to a connected device
    push_at: int | None = None  # first delivery to a push provider
    seen_at: int | None = None
    read_at: int | None = None
    archived_at: int | None = None
    acked_at: int | None = None
    traceparent: str | None = None  # see `Record.traceparent`
    ack: bool = False  # whether a device must acknowledge the notification


class Notice(Struct, frozen=True, gc=False):
    """Notification to be written."""

    tenant: str
    user: str
    kind: str
    body: bytes
    key: str  # idempotency key within the inbox
    created_at: int
    expires_at: int | None = None
    ack: bool = False
    push: bool = True  # pushed to devices of users who are away, if the tenant pushes
    importance: Importance = "normal"
    room: str | None = None  # room of the message that the notification is about
    collapse: str | None = None  # on a device, the push replaces an earlier one with the same value
    traceparent: str | None = None

    def as_entry(self, seq: int, id: str) -> Notification:
        """Return the inbox entry, neither delivered nor marked."""
        times = (self.created_at, self.expires_at)
        return Notification(seq, id, self.kind, self.body, *times, traceparent=self.traceparent, ack=self.ack)

    @property
    def texts(self) -> tuple[str | None, ...]:
        """Return all text fields. The body is bytes and not among them."""
        return self.tenant, self.user, self.kind, self.key, self.room, self.collapse, self.traceparent


class Created(NamedTuple):
    """Result of writing a notice."""

    notification: Notification
    new: bool  # False: the key existed, and `notification` is the earlier one


class Inbox(NamedTuple):
    """Head and counters of a user's inbox."""

    head: int = 0
    unread: int = 0  # neither read nor archived
    unseen: int = 0  # neither seen nor archived


class Marked(NamedTuple):
    """Result of a mark."""

    ids: list[str]  # of the changed notifications, in order
    inbox: Inbox  # state after the mark


class InboxStore(Protocol):
    """Port for inboxes."""

    async def notify(self, notices: Sequence[Notice]) -> list[Created]:
        """Write the notices, each numbered in its own inbox, in order. All are written, or none."""
        ...

    async def inbox(self, tenant: str, user: str) -> Inbox: ...

    async def inboxes(self, users: Sequence[Key]) -> dict[Key, Inbox]:
        """Return the head and counters of these inboxes, in one read. Empty inboxes are left out."""
        ...

    async def notifications(
        self, tenant: str, user: str, *, after: Bound = None, before: Bound = None, limit: int, only: Filter = "all"
    ) -> list[Notification]:
        """Return a page in ascending order, with exclusive bounds as in `MessageStore.messages`."""
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
        """Mark the notifications in `ids`, or all up to and including number `through`.

        Notifications that are already marked, or belong to another user, are skipped. Read implies seen; archived and
        acknowledged imply read. A large number is marked in several commits, oldest first: after an error the older
        notifications may be marked.
        """
        ...

    async def pending(self, users: Sequence[Key], *, limit: int) -> dict[Key, list[Notification]]:
        """Return the unacknowledged notifications of these users that require it, in one read.

        Per user, the oldest `limit`. Users with none are left out.
        """
        ...

    async def delivered(self, seqs: Mapping[Key, Sequence[int]], how: Literal["live", "push"], at: int) -> None:
        """Record the first delivery of notifications of several inboxes; a recorded time is never changed."""
        ...

    async def prune(self, now: int, *, keep_ms: int, limit: int) -> dict[Key, Inbox]:
        """Remove at most `limit` notifications that have expired or are older than `keep_ms`, with their keys.

        Returns the inboxes that lost notifications.
        """
        ...

    async def recount(self, *, fix: bool) -> list[tuple[Key, Inbox, Inbox]]:
        """Return inboxes whose stored counters differ from a count: key, stored, counted. With `fix`, correct them.

        For operators only: reads all notifications.
        """
        ...
