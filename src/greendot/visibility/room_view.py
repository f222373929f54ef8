"""View of a room: which users in the room each listener on this node sees, and how many.

A room has one view for occupants and one for typists. Where no user hides, a view costs nothing, and all listeners get
the same frames.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from greendot.node.channel import Channel
from greendot.node.context import NodeContext
from greendot.node.session import Connection
from greendot.visibility.cache import VisibilityCache
from greendot.visibility.model import VisibilityExceptions


class VisibilityChange(NamedTuple):
    """Change of whether a viewer sees a target."""

    viewer: str
    target: str
    sees: bool


class RoomView:
    """View of one room's occupants, or typists. `targets` returns them."""

    __slots__ = ("_channel", "_context", "_sent_counts", "_targets", "_usual", "_view_exceptions", "_visibility")

    def __init__(
        self,
        channel: Channel,
        context: NodeContext,
        visibility: VisibilityCache,
        targets: Callable[[], Collection[str]],
    ) -> None:
        self._channel = channel
        self._context = context
        self._visibility = visibility
        self._targets = targets
        self._view_exceptions: VisibilityExceptions = visibility.view_exceptions(channel.topic.tenant)
        self._usual = 0  # last count sent to viewers who see all targets
        self._sent_counts: dict[str, int] = {}  # last counts sent to viewers who do not, or did not then

    @property
    def _tenant(self) -> str:
        return self._channel.topic.tenant

    def viewers(self) -> set[str]:
        """Return the users who listen on this node."""
        return {listener.session.user for listener in self._channel.listeners if listener.session is not None}

    def sees(self, viewer: str, target: str) -> bool:
        return self._view_exceptions.sees(viewer, target)

    def count(self, viewer: str) -> int:
        """Return the number of targets that the viewer sees."""
        return self._view_exceptions.count(viewer, self._targets())

    # --- viewers and targets ---

    def came(self, viewer: str) -> None:
        """Add a viewer who has joined, newly or with another device."""
        if not self._visibility.matters(self._tenant):
            return
        is_open = self._view_exceptions.is_open
        targets = self._candidates(viewer) if is_open else self._targets()
        self._view_exceptions.came(
            viewer, [target for target in targets if self._decide(viewer, target) is not is_open]
        )
        self._sent_counts[viewer] = self.count(viewer)

    def appears(self, target: str) -> None:
        """Add a target."""
        for viewer in self._visibility.exceptions(self._tenant, target, self.viewers):
            if self._devices(viewer):
                self._sent_counts.setdefault(viewer, self._usual)
                self._view_exceptions.note(viewer, target, sees=not self._view_exceptions.is_open)

    def goes(self, target: str) -> None:
        self._view_exceptions.left(target)

    def blind(self, target: str) -> list[Connection]:
        """Return the connections of viewers who do not see the target."""
        blind = self._view_exceptions.blind(target, () if self._view_exceptions.is_open else self.viewers())
        found = [device for viewer in blind for device in self._devices(viewer)]
        return found + without_user(self._channel) if self._hides_from_some(target) else found

    def _hides_from_some(self, target: str) -> bool:
        """Return whether the target hides from a user, who may be a listener without a user."""
        if not self._channel.mixed:
            return False
        if not self._view_exceptions.is_open:
            return True
        return bool(self._visibility.exceptions(self._tenant, target, self.viewers))

    # --- changed decisions ---

    def everyone(self) -> list[str]:
        """Return all targets. Drop the exceptions of viewers who are gone."""
        self._view_exceptions.keep(self.viewers())
        return [*self._targets()]

    def pairs(self, targets: Collection[str], viewers: Collection[str]) -> Iterator[tuple[str, str]]:
        """Yield the viewers and targets to decide about again: who sees these targets, and whom these viewers see.

        In an open tenant, these are the few pairs with a restriction. The room may change between two pairs.
        """
        there, is_open = self._targets(), self._view_exceptions.is_open
        everyone = set[str]() if is_open else self.viewers()
        for target in targets:
            if target in there:
                known = self._view_exceptions.of_target(target)
                hidden = self._visibility.exceptions(self._tenant, target, self.viewers) if is_open else ()
                yield from [(viewer, target) for viewer in everyone.union(known, hidden)]
        for viewer in viewers:
            if self._devices(viewer):
                yield from [(viewer, target) for target in (self._candidates(viewer) if is_open else there)]

    def decide(self, viewer: str, target: str) -> VisibilityChange | None:
        """Decide again whether the viewer sees the target; return the difference, if there is one."""
        if target not in self._targets() or not self._devices(viewer):
            return None  # no longer in the room
        sees = self._decide(viewer, target)
        is_new = self._view_exceptions.note(viewer, target, sees=sees)
        return VisibilityChange(viewer, target, sees) if is_new else None

    def _candidates(self, viewer: str) -> set[str]:
        """Return the targets whom a viewer may not see, or did not see, in an open tenant."""
        targets, exceptions = self._targets(), self._view_exceptions
        hiders = self._visibility.hiders_from(self._tenant, viewer)
        found = {target for target in hiders if target in targets}.union(exceptions.of_viewer(viewer))
        # A target without certain facts is an exception of all viewers, so also of this one.
        return found if self._visibility.is_certain(self._tenant) else found.union(exceptions.targets)

    def _decide(self, viewer: str, target: str) -> bool:
        return self._visibility.see(self._tenant, viewer, target, in_room=True) != "hidden"

    # --- sending ---

    def skipped(self, target: str) -> list[Connection]:
        """Return the connections that must not get an event about the target.

        These are the target's own, and the connections of viewers who do not see the target.
        """
        return [*self._devices(target), *self.blind(target)]

    def deliver_count(
        self,
        make: Callable[[int], bytes],
        key: object,
        others: Iterable[str],
        also: int,
        *,
        lapses: bool = False,
        only_new: bool = False,
    ) -> None:
        """Send each listener the count of targets that they see, plus `also` for the users in `others`.

        `others` are, for example, typists, who are not counted for themselves. A viewer who does not see all targets
        gets only changed counts: an unchanged count would show that a user hides. A count that `lapses` at the client
        is repeated unless it is 0. With `only_new`, viewers who see all targets get only a changed count, too.
        """
        others, restricted, hub = {*others}, self._restricted(), self._context.hub
        told, self._sent_counts = self._sent_counts, {}
        apart = {user: self._devices(user) for user in {*restricted, *told, *others}}
        if self._view_exceptions.is_open and not (only_new and self._usual == len(self._targets())):
            skip = [device for mine in apart.values() for device in mine]
            hub.offer(self._channel, make(len(self._targets())), key=key, skip=skip, low=lapses)
        for user, mine in apart.items():
            count = self.count(user) + (also if user in others else 0)
            if user in restricted:
                self._sent_counts[user] = count
            is_new = told.get(user, self._usual if user in restricted else None) != count
            if mine and (is_new or (lapses and count)):
                hub.send_each(mine, make(count), key=key)
        self._usual = len(self._targets())

    def named(self) -> None:
        """Record that all listeners got an event with the user's name, and so know the count."""
        self._usual = len(self._targets())
        self._sent_counts = {viewer: self.count(viewer) for viewer in self._restricted()}

    def _restricted(self) -> set[str]:
        """Return the viewers who may not see all targets."""
        return {*self._view_exceptions.viewers} if self._view_exceptions.is_open else self.viewers()

    def _devices(self, user: str) -> list[Connection]:
        return self._context.registry.connections_in(self._channel, user)


def without_user(channel: Channel) -> list[Connection]:
    """Return the listeners without a user. Only foreign protocols have such clients."""
    return [listener for listener in channel.listeners if listener.session is None] if channel.mixed else []
