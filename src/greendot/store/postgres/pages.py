"""Pages with the head of their stream, in PostgreSQL. Each is one statement, which sees one moment (READ COMMITTED)."""

from __future__ import annotations

from typing import Literal

from greendot.ids import Bound
from greendot.store.inbox import Filter, Inbox, Notification
from greendot.store.pages import InboxPage, MemberPage, RoomPage, SnapshotStore
from greendot.store.postgres.inbox import BEYOND, page_sql
from greendot.store.postgres.messages import AFTER, NEWEST
from greendot.store.postgres.pool import Pool
from greendot.store.postgres.reactions import COUNTED, decode_counts
from greendot.store.postgres.rooms import MEMBERS, ROOM_FIELDS, ROOM_WIDTH
from greendot.store.rooms import Member, Record, Room

_OF_ROOM = "WHERE r.tenant = $1 AND r.room = $2"
ROOM_AFTER, ROOM_NEWEST = (
    f"SELECT {ROOM_FIELDS}, m.*, {COUNTED} FROM greendot_rooms r LEFT JOIN LATERAL ({page}) m ON true {_OF_ROOM}"
    " ORDER BY m.seq"
    for page in (AFTER, NEWEST)
)
MEMBER_PAGE = f"""
    SELECT {ROOM_FIELDS}, (SELECT count(*) FROM greendot_members WHERE tenant = $1 AND room = $2), m.user_id, m.role
    FROM greendot_rooms r LEFT JOIN LATERAL ({MEMBERS}) m ON true {_OF_ROOM} ORDER BY m.user_id
"""


def inbox_page_sql(only: Filter, order: Literal["ASC", "DESC"]) -> str:
    return (
        f"SELECT i.head, i.unread, i.unseen, n.* FROM greendot_inboxes i LEFT JOIN LATERAL ({page_sql(only, order)}) n"
        " ON true WHERE i.tenant = $1 AND i.user_id = $2 ORDER BY n.seq"
    )


class PostgresSnapshots:
    """PostgreSQL adapter of `SnapshotStore`."""

    _links: Pool

    async def inbox_page(
        self, tenant: str, user: str, *, after: Bound = None, before: Bound = None, limit: int, only: Filter = "all"
    ) -> InboxPage:
        values = (tenant, user, after or 0, BEYOND if before is None else before, limit)
        rows = await self._links.fetch(inbox_page_sql(only, "DESC" if after is None else "ASC"), *values)
        found = [Notification(*row[3:]) for row in rows if row[3] is not None]
        return InboxPage(found, Inbox(*rows[0][:3]) if rows else Inbox())

    async def room_page(
        self,
        tenant: str,
        room: str,
        *,
        after: Bound = None,
        before: Bound = None,
        limit: int,
        reader: str | None = None,
    ) -> RoomPage | None:
        values = (tenant, room, after or 0, BEYOND if before is None else before, limit, reader)
        rows = await self._links.fetch(ROOM_NEWEST if after is None else ROOM_AFTER, *values)
        if not rows:
            return None
        page = [Record(*row[ROOM_WIDTH:-1]) for row in rows if row[ROOM_WIDTH] is not None]
        counts = {row[ROOM_WIDTH + 1]: decode_counts(row[-1]) for row in rows if row[-1] is not None}
        return RoomPage(page, Room(*rows[0][:ROOM_WIDTH]), counts)

    async def member_page(self, tenant: str, room: str, after: str | None, limit: int) -> MemberPage | None:
        rows = await self._links.fetch(MEMBER_PAGE, tenant, room, after or "", limit)
        if not rows:
            return None
        found = (row[ROOM_WIDTH + 1 :] for row in rows)
        members = [Member(*row) for row in found if row[0] is not None]
        return MemberPage(members, rows[0][ROOM_WIDTH], Room(*rows[0][:ROOM_WIDTH]))


_: type[SnapshotStore] = PostgresSnapshots
