"""Marks and deliveries of notifications, in PostgreSQL.

Every change locks the head of the inbox first, so that the counts of the next statement are current. Rows are changed
by their key: a statement that waited for another transaction finds the row by its key, not by its old place (`ctid`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from greendot.ids import Key, number_of
from greendot.store.inbox import Inbox, Mark, Marked
from greendot.store.postgres.inbox import LOCK
from greendot.store.postgres.messages import columns
from greendot.store.postgres.pool import Link
from greendot.store.postgres.webhooks import PostgresHooks, queue_marked

COLUMNS: dict[Mark, tuple[str, ...]] = {  # columns that a mark sets; the first shows whether the mark is set
    "seen": ("seen_at",),
    "read": ("read_at", "seen_at"),
    "archive": ("archived_at", "read_at", "seen_at"),
    "ack": ("acked_at", "read_at", "seen_at"),
}
THROUGH = "seq > $4 AND seq <= $5 ORDER BY seq LIMIT $6"
IDS = "seq = ANY ($4::bigint[]) AND id = ANY ($5::text[]) ORDER BY seq"
_LOCK = "SELECT head, unread, unseen FROM greendot_inboxes WHERE tenant = $1 AND user_id = $2 FOR UPDATE"
_LOWER = """
    UPDATE greendot_inboxes SET unread = unread - $3, unseen = unseen - $4 WHERE tenant = $1 AND user_id = $2
    RETURNING head, unread, unseen
"""
_BEYOND = 2**62  # above every number
_CHUNK = 5_000  # notifications marked in one commit: other writers wait for the head


def unmarked_sql(mark: Mark, which: str = THROUGH) -> str:
    return (
        "SELECT seq, read_at IS NULL AS unread, seen_at IS NULL AS unseen FROM greendot_notifications"
        f" WHERE tenant = $1 AND user_id = $2 AND {COLUMNS[mark][0]} IS NULL AND {which}"
    )


def mark_sql(mark: Mark, which: str) -> str:
    marked = ", ".join(f"{column} = coalesce({column}, $3)" for column in COLUMNS[mark])
    return f"""
        WITH old AS MATERIALIZED ({unmarked_sql(mark, which)}), marked AS (
            UPDATE greendot_notifications n SET {marked} FROM old
            WHERE n.tenant = $1 AND n.user_id = $2 AND n.seq = old.seq
            RETURNING n.seq, n.id, old.unread, old.unseen
        )
        SELECT seq, id, unread, unseen FROM marked ORDER BY seq
    """


def delivered_sql(how: Literal["live", "push"]) -> str:
    return f"""
        UPDATE greendot_notifications n SET {how}_at = $4
        FROM unnest($1::text[], $2::text[], $3::bigint[]) AS d (tenant, user_id, seq)
        WHERE n.tenant = d.tenant AND n.user_id = d.user_id AND n.seq = d.seq AND {how}_at IS NULL
    """


class PostgresMarks(PostgresHooks):
    """PostgreSQL adapter of `InboxStore`: the methods that change notifications."""

    async def mark(
        self,
        tenant: str,
        user: str,
        mark: Mark,
        *,
        ids: Sequence[str] | None = None,
        through: int | None = None,
        at: int,
    ) -> Marked:
        if ids is not None:
            numbers = {text: seq for text in ids if (seq := number_of(text)) is not None}
            values = (tenant, user, at, [*numbers.values()], [*numbers])
            return (await self._mark(mark, IDS, *values))[0]
        marked: list[str] = []
        after, last = 0, min(through or 0, _BEYOND)
        while True:
            part, after = await self._mark(mark, THROUGH, tenant, user, at, after, last, _CHUNK)
            marked += part.ids
            if len(part.ids) < _CHUNK:
                return Marked(marked, part.inbox)

    async def _mark(self, mark: Mark, which: str, tenant: str, user: str, *values: object) -> tuple[Marked, int]:
        """Mark notifications in one transaction; return the result and the number of the last one."""

        async def work(link: Link) -> tuple[Marked, int]:
            head = await link.fetchrow(_LOCK, tenant, user)
            rows = await link.fetch(mark_sql(mark, which), tenant, user, *values) if head else []
            if not rows:
                return Marked([], Inbox(*head) if head else Inbox()), 0
            if self._wants(tenant, "notification.updated"):
                await queue_marked(link, (tenant, user), mark, [row[1] for row in rows], values[0])
            unread = sum(row[2] for row in rows) if mark != "seen" else 0
            head = await link.fetchrow(_LOWER, tenant, user, unread, sum(row[3] for row in rows))
            return Marked([row[1] for row in rows], Inbox(*head)), rows[-1][0]

        return await self._links.transact(work)

    async def delivered(self, seqs: Mapping[Key, Sequence[int]], how: Literal["live", "push"], at: int) -> None:
        inboxes = columns(sorted(seqs), 2)
        rows = columns([(*key, seq) for key, theirs in seqs.items() for seq in theirs], 3)

        async def work(link: Link) -> None:
            await link.fetch(LOCK, *inboxes)
            await link.execute(delivered_sql(how), *rows, at)

        await self._links.transact(work)
