"""Revocations, as the store keeps them: a node that did not hear of one reads it here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from greendot.auth.model import Name, Revocation

# What has expired is kept for tokens that do not say when they were issued: they may be from before it. Not for ever:
KEPT_MS = 400 * 86_400_000  # as long as `auth.longest_token_s` may be
MOST_KEPT = 100_000  # the latest ones


class Numbered(NamedTuple):
    """A revocation, and its place in the order they were committed in."""

    number: int
    revocation: Revocation


class Progress(NamedTuple):
    """How far a server that is alone on the store has come with the revocations in it."""

    given: int  # the last number that was given
    confirmed: int  # what these and all lower ones cover has ended, with its last commands
    served: bool  # whether such a server seems to run


class RevocationStore(Protocol):
    """What was revoked, of all tenants."""

    async def put_revocation(self, revocation: Revocation) -> Revocation:
        """As it is kept: of one that is there already the later dates count. It has a new number either way."""
        ...

    async def revocations(self, after: int, limit: int, now: int = 0) -> list[Numbered]:
        """Those with higher numbers that end after `now`, in their order.

        Numbers are committed in order and never given twice: nothing below what was read comes later.
        """
        ...

    async def find_revocations(self, names: Sequence[Name]) -> dict[Name, Revocation]:
        """Those of these that are there, expired or not."""
        ...

    async def confirm_revocations(self, number: int) -> None:
        """Note that everything ended that the revocations up to this number cover. For a server that is alone on the
        store, which does so every 15 s at least: who writes a revocation past it waits for this."""
        ...

    async def revocation_progress(self) -> Progress: ...

    async def remove_revocations(self, now: int, *, limit: int) -> int:
        """Remove at most so many of those that have expired; how many there were.

        Sessions are removed at once, the others after `KEPT_MS`, or when `MOST_KEPT` others came after them.
        """
        ...
