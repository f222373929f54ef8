"""Port for the audit: who changed what, as numbered records.

An adapter writes the entry of a change in the transaction of the change. So an entry exists if, and only if, the change
was made.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol, get_args

from greendot.ids import Bound, check_text

AuditAction = Literal[
    "message.edited",
    "message.deleted",
    "room.archived",
    "room.unarchived",
    "room.deleted",
    "room.slow_mode",
    "user.muted",
    "user.unmuted",
    "user.banned",
    "user.unbanned",
]
AUDIT_ACTIONS: tuple[AuditAction, ...] = get_args(AuditAction)


class AuditNote(NamedTuple):
    """Entry to be written."""

    tenant: str
    at: int
    actor: str  # name of the API key, or the id that the app gave as `by`
    action: AuditAction
    room: str | None = None  # None: concerns the whole tenant
    user: str | None = None  # user whom the action concerns, such as the author of a deleted message
    ref: int | None = None  # number of the message
    reason: str | None = None
    until: int | None = None  # end of a mute or a ban; None: no end
    slow_mode_s: int | None = None  # seconds that slow mode was set to; 0: ended


def check_note(note: AuditNote) -> None:
    """Raise Unstorable if a store cannot hold one of the texts. Call it before the write joins a transaction."""
    check_text((note.tenant, note.actor, note.room, note.user, note.reason))


class AuditEntry(NamedTuple):
    """Entry with its number. The entries of a tenant are numbered 1, 2, 3 … in the order of their commits."""

    number: int
    at: int
    tenant: str
    actor: str
    action: AuditAction
    room: str | None
    user: str | None
    ref: int | None
    reason: str | None
    until: int | None
    slow_mode_s: int | None


class AuditFilter(NamedTuple):
    """Conditions of a page; None: any."""

    room: str | None = None
    user: str | None = None
    action: AuditAction | None = None


ANY = AuditFilter()


class AuditStore(Protocol):
    """Port for reading and removing entries. For changes without a transaction of their own it also writes them."""

    async def put_audit(self, note: AuditNote) -> None:
        """Write one entry."""
        ...

    async def audit(
        self, tenant: str, only: AuditFilter = ANY, *, after: Bound = None, before: Bound = None, limit: int
    ) -> list[AuditEntry]:
        """Return a page in ascending order, with exclusive bounds.

        With `after`, the oldest entries after it; otherwise the newest, before `before` if that is given.
        """
        ...

    async def prune_audit(self, before: int, limit: int) -> int:
        """Remove at most `limit` entries with a time before `before`, the earliest first; return how many."""
        ...
