"""The store port: what must survive.

Every adapter passes `greendot.testing.store_suite` unchanged. What holds for all of it:

- A method that returns has committed; one that raises `StoreUnavailable` may or may not have. Said again with the same
  key, a write is made once. `Unstorable`: a value it cannot hold; nothing was written, and trying again is no use.
- A **stream** (a room, a user's inbox) is numbered 1, 2, 3 … without gaps, in the order it is committed. Its counters
  change in the transaction that changes what they count.
- Concurrent writers share a commit. One whose write cannot be made fails alone.
- Going online or offline writes nothing here.

Times are milliseconds UTC and come from the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from msgspec import Struct

from greendot.errors import Unstorable
from greendot.ids import TEXT_RULE, valid_text
from greendot.presence.model import ManualStatus
from greendot.push.policy_model import Importance
from greendot.store.api_keys import KeyStore, TenantStore
from greendot.store.jobs import JobStore
from greendot.store.pages import SnapshotStore
from greendot.store.push import PushStore
from greendot.store.revocations import RevocationStore
from greendot.store.user_data import UserDataStore
from greendot.store.visibility import PrivacyStore
from greendot.store.webhooks import HookStore

Role = Literal["reader", "member", "admin"]  # listens; speaks too; may change what others said
BusMode = Literal["full", "hint"]  # whether content travels on the bus, or only that there is something to read
Op = Literal["edit", "delete", "erased"]  # erased: with its author, see `UserDataStore`
Mark = Literal["seen", "read", "archive", "ack"]
Filter = Literal["all", "unread", "unseen", "archived"]  # all: all but the archived
Key = tuple[str, str]  # tenant and room, or tenant and user


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


def check_text(texts: Iterable[str | None]) -> None:
    """Raise Unstorable if one of these holds what some store cannot keep.

    Asked before a write joins others in a transaction: PostgreSQL refuses all of that, and each is written again alone.
    """
    if not valid_text("".join(text for text in texts if text is not None)):  # at once: there may be tens of thousands
        raise Unstorable(f"text may have {TEXT_RULE}")


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

    async def standings(self, seats: Sequence[tuple[str, str, str]]) -> dict[tuple[str, str, str], MemberState]:
        """These (tenant, room, user), in one read; who is no member and has read nothing is left out."""
        ...

    async def seats(self, seats: Sequence[tuple[str, str, str]]) -> dict[tuple[str, str, str], UserRoom]:
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
        self, tenant: str, room: str, *, after: int | None = None, before: int | None = None, limit: int
    ) -> list[Record]:
        """A page in ascending order, bounds exclusive: the oldest after `after`, else the newest (before `before`)."""
        ...

    async def message(self, tenant: str, room: str, seq: int) -> Record | None: ...


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
        self,
        tenant: str,
        user: str,
        *,
        after: int | None = None,
        before: int | None = None,
        limit: int,
        only: Filter = "all",
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


class StatusStore(Protocol):
    """What users set by hand."""

    async def put_status(self, tenant: str, user: str, manual: ManualStatus) -> ManualStatus:
        """Keep it; the returned copy carries the next revision (the given one is not looked at)."""
        ...

    async def statuses(self, keys: Sequence[Key]) -> dict[Key, ManualStatus]:
        """The settings of these (tenant, user), in one read; who never set one is left out."""
        ...


class Store(
    RoomStore,
    MessageStore,
    InboxStore,
    SnapshotStore,
    StatusStore,
    PrivacyStore,
    KeyStore,
    TenantStore,
    UserDataStore,
    HookStore,
    RevocationStore,
    PushStore,
    JobStore,
    Protocol,
):
    """All of it, and its life."""

    async def start(self) -> None:
        """Open. ConfigError if the place cannot be used, or its tables are of another version and stay so."""
        ...

    async def migrate(self) -> list[str]:
        """Bring the tables up to date, without `start`; the names of what was missing. Several may at once."""
        ...

    async def close(self) -> None: ...

    async def ping(self) -> None:
        """Raise StoreUnavailable unless the store answers."""
        ...
