"""Typists of one room.

A start counts for `ttl`. At most one start per user and `throttle` passes. The start time of a stopped user is kept,
marked as stopped, until the throttle has passed: otherwise start, stop, start would bypass the throttle.

Times are integer milliseconds.
"""

from __future__ import annotations

from typing import NamedTuple


class Typist(NamedTuple):
    """User who is typing now."""

    user: str
    name: str | None
    remaining: int  # milliseconds until the user no longer counts as typing


class _Entry(NamedTuple):
    started: int
    typing: bool
    name: str | None


class TypingUsers:
    """Typists of one room, with their throttles."""

    __slots__ = ("_entries", "_throttle", "_ttl")

    def __init__(self, ttl: int, throttle: int) -> None:
        self._ttl = ttl
        self._throttle = throttle
        self._entries: dict[str, _Entry] = {}

    def start(self, user: str, name: str | None, now: int) -> bool:
        """Record a start; return whether to publish it. False: too soon after the last start."""
        entry = self._entries.get(user)
        if entry is not None and now - entry.started < self._throttle:
            return False
        self._entries[user] = _Entry(now, True, name)
        return True

    def stop(self, user: str, now: int) -> bool:
        """Record a stop; return whether to publish it. False: the user was not typing."""
        entry = self._entries.get(user)
        if entry is None or not entry.typing or entry.started + self._ttl <= now:
            return False
        self._entries[user] = entry._replace(typing=False)
        return True

    def active(self, now: int) -> list[Typist]:
        """Return the typists, in the order of their last starts."""
        return [
            Typist(user, entry.name, entry.started + self._ttl - now)
            for user, entry in sorted(self._entries.items(), key=lambda item: item[1].started)
            if entry.typing and entry.started + self._ttl > now
        ]

    def shift(self, jump: int) -> None:
        """Move all start times by `jump` after the clock was set forward, so that remaining times stay the same."""
        self._entries = {user: e._replace(started=e.started + jump) for user, e in self._entries.items()}

    def prune(self, now: int) -> bool:
        """Drop expired entries; return whether any entry is left."""
        hold = max(self._ttl, self._throttle)
        for user, entry in [*self._entries.items()]:
            if entry.started + hold <= now:
                del self._entries[user]
        return bool(self._entries)
