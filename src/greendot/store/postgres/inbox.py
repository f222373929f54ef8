"""Inboxes in PostgreSQL: reads, and writes in batches. `inbox_marks` and `inbox_upkeep` have the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

from greendot.ids import Bound, Key, check_text, new_message_id, numbered_id
from greendot.store.inbox import Created, Filter, Inbox, Notice, Notification
from greendot.store.postgres.group_commit import GroupCommit
from greendot.store.postgres.messages import columns
from greendot.store.postgres.pool import Link, Pool
from greendot.store.postgres.push import QUEUE, push_row

_FIELDS = (
    "n.seq, n.id, n.kind, n.body, n.created_at, n.expires_at, n.live_at, n.push_at,"
    " n.seen_at, n.read_at, n.archived_at, n.acked_at, n.traceparent, n.ack"
)
CONDITIONS: dict[Filter, str] = {
    "all": "archived_at IS NULL",
    "unread": "read_at IS NULL",
    "unseen": "seen_at IS NULL",
    "archived": "archived_at IS NOT NULL",
}
INBOX = "SELECT head, unread, unseen FROM greendot_inboxes WHERE tenant = $1 AND user_id = $2"
INBOXES = """
    SELECT tenant, user_id, head, unread, unseen FROM greendot_inboxes
    WHERE (tenant, user_id) IN (SELECT * FROM unnest($1::text[], $2::text[]))
"""
# Heads are created before any is locked. So a transaction with a lock waits only for other locks, all in one order.
MAKE = """
    INSERT INTO greendot_inboxes (tenant, user_id) SELECT * FROM unnest($1::text[], $2::text[]) ORDER BY 1, 2
    ON CONFLICT DO NOTHING
"""
LOCK = f"{INBOXES} ORDER BY tenant, user_id FOR UPDATE"
KNOWN = f"""
    SELECT n.tenant, n.user_id, n.key, {_FIELDS}
    FROM unnest($1::text[], $2::text[], $3::text[]) AS k (tenant, user_id, key)
    JOIN greendot_notifications n USING (tenant, user_id, key)
"""
WRITE = """
    WITH heads AS (
        UPDATE greendot_inboxes i SET head = h.head, unread = unread + h.new, unseen = unseen + h.new
        FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) AS h (tenant, user_id, head, new)
        WHERE i.tenant = h.tenant AND i.user_id = h.user_id
    ), hooks AS (
        INSERT INTO greendot_hook_events (tenant, type, stream, seq, at)
        SELECT tenant, 'notification.created', user_id, seq, at
        FROM unnest($5::text[], $6::text[], $7::bigint[], $12::bigint[]) AS h (tenant, user_id, seq, at)
        WHERE tenant = ANY ($16::text[])
    )
    INSERT INTO greendot_notifications (tenant, user_id, seq, id, kind, body, key, created_at, expires_at, ack,
                                        traceparent)
    SELECT * FROM unnest($5::text[], $6::text[], $7::bigint[], $8::text[], $9::text[], $10::bytea[], $11::text[],
                         $12::bigint[], $13::bigint[], $14::boolean[], $15::text[])
"""
PENDING = f"""
    SELECT u.tenant, u.user_id, {_FIELDS}
    FROM unnest($1::text[], $2::text[]) AS u (tenant, user_id), LATERAL (
        SELECT * FROM greendot_notifications
        WHERE tenant = u.tenant AND user_id = u.user_id AND ack AND acked_at IS NULL ORDER BY seq LIMIT $3
    ) n
    ORDER BY u.tenant, u.user_id, n.seq
