"""Look-ups for operators: everything about one user, room, node or topic, on all nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from msgspec import json, to_builtins

from greendot.admin.access import DashboardServices, Viewer
from greendot.engine.messages import Topic
from greendot.engine.results import EngineSession, NodeInfo, OccupantPage
from greendot.errors import EngineUnavailable, Refused
from greendot.presence.last_seen_model import with_stored
from greendot.presence.model import project
from greendot.presence.profile_model import NO_PROFILE, shown_name
from greendot.protocol.cluster import (
    NodeQuery,
    RoomQuery,
    SessionReport,
    TopicQuery,
    UserQuery,
    UserReport,
    read_node,
    read_room,
    read_topic,
    read_user,
)
from greendot.protocol.codes import Err
from greendot.store.push import Device
from greendot.store.restrictions import FOREVER, RestrictionKind
from greendot.store.rooms import UserRoom

WITHIN_S = 1.0  # time for the nodes to answer
MOST = 200  # members, occupants, typers and rooms that are listed; all are counted
MOST_ROOMS = 50  # rooms of a user that are checked for typing
MOST_PUSHES = 20  # newest unread notifications that are looked up in the push queue
DAY_MS = 86_400_000


class Lookup:
    """Look-ups of the dashboard, without changes.

    They show the same state as the user's own devices: hiding applies to other users.
    """

    def __init__(self, services: DashboardServices) -> None:
        self._services = services

    async def user(self, tenant: str, user: str, nodes: Sequence[NodeInfo]) -> dict[str, Any]:
        services = self._services
        answers, entries, rooms, inbox, statuses, devices = await asyncio.gather(
            services.cluster.ask(_live(nodes), UserQuery(tenant, user), WITHIN_S),
            services.engine.sessions(tenant, user),
            services.store.rooms_of(tenant, user),
            services.store.inbox(tenant, user),
            services.store.statuses([(tenant, user)]),
            services.store.devices(tenant, user),
        )
        profiles = await services.store.profiles([(tenant, user)])
        seen = await services.store.last_seen([(tenant, user)])
        modes = await services.store.presence_modes([(tenant, user)])
        (snapshot,) = await services.engine.read(tenant, [user])
        kept_ms = round(services.lasting.last_seen_days * DAY_MS)
        snapshot = with_stored(snapshot, seen.get((tenant, user)), services.engine.now_ms(), kept_ms)
        read = {node: read_user(text) for node, text in answers.items()}
        there = {found.session: (node, found) for node, it in read.items() for found in it.sessions}
        sessions = [_session(node, found) for node, found in there.values()]
        ends, restrictions = self._ends(nodes), self._restrictions(tenant, user)
        sessions += [_session_entry(entry, ends.get(entry.node)) for entry in entries if entry.session not in there]
        joined = {room for session in sessions for room in session["rooms"]}
        # The store lists all open rooms. Those without a session, role or marker of the user are left out.
        rooms = [it for it in rooms if it.role is not None or it.marker or it.room.room in joined]
        profile, recorded = profiles.get((tenant, user), NO_PROFILE), bool(seen or modes or profiles or restrictions)
        manual, revocation = statuses.get((tenant, user)), services.revocation_service.of_user(tenant, user)
        return {
            "tenant": tenant,
            "user": user,
            "name": shown_name(profile, snapshot.name),
            "info": json.decode(profile.info) if profile.info else None,
            "seen_as": project(user, snapshot),
            "own": project(user, snapshot, own=True),
            "status": None if manual is None else {"status": manual.status, "until": manual.until, "text": manual.text},
            "sessions": sorted(sessions, key=lambda session: session["session"]),
            "rooms": [_room(it) for it in rooms[:MOST]],
            "room_count": len(rooms),
            "inbox": inbox._asdict(),
            "inbox_kept_ms": round(services.lasting.inbox_days * DAY_MS),
            "typing": await self._typing(tenant, user, joined),
            "watchers": _watchers(read),
            "presence_mode": modes.get((tenant, user), "auto"),
            "devices": [self._device(device) for device in devices],
            "pushes": await self._pushes(tenant, user) if inbox.unread else [],
            "last_seen_kept_ms": kept_ms,
            "nodes": self._leases(nodes, {session["node"] for session in sessions}),
            "revoked_before": None if revocation is None else revocation.before,
            "restrictions": restrictions,
            "known": any((sessions, rooms, inbox.head, manual, snapshot.visible.version, devices, recorded)),
        }

    def _restrictions(self, tenant: str, user: str) -> dict[str, int | None]:
        """Return the end of the user's mute and ban in the tenant, by kind; None: no end."""
        kinds: tuple[RestrictionKind, ...] = ("mute", "ban")
        ends = {kind: self._services.revocation_service.restricted_until(kind, tenant, user) for kind in kinds}
        return {kind: None if end == FOREVER else end for kind, end in ends.items() if end}

    async def _typing(self, tenant: str, user: str, rooms: set[str]) -> list[dict[str, Any]]:
        """Return the rooms in which the user types, with the time until typing ends by itself.

        Only rooms that the user is in are checked.
        """
        looked = sorted(rooms)[:MOST_ROOMS]
        found = await asyncio.gather(*(self._services.engine.typers(tenant, room) for room in looked))
        return [
            {"room": room, "expires_in_ms": typist.remaining}
            for room, typists in zip(looked, found, strict=True)
            for typist in typists
            if typist.user == user
        ]

    def _device(self, device: Device) -> dict[str, Any]:
        """Return the device without its push token: the token's holder could push to the device."""
        kept_until = device.used_at + round(self._services.lasting.unused_days * DAY_MS)
        return {
            "device": device.device,
            "provider": device.provider,
            "used_at": device.used_at,
            "kept_until": kept_until,
        }

    async def _pushes(self, tenant: str, user: str) -> list[dict[str, Any]]:
        """Return the pushes that wait, for the newest unread notifications."""
        store = self._services.store
        unread = await store.notifications(tenant, user, limit=MOST_PUSHES, only="unread")
        found = await asyncio.gather(*(store.push_of(tenant, it.id) for it in unread))
        return [
            {"number": push.seq, "due_at": push.due_at, "attempts": push.attempts, "reason": push.reason}
            for pushes in found
            for push in pushes
            if push.due_at is not None
        ]

    def _ends(self, nodes: Sequence[NodeInfo]) -> dict[str, int]:
        """Return when sessions of dead nodes end, in milliseconds from now, by node."""
        now = self._services.engine.now_ms()
        return {it.node: max(0, it.ends_at - now) for it in nodes if it.ends_at is not None}

    def _leases(self, nodes: Sequence[NodeInfo], of: set[str]) -> list[dict[str, Any]]:
        """Return the leases of nodes.

        A lease has the time until it ends without a renewal, or until a dead node's sessions end.
        """
        now, lease_ms = self._services.engine.now_ms(), round(self._services.lasting.lease_s * 1000)
        return [
            {
                "node": it.node,
                "state": it.state,
                "level": it.level,
                "renewed_ago_ms": None if it.renewed_at is None else max(0, now - it.renewed_at),
                "lease_ends_in_ms": None if it.renewed_at is None else max(0, it.renewed_at + lease_ms - now),
                "sessions_end_in_ms": None if it.ends_at is None else max(0, it.ends_at - now),
            }
            for it in nodes
            if it.node in of
        ]

    async def node(self, viewer: Viewer, node: str, nodes: Sequence[NodeInfo]) -> dict[str, Any]:
        if not viewer.nodes:
            raise Refused(
                Err.FORBIDDEN, "this key is for a tenant; use an operator's key or the server's own key to see nodes"
            )
        found: dict[str, Any] = {"node": node, "known": False, "answered": False}
        for lease in self._leases(nodes, {node}):
            found |= lease | {"known": True}
        text = (
            await self._services.cluster.ask_one(node, NodeQuery(), WITHIN_S) if found.get("state") == "live" else None
        )
        if text is not None:
            there = to_builtins(read_node(text))
            there["tenants"] = {name: it for name, it in there["tenants"].items() if viewer.tail in ("", name)}
            found |= there | {"answered": True}
        return found

    async def topic(self, topic: Topic, nodes: Sequence[NodeInfo]) -> dict[str, Any]:
        question = TopicQuery(topic.kind, topic.tenant, topic.name)  # type: ignore[arg-type]  # a node's is not asked for
        answers = await self._services.cluster.ask(_live(nodes), question, WITHIN_S)
        there = {node: read_topic(text) for node, text in answers.items()}
        rows = [{"node": node} | to_builtins(it) for node, it in sorted(there.items())]
        return {
            "kind": topic.kind,
            "tenant": topic.tenant,
            "name": topic.name,
            "known": any(it.listeners or it.barred or it.unheard_in_ms is not None for it in there.values()),
            "listeners": sum(it.listeners for it in there.values()),
            "silent": sorted({*_live(nodes)} - there.keys()),
            "nodes": [row for row in rows if row["listeners"] or row["barred"] or row["unheard_in_ms"] is not None],
        }

    async def room(self, tenant: str, room: str, nodes: Sequence[NodeInfo]) -> dict[str, Any]:
        services = self._services
        found, answers = await asyncio.gather(
            services.store.member_page(tenant, room, None, MOST),
            services.cluster.ask(_live(nodes), RoomQuery(tenant, room), WITHIN_S),
        )
        try:
            present, typers = await asyncio.gather(
                services.engine.present_page(tenant, room, None, MOST), services.engine.typers(tenant, room)
            )
        except EngineUnavailable:
            present, typers = OccupantPage([], 0), []
        listeners = {node: read_room(text).listeners for node, text in answers.items()}
        return {
            "tenant": tenant,
            "room": room,
            "known": found is not None,
            "open": found is not None and found.room.open,
            "archived": found is not None and found.room.archived,
            "slow_mode_s": 0 if found is None else found.room.slow_mode_s,
            "bus": None if found is None else found.room.bus,
            "head": 0 if found is None else found.room.head,
            "members": [] if found is None else [{"user": it.user, "role": it.role} for it in found.members],
            "member_count": 0 if found is None else found.total,
            "listeners": sum(listeners.values()),
            "present": present.users,
            "present_count": present.total,
            "typing": [typist.user for typist in typers[:MOST]],
            "typing_ends_in_ms": {typist.user: typist.remaining for typist in typers[:MOST]},
            "nodes": [{"node": node, "listeners": count} for node, count in sorted(listeners.items()) if count],
        }


