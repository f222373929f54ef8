"""Port for visibility: privacy settings and contacts of users."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, Protocol

from greendot.ids import Key
from greendot.protocol.commands import LastSeen
from greendot.visibility.model import Privacy

FactKind = Literal["privacy", "contacts", "members", "mode", "info"]  # `mode`: see `store.presence_modes`
MOST_CHANGES = 1_000  # changes of one kind and tenant in one read; if there are more, all facts must be read


class Revision(NamedTuple):
    """Last change of a kind of facts in a tenant. The number grows with each change."""

    number: int = 0
    token: int = 0  # random; differs after a restore of a backup, although the number may be the same


LATEST = Revision(2**62)  # for `changes`: only the revision is read


class Changes(NamedTuple):
    """Changes of a kind of facts in a tenant since an earlier revision."""

    revision: Revision
    users: frozenset[str] | None  # users with changed facts; None: not known, so the facts of all users must be read


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

    async def restricted(self, tenant: str, after: str, limit: int) -> dict[str, Privacy]:
        """Return the privacy settings of users who hide something: the first `limit` users with ids above `after`."""
        ...

    async def changes(self, since: Sequence[tuple[str, FactKind, Revision]]) -> list[Changes]:
        """Return what changed since these revisions, in one read and in the order of `since`.

        A change is in the same transaction as its facts. Changes become visible in the order of their numbers: facts
        that are read after a revision contain all changes up to its number.
        """
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


def changed_since(since: Revision, head: Revision, rows: Iterable[tuple[int, str, int]]) -> Changes:
    """Return the changes after `since` up to `head`. For adapters.

    `rows` have number, user and token, from the number of `since` on. If any is missing, or the token of `since` is
    another, the users are not known: rows were erased, a backup was restored, or there are too many changes.
    """
    if since == head:
        return Changes(head, frozenset())
    found = {number: (user, token) for number, user, token in rows}
    if since.number and found.pop(since.number, ("", None))[1] != since.token:
        return Changes(head, None)
    if not 0 < len(found) == head.number - since.number <= MOST_CHANGES:
        return Changes(head, None)
    return Changes(head, frozenset(user for user, _ in found.values()))
