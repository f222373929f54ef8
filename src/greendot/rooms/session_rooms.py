"""Rooms of this node's sessions, as written to the engine.

A session stays in its rooms while it lingers. Invisible users are in no room. Each write carries the state at the time
of the write. A failed write is retried later with the state of that time: nothing is queued.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Collection

from greendot.engine.port import Engine
from greendot.errors import EngineUnavailable
from greendot.node.context import NodeContext
from greendot.node.session import Session
from greendot.presence.status import StatusService

RETRY_S = 1.0  # minimum seconds between two attempts to write to the engine
DOUBT_S = 5.0  # seconds until a repeated write is written once more, because the failed write may take effect late
# Ages, in seconds, up to which exits are kept, to be written again after a loss in the engine. Exits up to RECENT_S are
# always kept, because a failover loses the last seconds. Up to MOST_EXITS older exits are kept for older snapshots.
RECENT_S, LONGEST_S = 60.0, 3_600.0
MOST_DROPPED = 100  # old exits dropped with each new one
MOST_EXITS = 5_000  # beyond this number only recent exits are kept
MOVED_S = 5.0  # seconds until a session that moved to another node has entered its rooms there

SessionRoom = tuple[Session, str]  # a session and a room that the session is in or was in


class SessionRooms:
    """Rooms of the node's sessions, and their writes to the engine."""

    def __init__(self, engine: Engine, statuses: StatusService, context: NodeContext) -> None:
        self._engine = engine
        self.statuses = statuses
        self._context = context
        # Writes to the engine under way, and whether the session has entered or left again meanwhile.
        self._updating: dict[SessionRoom, bool] = {}
        self._exited = OrderedDict[SessionRoom, float]()  # recent exits and their monotonic seconds, oldest first
        statuses.listeners.append(self._user_changed)

    # --- entering and leaving ---

    def enter(self, session: Session, room: str) -> None:
        if session.rooms is None:
            session.rooms = set()
        if room not in session.rooms:
            session.rooms.add(room)
            self._changed((session, room))

    def exit(self, session: Session, room: str) -> None:
        if session.rooms is not None and room in session.rooms:
            session.rooms.discard(room)
            self._note_exit((session, room))
            self._changed((session, room))

    def keep(self, session: Session, rooms: Collection[str]) -> None:
        """Remove the session from all rooms except these."""
        if session.rooms:
            for room in session.rooms.difference(rooms):
                self.exit(session, room)

    def forget(self, session: Session) -> None:
        """Remove a session that no longer counts on this node from its rooms.

        A session that moved to another node leaves a few seconds later, so that the user stays in the rooms. That of
        an invisible user leaves at once: after a failover to older data, only a noted exit is written again.
        """
        if session.moved and not self._is_hidden(session):
            self._context.timers.set(MOVED_S, self._leave_all, session)
        else:
            self._leave_all(session)

    def _leave_all(self, session: Session) -> None:
        self.keep(session, ())

    def _note_exit(self, entry: SessionRoom) -> None:
        now = self._context.timers.now()
        self._exited.pop(entry, None)
        self._exited[entry] = now
        for _ in range(MOST_DROPPED):
            oldest = next(iter(self._exited))
            if not self._is_old(now - self._exited[oldest]):
                return
            del self._exited[oldest]

    def _is_old(self, age_s: float) -> bool:
        return age_s > RECENT_S and (age_s > LONGEST_S or len(self._exited) > MOST_EXITS)

    def _user_changed(self, key: tuple[str, str]) -> None:
        """Write all rooms of a user who has become invisible, or visible again."""
        for session in self._context.registry.sessions_of(*key):
            for room in session.rooms or ():
                self._changed((session, room))

    def is_inside(self, tenant: str, user: str, room: str) -> bool:
        """Return whether a session of this node keeps the user in the room, even if the engine does not know it yet."""
        now = self._context.timers.now()
        inside = any(
            session.rooms is not None and room in session.rooms and not session.is_over(now)
            for session in self._context.registry.sessions_of(tenant, user)
        )
        return inside and not self.statuses.is_invisible((tenant, user))

    # --- writes to the engine ---

    def _changed(self, entry: SessionRoom) -> None:
        if entry in self._updating:
            self._updating[entry] = True
        else:
            self._updating[entry] = False
            self._context.tasks.spawn(self._update_engine(entry))

    async def _update_engine(self, entry: SessionRoom, *, again: bool = False) -> None:
        try:
            await self._write(entry, is_first=not again)
        except EngineUnavailable:
            self._context.timers.set(RETRY_S * random.uniform(1, 2), self._retry, entry)
            return
        del self._updating[entry]
        if again:
            self._context.timers.set(DOUBT_S, self._changed, entry)

    def _retry(self, entry: SessionRoom) -> None:
        self._context.tasks.spawn(self._update_engine(entry, again=True))

    def _is_lost(self, entry: SessionRoom) -> bool:
        """Return whether the engine may have lost an occupant who leaves. Then it would not publish the exit."""
        session, room = entry
        return self._engine.is_restoring(session.tenant, room) and not self._is_hidden(session)

    def _is_hidden(self, session: Session) -> bool:
        # After the user's last session here, the node knows the status only from the session.
        was_invisible = session.manual is not None and session.manual.status == "invisible"
        return was_invisible or self.statuses.is_invisible(session.key)

    async def _write(self, entry: SessionRoom, *, restoring: bool = False, is_first: bool = False) -> None:
        """Write the current state, and write again if the state has changed meanwhile. Writes never overlap."""
        session, room = entry
        changed = True
        while changed:
            self._updating[entry] = False
            if session.rooms is None or room not in session.rooms or self.statuses.is_invisible(session.key):
                if is_first and self._is_lost(entry):
                    await self._engine.enter(session.tenant, room, session.user, session.ref, restoring=True)
                await self._engine.exit(session.tenant, room, session.user, session.ref)
            elif self._context.registry.sessions.get(session.id) is session:
                name = session.grants.name
                await self._engine.enter(session.tenant, room, session.user, session.ref, name, restoring=restoring)
            changed = self._updating[entry]

    # --- after a loss in the engine ---

    def exited(self) -> list[SessionRoom]:
        """Return the rooms that sessions left recently: the engine may have lost the exit."""
        return [*self._exited]

    async def restore(self, entry: SessionRoom) -> None:
        """Write a session's state in a room again, in case the engine lost it. Raise EngineUnavailable on failure."""
        if entry in self._updating:
            self._updating[entry] = True
            return
        self._updating[entry] = False
        try:
            await self._write(entry, restoring=True)
        finally:
            del self._updating[entry]
