"""Lists for operators: users online and rooms, by the beginning of their ids."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from greendot.admin.access import DashboardServices
from greendot.presence.model import project
from greendot.presence.profile_model import NO_PROFILE, shown_name
from greendot.protocol.cluster import RoomsQuery, read_rooms
from greendot.store.audit import AuditFilter
from greendot.store.rooms import Room

WITHIN_S = 1.0  # time for the nodes to answer
PAGE = 50  # entries of a list that are enough
READ = 200  # users read at once
MOST_READS = 25  # reads for one list: in a large tenant the users are in no order


class Listing:
    """Lists of the dashboard, without changes."""

    def __init__(self, services: DashboardServices) -> None:
        self._services = services

    async def users(self, tenant: str, prefix: str, after: str | None) -> dict[str, Any]:
        """Return users online whose ids begin with `prefix`, as their own devices see them.

        `next` continues the list. A page may have no users and still not be the last.
        """
        engine = self._services.engine
        found: list[str] = []
        total = 0
        for _ in range(MOST_READS):
            page = await engine.online(tenant, after, READ)
            found += [user for user in page.users if user.startswith(prefix)]
            after, total = page.next, page.total
            if after is None or len(found) >= PAGE:
                break
        snapshots = await engine.read(tenant, found) if found else []
        profiles = await self._services.store.profiles([(tenant, user) for user in found]) if found else {}
        names = [
            shown_name(profiles.get((tenant, it), NO_PROFILE), own.name)
            for it, own in zip(found, snapshots, strict=True)
        ]
        users = [
            {"name": name, "devices": snapshot.devices, "shown": project(user, snapshot, own=True)}
            for user, name, snapshot in zip(found, names, snapshots, strict=True)
        ]
        return {"tenant": tenant, "users": users, "next": after, "total": total}

    async def rooms(self, tenant: str, prefix: str, after: str | None, nodes: Collection[str]) -> dict[str, Any]:
        """Return rooms whose ids begin with `prefix`, in the order of their ids. `nodes` are the live ones."""
        store = self._services.store
        found: list[Room] = []
        if after is None and prefix and (exact := await store.room(tenant, prefix)) is not None:
            found.append(exact)
        # All ids that begin with the prefix follow it at once.
        page = await store.rooms(tenant, after or prefix or None, PAGE)
        found += [room for room in page if room.room.startswith(prefix)]
        is_last = len(page) < PAGE or not page[-1].room.startswith(prefix)
        members, listeners = await asyncio.gather(
            store.member_counts([(tenant, it.room) for it in found]), self._listeners(tenant, found, nodes)
        )
        rooms = [
            {
                "room": it.room,
                "open": it.open,
                "archived": it.archived,
                "head": it.head,
                "members": members.get((tenant, it.room), 0),
                "listeners": count,
            }
            for it, count in zip(found, listeners, strict=True)
        ]
        return {"tenant": tenant, "rooms": rooms, "next": None if is_last else page[-1].room}

    async def audit(self, tenant: str, room: str | None, after: int | None) -> dict[str, Any]:
        """Return entries of the audit, newest first. `after` is the last number of the page before."""
        found = await self._services.store.audit(tenant, AuditFilter(room=room), before=after, limit=PAGE)
        entries = [entry._asdict() for entry in reversed(found)]
        return {"tenant": tenant, "audits": entries, "next": found[0].number if len(found) == PAGE else None}

    async def _listeners(self, tenant: str, rooms: list[Room], nodes: Collection[str]) -> list[int]:
        """Return the number of sockets that listen to each room, on all nodes that answer."""
        question = RoomsQuery(tenant, [it.room for it in rooms])
        answers = await self._services.cluster.ask(nodes, question, WITHIN_S)
        reports = [read_rooms(text).listeners for text in answers.values()]
        return [sum(counts) for counts in zip(*reports, strict=True)]
