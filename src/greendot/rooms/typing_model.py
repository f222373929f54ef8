"""Who is typing in one room.

A start is held for `ttl`; at most one per user and `throttle` is let through. A stopped user's start time is
kept, marked as stopped, until the throttle has passed: otherwise start, stop, start would bypass it.

Times are integer milliseconds.
"""

from __future__ import annotations

from typing import NamedTuple


class Typist(NamedTuple):
    """One who is typing now."""

    user: str
    name: str | None
    remaining: int  # milliseconds until the user no longer counts as typing


class _Entry(NamedTuple):
    started: int
    typing: bool
    name: str | None


class TypingUsers:
    """The typers of one room."""

    __slots__ = ("_entries", "_throttle", "_ttl")

    def __init__(self, ttl: int, throttle: int) -> None:
        self._ttl = ttl
        self._throttle = throttle
        self._entries: dict[str, _Entry] = {}

    def start(self, user: str, name: str | None, now: int) -> bool:
        """Whether the start is let through (and to be told); False when it comes too soon after the last."""
        entry = self._entries.get(user)
        if entry is not None and now - entry.started < self._throttle:
            return False
        self._entries[user] = _Entry(now, True, name)
        return True

    def stop(self, user: str, now: int) -> bool:
        """Whether the user was typing until now (and the stop is to be told)."""
        entry = self._entries.get(user)
        if entry is None or not entry.typing or entry.started + self._ttl <= now:
            return False
        self._entries[user] = entry._replace(typing=False)
        return True

    def active(self, now: int) -> list[Typist]:
        """The typers, by when they last said so."""
        return [
            Typist(user, entry.name, entry.started + self._ttl - now)
            for user, entry in sorted(self._entries.items(), key=lambda item: item[1].started)
            if entry.typing and entry.started + self._ttl > now
        ]

    def shift(self, jump: int) -> None:
        """The clock was set forward by `jump`: everything lasts as long as before."""
        self._entries = {user: e._replace(started=e.started + jump) for user, e in self._entries.items()}

    def prune(self, now: int) -> bool:
        """Forget what no longer matters; whether anything is left."""
        hold = max(self._ttl, self._throttle)
        for user, entry in [*self._entries.items()]:
            if entry.started + hold <= now:
                del self._entries[user]
        return bool(self._entries)
