"""Port for visibility: privacy settings and contacts of users."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from greendot.ids import Key
from greendot.protocol.commands import LastSeen
from greendot.visibility.model import Privacy


class PrivacyStore(Protocol):
    """Port for privacy settings, contacts and memberships."""

    async def put_privacy(
        self, tenant: str, user: str, *, last_seen: LastSeen | None = None, hide_from: frozenset[str] | None = None
    ) -> Privacy:
        """Write the privacy settings and return them with the next revision.

        None keeps the current value; new settings hide nothing.
        """
        ...

    async def privacies(self, keys: Sequence[Key]) -> dict[Key, Privacy]:
        """Return the privacy settings of these (tenant, user), in one read. Users who never set any are left out."""
        ...

    async def hiding(self, tenants: Sequence[str]) -> set[str]:
        """Return the tenants among these in which at least one user hides something, in one read."""
        ...

    async def put_contact(self, tenant: str, user: str, other: str, at: int, *, most: int) -> bool:
        """Add `other` to the contacts of `user`, or raise the time of contact to `at`; that time never goes back.

        Returns False, with nothing written, if the user would have more than `most` contacts.
        """
        ...

    async def remove_contact(self, tenant: str, user: str, other: str) -> bool:
        """Remove the contact; return whether it existed."""
        ...

    async def contacts(self, keys: Sequence[Key]) -> dict[Key, dict[str, int]]:
        """Return the contacts of these (tenant, user) with the time of last contact, in one read.

        Users without contacts are left out.
        """
        ...

    async def memberships(self, keys: Sequence[Key]) -> dict[Key, frozenset[str]]:
        """Return the rooms that these (tenant, user) are members of, in one read.

        Users without memberships are left out.
        """
        ...


def listed(users: frozenset[str]) -> str:
    """Join user ids with spaces, which no id contains. For adapters."""
    return " ".join(sorted(users))
