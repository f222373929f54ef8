"""All there is of one user, or of one room, wherever it is."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from greendot.admin.desk import Desk
from greendot.core.projection import project
from greendot.engine.answers import SeatInfo
from greendot.errors import EngineUnavailable
from greendot.protocol.insight import RoomOf, SessionThere, UserOf, read_room, read_user

WITHIN_S = 1.0  # the nodes have to answer
MOST = 200  # members, people present, typers, rooms that are named; all are counted


class Finding:
    """Reads, and changes nothing. It shows what the user's own devices are shown: hiding is from other users."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def user(self, tenant: str, user: str, nodes: Collection[str]) -> dict[str, Any]:
        desk = self._desk
        answers, seats, rooms, inbox, statuses = await asyncio.gather(
            desk.survey.ask(nodes, UserOf(tenant, user), WITHIN_S),
            desk.engine.sessions(tenant, user),
            desk.store.rooms_of(tenant, user),
            desk.store.inbox(tenant, user),
            desk.store.statuses([(tenant, user)]),
        )
        (snapshot,) = await desk.engine.read(tenant, [user])
        there = {found.session: (node, found) for node, text in answers.items() for found in read_user(text).sessions}
        sessions = [_session(node, found) for node, found in there.values()]
        sessions += [_seat(seat) for seat in seats if seat.session not in there]
        joined = {room for session in sessions for room in session["rooms"]}
        # Open rooms are everybody's: those that the user has nothing to do with say nothing of the user.
        rooms = [it for it in rooms if it.role is not None or it.marker or it.room.room in joined]
        manual, revocation = statuses.get((tenant, user)), desk.revoking.of_user(tenant, user)
        return {
            "tenant": tenant,
            "user": user,
            "name": snapshot.name,
            "seen_as": project(user, snapshot),
            "own": project(user, snapshot, own=True),
            "status": None if manual is None else {"status": manual.status, "until": manual.until, "text": manual.text},
            "sessions": sorted(sessions, key=lambda session: session["session"]),
            "rooms": [
                {"room": it.room.room, "open": it.room.open, "head": it.room.head, "unread": it.room.head - it.marker}
                for it in rooms[:MOST]
            ],
            "room_count": len(rooms),
            "inbox": inbox._asdict(),
            "revoked_before": None if revocation is None else revocation.before,
            "known": bool(sessions or rooms or inbox.head or manual or snapshot.face.version),
        }

    async def room(self, tenant: str, room: str, nodes: Collection[str]) -> dict[str, Any]:
        desk = self._desk
        found, members, counts, answers = await asyncio.gather(
            desk.store.room(tenant, room),
            desk.store.members(tenant, room, None, MOST),
            desk.store.member_counts([(tenant, room)]),
            desk.survey.ask(nodes, RoomOf(tenant, room), WITHIN_S),
        )
        try:
            present, typers = await asyncio.gather(desk.engine.present(tenant, room), desk.engine.typers(tenant, room))
        except EngineUnavailable:
            present, typers = [], []
        listeners = {node: read_room(text).listeners for node, text in answers.items()}
        return {
            "tenant": tenant,
            "room": room,
            "known": found is not None,
            "open": found is not None and found.open,
            "bus": None if found is None else found.bus,
            "head": 0 if found is None else found.head,
            "members": [{"user": it.user, "role": it.role} for it in members],
            "member_count": counts.get((tenant, room), len(members)),
            "listeners": sum(listeners.values()),
            "present": present[:MOST],
            "present_count": len(present),
            "typing": [typist.user for typist in typers[:MOST]],
        }


def _session(node: str, found: SessionThere) -> dict[str, Any]:
    return {
        "session": found.session,
        "node": node,
        "device": found.device,
        "client": found.client,
        "state": found.state,
        "connected_at": found.connected_at,
        "last_heard": found.last_heard,
        "token_expires_at": found.token_expires_at,
        "token_issued_at": found.token_issued_at,
        "token_id": found.token_id,
        "rooms": found.rooms,
        "watches": found.watches,
        "behind": found.behind,
    }


def _seat(seat: SeatInfo) -> dict[str, Any]:
    """One whose node did not answer: what the engine knows of it."""
    state = seat.state if seat.ends_in_ms is None else "lingering"
    return {"session": seat.session, "node": seat.node, "device": seat.device, "state": state, "rooms": []}
