"""Planted faults: changes of node code at run time. Each must be found by the checker within a number of seeds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

from msgspec import structs

from greendot.connect.recovery import Recovery
from greendot.connect.restorer import Restorer
from greendot.node.session import Connection
from greendot.presence import sessions
from greendot.presence.model import Change, UserPresence
from greendot.presence.sessions import SessionService
from greendot.presence.watch import WatchService
from greendot.rooms.session_rooms import SessionRooms
from greendot.rooms.typing import RoomTyping
from simulation.trial import draw, run


class Planted(NamedTuple):
    """One planted fault."""

    owner: Any
    name: str
    instead: Any


def _changed_any_version(self: WatchService, topic: Any, change: Change) -> None:
    """Show every change that arrives, older ones too."""
    watched = self.watched(topic)
    if watched is not None and change.public:
        self._show(watched, change.visible)


def _changed_twice(self: WatchService, topic: Any, change: Change) -> None:
    """Show a change again when it arrives again."""
    watched = self.watched(topic)
    if watched is not None and change.public and change.visible.version >= watched.visible.version:
        self._show(watched, change.visible, anyway=True)


def _hold_for_ever(self: RoomTyping, user: str, name: str | None, ms: int) -> None:
    """Keep a typist without a timer that ends the typing."""
    _hold(self, user, name, ms)
    self._context.timers.cancel(self._entries[user].timer)


def _hold_long(self: RoomTyping, user: str, name: str | None, ms: int) -> None:
    _hold(self, user, name, ms * 2)


def _last_seen_late(self: UserPresence, now: int, nodes: Any) -> None:
    """Take the end of the grace for the last sign of life."""
    before = len(self.sessions)
    _prune(self, now, nodes)
    if len(self.sessions) < before:
        self.last_heard = now


def _echo(self: RoomTyping, typing: Any) -> None:
    """Announce typing to all listeners, the typist's own devices too."""
    with mock.patch.object(type(self.room_view), "skipped", return_value=()):
        _start(self, typing)


def _never_silent(self: SessionService, connection: Connection) -> None:
    """Take every connection for alive."""
    connection.received_at = self._timers.now()
    _check(self, connection)


def _any_state_visible(self: UserPresence, manual: Any, now: int, nodes: Any) -> Change | None:
    """Show invisible users as if they had no status."""
    if manual.status == "invisible":
        manual = structs.replace(manual, status="auto")
    return _set_manual(self, manual, now, nodes)


async def _nothing(*args: Any, **named: Any) -> None:
    """Do nothing."""


async def _restore_none(self: Restorer, part: Any) -> int:
    return 0


_hold, _prune, _start = RoomTyping._hold, UserPresence._prune, RoomTyping._start
_check, _set_manual = SessionService._check, UserPresence.set_manual

MUTANTS = {
    "no grace": Planted(sessions, "grace_s", lambda cause, code, graces: 0.0),
    "versions are not compared": Planted(WatchService, "changed", _changed_any_version),
    "duplicates are not removed": Planted(WatchService, "changed", _changed_twice),
    "typing does not expire": Planted(RoomTyping, "_hold", _hold_for_ever),
    "typing is held twice as long": Planted(RoomTyping, "_hold", _hold_long),
    "typing is echoed": Planted(RoomTyping, "_start", _echo),
    "silent clients are not closed": Planted(SessionService, "_check", _never_silent),
    "last-seen is the end of the grace": Planted(UserPresence, "_prune", _last_seen_late),
    "invisible users are shown": Planted(UserPresence, "set_manual", _any_state_visible),
    "lost sessions are not restored": Planted(Restorer, "restore", _restore_none),
    "missed changes are not read again": Planted(WatchService, "resync", _nothing),
    "rooms are not left": Planted(SessionRooms, "forget", lambda self, session: None),
    "graces do not end": Planted(SessionService, "_linger_over", lambda self, session: None),
    "a new node name is not used": Planted(Recovery, "reborn", lambda self, incarnation: None),
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Plant a fault."""
    owner, attribute, instead = MUTANTS[name]
    with mock.patch.object(owner, attribute, instead):
        yield


def find(name: str, first: int, seeds: int) -> tuple[int, str] | None:
    """Return the first seed that finds a planted fault, and the broken promise; None if no seed does."""
    with planted(name):
        for seed in range(first, first + seeds):
            broken = run(draw(seed)).broken
            if broken is not None:
                return seed, broken.invariant
    return None
