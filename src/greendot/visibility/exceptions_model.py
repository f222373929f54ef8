"""Who in a room is seen by which of its listeners.

Kept as exceptions, a set for each viewer who has any: where people see each other unless something is said against it
(`open`), whom the viewer does not see; elsewhere whom the viewer does. So a room in which nobody hides costs nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable


class Veil:
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