def _room(it: UserRoom) -> dict[str, Any]:
    return {"room": it.room.room, "open": it.room.open, "head": it.room.head, "unread": it.room.head - it.marker}


def _session(node: str, found: SessionReport) -> dict[str, Any]:
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
        "waiting": found.waiting,
        "ends_in_ms": found.ends_in_ms,
    }


def _session_entry(entry: EngineSession, dead_in_ms: int | None) -> dict[str, Any]:
    """Return the engine's data of a session whose node did not answer."""
    known = [ms for ms in (entry.ends_in_ms, dead_in_ms) if ms is not None]
    return {
        "session": entry.session,
        "node": entry.node,
        "device": entry.device,
        "state": "lingering" if known else entry.state,
        "ends_in_ms": min(known) if known else None,
        "rooms": [],
    }


def _watchers(read: dict[str, UserReport]) -> dict[str, Any]:
    """Return the number of watchers on all nodes, and how changes reach them: live, in slices, or by polling.

    If nodes differ, polling is shown before slices, and slices before live.
    """
    ways = [way for way in ("asked", "slices") if any(it.told == way for it in read.values())]
    return {"count": sum(it.watchers for it in read.values()), "told": ways[0] if ways else "live"}


def _live(nodes: Sequence[NodeInfo]) -> list[str]:
    return [it.node for it in nodes if it.state == "live"]
