"""Revocations, as the store keeps them: a node that did not hear of one reads it here."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from greendot.core.revocations import Revocation


class Numbered(NamedTuple):
    """A revocation, and its place in the order they were committed in."""

    number: int
    revocation: Revocation


class RevocationStore(Protocol):
    """What was revoked, of all tenants."""

    async def put_revocation(self, revocation: Revocation) -> Revocation:
        """As it is kept: of one that is there already the later dates count. It has a new number either way."""
        ...

    async def revocations(self, after: int, limit: int) -> list[Numbered]:
        """Those with higher numbers, in their order; also what has expired and is not removed yet.

        Numbers are committed in order and never given twice: nothing below what was read comes later.
        """
        ...

    async def remove_revocations(self, now: int, *, limit: int) -> int:
        """Remove at most so many of those that have expired; how many there were."""
        ...
