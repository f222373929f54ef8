"""Table of the facts that a node knows, by tenant and user.

In a listed tenant the table has every user who hides something, and all other users hide nothing. In other tenants the
table has the users whose facts were read. An index by viewer has the users who hide from the viewer.

Where facts are read for each user, a tenant may have hundreds of thousands of them. So its users are in buckets, and
are listed and freed in steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from greendot.node.bucket_model import BucketDict
from greendot.visibility.model import PLAIN, VisibilityFacts

SMALL = 10_000  # users of a tenant above which they are in buckets, which take 16 KB
FREED = 1_000  # users freed in one step
_NOBODY = frozenset[str]()
_Users = dict[str, VisibilityFacts] | BucketDict[str, VisibilityFacts]


class FactTable:
    """Facts of users, by tenant."""

    def __init__(self) -> None:
        self._facts: dict[str, _Users] = {}
        self._hiders: dict[str, dict[str, set[str]]] = {}  # by tenant and viewer: the users who hide from the viewer
        self._listed: set[str] = set()
        self._sizes = Counter[str]()  # entries by tenant
        self._forgotten: list[BucketDict[str, VisibilityFacts]] = []  # not freed yet
        self.size = 0  # entries of all tenants

    def get(self, tenant: str, user: str) -> VisibilityFacts | None:
        """Return the facts about a user, or None if they are not known."""
        theirs = self._facts.get(tenant)
        facts = None if theirs is None else theirs.get(user)
        return PLAIN if facts is None and tenant in self._listed else facts

    def has(self, tenant: str, user: str) -> bool:
        """Return whether the table has an entry for the user."""
        return user in self._facts.get(tenant, ())

    def has_any(self, tenant: str) -> bool:
        """Return whether the table has an entry of the tenant: in a listed one, whether some user hides something."""
        return tenant in self._sizes

    def is_listed(self, tenant: str) -> bool:
        return tenant in self._listed

    def users(self, tenant: str) -> Iterable[str]:
        """Return the users with an entry: in a listed tenant, the users who hide something."""
        return (user for some in self.steps(tenant, FREED) for user in some)

    def steps(self, tenant: str, least: int) -> Iterator[list[str]]:
        """Yield the users with an entry, in lists of at least `least`. Entries may change between two lists."""
        theirs = self._facts.get(tenant, {})
        if isinstance(theirs, BucketDict):
            for some in theirs.steps(least):
                yield [user for user, _ in some]
        elif theirs:
            yield [*theirs]

    def hiders_from(self, tenant: str, viewer: str) -> Collection[str]:
        """Return the users who hide from the viewer, as far as they are known."""
        return self._hiders.get(tenant, {}).get(viewer, _NOBODY)

    def put(self, tenant: str, user: str, facts: VisibilityFacts) -> bool:
        """Set the facts about a user; return whether they were known and are different."""
        before = self.get(tenant, user)
        self._unhide(tenant, user)
        theirs = self._facts.get(tenant)
        if theirs is None or (isinstance(theirs, dict) and len(theirs) >= SMALL):
            theirs = self._facts[tenant] = {} if theirs is None else _in_buckets(theirs)
        if user not in theirs:
            self.size += 1
            self._sizes[tenant] += 1
        theirs[user] = facts
        for viewer in facts.privacy.hide_from:
            self._hiders.setdefault(tenant, {}).setdefault(viewer, set()).add(user)
        return before is not None and before != facts

    def remove(self, tenant: str, user: str) -> None:
        """Remove the entry of a user: the facts are not known, or in a listed tenant the user hides nothing."""
        if self.has(tenant, user):
            self._unhide(tenant, user)
            self._facts[tenant].pop(user)
            self._shrink(tenant, 1)

    def _shrink(self, tenant: str, count: int) -> None:
        self.size -= count
        self._sizes[tenant] -= count
        if not self._sizes[tenant]:
            del self._sizes[tenant]

    def _unhide(self, tenant: str, user: str) -> None:
        theirs = self._facts.get(tenant)
        facts = None if theirs is None else theirs.get(user)
        for viewer in _NOBODY if facts is None else facts.privacy.hide_from:
            hiders = self._hiders[tenant][viewer]
            hiders.discard(user)
            if not hiders:
                del self._hiders[tenant][viewer]

    def forget(self, tenant: str) -> None:
        """Remove all facts of a tenant. The memory of many users is freed by `free`."""
        theirs = self._facts.pop(tenant, None)
        if isinstance(theirs, BucketDict):
            self._forgotten.append(theirs)
        self._shrink(tenant, self._sizes[tenant])
        self._hiders.pop(tenant, None)
        self._listed.discard(tenant)

    def free(self) -> Iterator[None]:
        """Free the memory of facts that were removed with `forget`, in steps."""
        while self._forgotten:
            theirs = self._forgotten.pop()
            for some in theirs.steps(FREED):
                for user, _ in some:
                    theirs.pop(user)
                some.clear()
                yield

    def list_all(self, tenant: str, facts: Mapping[str, VisibilityFacts]) -> set[str]:
        """List a tenant: `facts` are of all users who hide something. Return the users who were known and differ."""
        known = ((user, self.get(tenant, user)) for user in self.users(tenant))
        different = {user for user, of in known if of != facts.get(user, PLAIN)}
        if tenant in self._listed:
            new = (user for user in facts if not self.has(tenant, user))
            different.update(user for user in new if not facts[user].privacy.is_plain)
        self.forget(tenant)
        self._listed.add(tenant)
        for user, of in facts.items():
            if not of.privacy.is_plain:
                self.put(tenant, user, of)
        return different

    def unlist(self, tenant: str) -> None:
        """End the listing: from now on, users without an entry are not known."""
        self._listed.discard(tenant)


def _in_buckets(theirs: Mapping[str, VisibilityFacts]) -> BucketDict[str, VisibilityFacts]:
    found = BucketDict[str, VisibilityFacts]()
    for user, facts in theirs.items():
        found[user] = facts
    return found
