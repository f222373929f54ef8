"""Moderated messages, archived and deleted rooms, in PostgreSQL."""

from __future__ import annotations

from greendot.errors import NoSuchMessage
from greendot.ids import check_text, new_message_id
from greendot.store.audit import AuditNote, check_note
from greendot.store.moderation import DELETE_ROOMS, ModerationStore, Purged
from greendot.store.postgres.audit import write_notes
from greendot.store.postgres.messages import KNOWN, LOCK, MESSAGE, Message, PostgresMessages, write
from greendot.store.postgres.pool import Link
from greendot.store.postgres.reactions import RECORD
from greendot.store.postgres.rooms import ROOM, ROOM_FIELDS
from greendot.store.postgres.tenants import erase_sql
from greendot.store.postgres.webhooks import PostgresHooks
from greendot.store.rooms import Draft, Record, Room, Written
from greendot.store.user_data import ERASED, NOTHING
from greendot.store.webhooks import Hooked

_THIS = "tenant = $1 AND room = $2"
DELETION = f"SELECT {RECORD} FROM greendot_messages m WHERE {_THIS} AND ref = $3 AND op = 'delete' ORDER BY seq LIMIT 1"
_ERASE = f"UPDATE greendot_messages SET body = '\\x{NOTHING.hex()}'::bytea, op = '{ERASED}' WHERE {_THIS}"
ERASE_MESSAGE = f"{_ERASE} AND seq = $3"
ERASE_EDITS = f"{_ERASE} AND ref = $3 AND op = 'edit'"
_ERASED = f"UPDATE greendot_rooms SET erasures = erasures + 1 WHERE {_THIS}"
_ARCHIVE = f"""
    UPDATE greendot_rooms r SET archived = $3, members_rev = members_rev + 1 WHERE {_THIS} AND archived <> $3
    RETURNING {ROOM_FIELDS}
"""
_DELETE = f"DELETE FROM greendot_rooms WHERE {_THIS} RETURNING 1"
_DELETED = f"SELECT 1 FROM greendot_room_deletions WHERE {_THIS}"
_KEEP = """
    INSERT INTO greendot_room_deletions (tenant, room, deleted_at)
    VALUES ($1, $2, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) RETURNING deleted_at
"""
_DUE = "UPDATE greendot_jobs SET next_at = least(next_at, $2) WHERE name = $1"
_DELETIONS = """
    SELECT tenant, room, deleted_at FROM greendot_room_deletions ORDER BY deleted_at LIMIT 100 FOR UPDATE SKIP LOCKED
"""
_OVER = f"DELETE FROM greendot_room_deletions WHERE {_THIS}"
# Tables with rows of rooms are read from the database catalogue, so that none can be forgotten.
_TABLES = """
    SELECT c.relname, (SELECT array_agg(k.attname::text) FROM pg_index i
                       JOIN pg_attribute k ON k.attrelid = i.indrelid AND k.attnum = ANY (i.indkey::int2[])
                       WHERE i.indrelid = c.oid AND i.indisprimary)
    FROM pg_class c
    WHERE c.relkind IN ('r', 'p') AND c.relname LIKE 'greendot\\_%' AND pg_table_is_visible(c.oid)
      AND c.relname <> ALL ('{greendot_rooms,greendot_room_deletions,greendot_audit}')
      AND 2 = (SELECT count(*) FROM pg_attribute a
               WHERE a.attrelid = c.oid AND a.attname IN ('tenant', 'room') AND NOT a.attisdropped)
    ORDER BY c.relname
"""


class PostgresModeration(PostgresMessages, PostgresHooks):
    """PostgreSQL adapter of `ModerationStore`."""

    async def moderate(self, tenant: str, room: str, draft: Draft, note: AuditNote) -> Written | None:
        check_note(note)
        check_text((tenant, room, draft.user, draft.name, draft.key, draft.traceparent))
        message, hooked = Message(tenant, room, draft, new_message_id(), True), self._wanting("room.message")
        done = await self._links.transact(lambda link: _moderate(link, message, note, hooked, self._hooked))
        if isinstance(done, Exception):
            raise done
        return done

    async def archive_room(self, tenant: str, room: str, archived: bool, note: AuditNote) -> Room | None:
        check_note(note)

        async def work(link: Link) -> Room | None:
            rows = await link.fetch(_ARCHIVE, tenant, room, archived)
            if rows:
                await write_notes(link, [note], self._hooked)
            else:
                rows = await link.fetch(ROOM, tenant, room)
            return Room(*rows[0]) if rows else None

        return await self._links.transact(work)

    async def delete_room(self, tenant: str, room: str, note: AuditNote) -> bool:
        check_note(note)

        async def work(link: Link) -> bool:
            if not await link.fetch(_DELETE, tenant, room):
                return bool(await link.fetch(_DELETED, tenant, room))
            deleted_at = await link.fetchval(_KEEP, tenant, room)
            await link.execute(_DUE, DELETE_ROOMS, deleted_at)
            await write_notes(link, [note], self._hooked)
            return True

        return await self._links.transact(work)

    async def purge_rooms(self, now: int, limit: int) -> Purged:
        settled = now - round(self._links.limits.call_s * 1000)  # statements that began earlier have ended

        async def work(link: Link) -> Purged:
            left, tables = limit, await link.fetch(_TABLES)
            for tenant, room, deleted_at in await link.fetch(_DELETIONS):
                for table, key in tables:
                    done = await link.execute(erase_sql(table, key, "AND room = $3"), tenant, left, room)
                    left -= int(done.rpartition(" ")[2])
                    if not left:
                        return Purged(limit, is_over=False)
                if deleted_at < settled:
                    await link.execute(_OVER, tenant, room)
            return Purged(limit - left, not await link.fetch("SELECT 1 FROM greendot_room_deletions LIMIT 1"))

        return await self._links.transact(work)


async def _moderate(
    link: Link, message: Message, note: AuditNote, hooked: list[str], hooks: Hooked
) -> Written | NoSuchMessage | None:
    """Write a moderated message. Errors are returned: an exception would cost the connection.

    `hooked` are the tenants whose hooks want messages.
    """
    tenant, room, draft, message_id, _ = message
    rooms = await link.fetch(LOCK, [tenant], [room])
    if not rooms:
        return None
    facts = rooms[0][3:5]
    known = await link.fetch(KNOWN, *([part] for part in message.ident))
    if known:
        record = Record(*known[0][2:])
        return Written(record, record.id == message_id, *facts)  # the same id: an earlier attempt was committed
    rows = await link.fetch(MESSAGE, tenant, room, draft.ref)
    target = Record(*rows[0]) if rows else None
    if target is None or target.ref is not None or target.op not in (None, ERASED):
        return NoSuchMessage(room)
    first = await link.fetch(DELETION, tenant, room, draft.ref)
    if draft.op != "delete" and (first or target.op == ERASED):
        return NoSuchMessage(room)
    if draft.op == "delete" and target.op is None:
        await link.execute(ERASE_MESSAGE, tenant, room, draft.ref)
        await link.execute(ERASE_EDITS, tenant, room, draft.ref)
        await link.execute(_ERASED, tenant, room)
    written = Written(Record(*first[0]), False, *facts) if first else (await write(link, [message], hooked))[0]
    if not first or target.op is None:
        await write_notes(link, [note._replace(user=target.user or None)], hooks)
    assert not isinstance(written, Exception)
    return written


_: type[ModerationStore] = PostgresModeration
