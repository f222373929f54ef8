"""Port for restrictions of users: mutes and bans, in a room or in the whole tenant, and for slow mode.

A restriction ends at its time, without a write. Restrictions in a room raise the `members_rev` of the room, so that
nodes learn of them as they learn of changed members. Restrictions in the tenant get an entry in the log of
revocations, which every node reads.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

from greendot.auth.model import Revocation
from greendot.store.audit import AuditNote
from greendot.store.rooms import Room

RestrictionKind = Literal["mute", "ban"]
EVERYWHERE = ""  # room of a restriction in the whole tenant
FOREVER = 2**53 - 1  # `until` of a restriction without an end
LIFTED_MS = 7 * 86_400_000  # how long the log has the entry of a lifted restriction
PACE_MS = 86_400_000  # longest slow mode


class Restriction(NamedTuple):
    """Restriction of a user."""

    tenant: str
    room: str  # EVERYWHERE: the whole tenant
    user: str
    kind: RestrictionKind
    until: int  # milliseconds UTC, or FOREVER
    at: int  # when it was made
    actor: str  # who made it, as in the audit
    reason: str | None = None


class RestrictionWritten(NamedTuple):
    """Result of restricting a user, or of ending that."""

    changed: bool  # False: nothing was to change
    members_rev: int  # of the room at commit; 0 for the whole tenant
    entry: Revocation | None = None  # newest entry of the log, for the whole tenant


class RestrictionStore(Protocol):
    """Port for mutes, bans and slow mode."""

    async def restrict(self, restriction: Restriction, note: AuditNote) -> RestrictionWritten | None:
        """Write a restriction, in place of an earlier one of the same kind; None if there is no such room.

        After the return, no message is committed that a restriction in the tenant forbids, whichever node writes it.
        The note is written only with a change. The same restriction again changes nothing.
        """
        ...

    async def lift(
        self, tenant: str, room: str, user: str, kind: RestrictionKind, note: AuditNote
    ) -> RestrictionWritten | None:
        """End a restriction at the time of the note; None if there is no such room. Idempotent."""
        ...

    async def restrictions(
        self, tenant: str, room: str, kind: RestrictionKind, after: str | None, limit: int, now: int
    ) -> list[Restriction]:
        """Return a page of restrictions that have not ended, ordered by user id."""
        ...

    async def set_slow_mode(self, tenant: str, room: str, seconds: int, note: AuditNote) -> Room | None:
        """Set the seconds between two messages of one user; 0 ends slow mode. None if there is no such room.

        The note is written only with a change.
        """
        ...

    async def prune_restrictions(self, now: int, limit: int) -> int:
        """Remove at most `limit` restrictions that have ended and times of slow mode that no longer matter."""
        ...


def pace(last: int, now: int, slow_mode_s: int) -> int:
    """Return the milliseconds that a user has to wait in slow mode after a message at `last`; 0: none.

    The clocks of two nodes may differ: a user never waits for more than the whole period.
    """
    return max(0, min(last, now) + slow_mode_s * 1000 - now)
