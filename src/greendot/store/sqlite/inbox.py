"""Inboxes in SQLite. The counters of the head row change with every row they count."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from greendot.ids import Bound, Key, check_text, new_message_id, number_of, numbered_id
from greendot.store.inbox import Created, Filter, Inbox, InboxStore, Mark, Marked, Notice, Notification
from greendot.store.sqlite.keyed import keyed_sql, read_keyed
from greendot.store.sqlite.push import SqlitePushes
from greendot.store.sqlite.webhooks import SqliteHooks, queue, queue_marked

_FIELDS = (
    "seq, id, kind, body, created_at, expires_at, live_at, push_at, seen_at, read_at, archived_at, acked_at,"
    " traceparent, ack"
)
_CONDITIONS: dict[Filter, str] = {
    "all": "archived_at IS NULL",
    "unread": "read_at IS NULL",
    "unseen": "seen_at IS NULL",
    "archived": "archived_at IS NOT NULL",
}
_COLUMNS: dict[Mark, tuple[str, ...]] = {  # columns that a mark sets; the first shows whether the mark is set
    "seen": ("seen_at",),
    "read": ("read_at", "seen_at"),
    "archive": ("archived_at", "read_at", "seen_at"),
    "ack": ("acked_at", "read_at", "seen_at"),
}
_INDEXES: dict[Mark, str] = {"seen": "unseen", "read": "unread", "archive": "all", "ack": "unacked"}
_Row = tuple[int, str, int, int]  # number, id, whether unread, whether unseen before the mark
_BEYOND = 2**62  # above every number
_CHUNK = 5_000  # notifications marked in one commit: the thread serves all callers


def page_sql(only: Filter, order: Literal["ASC", "DESC"]) -> str:
    # The index is named: else the planner may scan a million archived notifications to find the few that are not.
    return (
        f"SELECT {_FIELDS} FROM notifications INDEXED BY notifications_{only} WHERE tenant = ? AND user = ?"
        f" AND seq > ? AND seq < ? AND {_CONDITIONS[only]} ORDER BY seq {order} LIMIT ?"
    )


def unmarked_sql(mark: Mark) -> str:
    return (
        f"SELECT seq, id, read_at IS NULL, seen_at IS NULL FROM notifications INDEXED BY notifications_{_INDEXES[mark]}"
        f" WHERE tenant = ? AND user = ? AND seq > ? AND seq <= ? AND {_COLUMNS[mark][0]} IS NULL ORDER BY seq LIMIT ?"
    )


INBOX = "SELECT head, unread, unseen FROM inboxes WHERE tenant = ? AND user = ?"
INBOXES = keyed_sql("head, unread, unseen", "inboxes")
PENDING = (
    f"SELECT {_FIELDS} FROM notifications INDEXED BY notifications_pending"
    " WHERE tenant = ? AND user = ? AND ack = 1 AND acked_at IS NULL ORDER BY seq LIMIT ?"
)
EXPIRED = "SELECT tenant, user, seq, read_at, seen_at FROM notifications WHERE expires_at <= ? LIMIT ?"
OLD = "SELECT tenant, user, seq, read_at, seen_at FROM notifications WHERE created_at < ? LIMIT ?"
COUNTED = """
    SELECT tenant, user, ifnull(i.head, 0), ifnull(i.unread, 0), ifnull(i.unseen, 0),
           max(ifnull(i.head, 0), ifnull(n.head, 0)), ifnull(n.unread, 0), ifnull(n.unseen, 0)
    FROM (SELECT tenant, user FROM inboxes UNION SELECT tenant, user FROM notifications)
    LEFT JOIN inboxes i USING (tenant, user)
    LEFT JOIN (
        SELECT tenant, user, max(seq) AS head, sum(read_at IS NULL) AS unread, sum(seen_at IS NULL) AS unseen
        FROM notifications GROUP BY tenant, user
    ) n USING (tenant, user)
    ORDER BY tenant, user
