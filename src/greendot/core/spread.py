"""Telling very many watchers of one user's change: a few at a time, those who were active lately first.

A change is not queued for anybody. Who is told is told the newest state there is by then; whoever was told before a
later change is told once more, after all who know less. So every watcher ends with the newest state, none hears an
older one after a newer or one twice, and how fast the user changes makes no difference to how much is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Generic, TypeVar

from msgspec import Struct

SHORTEST_S, LONGEST_S = 10.0, 30.0  # in which all are told once
STAYS = 0.8  # of a threshold: who fell below it is again like everybody else
LATELY_S = (60.0, 300.0, 3600.0)  # who was active within the first of these comes first, and so on
MOST = 20_000  # watchers in one round: looking through more would hold everything else up
BEHIND_S = 0.5  # what was not sent for longer than this, because there was no time, is not sent all at once then

W = TypeVar("W")


class Crowding(Struct, frozen=True):
    """How many watchers on one node are too many to be told at once (`spread`), and at all (`poll`)."""

    spread: int
    poll: int

    def per_s(self, watchers: int) -> float:
        """How many of them are told in a second. All of them take the longer the more there are."""
        watchers = max(watchers, self.spread)  # when most have left meanwhile, the rest need not wait for it
        share = (watchers - self.spread) / max(1, self.poll - self.spread)
        return watchers / (SHORTEST_S + min(1.0, share) * (LONGEST_S - SHORTEST_S))

    def is_spread(self, watchers: int, was: bool) -> bool:
        return watchers > self.spread * (STAYS if was else 1)

    def is_polled(self, watchers: int, was: bool) -> bool:
        # It stays a while: watchers who come and go around the threshold must not be told of it each time.
        return watchers > self.poll * (STAYS if was else 1)


class Spread(Generic[W]):
    """Who of one user's watchers does not know the newest state yet. Each watcher is in one of the three groups."""

    __slots__ = ("_active_at", "_behind", "_current", "_paid", "_round")

    def __init__(self, watchers: Iterable[W], active_at: Callable[[W], float], now: float) -> None:
        """Something is new for all of them. `active_at` says when a watcher last did something."""
        self._active_at = active_at
        self._paid = now  # for what was sent since then there was time
        self._behind: dict[W, None] = dict.fromkeys(watchers)  # they know something older, and wait for a round
        self._current: dict[W, None] = {}  # they know the newest
        self._round: list[dict[W, None]] = []  # their turn is in this round; by how lately they were active

    @property
    def done(self) -> bool:
        """Everybody knows the newest state."""
        return not self._behind and not any(self._round)

    def changed(self) -> None:
        """There is a newer state: nobody knows it."""
        self._behind.update(self._current)
        self._current.clear()

    def came(self, watcher: W) -> None:
        """It has just been given the newest state."""
        self.left(watcher)
        self._current[watcher] = None

    def left(self, watcher: W) -> None:
        """It is to be told nothing more."""
        for group in (self._behind, self._current, *self._round):
            group.pop(watcher, None)

    def due(self, now: float, per_s: float) -> list[W]:
        """Whose turn it is at `now`, if `per_s` are told in a second. They count as told the newest state."""
        self._paid = max(self._paid, now - BEHIND_S - 1 / per_s)
        count = int((now - self._paid) * per_s + 1e-6)
        self._paid += count / per_s
        due: list[W] = []
        while len(due) < count and (group := self._group(now)):
            taken = [*islice(group, count - len(due))]
            due += taken
            for watcher in taken:
                del group[watcher]
        self._current.update(dict.fromkeys(due))
        return due

    def _group(self, now: float) -> dict[W, None]:
        """Those of the round who come first; empty if everybody knows the newest state."""
        if not any(self._round):
            self._begin(now)
        return next(filter(None, self._round), {})

    def _begin(self, now: float) -> None:
        """A round of those who are behind. They are put in groups, not in order: that takes a third of the time."""
        minute, minutes, hour = (now - lately_s for lately_s in LATELY_S)
        first, second, third, last = self._round = [{}, {}, {}, {}]
        active_at, behind = self._active_at, self._behind
        self._behind = dict.fromkeys(islice(behind, MOST, None))
        for watcher in islice(behind, MOST):
            at = active_at(watcher)
            group = first if at > minute else second if at > minutes else third if at > hour else last
            group[watcher] = None
