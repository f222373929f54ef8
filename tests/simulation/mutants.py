"""Planted faults: changes of node code at run time. Each must be found by the checker within a number of seeds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

from msgspec import structs

from greendot.auth.revocation import RevocationService
from greendot.auth.tokens import Tokens
from greendot.connect import recovery
from greendot.connect.recovery import Recovery
from greendot.connect.restorer import Restorer
from greendot.engine.memory import MemoryEngine
from greendot.inbox.badges import Badges
from greendot.inbox.service import InboxService
from greendot.node.registry import Registry
from greendot.node.session import Connection
from greendot.node.stream import LocalStream, StreamFollower
from greendot.node.stream_model import Sequencer
from greendot.presence import sessions, watch
from greendot.presence.deadlines import ConnectionDeadlines
from greendot.presence.holds import WatchHolds
from greendot.presence.model import Change, UserPresence
from greendot.presence.sessions import SessionService
from greendot.presence.status import StatusService
from greendot.presence.watch import WatchService
from greendot.rooms.local_room import Recent
from greendot.rooms.members import RoomAccess, RoomMembers
from greendot.rooms.messages import RoomMessages
from greendot.rooms.occupancy import RoomOccupancy
from greendot.rooms.removal import MemberRemoval
from greendot.rooms.service import RoomService
from greendot.rooms.session_rooms import SessionRooms
from greendot.rooms.typing import RoomTyping
from greendot.store.sqlite import inbox as sqlite_inbox
from simulation.plans import draw
from simulation.trial import run


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


def _never_silent(self: ConnectionDeadlines, connection: Connection) -> None:
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


def _ignore(*args: Any, **named: Any) -> None:
    """Do nothing, at once."""


def _lost_late(self: SessionService, connection: Connection, cause: Any, code: int) -> None:
    """Let the end of a replaced connection end the session too."""
    if connection.session is not None:
        connection.session.connection = connection
    _lost(self, connection, cause, code)


def _ends_others(
    self: UserPresence, ref: Any, device: str, idle: bool | None, now: int, nodes: Any, *, restored: Any = None
) -> Any:
    """Let a restored session end the other lingering sessions of its device."""
    found = _touch(self, ref, device, idle, now, nodes, restored=restored)
    others = [o for o, its in self.sessions.items() if o != ref.session and its.device == device and its.deadline]
    for other in others if restored is not None else ():
        del self.sessions[other]
    return found[0], self._settle(now, restored) or found[1]


def _prune_graces(self: UserPresence, now: int, nodes: Any) -> None:
    """End no session of a dead node."""
    _prune(self, now, {node: life._replace(ends=None) for node, life in nodes.items()})


def _here_only(self: Any, tenant: str, name: str) -> bool:
    """Leave out the users whose last session has ended during the recovery."""
    return bool(self._registry.sessions_of(tenant, name)) and bool(self._part.covers(tenant, name))


def _early_too(self: Sequencer[Any], seq: int, record: Any) -> list[Any]:
    """Let early records pass."""
    if seq > self.cursor:
        self.cursor = seq
        return [record]
    return []


def _known_too(self: Sequencer[Any], seq: int, record: Any) -> list[Any]:
    """Let known records pass again."""
    return [record] if seq == self.cursor else _offer(self, seq, record)


def _skip_too_far(self: Sequencer[Any], head: int) -> list[Any]:
    """Skip one record more than was read."""
    return _skip_to(self, head + 1 if head else head)


def _without_first(self: Recent, seq: int) -> Any:
    """Leave out the first of several missed messages of a client that returns."""
    found = _after(self, seq)
    return found[1:] if found and len(found) > 1 else found


def _new_keys(self: InboxService, notices: Any) -> Any:
    """Ignore the idempotency keys of notifications."""
    for number, notice in enumerate(_kept(self, notices)):
        yield structs.replace(notice, key=f"{notice.key}-{id(notice)}-{number}")


async def _send_without_key(self: RoomMessages, connection: Any, session: Any, command: Any) -> Any:
    """Ignore the idempotency keys of messages."""
    return await _send(self, connection, session, structs.replace(command, key=f"{command.key}-{command.id}"))


def _lower_less(db: Any, key: Any, unread: int, unseen: int) -> None:
    """Count one notification less than were read."""
    _lower(db, key, max(0, unread - 1) if unread > 1 else unread, unseen)


async def _verify_default(self: Tokens, *args: Any) -> Any:
    """Take every token for one of the default tenant."""
    return structs.replace(await _verify(self, *args), tenant="default")


def _resumable_by_all(self: SessionService, grants: Any, wanted: str) -> Any:
    """Resume a session of any user."""
    session = self._registry.sessions.get(wanted)
    return session if session is not None and not session.revoked else None


async def _admit_all(self: RoomMembers, session: Any, room: str, **named: Any) -> Any:
    """Admit everyone to closed rooms."""
    found = await self._rooms.get((session.tenant, room))
    return await _admit(self, session, room, **named) if found is None else RoomAccess(found, None, 0)


def _show_all_held(self: WatchService, watched: Any, change: Change) -> None:
    """Show a change of a held user without a confirmation."""
    self._show_held(watched, change)


def _auto(self: StatusService, key: Any, manual: Any) -> Any:
    """Forget the status of a user."""
    return type(manual)()


def _always_new(shown: Any, read: Any, *, keeps: bool) -> Any:
    """Show what was read, with its own version."""
    return read


def _show_always(self: WatchService, watched: Any, visible: Any, *, anyway: bool = False) -> None:
    """Deliver a state also if it looks the same."""
    _show(self, watched, visible, anyway=True)


def _any_revision(self: UserPresence, manual: Any, now: int, nodes: Any) -> Change | None:
    """Apply an older copy of the status."""
    self.manual = None
    return _set_manual(self, manual, now, nodes)


async def _restore_none(self: Restorer, part: Any, **_: Any) -> int:
    return 0


_hold, _prune, _start = RoomTyping._hold, UserPresence._prune, RoomTyping._start
_check, _lost = ConnectionDeadlines._check, SessionService.lost
_set_manual, _touch = UserPresence.set_manual, UserPresence.touch
_offer, _skip_to, _after = Sequencer.offer, Sequencer.skip_to, Recent.after
_kept, _send, _lower = InboxService._kept, RoomMessages.send, sqlite_inbox._lower
_verify, _admit, _show = Tokens.verify, RoomMembers.admit, WatchService._show

MUTANTS = {
    # graces and sessions
    "no grace": Planted(sessions, "grace_s", lambda cause, code, graces: 0.0),
    "a lost connection has the grace of a clean one": Planted(
        sessions, "grace_s", lambda cause, code, graces: graces.clean
    ),
    "silent clients are not closed": Planted(ConnectionDeadlines, "_check", _never_silent),
    "graces do not end": Planted(SessionService, "_linger_over", _ignore),
    "failed writes of sessions are not repeated": Planted(SessionService, "_later", _ignore),
    "dead nodes are not fenced": Planted(MemoryEngine, "_check_life", _ignore),
    "late ends of replaced connections count": Planted(SessionService, "lost", _lost_late),
    "restored sessions end newer ones": Planted(UserPresence, "touch", _ends_others),
    "sessions of dead nodes do not end": Planted(UserPresence, "_prune", _prune_graces),
    "last-seen is the end of the grace": Planted(UserPresence, "_prune", _last_seen_late),
    # versions and watches
    "versions are not compared": Planted(WatchService, "changed", _changed_any_version),
    "duplicates are not removed": Planted(WatchService, "changed", _changed_twice),
    "equal states are delivered again": Planted(WatchService, "_show", _show_always),
    "states after a loss keep their versions": Planted(watch, "newer", _always_new),
    "missed changes are not read again": Planted(WatchService, "resync", _nothing),
    # recovery
    "lost sessions are not restored": Planted(Restorer, "restore", _restore_none),
    "a new node name is not used": Planted(Recovery, "reborn", _ignore),
    "users who leave during a recovery are not read": Planted(recovery._Here, "covers", _here_only),
    "restored sessions lose the status": Planted(StatusService, "learnt", _auto),
    "lost users are not held": Planted(WatchHolds, "add", _ignore),
    "changes of held users are shown at once": Planted(WatchService, "_changed_meanwhile", _show_all_held),
    "ends are not postponed after a loss": Planted(sessions, "NOTICED_S", 0.0),
    "sessions without a node are not audited": Planted(Recovery, "_audit", _nothing),
    "occupants are not restored": Planted(SessionRooms, "restore", _nothing),
    "rooms are not checked after a death": Planted(Recovery, "_check_rooms", _nothing),
    # typing and rooms
    "typing does not expire": Planted(RoomTyping, "_hold", _hold_for_ever),
    "typing is held twice as long": Planted(RoomTyping, "_hold", _hold_long),
    "typing is echoed": Planted(RoomTyping, "_start", _echo),
    "rooms are not left": Planted(SessionRooms, "forget", _ignore),
    "failed writes of occupants are not repeated": Planted(SessionRooms, "_retry", _ignore),
    "occupants are not compared": Planted(RoomOccupancy, "_correct", _ignore),
    # visibility and access
    "invisible users are shown": Planted(UserPresence, "set_manual", _any_state_visible),
    "older statuses replace newer ones": Planted(UserPresence, "set_manual", _any_revision),
    "invisible users stay in rooms": Planted(SessionRooms, "_user_changed", _ignore),
    "removed members stay": Planted(MemberRemoval, "remove", _ignore),
    "all users are admitted": Planted(RoomMembers, "admit", _admit_all),
    "revocations do not close": Planted(RevocationService, "_close", lambda self, revoked: 0),
    "tenants are one": Planted(Tokens, "verify", _verify_default),
    "sessions of other users are resumed": Planted(SessionService, "_resumable", _resumable_by_all),
    # records
    "early records pass": Planted(Sequencer, "offer", _early_too),
    "known records pass again": Planted(Sequencer, "offer", _known_too),
    "a record is skipped": Planted(Sequencer, "skip_to", _skip_too_far),
    "gaps are not read": Planted(StreamFollower, "_schedule", _ignore),
    "heads are not compared": Planted(StreamFollower, "_compare", _nothing),
    "hints are ignored": Planted(LocalStream, "hint", _ignore),
    "the first missed message is left out": Planted(Recent, "after", _without_first),
    "keys of notifications are ignored": Planted(InboxService, "_kept", _new_keys),
    "keys of messages are ignored": Planted(RoomMessages, "send", _send_without_key),
    "badges are not sent": Planted(Badges, "changed", _ignore),
    "counters drift": Planted(sqlite_inbox, "_lower", _lower_less),
    # memory
    "connections are not removed": Planted(Registry, "gone", _ignore),
    "watches are not ended": Planted(WatchService, "forget", _ignore),
    "rooms of connections are not ended": Planted(RoomService, "forget", _ignore),
}


RARE = {  # found by hundreds of seeds or more, or by none
    "changes of held users are shown at once",
    "dead nodes are not fenced",
    "ends are not postponed after a loss",
    "late ends of replaced connections count",
    "lost users are not held",
    "older statuses replace newer ones",
    "restored sessions end newer ones",
    "states after a loss keep their versions",
    "users who leave during a recovery are not read",
    "versions are not compared",
}
SLOW = {  # found by some dozens of seeds
    "counters drift",
    "early records pass",
    "failed writes of occupants are not repeated",
    "heads are not compared",
    "invisible users stay in rooms",
    "missed changes are not read again",
    "removed members stay",
    "sessions of other users are resumed",
}
QUICK = [name for name in MUTANTS if name not in RARE | SLOW]


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
