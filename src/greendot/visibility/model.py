"""Who may see whom.

A tenant has one policy. Within it each user may hide more: their last-seen from everybody, all of themselves from some.
Whoever is hidden looks like somebody who is not there. People see themselves whatever the policy.

What a decision is made of is known per user, never per pair: two lists are compared, however many there are of both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal, NamedTuple

from msgspec import Struct, structs

from greendot.protocol.commands import LastSeen

Policy = Literal["tenant", "shared_rooms", "contacts", "recent_contacts", "ask"]
Sight = Literal["full", "without_last_seen", "hidden"]


class Privacy(Struct, frozen=True, gc=False):
    """What a user set. Durable; `rev` grows with every change."""

    last_seen: LastSeen = "shown"
    hide_from: frozenset[str] = frozenset()
    rev: int = 0

    @property
    def is_plain(self) -> bool:
        """Whether nothing is hidden."""
        return self.last_seen == "shown" and not self.hide_from


class VisibilityFacts(Struct, frozen=True):
    """What is known of one user. Rooms and contacts are empty where the policy does not ask for them."""

    privacy: Privacy = Privacy()
    rooms: frozenset[str] = frozenset()  # the user is a member of
    contacts: Mapping[str, int] = {}  # whom the user has as contacts, and when they were last in contact


PLAIN = VisibilityFacts()


class Person(NamedTuple):
    """A user and what is known of them."""

    user: str
    facts: VisibilityFacts


class VisibilityPolicy(Struct, frozen=True):
    """A tenant's policy."""

    policy: Policy = "tenant"
    recent_ms: int = 30 * 86_400_000  # how long a contact is recent

    @property
    def is_open(self) -> bool:
        """Whether people see each other unless something is said against it, where both are in one room."""
        return self.policy in ("tenant", "shared_rooms")

    @property
    def is_mutual(self) -> bool:
        """Whether it depends also on what is known of the viewer."""
        return self.policy in ("shared_rooms", "contacts")

    @property
    def in_room(self) -> VisibilityPolicy:
        """The same among those who are in one room: that room they share, members of it or not."""
        return structs.replace(self, policy="tenant") if self.policy == "shared_rooms" else self


def may_see(rule: VisibilityPolicy, viewer: Person, target: Person, now: int, *, said: bool = False) -> Sight:
    """What `viewer` is shown of `target`. `said` is the app's word, where the policy is to ask."""
    if viewer.user == target.user:
        return "full"
    privacy = target.facts.privacy
    if viewer.user in privacy.hide_from or not _related(rule, viewer, target, now, said):
        return "hidden"
    return "full" if privacy.last_seen == "shown" else "without_last_seen"


def _related(rule: VisibilityPolicy, viewer: Person, target: Person, now: int, said: bool) -> bool:
    match rule.policy:
        case "tenant":
            return True
        case "shared_rooms":
            return not viewer.facts.rooms.isdisjoint(target.facts.rooms)
        case "contacts":
            return target.user in viewer.facts.contacts and viewer.user in target.facts.contacts
        case "recent_contacts":
            # The target's list alone: nobody comes to see somebody by getting in touch with them.
            at = target.facts.contacts.get(viewer.user)
            return at is not None and now - at <= rule.recent_ms
        case "ask":
            return said


class VisibilityExceptions:
    """See the module. Viewers and those they see are named by user."""

    __slots__ = ("_exceptions", "is_open")

    def __init__(self, *, is_open: bool) -> None:
        self.is_open = is_open
        self._exceptions: dict[str, set[str]] = {}

    def sees(self, viewer: str, target: str) -> bool:
        return viewer == target or (target in self._exceptions.get(viewer, ())) is not self.is_open

    def note(self, viewer: str, target: str, *, sees: bool) -> bool:
        """Whether that is new."""
        if viewer == target or self.sees(viewer, target) is sees:
            return False
        if sees is self.is_open:
            self._exceptions[viewer].discard(target)
            if not self._exceptions[viewer]:
                del self._exceptions[viewer]
        else:
            self._exceptions.setdefault(viewer, set()).add(target)
        return True

    def came(self, viewer: str, exceptions: Iterable[str]) -> None:
        """A viewer looks, anew or again."""
        self._exceptions.pop(viewer, None)
        if found := {target for target in exceptions if target != viewer}:
            self._exceptions[viewer] = found

    def left(self, target: str) -> None:
        """Somebody is not there any more to be seen."""
        for viewer in [viewer for viewer, targets in self._exceptions.items() if target in targets]:
            self.note(viewer, target, sees=self.is_open)

    def keep(self, viewers: Collection[str]) -> None:
        """Forget all other viewers."""
        self._exceptions = {viewer: of for viewer, of in self._exceptions.items() if viewer in viewers}

    @property
    def viewers(self) -> list[str]:
        """Those with exceptions: all others see everybody (open), or nobody but themselves."""
        return [*self._exceptions]

    @property
    def targets(self) -> set[str]:
        """Those who are somebody's exception."""
        return {target for targets in self._exceptions.values() for target in targets}

    def blind(self, target: str, viewers: Iterable[str]) -> list[str]:
        """Those of the viewers who do not see the target."""
        if self.is_open:
            return [viewer for viewer, targets in self._exceptions.items() if target in targets]
        return [viewer for viewer in viewers if not self.sees(viewer, target)]

    def count(self, viewer: str, targets: Collection[str]) -> int:
        """How many of the targets the viewer sees; all exceptions are of targets."""
        exceptions = len(self._exceptions.get(viewer, ()))
        return len(targets) - exceptions if self.is_open else exceptions + (viewer in targets)
