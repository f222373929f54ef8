"""Changes of a room's members that were announced to a node, in the order of their revisions.

Every change raises the revision of the members by one. Announcements of several nodes may arrive in another order, and
some may be lost.
"""

from __future__ import annotations

from typing import NamedTuple

NONE = -1  # revision of members that are unknown


class Applicable(NamedTuple):
    """Changes that follow the applied revision without a gap."""

    revision: int  # of the members after these changes
    users: set[str]  # changed members


class MemberChanges:
    """Announced changes that the node has not applied yet."""

    __slots__ = ("_newest", "_users")

    def __init__(self) -> None:
        self._users: dict[int, str] = {}  # changed member by revision
        self._newest = NONE  # newest revision that is known to exist

    def expect(self, revision: int) -> None:
        """Record that the members have at least this revision, because a message or the store has this revision."""
        self._newest = max(self._newest, revision)

    def announce(self, revision: int, user: str) -> None:
        """Record which member changed with this revision."""
        self.expect(revision)
        self._users[revision] = user

    def take(self, applied: int) -> Applicable:
        """Return the changes that follow the revision `applied` without a gap, and forget them and older ones."""
        users, revision = set[str](), applied
        while (user := self._users.get(revision + 1)) is not None:
            users.add(user)
            revision += 1
        self._users = {number: user for number, user in self._users.items() if number > revision}
        return Applicable(revision, users)

    def is_missing(self, applied: int) -> bool:
        """Return whether the node knows that a revision after `applied` exists."""
        return self._newest > applied

    def forget(self) -> None:
        """Drop all changes, before all members are read: the read contains every change announced so far."""
        self._users.clear()
        self._newest = NONE
