"""Fan-out of one user's changes to very many watchers: a few at a time, recently active watchers first.

No change is queued. A watcher whose turn comes gets the newest state of that moment. A watcher served before a later
change is served again, after all watchers with older states. Every watcher therefore ends with the newest state. No
watcher gets a state twice, or an older state after a newer one. The amount sent does not depend on the rate of changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Generic, TypeVar

from msgspec import Struct

SHORTEST_S, LONGEST_S = 10.0, 30.0  # seconds in which each watcher is served once
STAYS = 0.8  # fraction of a threshold down to which its mode lasts
LATELY_S = (60.0, 300.0, 3600.0)  # seconds since the last activity: limits of the groups, first group first
AT_ONCE = 5_000  # watchers grouped in one step: more would delay other work
BEHIND_S = 0.5  # if slices are late, at most the watchers of this many seconds are served at once

W = TypeVar("W")


class CelebrityThresholds(Struct, frozen=True):
    """Numbers of watchers on a node above which changes are sent in slices (`spread`), or watchers poll (`poll`)."""

    spread: int
    poll: int

    def per_s(self, watchers: int) -> float:
        """Return the watchers to serve per second. A round takes longer the more watchers there are."""
        watchers = max(watchers, self.spread)  # if most have left, the rest must not wait longer
        share = (watchers - self.spread) / max(1, self.poll - self.spread)
        return watchers / (SHORTEST_S + min(1.0, share) * (LONGEST_S - SHORTEST_S))

    def is_spread(self, watchers: int, was: bool) -> bool:
        return watchers > self.spread * (STAYS if was else 1)

    def is_polled(self, watchers: int, was: bool) -> bool:
        # Hysteresis: watchers that come and go around the threshold must not cause a switch each time.
        return watchers > self.poll * (STAYS if was else 1)


class CelebrityFanout(Generic[W]):
    """Watchers of one user, by whether they have the newest state. Each watcher is in exactly one group."""

    __slots__ = ("_active_at", "_behind", "_current", "_paid", "_round", "_turns")

    def __init__(self, watchers: Iterable[W], active_at: Callable[[W], float], now: float) -> None:
        """Start with a new state for all watchers. `active_at` returns the time of a watcher's last activity."""
        self._active_at = active_at
        self._paid = now  # monotonic seconds; the watchers that the rate allows up to this time were served
        self._behind: dict[W, None] = dict.fromkeys(watchers)  # have an older state, and wait for the next round
        self._current: dict[W, None] = {}  # have the newest state
        self._round: dict[W, None] = {}  # in this round, not grouped yet
        self._turns: tuple[dict[W, None], ...] = ({}, {}, {}, {})  # in this round, grouped by activity

    @property
    def done(self) -> bool:
        """Return whether every watcher has the newest state."""
        return not (self._behind or self._round or any(self._turns))

    def changed(self) -> None:
        """Record a newer state, which no watcher has yet."""
        self._behind.update(self._current)
        self._current.clear()

    def came(self, watcher: W) -> None:
        """Add a watcher that has the newest state."""
        self.left(watcher)
        self._current[watcher] = None

    def left(self, watcher: W) -> None:
        for group in (self._behind, self._current, self._round, *self._turns):
            group.pop(watcher, None)

    def due(self, now: float, per_s: float) -> list[W]:
        """Return the watchers whose turn it is at `now`, at `per_s` a second. They count as having the newest state."""
        self._paid = max(self._paid, now - BEHIND_S - 1 / per_s)
        count = int((now - self._paid) * per_s + 1e-6)
        self._paid += count / per_s
        due: list[W] = []
        self._arrange(now)
        while len(due) < count and (first := self._first(now)):
            taken = [*islice(first, count - len(due))]
            due += taken
            for watcher in taken:
                del first[watcher]
        self._current.update(dict.fromkeys(due))
        return due

    def _first(self, now: float) -> dict[W, None]:
        """Return the group whose turn is next; empty if every watcher has the newest state."""
        while not any(self._turns) and not self.done:
            if not self._round:
                self._round, self._behind = self._behind, {}
            self._arrange(now)
        return next(filter(None, self._turns), {})

    def _arrange(self, now: float) -> None:
        """Group some more watchers of this round by activity. Four groups suffice: sorting takes three times longer."""
        minute, minutes, hour = (now - lately_s for lately_s in LATELY_S)
        first, second, third, last = self._turns
        for watcher in [*islice(self._round, AT_ONCE)]:
            at = self._active_at(watcher)
            turn = first if at > minute else second if at > minutes else third if at > hour else last
            turn[watcher] = None
            del self._round[watcher]
