"""Rooms and members in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from greendot.errors import RoomBeingDeleted
from greendot.ids import Key
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
from greendot.store.sqlite.thread import DatabaseThread

_FIELDS = (
    "r.tenant, r.room, r.open, r.head, r.members_rev, r.bus, r.receipts, r.archived, r.erasures, r.epoch, r.slow_mode_s"
)
_WIDTH = _FIELDS.count(",") + 1
_RESTRICTED = ", ".join(
    f"ifnull((SELECT until FROM restrictions WHERE tenant = ?1 AND user = ?3 AND room = ?2 AND kind = '{kind}'), 0)"
    for kind in ("mute", "ban")
)
ROOM = f"SELECT {_FIELDS} FROM rooms r"
ROOMS = f"{ROOM} WHERE tenant = ? AND room > ? ORDER BY room LIMIT ?"
ROOMS_OF = f"""
    SELECT {_FIELDS}, m.role, ifnull(k.seq, 0), 0,
           ifnull((SELECT until FROM restrictions b
                   WHERE b.tenant = ?1 AND b.user = ?2 AND b.room = x.room AND b.kind = 'ban'), 0)
    FROM (
        SELECT room FROM members WHERE tenant = ?1 AND user = ?2
        UNION SELECT room FROM (SELECT room FROM rooms WHERE tenant = ?1 AND open ORDER BY room LIMIT ?3)
    ) x
    JOIN rooms r ON r.tenant = ?1 AND r.room = x.room
    LEFT JOIN members m ON m.tenant = ?1 AND m.room = x.room AND m.user = ?2
    LEFT JOIN markers k ON k.tenant = ?1 AND k.room = x.room AND k.user = ?2
    ORDER BY x.room
"""
MEMBER_STATE = f"""
    SELECT (SELECT role FROM members WHERE tenant = ?1 AND room = ?2 AND user = ?3),
           ifnull((SELECT seq FROM markers WHERE tenant = ?1 AND room = ?2 AND user = ?3), 0),
           {_RESTRICTED}
"""
USER_ROOM = f"""
    SELECT {_FIELDS}, m.role, ifnull(k.seq, 0), {_RESTRICTED}
    FROM rooms r
    LEFT JOIN members m ON m.tenant = ?1 AND m.room = ?2 AND m.user = ?3
    LEFT JOIN markers k ON k.tenant = ?1 AND k.room = ?2 AND k.user = ?3
    WHERE r.tenant = ?1 AND r.room = ?2 AND (r.open OR m.role IS NOT NULL)
