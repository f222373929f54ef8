"""Pages with the head of their stream, in SQLite. One transaction reads both."""

from __future__ import annotations

import sqlite3

from greendot.ids import Bound
from greendot.store.inbox import Filter, Inbox
from greendot.store.pages import InboxPage, MemberPage, RoomPage, SnapshotStore
from greendot.store.rooms import Member
from greendot.store.sqlite.inbox import read_inbox, read_notifications
from greendot.store.sqlite.messages import read_messages
from greendot.store.sqlite.reactions import read_counts
from greendot.store.sqlite.rooms import COUNT, MEMBERS, read_room
from greendot.store.sqlite.thread import DatabaseThread


class SqliteSnapshots:
    """SQLite adapter of `SnapshotStore`."""

    _thread: DatabaseThread

    async def inbox_page(
        self, tenant: str, user: str, *, after: Bound = None, before: Bound = None, limit: int, only: Filter = "all"
    ) -> InboxPage:
        def work(db: sqlite3.Connection) -> InboxPage:
            found = read_notifications(db, (tenant, user), only, after, before, limit)
            return InboxPage(found, read_inbox(db, (tenant, user)) or Inbox())

        return await self._thread.do(work)

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
        def work(db: sqlite3.Connection) -> RoomPage | None:
            found = read_room(db, tenant, room)
            if found is None:
                return None
            page = read_messages(db, (tenant, room), after, before, limit)
            if not page:
                return RoomPage(page, found, {})
            return RoomPage(page, found, read_counts(db, (tenant, room), page[0].seq, page[-1].seq, reader))

        return await self._thread.do(work)

    async def member_page(self, tenant: str, room: str, after: str | None, limit: int) -> MemberPage | None:
        def work(db: sqlite3.Connection) -> MemberPage | None:
            found = read_room(db, tenant, room)
            if found is None:
                return None
            members = [Member(*row) for row in db.execute(MEMBERS, (tenant, room, after or "", limit))]
            return MemberPage(members, db.execute(COUNT, (tenant, room)).fetchone()[0], found)

        return await self._thread.do(work)


_: type[SnapshotStore] = SqliteSnapshots
