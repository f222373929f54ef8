"""Messages in SQLite."""

from __future__ import annotations

import sqlite3

from greendot.errors import NoSuchMessage, Restricted, RoomArchived, SlowMode, StaleMembers
from greendot.ids import Bound, Key, check_text, new_message_id
from greendot.rooms.reactions_model import REACTING
from greendot.store.restrictions import pace
from greendot.store.rooms import Draft, MessageStore, Record, Room, Written
from greendot.store.sqlite import reactions
from greendot.store.sqlite.rooms import read_room
from greendot.store.sqlite.webhooks import QUEUE, SqliteHooks

MESSAGE = "SELECT room, seq, id, user, name, body, at, ref, op, traceparent FROM messages WHERE tenant = ? AND room = ?"
AFTER = f"{MESSAGE} AND seq > ? AND seq < ? ORDER BY seq LIMIT ?"
NEWEST = f"{MESSAGE} AND seq > ? AND seq < ? ORDER BY seq DESC LIMIT ?"

RESTRICTED = "SELECT kind, until FROM restrictions WHERE tenant = ? AND user = ? AND room = '' AND until > ? LIMIT 1"
LAST_SEND = "SELECT at FROM slow_sends WHERE tenant = ? AND user = ? AND room = ?"
_SLOW_SEND = """
    INSERT INTO slow_sends (tenant, user, room, at) VALUES (?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET at = max(at, excluded.at)
"""

_BEYOND = 2**62  # above every number


class SqliteMessages(SqliteHooks):
    """SQLite adapter of `MessageStore`."""

    async def append(self, tenant: str, room: str, draft: Draft) -> Written | None:
        check_text((tenant, room, draft.user, draft.name, draft.key, draft.traceparent, draft.reaction))
        hooked = self._wants(tenant, "room.message")
        return await self._thread.do(lambda db: write(db, tenant, room, draft, hooked=hooked))

    async def messages(
        self, tenant: str, room: str, *, after: Bound = None, before: Bound = None, limit: int
    ) -> list[Record]:
        return await self._thread.do(lambda db: read_messages(db, (tenant, room), after, before, limit))

    async def message(self, tenant: str, room: str, seq: int) -> Record | None:
        row = await self._thread.do(lambda db: db.execute(f"{MESSAGE} AND seq = ?", (tenant, room, seq)).fetchone())
        return row and Record(*row)

    async def message_by_key(self, tenant: str, room: str, user: str, key: str) -> Record | None:
        values = (tenant, room, user, key)
        row = await self._thread.do(lambda db: db.execute(f"{MESSAGE} AND user = ? AND key = ?", values).fetchone())
        return row and Record(*row)


def read_messages(db: sqlite3.Connection, key: Key, after: int | None, before: int | None, limit: int) -> list[Record]:
    """Return a page in ascending order, see `MessageStore.messages`."""
    values = (*key, after or 0, _BEYOND if before is None else before, limit)
    page = [Record(*row) for row in db.execute(NEWEST if after is None else AFTER, values)]
    return page[::-1] if after is None else page


def write(
    db: sqlite3.Connection, tenant: str, room: str, draft: Draft, *, hooked: bool, moderated: bool = False
) -> Written | None:
    """Write a message, see `MessageStore.append`. The app moderates archived rooms and deleted messages, too."""
    found = read_room(db, tenant, room)
    if found is None:
        return None
    first = db.execute(f"{MESSAGE} AND user = ? AND key = ?", (tenant, room, draft.user, draft.key)).fetchone()
    if first is not None:
        return Written(Record(*first), False, found.members_rev, found.bus)
    if draft.members_rev not in (None, found.members_rev):
        raise StaleMembers(room)
    if not moderated:
        _check(db, found, draft)
    if draft.op in REACTING and (seq := reactions.decided_by(db, (tenant, room), draft)) is not None:
        decided = db.execute(f"{MESSAGE} AND seq = ?", (tenant, room, seq)).fetchone()
        return Written(Record(*decided), False, found.members_rev, found.bus)
    d = draft
    said = (d.at, d.ref, d.op, d.traceparent)
    record = Record(room, found.head + 1, new_message_id(), d.user, d.name, d.body, *said)
    db.execute("UPDATE rooms SET head = ? WHERE tenant = ? AND room = ?", (record.seq, tenant, room))
    db.execute(
        "INSERT INTO messages (tenant, room, seq, id, user, name, body, key, at, ref, op, traceparent)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (tenant, room, record.seq, record.id, d.user, d.name, d.body, d.key, *said),
    )
    if d.paced and found.slow_mode_s:
        db.execute(_SLOW_SEND, (tenant, d.user, room, d.at))
    if d.op in REACTING:
        reactions.write(db, (tenant, room), d, record.seq)
    if hooked:
        db.execute(QUEUE, (tenant, "room.message", room, record.seq, d.at))
    return Written(record, True, found.members_rev, found.bus)


def _check(db: sqlite3.Connection, room: Room, draft: Draft) -> None:
    """Raise RoomArchived, Restricted, SlowMode or NoSuchMessage if the room does not take the draft."""
    if room.archived:
        raise RoomArchived(room.room)
    if draft.members_rev is not None:
        restricted = db.execute(RESTRICTED, (room.tenant, draft.user, draft.at)).fetchone()
        if restricted is not None:
            raise Restricted(*restricted)
    if draft.paced and room.slow_mode_s:
        last = db.execute(LAST_SEND, (room.tenant, draft.user, room.room)).fetchone()
        if last is not None and (wait_ms := pace(last[0], draft.at, room.slow_mode_s)):
            raise SlowMode(room.room, wait_ms)
    if draft.ref is not None:
        sql = "SELECT op FROM messages WHERE tenant = ? AND room = ? AND seq = ?"
        if db.execute(sql, (room.tenant, room.room, draft.ref)).fetchone() != (None,):
            raise NoSuchMessage(room.room)


_: type[MessageStore] = SqliteMessages
