"""States of recipients for the push gate: presence from the engine, and the manual status.

A session that lingers or is idle counts as in no room: only an active user sees the messages there. If the engine does
not answer, the state is unknown, and an unknown state delays no push.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from greendot.engine.results import EngineSession
from greendot.errors import EngineUnavailable
from greendot.ids import Key
from greendot.presence.model import ManualStatus, Snapshot, VisibleState
from greendot.push.policy_model import RecipientState
from greendot.store.status import StatusStore
from greendot.telemetry import log_events
from greendot.telemetry.log import log

PATIENCE_S = 3.0  # seconds to wait for an engine that neither answers nor fails
UNKNOWN = RecipientState(None)

Rooms = Mapping[Key, Collection[str]]


class Presence(Protocol):
    """Engine operations that are needed here."""

    async def read(self, tenant: str, users: Sequence[str]) -> list[Snapshot]: ...
    async def sessions(self, tenant: str, user: str) -> list[EngineSession]: ...
    async def sessions_in_room(self, tenant: str, room: str, users: Sequence[str]) -> dict[str, set[str]]: ...


class RecipientStates:
    """Reader of many users' states in few commands."""

    def __init__(self, engine: Presence, store: StatusStore) -> None:
        self._engine = engine
        self._store = store

    async def read(self, rooms: Rooms) -> dict[Key, RecipientState]:
        """Return the state of each user. `rooms` has the rooms that each user's notifications are about."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                seen = await self._whole(rooms)
        except TimeoutError:
            log(log_events.PUSH_TO_ALL)
            seen = dict.fromkeys(rooms, UNKNOWN)
        return seen

    async def _whole(self, rooms: Rooms) -> dict[Key, RecipientState]:
        """Read all states, one by one if a part of the engine is away: the other parts still answer."""
        try:
            return await self._read(rooms)
        except EngineUnavailable:
            if len(rooms) > 1:
                found = await asyncio.gather(*(self._whole({key: theirs}) for key, theirs in rooms.items()))
                return {key: seen for one in found for key, seen in one.items()}
            return dict.fromkeys(rooms, UNKNOWN)

    async def _read(self, rooms: Rooms) -> dict[Key, RecipientState]:
        visibles = await self._visibles([*rooms])
        away = [key for key, visible in visibles.items() if visible.state == "offline"]
        # The engine does not keep the status of offline users.
        manuals = await self._store.statuses(away) if away else {}
        here = {key: theirs for key, theirs in rooms.items() if visibles[key].state != "offline"}
        entries = await self._sessions_of(here, visibles)
        return {key: _seen(visibles[key], manuals.get(key), entries.get(key), rooms[key]) for key in rooms}

    async def _visibles(self, keys: Sequence[Key]) -> dict[Key, VisibleState]:
        users: dict[str, list[str]] = {}
        for tenant, user in keys:
            users.setdefault(tenant, []).append(user)
        visibles: dict[Key, VisibleState] = {}
        for tenant, theirs in users.items():
            found = await self._engine.read(tenant, theirs)
            if any(snapshot.stale for snapshot in found):
                raise EngineUnavailable("some nodes have not restored their sessions yet")
            visibles |= {(tenant, user): snapshot.own for user, snapshot in zip(theirs, found, strict=True)}
        return visibles

    async def _sessions_of(
        self, here: Rooms, visibles: Mapping[Key, VisibleState]
    ) -> dict[Key, list[tuple[EngineSession, set[str]]]]:
        """Return sessions with their rooms, for users whose visible state is not enough.

        These are busy users, and users who may be in the room of a notification.
        """
        inside: dict[Key, dict[str, set[str]]] = {}  # room → sessions
        asked: dict[tuple[str, str], list[str]] = {}
        for (tenant, user), theirs in here.items():
            for room in theirs:
                asked.setdefault((tenant, room), []).append(user)
        for (tenant, room), users in asked.items():
            for user, sessions in (await self._engine.sessions_in_room(tenant, room, users)).items():
                inside.setdefault((tenant, user), {})[room] = sessions
        wanted = [key for key in here if key in inside or visibles[key].state == "busy"]
        found = await asyncio.gather(*(self._engine.sessions(*key) for key in wanted))
        return {
            key: [(entry, _rooms_of(entry.session, inside.get(key, {}))) for entry in entries]
            for key, entries in zip(wanted, found, strict=True)
        }


def _rooms_of(session: str, inside: Mapping[str, set[str]]) -> set[str]:
    return {room for room, sessions in inside.items() if session in sessions}


def _seen(
    visible: VisibleState,
    manual: ManualStatus | None,
    entries: Sequence[tuple[EngineSession, set[str]]] | None,
    asked: Collection[str],
) -> RecipientState:
    if visible.state == "offline":
        is_busy = manual is not None and manual.status == "busy"
        return RecipientState(
            "offline", busy=is_busy, busy_until=manual.until if manual is not None and is_busy else None
        )
    is_busy = visible.state == "busy"
    until = visible.until if is_busy else None
    if entries is None:
        return RecipientState("idle" if visible.state == "idle" else "online", (), is_busy, until)
    active = [rooms for entry, rooms in entries if entry.state == "online" and entry.ends_in_ms is None]
    rooms = {room for theirs in active for room in theirs} & {*asked}
    # Unless the user is busy the visible state decides: it includes lingering sessions.
    is_active = bool(active) if is_busy else visible.state == "online"
    return RecipientState("online" if is_active else "idle", rooms, is_busy, until)
