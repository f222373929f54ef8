"""Port for revocations. A node that missed a revocation on the bus reads it from the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from greendot.auth.model import RESTRICTIONS, Name, Revocation, RevocationKind

# Expired revocations are kept for tokens without a time of issue, which may be older than the revocation. Limits:
KEPT_MS = 400 * 86_400_000  # maximum of `auth.longest_token_s`
MOST_KEPT = 100_000  # the latest revocations


class Numbered(NamedTuple):
    """Revocation with its number in commit order."""

    number: int
    revocation: Revocation


def numbered(number: int, tenant: str, kind: RevocationKind, value: str, expires_at: int, before: int) -> Numbered:
    """Return an entry of the log. A restriction also carries its number, because the newest entry counts."""
    own = number if kind in RESTRICTIONS else 0
    return Numbered(number, Revocation(tenant, kind, value, expires_at, before, own))


class Progress(NamedTuple):
    """Progress of a server that is alone on the store through its revocations."""

    given: int  # last number given
    confirmed: int  # sessions that revocations up to this number cover have ended, with their last commands
    served: bool  # whether such a server seems to run


class RevocationStore(Protocol):
    """Port for the revocations of all tenants."""

    async def put_revocation(self, revocation: Revocation) -> Revocation:
        """Write the revocation and return it as stored.

        If it exists, the later of each date wins. It gets a new number either way. Restrictions are written by
        `RestrictionStore`.
        """
        ...

    async def revocations(self, after: int, limit: int, now: int = 0) -> list[Numbered]:
        """Return revocations with numbers above `after` that expire after `now`, ordered by number.

        Numbers are committed in order and never reused: no number below one that was read appears later.
        """
        ...

    async def find_revocations(self, names: Sequence[Name]) -> dict[Name, Revocation]:
        """Return the stored revocations among `names`, expired or not."""
        ...

    async def confirm_revocations(self, number: int) -> None:
        """Record that all sessions have ended that revocations up to this number cover.

        Called at least every 15 s by a server that is alone on the store. A process that writes a revocation to the
        store without going through that server waits for this confirmation.
        """
        ...

    async def revocation_progress(self) -> Progress: ...

    async def remove_revocations(self, now: int, *, limit: int) -> int:
        """Remove at most `limit` expired revocations; return how many.

        Revocations of sessions, and restrictions, are removed at once. Others are removed after `KEPT_MS`, or when
        `MOST_KEPT` newer revocations exist.
        """
        ...
