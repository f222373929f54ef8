"""Visibility: who may see whom.

A tenant has one policy. Within it each user may hide more: the last-seen time from all users, or everything from some
users. A hidden user looks like an unknown user. Users see themselves under every policy.

Facts are kept per user, never per pair: a decision compares two lists, however many users there are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal, NamedTuple

from msgspec import Struct, structs

from greendot.protocol.commands import LastSeen

Policy = Literal["tenant", "shared_rooms", "contacts", "recent_contacts", "ask"]
Sight = Literal["full", "without_last_seen", "hidden"]


class Privacy(Struct, frozen=True, gc=False):
    """Privacy settings of a user. Durable; `rev` grows with every change."""

    last_seen: LastSeen = "shown"
    hide_from: frozenset[str] = frozenset()
    rev: int = 0

    @property
    def is_plain(self) -> bool:
        """Return whether the user hides nothing."""
        return self.last_seen == "shown" and not self.hide_from


class VisibilityFacts(Struct, frozen=True):
    """Facts about one user. Rooms and contacts are empty if the policy does not need them."""

    privacy: Privacy = Privacy()
    rooms: frozenset[str] = frozenset()  # of which the user is a member
    contacts: Mapping[str, int] = {}  # contacts of the user, and the time of the last contact


PLAIN = VisibilityFacts()


class Person(NamedTuple):
    """User with the facts about them."""

    user: str
    facts: VisibilityFacts


class VisibilityPolicy(Struct, frozen=True):
    """Visibility policy of a tenant."""

    policy: Policy = "tenant"
    recent_ms: int = 30 * 86_400_000  # milliseconds for which a contact is recent

    @property
    def is_open(self) -> bool:
        """Return whether users in one room see each other unless one hides from the other."""
        return self.policy in ("tenant", "shared_rooms")

    @property
    def is_mutual(self) -> bool:
        """Return whether decisions also depend on facts about the viewer."""
        return self.policy in ("shared_rooms", "contacts")

    @property
    def in_room(self) -> VisibilityPolicy:
        """Return the policy among users in one room: they share that room, whether they are members or not."""
        return structs.replace(self, policy="tenant") if self.policy == "shared_rooms" else self


def may_see(rule: VisibilityPolicy, viewer: Person, target: Person, now: int, *, allowed_by_app: bool = False) -> Sight:
    """Return what `viewer` sees of `target`. `allowed_by_app` is the app's answer if the policy is `ask`."""
    if viewer.user == target.user:
        return "full"
    privacy = target.facts.privacy
    if viewer.user in privacy.hide_from or not _related(rule, viewer, target, now, allowed_by_app):
        return "hidden"
    return "full" if privacy.last_seen == "shown" else "without_last_seen"


def _related(rule: VisibilityPolicy, viewer: Person, target: Person, now: int, allowed_by_app: bool) -> bool:
    match rule.policy:
        case "tenant":
            return True
        case "shared_rooms":
            return not viewer.facts.rooms.isdisjoint(target.facts.rooms)
        case "contacts":
            return target.user in viewer.facts.contacts and viewer.user in target.facts.contacts
        case "recent_contacts":
            # Only the target's list counts: a viewer cannot gain sight of a user by contacting them.
            at = target.facts.contacts.get(viewer.user)
            return at is not None and now - at <= rule.recent_ms
        case "ask":
            return allowed_by_app


class VisibilityExceptions:
    """Exceptions in one room, by viewer: targets the viewer does not see if `is_open`, else the only ones they see."""

    __slots__ = ("_exceptions", "_viewers", "is_open")

    def __init__(self, *, is_open: bool) -> None:
        self.is_open = is_open
        self._exceptions: dict[str, set[str]] = {}  # targets by viewer
        self._viewers: dict[str, set[str]] = {}  # viewers by target

    def sees(self, viewer: str, target: str) -> bool:
        return viewer == target or (target in self._exceptions.get(viewer, ())) is not self.is_open

    def note(self, viewer: str, target: str, *, sees: bool) -> bool:
        """Record whether the viewer sees the target; return whether that is new."""
        if viewer == target or self.sees(viewer, target) is sees:
            return False
        if sees is self.is_open:
            _discard(self._exceptions, viewer, target)
            _discard(self._viewers, target, viewer)
        else:
            self._exceptions.setdefault(viewer, set()).add(target)
            self._viewers.setdefault(target, set()).add(viewer)
        return True

    def came(self, viewer: str, exceptions: Iterable[str]) -> None:
        """Set the exceptions of a viewer who has joined, newly or again."""
        self._drop(viewer)
        for target in exceptions:
            self.note(viewer, target, sees=not self.is_open)

    def left(self, target: str) -> None:
        """Remove a target who has left."""
        for viewer in self._viewers.pop(target, ()):
            _discard(self._exceptions, viewer, target)

    def keep(self, viewers: Collection[str]) -> None:
        """Drop all viewers except these."""
        for viewer in [viewer for viewer in self._exceptions if viewer not in viewers]:
            self._drop(viewer)

    def _drop(self, viewer: str) -> None:
        for target in self._exceptions.pop(viewer, ()):
            _discard(self._viewers, target, viewer)

    @property
    def viewers(self) -> Collection[str]:
        """Return the viewers with exceptions. All other viewers see every target if `is_open`, else only themselves."""
        return self._exceptions.keys()

    @property
    def targets(self) -> Collection[str]:
        """Return the targets who are an exception for a viewer."""
        return self._viewers.keys()

    def of_viewer(self, viewer: str) -> Collection[str]:
        """Return the targets who are an exception for the viewer."""
        return self._exceptions.get(viewer, ())

    def of_target(self, target: str) -> Collection[str]:
        """Return the viewers for whom the target is an exception."""
        return self._viewers.get(target, ())

    def blind(self, target: str, viewers: Iterable[str]) -> list[str]:
        """Return the viewers who do not see the target. `viewers` is used only if not `is_open`."""
        if self.is_open:
            return [*self.of_target(target)]
        return [viewer for viewer in viewers if not self.sees(viewer, target)]

    def count(self, viewer: str, targets: Collection[str]) -> int:
        """Return how many of the targets the viewer sees. All exceptions must be among the targets."""
        exceptions = len(self._exceptions.get(viewer, ()))
        return len(targets) - exceptions if self.is_open else exceptions + (viewer in targets)


def _discard(sets: dict[str, set[str]], key: str, value: str) -> None:
    sets[key].discard(value)
    if not sets[key]:
        del sets[key]