"""
MEMBERS = "SELECT user, role FROM members WHERE tenant = ? AND room = ? AND user > ? ORDER BY user LIMIT ?"

_CREATE = (
    "INSERT OR IGNORE INTO rooms (tenant, room, open, provisional, epoch)"
    " VALUES (?, ?, ?, ?, abs(random() % (1 << 53)))"
)
_OPEN = "ifnull(?3, open AND NOT (provisional AND ?6))"
_PUT_ROOM = (
    f"UPDATE rooms SET open = {_OPEN}, bus = ifnull(?4, bus), receipts = ifnull(?5, receipts),"
    f" provisional = provisional AND ?3 IS NULL AND NOT ?6, members_rev = members_rev + (open != {_OPEN})"
    " WHERE tenant = ?1 AND room = ?2"
)
DELETED = "SELECT 1 FROM room_deletions WHERE tenant = ? AND room = ?"
NOBODY = MemberState(None, 0)
COUNT = "SELECT count(*) FROM members WHERE tenant = ? AND room = ?"


class SqliteRooms:
    """SQLite adapter of `RoomStore`."""

    _thread: DatabaseThread

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
        def work(db: sqlite3.Connection) -> Room:
            if db.execute(DELETED, (tenant, room)).fetchone() is not None:
                raise RoomBeingDeleted(room)
            is_open = new != "closed" if open is None else open
            db.execute(_CREATE, (tenant, room, is_open, open is None and new == "provisional"))
            db.execute(_PUT_ROOM, (tenant, room, open, bus, receipts, new == "closed"))
            found = read_room(db, tenant, room)
            assert found is not None
            return found

        return await self._thread.do(work)

    async def room(self, tenant: str, room: str) -> Room | None:
        return await self._thread.do(lambda db: read_room(db, tenant, room))

    async def rooms(self, tenant: str, after: str | None, limit: int) -> list[Room]:
        values = (tenant, after or "", limit)
        return await self._thread.do(lambda db: [_room(row) for row in db.execute(ROOMS, values)])

    async def rooms_of(self, tenant: str, user: str, most_open: int = MOST_OPEN) -> list[UserRoom]:
        def work(db: sqlite3.Connection) -> list[UserRoom]:
            return [_user_room(row) for row in db.execute(ROOMS_OF, (tenant, user, most_open))]

        return await self._thread.do(work)

    async def put_member(self, tenant: str, room: str, user: str, role: Role = "member") -> MembersWritten | None:
        def work(db: sqlite3.Connection) -> MembersWritten | None:
            if read_room(db, tenant, room) is None:
                return None
            changed = db.execute(
                "INSERT INTO members (tenant, room, user, role) VALUES (?, ?, ?, ?)"
                " ON CONFLICT DO UPDATE SET role = excluded.role WHERE role != excluded.role",
                (tenant, room, user, role),
            )
            return _new_members(db, tenant, room, changed.rowcount)

        return await self._thread.do(work)

    async def remove_member(self, tenant: str, room: str, user: str) -> MembersWritten | None:
        def work(db: sqlite3.Connection) -> MembersWritten | None:
            where = "tenant = ? AND room = ? AND user = ?"
            removed = db.execute(f"DELETE FROM members WHERE {where}", (tenant, room, user)).rowcount
            return _new_members(db, tenant, room, removed)

        return await self._thread.do(work)

    async def role(self, tenant: str, room: str, user: str) -> Role | None:
        sql = "SELECT role FROM members WHERE tenant = ? AND room = ? AND user = ?"
        row = await self._thread.do(lambda db: db.execute(sql, (tenant, room, user)).fetchone())
        return row and row[0]  # type: ignore[no-any-return]

    async def members(self, tenant: str, room: str, after: str | None, limit: int) -> list[Member]:
        values = (tenant, room, after or "", limit)
        return await self._thread.do(lambda db: [Member(*row) for row in db.execute(MEMBERS, values)])

    async def member_counts(self, rooms: Sequence[Key]) -> dict[Key, int]:
        def work(db: sqlite3.Connection) -> dict[Key, int]:
            found = ((key, db.execute(COUNT, key).fetchone()[0]) for key in rooms)
            return {key: count for key, count in found if count}

        return await self._thread.do(work)

    async def member_states(self, members: Sequence[tuple[str, str, str]]) -> dict[tuple[str, str, str], MemberState]:
        def work(db: sqlite3.Connection) -> dict[tuple[str, str, str], MemberState]:
            found = {}
            for member in members:
                state = MemberState(*db.execute(MEMBER_STATE, member).fetchone())
                if state != NOBODY:
                    found[member] = state
            return found

        return await self._thread.do(work)

    async def user_rooms(self, members: Sequence[tuple[str, str, str]]) -> dict[tuple[str, str, str], UserRoom]:
        def work(db: sqlite3.Connection) -> dict[tuple[str, str, str], UserRoom]:
            found = ((member, db.execute(USER_ROOM, member).fetchone()) for member in members)
            return {member: _user_room(row) for member, row in found if row is not None}

        return await self._thread.do(work)

    async def heads(self, rooms: Sequence[Key]) -> dict[Key, Room]:
        def work(db: sqlite3.Connection) -> dict[Key, Room]:
            found = ((key, read_room(db, *key)) for key in rooms)
            return {key: room for key, room in found if room is not None}

        return await self._thread.do(work)


def read_room(db: sqlite3.Connection, tenant: str, room: str) -> Room | None:
    row = db.execute(f"{ROOM} WHERE tenant = ? AND room = ?", (tenant, room)).fetchone()
    return None if row is None else _room(row)


def _room(row: Sequence[Any]) -> Room:
    tenant, room, is_open, head, members_rev, bus, receipts, archived, *rest = row
    return Room(tenant, room, bool(is_open), head, members_rev, bus, bool(receipts), bool(archived), *rest)


def _user_room(row: Sequence[Any]) -> UserRoom:
    return UserRoom(_room(row[:_WIDTH]), *row[_WIDTH:])


def _new_members(db: sqlite3.Connection, tenant: str, room: str, changed: int) -> MembersWritten | None:
    sql = "UPDATE rooms SET members_rev = members_rev + ? WHERE tenant = ? AND room = ? RETURNING members_rev"
    row = db.execute(sql, (min(changed, 1), tenant, room)).fetchone()
    return None if row is None else MembersWritten(row[0], changed > 0)


_: type[RoomStore] = SqliteRooms
