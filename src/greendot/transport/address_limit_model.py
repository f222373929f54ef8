"""How many sockets come from one place."""

from __future__ import annotations


class Household:
    """One address, or one subnet, while somebody is there."""

    __slots__ = ("count", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0


class Households:
    """Those with sockets, and no others: there are never more of them than sockets. `most` 0 counts without a bound."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._all: dict[str, Household] = {}

    def __len__(self) -> int:
        return len(self._all)

    def enter(self, name: str) -> Household:
        """One more is counted, also where it is one too many: each must `leave`."""
        found = self._all.get(name)
        if found is None:
            found = self._all[name] = Household(name)
        found.count += 1
        return found

    def leave(self, household: Household) -> None:
        household.count -= 1
        if not household.count:
            del self._all[household.name]

    def is_full(self, household: Household) -> bool:
        return 0 < self._most < household.count

    def is_overrun(self, household: Household) -> bool:
        """So many that they are not even told."""
        return 0 < 2 * self._most < household.count
