"""Table of the facts that a node knows, by tenant and user.

In a listed tenant the table has every user who hides something, and all other users hide nothing. In other tenants the
table has the users whose facts were read. An index by viewer has the users who hide from the viewer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from greendot.visibility.model import PLAIN, VisibilityFacts

_NOBODY = frozenset[str]()


class FactTable:
    """Facts of users, by tenant."""

    def __init__(self) -> None:
        self._facts: dict[str, dict[str, VisibilityFacts]] = {}
        self._hiders: dict[str, dict[str, set[str]]] = {}  # by tenant and viewer: the users who hide from the viewer
        self._listed: set[str] = set()
        self.size = 0  # entries of all tenants

    def get(self, tenant: str, user: str) -> VisibilityFacts | None:
        """Return the facts about a user, or None if they are not known."""
        theirs = self._facts.get(tenant)
        facts = None if theirs is None else theirs.get(user)
        return PLAIN if facts is None and tenant in self._listed else facts

    def has(self, tenant: str, user: str) -> bool:
        """Return whether the table has an entry for the user."""
        return user in self._facts.get(tenant, ())

    def is_listed(self, tenant: str) -> bool:
        return tenant in self._listed

    def users(self, tenant: str) -> Collection[str]:
        """Return the users with an entry: in a listed tenant, the users who hide something."""
        return self._facts.get(tenant, {}).keys()

    def hiders_from(self, tenant: str, viewer: str) -> Collection[str]:
        """Return the users who hide from the viewer, as far as they are known."""
        return self._hiders.get(tenant, {}).get(viewer, _NOBODY)

    def put(self, tenant: str, user: str, facts: VisibilityFacts) -> bool:
        """Set the facts about a user; return whether they were known and are different."""
        before = self.get(tenant, user)
        self._unhide(tenant, user)
        theirs = self._facts.setdefault(tenant, {})
        self.size += user not in theirs
        theirs[user] = facts
        for viewer in facts.privacy.hide_from:
            self._hiders.setdefault(tenant, {}).setdefault(viewer, set()).add(user)
        return before is not None and before != facts

    def remove(self, tenant: str, user: str) -> None:
        """Remove the entry of a user: the facts are not known, or in a listed tenant the user hides nothing."""
        if self.has(tenant, user):
            self._unhide(tenant, user)
            del self._facts[tenant][user]
            self.size -= 1

    def _unhide(self, tenant: str, user: str) -> None:
        facts = self._facts.get(tenant, {}).get(user, PLAIN)
        for viewer in facts.privacy.hide_from:
            hiders = self._hiders[tenant][viewer]
            hiders.discard(user)
            if not hiders:
                del self._hiders[tenant][viewer]

    def forget(self, tenant: str) -> None:
        """Remove all facts of a tenant."""
        self.size -= len(self._facts.pop(tenant, ()))
        self._hiders.pop(tenant, None)
        self._listed.discard(tenant)

    def list_all(self, tenant: str, facts: Mapping[str, VisibilityFacts]) -> set[str]:
        """List a tenant: `facts` are of all users who hide something. Return the users who were known and differ."""
        before, was_listed = self._facts.get(tenant, {}), tenant in self._listed
        different = {user for user, of in before.items() if of != facts.get(user, PLAIN)}
        if was_listed:
            different.update(user for user, of in facts.items() if user not in before and not of.privacy.is_plain)
        self.forget(tenant)
        self._listed.add(tenant)
        for user, of in facts.items():
            if not of.privacy.is_plain:
                self.put(tenant, user, of)
        return different

    def unlist(self, tenant: str) -> None:
        """End the listing: from now on, users without an entry are not known."""
        self._listed.discard(tenant)