"""


class SqliteInbox(SqliteHooks, SqlitePushes):
    """SQLite adapter of `InboxStore`."""

    async def notify(self, notices: Sequence[Notice]) -> list[Created]:
        check_text(text for notice in notices for text in notice.texts)

        def work(db: sqlite3.Connection) -> list[Created]:
            created = _notify(db, notices)
            made = ((n.tenant, n.user, c.notification) for n, c in zip(notices, created, strict=True) if c.new)
            wanted = "notification.created"
            queue(db, [(t, wanted, user, n.seq, n.created_at) for t, user, n in made if self._wants(t, wanted)])
            self._queue_pushes(db, zip(notices, created, strict=True))
            return created

        return await self._thread.do(work)

    async def inbox(self, tenant: str, user: str) -> Inbox:
        return await self._thread.do(lambda db: read_inbox(db, (tenant, user)) or Inbox())

    async def inboxes(self, users: Sequence[Key]) -> dict[Key, Inbox]:
        def work(db: sqlite3.Connection) -> dict[Key, Inbox]:
            return {key: Inbox(*row) for key, row in read_keyed(db, INBOXES, users)}

        return await self._thread.do(work)

    async def notifications(
        self, tenant: str, user: str, *, after: Bound = None, before: Bound = None, limit: int, only: Filter = "all"
    ) -> list[Notification]:
        key = tenant, user
        return await self._thread.do(lambda db: read_notifications(db, key, only, after, before, limit))

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
        key = tenant, user
        if ids is not None:
            return await self._thread.do(lambda db: self._mark(db, key, mark, _these(db, key, mark, ids), at))
        marked: list[str] = []
        after, last = 0, min(through or 0, _BEYOND)
        while True:
            chunk = (*key, after, last, _CHUNK)
            part, after = await self._thread.do(lambda db, c=chunk: self._mark_chunk(db, key, mark, c, at))  # type: ignore[misc]
            marked += part.ids
            if len(part.ids) < _CHUNK:
                return Marked(marked, part.inbox)

    def _mark_chunk(
        self, db: sqlite3.Connection, key: Key, mark: Mark, chunk: tuple[object, ...], at: int
    ) -> tuple[Marked, int]:
        rows = db.execute(unmarked_sql(mark), chunk).fetchall()
        return self._mark(db, key, mark, rows, at), rows[-1][0] if rows else 0

    def _mark(self, db: sqlite3.Connection, key: Key, mark: Mark, rows: Sequence[_Row], at: int) -> Marked:
        marked = _mark(db, key, mark, rows, at)
        if self._wants(key[0], "notification.updated"):
            queue_marked(db, key, mark, marked.ids, at)
        return marked

    async def pending(self, users: Sequence[Key], *, limit: int) -> dict[Key, list[Notification]]:
        def work(db: sqlite3.Connection) -> dict[Key, list[Notification]]:
            found = ((key, [_notification(row) for row in db.execute(PENDING, (*key, limit))]) for key in users)
            return {key: notifications for key, notifications in found if notifications}

        return await self._thread.do(work)

    async def delivered(self, seqs: Mapping[Key, Sequence[int]], how: Literal["live", "push"], at: int) -> None:
        sql = f"UPDATE notifications SET {how}_at = ? WHERE tenant = ? AND user = ? AND seq = ? AND {how}_at IS NULL"
        rows = [(at, *key, seq) for key, theirs in seqs.items() for seq in theirs]
        await self._thread.do(lambda db: db.executemany(sql, rows))

    async def prune(self, now: int, *, keep_ms: int, limit: int) -> dict[Key, Inbox]:
        return await self._thread.do(lambda db: _prune(db, now, now - keep_ms, limit))

    async def recount(self, *, fix: bool) -> list[tuple[Key, Inbox, Inbox]]:
        def work(db: sqlite3.Connection) -> list[tuple[Key, Inbox, Inbox]]:
            rows = [((row[0], row[1]), Inbox(*row[2:5]), Inbox(*row[5:8])) for row in db.execute(COUNTED)]
            wrong = [(key, kept, counted) for key, kept, counted in rows if kept != counted]
            for key, _, counted in wrong if fix else ():
                db.execute("INSERT OR REPLACE INTO inboxes VALUES (?, ?, ?, ?, ?)", (*key, *counted))
            return wrong

        return await self._thread.do(work)


def _notification(row: tuple[Any, ...]) -> Notification:
    return Notification(*(*row[:-1], bool(row[-1])))


def read_notifications(
    db: sqlite3.Connection, key: Key, only: Filter, after: int | None, before: int | None, limit: int
) -> list[Notification]:
    """Return a page in ascending order, see `InboxStore.notifications`."""
    sql = page_sql(only, "DESC" if after is None else "ASC")
    values = (*key, after or 0, _BEYOND if before is None else before, limit)
    page = [_notification(row) for row in db.execute(sql, values)]
    return page[::-1] if after is None else page


def read_inbox(db: sqlite3.Connection, key: Key) -> Inbox | None:
    row = db.execute(INBOX, key).fetchone()
    return None if row is None else Inbox(*row)


def _notify(db: sqlite3.Connection, notices: Sequence[Notice]) -> list[Created]:
    first = f"SELECT {_FIELDS} FROM notifications WHERE tenant = ? AND user = ? AND key = ?"
    insert = (
        "INSERT INTO notifications (tenant, user, seq, id, kind, body, key, created_at, expires_at, ack, traceparent)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    )
    created: list[Created] = []
    heads: dict[Key, int] = {}
    new: dict[Key, int] = {}
    for n in notices:
        key = n.tenant, n.user
        if (row := db.execute(first, (*key, n.key)).fetchone()) is not None:
            created.append(Created(_notification(row), False))
            continue
        if key not in heads:
            heads[key] = (read_inbox(db, key) or Inbox()).head
        seq = heads[key] = heads[key] + 1
        new[key] = new.get(key, 0) + 1
        made = n.as_entry(seq, numbered_id(seq, new_message_id()))
        said = (n.created_at, n.expires_at, n.ack, n.traceparent)
        db.execute(insert, (*key, seq, made.id, n.kind, n.body, n.key, *said))
        created.append(Created(made, True))
    db.executemany(
        "INSERT INTO inboxes VALUES (?1, ?2, ?3, ?4, ?4) ON CONFLICT DO UPDATE SET"
        " head = ?3, unread = unread + ?4, unseen = unseen + ?4",
        [(*key, heads[key], count) for key, count in new.items()],
    )
    return created


def _these(db: sqlite3.Connection, key: Key, mark: Mark, ids: Sequence[str]) -> list[_Row]:
    """Return the rows of these ids that belong to the user and are not marked yet."""
    sql = (
        "SELECT seq, id, read_at IS NULL, seen_at IS NULL FROM notifications"
        f" WHERE tenant = ? AND user = ? AND seq = ? AND id = ? AND {_COLUMNS[mark][0]} IS NULL"
    )
    numbers = {text: seq for text in ids if (seq := number_of(text)) is not None}
    found = (db.execute(sql, (*key, seq, text)).fetchone() for text, seq in numbers.items())
    return sorted(row for row in found if row is not None)


def _mark(db: sqlite3.Connection, key: Key, mark: Mark, rows: Sequence[_Row], at: int) -> Marked:
    columns = ", ".join(f"{column} = ifnull({column}, ?1)" for column in _COLUMNS[mark])
    sql = f"UPDATE notifications SET {columns} WHERE tenant = ?2 AND user = ?3 AND seq = ?4"
    db.executemany(sql, [(at, *key, row[0]) for row in rows])
    read = sum(row[2] for row in rows) if mark != "seen" else 0
    _lower(db, key, read, sum(row[3] for row in rows))
    return Marked([row[1] for row in rows], read_inbox(db, key) or Inbox())


def _lower(db: sqlite3.Connection, key: Key, unread: int, unseen: int) -> None:
    sql = "UPDATE inboxes SET unread = unread - ?, unseen = unseen - ? WHERE tenant = ? AND user = ?"
    db.execute(sql, (unread, unseen, *key))


def _prune(db: sqlite3.Connection, now: int, oldest: int, limit: int) -> dict[Key, Inbox]:
    # The rows are read before they are removed: SQLite 3.40 gets `RETURNING read_at IS NULL` wrong.
    found = (*db.execute(EXPIRED, (now, limit)), *db.execute(OLD, (oldest, limit)))
    gone = [*dict.fromkeys(found)][:limit]
    changed: set[Key] = set()
    for tenant, user, seq, read_at, seen_at in gone:
        db.execute("DELETE FROM notifications WHERE tenant = ? AND user = ? AND seq = ?", (tenant, user, seq))
        _lower(db, (tenant, user), read_at is None, seen_at is None)
        changed.add((tenant, user))
    return {key: read_inbox(db, key) or Inbox() for key in changed}


_: type[InboxStore] = SqliteInbox
