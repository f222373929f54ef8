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
AT_ONCE = 5_000  # watchers looked through for who comes first: more would hold everything else up
BEHIND_S = 0.5  # what was not sent for longer than this, because there was no time, is not sent all at once then

W = TypeVar("W")


class CelebrityThresholds(Struct, frozen=True):
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


class CelebrityFanout(Generic[W]):
    """Who of one user's watchers does not know the newest state yet. Each watcher is in one of these groups."""

    __slots__ = ("_active_at", "_behind", "_current", "_paid", "_round", "_turns")

    def __init__(self, watchers: Iterable[W], active_at: Callable[[W], float], now: float) -> None:
        """Something is new for all of them. `active_at` says when a watcher last did something."""
        self._active_at = active_at
        self._paid = now  # for what was sent since then there was time
        self._behind: dict[W, None] = dict.fromkeys(watchers)  # they know something older, and wait for a round
        self._current: dict[W, None] = {}  # they know the newest
        self._round: dict[W, None] = {}  # their turn is in this round, when is not known yet
        self._turns: tuple[dict[W, None], ...] = ({}, {}, {}, {})  # the same, by how lately they were active

    @property
    def done(self) -> bool:
        """Everybody knows the newest state."""
        return not (self._behind or self._round or any(self._turns))

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
        for group in (self._behind, self._current, self._round, *self._turns):
            group.pop(watcher, None)

    def due(self, now: float, per_s: float) -> list[W]:
        """Whose turn it is at `now`, if `per_s` are told in a second. They count as told the newest state."""
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
        """Those whose turn comes first; empty if everybody knows the newest state."""
        while not any(self._turns) and not self.done:
            if not self._round:
                self._round, self._behind = self._behind, {}
            self._arrange(now)
        return next(filter(None, self._turns), {})

    def _arrange(self, now: float) -> None:
        """Find out when the turn of some more of this round is. Four groups will do: sorting takes thrice the time."""
        minute, minutes, hour = (now - lately_s for lately_s in LATELY_S)
        first, second, third, last = self._turns
        for watcher in [*islice(self._round, AT_ONCE)]:
            at = self._active_at(watcher)
            turn = first if at > minute else second if at > minutes else third if at > hour else last
            turn[watcher] = None
            del self._round[watcher]
