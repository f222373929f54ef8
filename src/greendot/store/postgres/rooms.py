"""Rooms and members in PostgreSQL.

Every transaction that changes a room or its members locks the head row first. So writers of one room take turns, and
two writers to several rooms cannot deadlock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from greendot.ids import Key
from greendot.store.postgres.pool import Link, Pool
from greendot.store.rooms import (
    MOST_OPEN,
    BusMode,
    Member,
    MemberState,
    MembersWritten,
    NewRoom,
    Role,
    Room,
    RoomStore,
    UserRoom,
)

ROOM_FIELDS = (
    "r.tenant, r.room, r.open, r.head, r.members_rev, r.bus, r.receipts, r.archived, r.erasures, r.epoch, r.slow_mode_s"
)
ROOM_WIDTH = ROOM_FIELDS.count(",") + 1
_MUTED, _BANNED = (
    f"""coalesce((SELECT until FROM greendot_restrictions x WHERE x.tenant = s.tenant AND x.user_id = s.user_id
                  AND x.room = s.room AND x.kind = '{kind}'), 0)"""
    for kind in ("mute", "ban")
)
ROOM = f"SELECT {ROOM_FIELDS} FROM greendot_rooms r WHERE tenant = $1 AND room = $2"
ROOMS = f"SELECT {ROOM_FIELDS} FROM greendot_rooms r WHERE tenant = $1 AND room > $2 ORDER BY room LIMIT $3"
ROOMS_OF = f"""
    SELECT {ROOM_FIELDS}, m.role, coalesce(k.seq, 0), 0::bigint, coalesce(b.until, 0)
    FROM (
        SELECT room FROM greendot_members WHERE tenant = $1 AND user_id = $2
        UNION (SELECT room FROM greendot_rooms WHERE tenant = $1 AND open ORDER BY room LIMIT $3)
    ) x
    JOIN greendot_rooms r ON r.tenant = $1 AND r.room = x.room
    LEFT JOIN greendot_members m ON m.tenant = $1 AND m.room = x.room AND m.user_id = $2
    LEFT JOIN greendot_markers k ON k.tenant = $1 AND k.room = x.room AND k.user_id = $2
    LEFT JOIN greendot_restrictions b ON b.tenant = $1 AND b.room = x.room AND b.user_id = $2 AND b.kind = 'ban'
    ORDER BY x.room
"""
HEADS = (
    f"SELECT {ROOM_FIELDS} FROM greendot_rooms r WHERE (tenant, room) IN (SELECT * FROM unnest($1::text[], $2::text[]))"
)
MEMBER_STATES = f"""
    SELECT s.tenant, s.room, s.user_id, m.role, coalesce(k.seq, 0), {_MUTED}, {_BANNED}
    FROM unnest($1::text[], $2::text[], $3::text[]) AS s (tenant, room, user_id)
    LEFT JOIN greendot_members m USING (tenant, room, user_id)
    LEFT JOIN greendot_markers k USING (tenant, room, user_id)
    WHERE m.role IS NOT NULL OR k.seq IS NOT NULL OR EXISTS (
        SELECT FROM greendot_restrictions x
        WHERE x.tenant = s.tenant AND x.user_id = s.user_id AND x.room = s.room
    )
"""
USER_ROOMS = f"""
    SELECT s.user_id, {ROOM_FIELDS}, m.role, coalesce(k.seq, 0), {_MUTED}, {_BANNED}
    FROM unnest($1::text[], $2::text[], $3::text[]) AS s (tenant, room, user_id)
    JOIN greendot_rooms r USING (tenant, room)
    LEFT JOIN greendot_members m USING (tenant, room, user_id)
    LEFT JOIN greendot_markers k USING (tenant, room, user_id)
    WHERE r.open OR m.role IS NOT NULL
"""
MEMBERS = """
    SELECT user_id, role FROM greendot_members WHERE tenant = $1 AND room = $2 AND user_id > $3
    ORDER BY user_id LIMIT $4
"""
COUNTS = """
    SELECT tenant, room, count(*) FROM greendot_members
    WHERE (tenant, room) IN (SELECT * FROM unnest($1::text[], $2::text[])) GROUP BY tenant, room
"""
ROLE = "SELECT role FROM greendot_members WHERE tenant = $1 AND room = $2 AND user_id = $3"
_LOCK = "SELECT members_rev FROM greendot_rooms WHERE tenant = $1 AND room = $2 FOR UPDATE"
_CHANGED = "UPDATE greendot_rooms SET members_rev = members_rev + 1 WHERE tenant = $1 AND room = $2"
_OPEN = "coalesce($3, r.open AND NOT (r.provisional AND $6 = 'closed'))"
_PUT_ROOM = f"""
    INSERT INTO greendot_rooms AS r (tenant, room, open, bus, receipts, provisional)
    VALUES ($1, $2, coalesce($3::boolean, $6 <> 'closed'), coalesce($4, 'full'), coalesce($5, false),
        $3 IS NULL AND $6::text = 'provisional')
    ON CONFLICT (tenant, room) DO UPDATE SET open = {_OPEN}, bus = coalesce($4, r.bus),
        receipts = coalesce($5, r.receipts), members_rev = r.members_rev + (r.open <> {_OPEN})::int,
        provisional = r.provisional AND $3 IS NULL AND $6 <> 'closed'
    RETURNING {ROOM_FIELDS}
