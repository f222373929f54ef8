"""Who may see whom, as the store keeps it: what users hide, and whom they have as contacts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from greendot.ids import Key
from greendot.protocol.commands import LastSeen
from greendot.visibility.model import Privacy


class PrivacyStore(Protocol):
    """What users hide, whom they know, which rooms they are in."""

    async def put_privacy(
        self, tenant: str, user: str, *, last_seen: LastSeen | None = None, hide_from: frozenset[str] | None = None
    ) -> Privacy:
        """Keep it, with the next revision. None keeps what is (new: nothing is hidden)."""
        ...

    async def privacies(self, keys: Sequence[Key]) -> dict[Key, Privacy]:
        """Of these (tenant, user), in one read; who never set anything is left out."""
        ...

    async def hiding(self, tenants: Sequence[str]) -> set[str]:
        """Those of the tenants in which any user hides anything now, in one read."""
        ...

    async def put_contact(self, tenant: str, user: str, other: str, at: int, *, most: int) -> bool:
        """`user` has `other` as a contact, and was in contact at `at` (never back). False if it would be one more than
        `most`; then nothing was written."""
        ...

    async def remove_contact(self, tenant: str, user: str, other: str) -> bool:
        """Whether it was one."""
        ...

    async def contacts(self, keys: Sequence[Key]) -> dict[Key, dict[str, int]]:
        """Whom these (tenant, user) have as contacts, and since when, in one read; who has none is left out."""
        ...

    async def memberships(self, keys: Sequence[Key]) -> dict[Key, frozenset[str]]:
        """The rooms these (tenant, user) are members of, in one read; who is in none is left out."""
        ...


def listed(users: frozenset[str]) -> str:
    """As one text, for adapters: ids have no spaces."""
    return " ".join(sorted(users))