"""
BEYOND = 2**62  # above every number
_AT_ONCE = 500  # rows in one statement
_Ident = tuple[str, str, str]  # tenant, user and key
T = TypeVar("T")


def page_sql(only: Filter, order: Literal["ASC", "DESC"]) -> str:
    return (
        f"SELECT {_FIELDS} FROM greendot_notifications n WHERE tenant = $1 AND user_id = $2"
        f" AND seq > $3 AND seq < $4 AND {CONDITIONS[only]} ORDER BY seq {order} LIMIT $5"
    )


class InsertRow(NamedTuple):
    """Notice with the last part of its id, made once, so that a retry recognises the row of an earlier attempt."""

    notice: Notice
    token: str


class PostgresInbox:
    """PostgreSQL adapter of `InboxStore`: the methods that every node uses all the time."""

    _links: Pool
    _notifies: GroupCommit[list[InsertRow], list[Created]]

    async def notify(self, notices: Sequence[Notice]) -> list[Created]:
        if not notices:
            return []
        entries: list[InsertRow] = []
        for at in range(0, len(notices), _AT_ONCE):
            some = notices[at : at + _AT_ONCE]
            check_text(text for notice in some for text in notice.texts)
            entries += [InsertRow(notice, new_message_id()) for notice in some]
            if len(entries) < len(notices):  # the rest is prepared in later turns of the loop
                await asyncio.sleep(0)
        streams = frozenset((notice.tenant, notice.user) for notice in notices)
        return await self._notifies.do(entries, streams, len(entries))

    async def inbox(self, tenant: str, user: str) -> Inbox:
        rows = await self._links.fetch(INBOX, tenant, user)
        return Inbox(*rows[0]) if rows else Inbox()

    async def inboxes(self, users: Sequence[Key]) -> dict[Key, Inbox]:
        rows = await self._links.fetch(INBOXES, [key[0] for key in users], [key[1] for key in users])
        return {(row[0], row[1]): Inbox(*row[2:]) for row in rows}

    async def notifications(
        self, tenant: str, user: str, *, after: Bound = None, before: Bound = None, limit: int, only: Filter = "all"
    ) -> list[Notification]:
        values = (tenant, user, after or 0, BEYOND if before is None else before, limit)
        rows = await self._links.fetch(page_sql(only, "DESC" if after is None else "ASC"), *values)
        return [Notification(*row) for row in (reversed(rows) if after is None else rows)]

    async def pending(self, users: Sequence[Key], *, limit: int) -> dict[Key, list[Notification]]:
        found: dict[Key, list[Notification]] = {}
        for row in await self._links.fetch(PENDING, [key[0] for key in users], [key[1] for key in users], limit):
            found.setdefault((row[0], row[1]), []).append(Notification(*row[2:]))
        return found


class Queues(NamedTuple):
    """Tenants with queues: new notifications are queued for webhooks (`hooked`) and for push (`pushed`)."""

    hooked: Sequence[str] = ()
    pushed: Collection[str] = ()


NO_QUEUES = Queues()


async def write(link: Link, batch: Sequence[list[InsertRow]], queues: Queues = NO_QUEUES) -> list[list[Created]]:
    """Lock the heads, read the keys in a statement that sees earlier commits, and number the new notices.

    A large batch is written in several statements, because preparing a statement blocks the event loop. New
    notifications are put into the queues in the same transaction.
    """
    entries = [entry for entries in batch for entry in entries]
    streams = [columns(part, 2) for part in _parts(sorted({(n.tenant, n.user) for n, _ in entries}))]
    for part in streams:
        await link.execute(MAKE, *part)
    heads: dict[Key, int] = {}
    for part in streams:
        heads |= {(row[0], row[1]): row[2] for row in await link.fetch(LOCK, *part)}
    known: dict[_Ident, Notification] = {}
    created = iter([made for part in _parts(entries) for made in await _write(link, part, heads, known, queues)])
    return [[next(created) for _ in entries] for entries in batch]


async def _write(
    link: Link,
    entries: Sequence[InsertRow],
    heads: dict[Key, int],
    known: dict[_Ident, Notification],
    queues: Queues,
) -> list[Created]:
    found = await link.fetch(KNOWN, *columns(sorted({(n.tenant, n.user, n.key) for n, _ in entries}), 3))
    known |= {(row[0], row[1], row[2]): Notification(*row[3:]) for row in found}
    new: list[tuple[Any, ...]] = []
    counts: dict[Key, int] = {}
    created: list[Created] = []
    pushes: list[tuple[Any, ...]] = []
    for entry in entries:
        before = len(new)
        created.append(_number(entry, heads, known, new, counts))
        if len(new) > before and entry.notice.push and entry.notice.tenant in queues.pushed:
            pushes.append(push_row(entry.notice, created[-1].notification))
    if new:
        changed = [(*key, heads[key], count) for key, count in counts.items()]
        await link.execute(WRITE, *columns(changed, 4), *columns(new, 11), queues.hooked)
    if pushes:
        await link.execute(QUEUE, *columns(pushes, 8))
    return created


def _parts(items: list[T]) -> list[list[T]]:
    return [items[at : at + _AT_ONCE] for at in range(0, len(items), _AT_ONCE)]


def _number(
    entry: InsertRow,
    heads: dict[Key, int],
    known: dict[_Ident, Notification],
    new: list[tuple[Any, ...]],
    counts: dict[Key, int],
) -> Created:
    n, token = entry
    key, ident = (n.tenant, n.user), (n.tenant, n.user, n.key)
    if (first := known.get(ident)) is not None:
        return Created(first, first.id == numbered_id(first.seq, token))
    seq = heads[key] = heads[key] + 1
    known[ident] = made = n.as_entry(seq, numbered_id(seq, token))
    counts[key] = counts.get(key, 0) + 1
    new.append((*key, seq, made.id, n.kind, n.body, n.key, n.created_at, n.expires_at, n.ack, n.traceparent))
    return Created(made, True)