"""
_PUT_MEMBER = """
    INSERT INTO greendot_members AS m VALUES ($1, $2, $3, $4)
    ON CONFLICT (tenant, room, user_id) DO UPDATE SET role = excluded.role WHERE m.role <> excluded.role
    RETURNING 1
"""
_REMOVE_MEMBER = "DELETE FROM greendot_members WHERE tenant = $1 AND room = $2 AND user_id = $3 RETURNING 1"


class PostgresRooms:
    """PostgreSQL adapter of `RoomStore`."""

    _links: Pool

    async def put_room(
        self,
        tenant: str,
        room: str,
        *,
        open: bool | None = None,
        bus: BusMode | None = None,
        receipts: bool | None = None,
        new: NewRoom = "closed",
    ) -> Room:
        rows = await self._links.fetch(_PUT_ROOM, tenant, room, open, bus, receipts, new)
        return Room(*rows[0])

    async def room(self, tenant: str, room: str) -> Room | None:
        rows = await self._links.fetch(ROOM, tenant, room)
        return Room(*rows[0]) if rows else None

    async def rooms(self, tenant: str, after: str | None, limit: int) -> list[Room]:
        return [Room(*row) for row in await self._links.fetch(ROOMS, tenant, after or "", limit)]

    async def rooms_of(self, tenant: str, user: str, most_open: int = MOST_OPEN) -> list[UserRoom]:
        rows = await self._links.fetch(ROOMS_OF, tenant, user, most_open)
        return [_user_room(row) for row in rows]

    async def put_member(self, tenant: str, room: str, user: str, role: Role = "member") -> MembersWritten | None:
        return await self._write_member(tenant, room, _PUT_MEMBER, user, role)

    async def remove_member(self, tenant: str, room: str, user: str) -> MembersWritten | None:
        return await self._write_member(tenant, room, _REMOVE_MEMBER, user)

    async def _write_member(self, tenant: str, room: str, sql: str, *values: str) -> MembersWritten | None:
        """Run a statement that returns a row if it changed a member, and raise the revision then."""

        async def work(link: Link) -> MembersWritten | None:
            found = await link.fetch(_LOCK, tenant, room)
            if not found:
                return None
            if not await link.fetch(sql, tenant, room, *values):
                return MembersWritten(found[0][0], changed=False)
            await link.execute(_CHANGED, tenant, room)
            return MembersWritten(found[0][0] + 1, changed=True)

        return await self._links.transact(work)

    async def role(self, tenant: str, room: str, user: str) -> Role | None:
        rows = await self._links.fetch(ROLE, tenant, room, user)
        return rows[0][0] if rows else None

    async def members(self, tenant: str, room: str, after: str | None, limit: int) -> list[Member]:
        return [Member(*row) for row in await self._links.fetch(MEMBERS, tenant, room, after or "", limit)]

    async def member_counts(self, rooms: Sequence[Key]) -> dict[Key, int]:
        found = await self._links.fetch(COUNTS, [key[0] for key in rooms], [key[1] for key in rooms])
        return {(row[0], row[1]): row[2] for row in found}

    async def member_states(self, members: Sequence[tuple[str, str, str]]) -> dict[tuple[str, str, str], MemberState]:
        found = await self._links.fetch(MEMBER_STATES, *([member[part] for member in members] for part in range(3)))
        return {(row[0], row[1], row[2]): MemberState(*row[3:]) for row in found}

    async def user_rooms(self, members: Sequence[tuple[str, str, str]]) -> dict[tuple[str, str, str], UserRoom]:
        found = await self._links.fetch(USER_ROOMS, *([member[part] for member in members] for part in range(3)))
        return {(row[1], row[2], row[0]): _user_room(row[1:]) for row in found}

    async def heads(self, rooms: Sequence[Key]) -> dict[Key, Room]:
        found = await self._links.fetch(HEADS, [key[0] for key in rooms], [key[1] for key in rooms])
        return {(row[0], row[1]): Room(*row) for row in found}


def _user_room(row: Sequence[Any]) -> UserRoom:
    return UserRoom(Room(*row[:ROOM_WIDTH]), *row[ROOM_WIDTH:])


_: type[RoomStore] = PostgresRooms
