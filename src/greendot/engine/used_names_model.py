"""Names that were used: remembered for a while, so that a second use is noticed."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

MOST_NAMES = 100_000  # above it the oldest is forgotten


class FirstUse(NamedTuple):
    """First use of a name, in milliseconds of the caller's clock."""

    at: int
    until: int  # the name is forgotten then


class UsedNames:
    """Names of one node, by tenant and name."""

    def __init__(self, most: int = MOST_NAMES) -> None:
        self._most = most
        self._first: OrderedDict[tuple[str, str], FirstUse] = OrderedDict()  # oldest first use first

    def use(self, tenant: str, name: str, now: int, keep_ms: int) -> int:
        """Return the milliseconds since the first use of the name; 0 if this is the first. Remember it `keep_ms`."""
        while self._first and next(iter(self._first.values())).until <= now:
            self._first.popitem(last=False)
        known = self._first.get((tenant, name))
        if known is not None and now < known.until:
            return max(0, now - known.at)
        self._first.pop((tenant, name), None)
        while len(self._first) >= self._most:
            self._first.popitem(last=False)
        self._first[tenant, name] = FirstUse(now, now + keep_ms)
        return 0

    def __len__(self) -> int:
        return len(self._first)
