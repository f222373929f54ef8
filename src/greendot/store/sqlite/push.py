"""Devices and the push queue, in SQLite."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from greendot.ids import check_text
from greendot.push.policy_model import divide
from greendot.store.inbox import Created, Notice, Notification
from greendot.store.push import NAMED, Choices, Device, Push, PushCounts, PushRecord, PushResult, PushStore, Settled
from greendot.store.sqlite.thread import DatabaseThread

_DEVICE = "tenant, user, device, provider, token, created_at, used_at"
_TAKE_OVER = f"""
    DELETE FROM push_devices WHERE tenant = ?1 AND provider = ?4 AND token = ?5 AND (user, device) <> (?2, ?3)
        AND (user = ?2 OR provider <> '{NAMED}')
"""
_QUEUE = """
    INSERT INTO pushes (tenant, user, seq, notification, importance, room, collapse, created_at, due_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8)
"""
DUE = "SELECT tenant FROM pushes INDEXED BY pushes_due WHERE due_at <= ? ORDER BY due_at LIMIT ?"
DUE_OF = """
    SELECT id FROM pushes INDEXED BY pushes_due_by_tenant
    WHERE tenant = ? AND due_at <= ? ORDER BY due_at LIMIT ?
"""
# One index lookup per tenant with queued pushes, however many pushes a tenant has.
BACKLOG = """
    WITH RECURSIVE queued (tenant) AS (
        SELECT min(tenant) FROM pushes INDEXED BY pushes_due_by_tenant WHERE due_at IS NOT NULL
        UNION ALL
        SELECT (
            SELECT min(p.tenant) FROM pushes p INDEXED BY pushes_due_by_tenant
            WHERE p.due_at IS NOT NULL AND p.tenant > queued.tenant
        ) FROM queued WHERE tenant IS NOT NULL
    )
    SELECT tenant, (
        SELECT count(*) FROM (
            SELECT 1 FROM pushes p INDEXED BY pushes_due_by_tenant
            WHERE p.tenant = queued.tenant AND p.due_at <= ?1 LIMIT ?2
        )
    ) FROM queued WHERE tenant IS NOT NULL
"""
_CLAIM = """
    UPDATE pushes SET holder = ?2, due_at = ?3, recheck = 0 WHERE id = ?1
    RETURNING id, tenant, user, seq, importance, room, collapse, created_at, attempts, results
"""
NOTIFICATION = """
    SELECT seq, id, kind, body, created_at, expires_at, live_at, push_at, seen_at, read_at, archived_at, acked_at,
           traceparent, ack
    FROM notifications WHERE tenant = ? AND user = ? AND seq = ?
"""
DEVICES = f"SELECT {_DEVICE} FROM push_devices WHERE tenant = ? AND user = ? ORDER BY device"
CHOICES = "SELECT zone, quiet_begins, quiet_ends FROM push_choices WHERE tenant = ? AND user = ?"
RECENT = """
    SELECT sent_at FROM pushes INDEXED BY pushes_sent
    WHERE tenant = ? AND user = ? AND sent_at > ? ORDER BY sent_at
"""
_SETTLE = """
    UPDATE pushes SET due_at = CASE WHEN recheck AND ?5 = 'busy' THEN min(?3, ?10) ELSE ?3 END, over_at = ?4,
        reason = ?5, results = ?6, dead = ?7, attempts = attempts + ?8,
        sent_at = ifnull(sent_at, ?9), holder = NULL
    WHERE id = ?1 AND holder = ?2 RETURNING tenant, user, seq
"""
RECHECK = """
    UPDATE pushes INDEXED BY pushes_waiting
    SET due_at = CASE WHEN holder IS NULL THEN min(due_at, ?3) ELSE due_at END, recheck = holder IS NOT NULL
    WHERE tenant = ?1 AND user = ?2 AND due_at IS NOT NULL AND (holder IS NOT NULL OR reason = 'busy')
"""
_PUSHED = "UPDATE notifications SET push_at = ?4 WHERE tenant = ?1 AND user = ?2 AND seq = ?3 AND push_at IS NULL"
_USED = "UPDATE push_devices SET used_at = max(used_at, ?4) WHERE tenant = ?1 AND user = ?2 AND device = ?3"
_GONE = "DELETE FROM push_devices WHERE tenant = ? AND user = ? AND device = ? AND token = ?"
_RECORD = (
    "id, tenant, user, seq, notification, importance, created_at, due_at, over_at, dead, attempts, reason, results"
)
OF = f"SELECT {_RECORD} FROM pushes WHERE tenant = ? AND notification = ? ORDER BY id"
_DEAD = f"SELECT {_RECORD} FROM pushes WHERE dead = 1 AND (?1 IS NULL OR tenant = ?1) ORDER BY id LIMIT ?2"
_COUNTS = """
    SELECT count(*), ifnull(sum(due_at <= ?1), 0), min(CASE WHEN due_at <= ?1 THEN due_at END),
           (SELECT count(*) FROM pushes WHERE dead = 1)
    FROM pushes WHERE due_at IS NOT NULL
"""
_REPLAY = """
    UPDATE pushes SET dead = 0, over_at = NULL, due_at = ?2, attempts = 0
    WHERE dead = 1 AND (?1 IS NULL OR tenant = ?1)
"""
_results = msgspec.json.Decoder(list[PushResult])


class SqlitePushes:
    """SQLite adapter of `PushStore`."""

    _thread: DatabaseThread
    _pushed: Collection[str]  # tenants that push

    def _queue_pushes(self, db: sqlite3.Connection, made: Iterable[tuple[Notice, Created]]) -> None:
        """Queue pushes of new notifications; called in the transaction that writes the notifications."""
        rows = [
            (n.tenant, n.user, c.notification.seq, c.notification.id, n.importance, n.room, n.collapse, n.created_at)
            for n, c in made
            if c.new and n.push and n.tenant in self._pushed
        ]
        db.executemany(_QUEUE, rows)

    # --- devices ---

    async def put_device(self, device: Device) -> bool:
        check_text(device[:5])

        def work(db: sqlite3.Connection) -> bool:
            db.execute(_TAKE_OVER, device[:5])
            same = (
                "UPDATE push_devices SET used_at = max(used_at, ?6)"
                " WHERE tenant = ?1 AND user = ?2 AND device = ?3 AND provider = ?4 AND token = ?5"
            )
            if db.execute(same, (*device[:5], device.used_at)).rowcount:
                return False
            db.execute(f"INSERT OR REPLACE INTO push_devices ({_DEVICE}) VALUES (?, ?, ?, ?, ?, ?, ?)", device)
            return True

        return await self._thread.do(work)

    async def devices(self, tenant: str, user: str) -> list[Device]:
        return await self._thread.do(lambda db: _devices(db, tenant, user))

    async def drop_device(self, tenant: str, user: str, device: str) -> bool:
        sql = "DELETE FROM push_devices WHERE tenant = ? AND user = ? AND device = ?"
        return await self._thread.do(lambda db: db.execute(sql, (tenant, user, device)).rowcount > 0)

    async def drop_unused_devices(self, before: int, limit: int) -> int:
        sql = (
            "DELETE FROM push_devices WHERE (tenant, user, device) IN"
            " (SELECT tenant, user, device FROM push_devices WHERE used_at < ? ORDER BY used_at LIMIT ?)"
        )
        return await self._thread.do(lambda db: db.execute(sql, (before, limit)).rowcount)

    async def put_choices(self, tenant: str, user: str, choices: Choices) -> None:
        check_text((tenant, user, choices.zone))
        row = (tenant, user, choices.zone, choices.quiet_begins, choices.quiet_ends)
        await self._thread.do(lambda db: db.execute("INSERT OR REPLACE INTO push_choices VALUES (?, ?, ?, ?, ?)", row))

    async def choices(self, tenant: str, user: str) -> Choices:
        return await self._thread.do(lambda db: _choices(db, tenant, user))

    # --- the queue ---

    async def claim_pushes(
        self, holder: str, now: int, lease_ms: int, limit: int, *, since: int, held: Mapping[str, int] | None = None
    ) -> list[Push]:
        def work(db: sqlite3.Connection) -> list[Push]:
            shares = divide(_due(db, now, limit), limit, held)
            due = [row[0] for tenant, most in shares.items() for row in db.execute(DUE_OF, (tenant, now, most))]
            rows = [db.execute(_CLAIM, (push, holder, now + lease_ms)).fetchone() for push in sorted(due)]
            return [_push(db, row, since) for row in rows]

        return await self._thread.do(work)

    async def settle_pushes(
        self, holder: str, settled: Sequence[Settled], gone: Sequence[Device], now: int
    ) -> set[int]:
        def work(db: sqlite3.Connection) -> set[int]:
            held = {one.id for one in settled if _settle(db, holder, one, now)}
            db.executemany(_GONE, [(d.tenant, d.user, d.device, d.token) for d in gone])
            return held

        return await self._thread.do(work)

    async def recheck_pushes(self, tenant: str, user: str, now: int) -> bool:
        return await self._thread.do(lambda db: db.execute(RECHECK, (tenant, user, now)).rowcount > 0)

    async def push_of(self, tenant: str, notification: str) -> list[PushRecord]:
        return await self._thread.do(lambda db: [_record(row) for row in db.execute(OF, (tenant, notification))])

    async def push_counts(self, now: int) -> PushCounts:
        return await self._thread.do(lambda db: PushCounts(*db.execute(_COUNTS, (now,)).fetchone()))

    async def dead_pushes(self, tenant: str | None, limit: int) -> list[PushRecord]:
        return await self._thread.do(lambda db: [_record(row) for row in db.execute(_DEAD, (tenant, limit))])

    async def replay_pushes(self, tenant: str | None, ids: Sequence[int] | None, now: int) -> list[int]:
        def work(db: sqlite3.Connection) -> list[int]:
            if ids is None:
                return sorted(row[0] for row in db.execute(f"{_REPLAY} RETURNING id", (tenant, now)))
            sql = f"{_REPLAY} AND id = ?3 RETURNING id"
            found = (db.execute(sql, (tenant, now, push)).fetchone() for push in ids)
            return sorted(row[0] for row in found if row is not None)

        return await self._thread.do(work)

    async def prune_pushes(self, before: int, limit: int) -> int:
        sql = "DELETE FROM pushes WHERE id IN (SELECT id FROM pushes WHERE over_at < ? ORDER BY over_at LIMIT ?)"
        return await self._thread.do(lambda db: db.execute(sql, (before, limit)).rowcount)


def _due(db: sqlite3.Connection, now: int, limit: int) -> Mapping[str, int]:
    """Count the due pushes of each tenant, up to `limit`."""
    oldest = [tenant for (tenant,) in db.execute(DUE, (now, limit))]
    return Counter(oldest) if len(oldest) < limit else dict(db.execute(BACKLOG, (now, limit)).fetchall())


def _devices(db: sqlite3.Connection, tenant: str, user: str) -> list[Device]:
    return [Device(*row) for row in db.execute(DEVICES, (tenant, user))]


def _choices(db: sqlite3.Connection, tenant: str, user: str) -> Choices:
    row = db.execute(CHOICES, (tenant, user)).fetchone()
    return Choices(*row) if row else Choices()


def _push(db: sqlite3.Connection, row: tuple[Any, ...], since: int) -> Push:
    *plain, results = row
    tenant, user, seq = row[1:4]
    found = db.execute(NOTIFICATION, (tenant, user, seq)).fetchone()
    notification = Notification(*(*found[:-1], bool(found[-1]))) if found else None
    recent = [at for (at,) in db.execute(RECENT, (tenant, user, since))]
    around = (notification, _devices(db, tenant, user), _choices(db, tenant, user), recent)
    return Push(*(*plain, _results.decode(results), *around))


def _settle(db: sqlite3.Connection, holder: str, one: Settled, now: int) -> bool:
    """Write the outcome of a push; return whether `holder` still held it."""
    over_at = now if one.due_at is None else None
    values = (one.due_at, over_at, one.reason, msgspec.json.encode(one.results), one.is_dead, one.tried)
    row = db.execute(_SETTLE, (one.id, holder, *values, now if one.sent else None, now)).fetchone()
    if row is None:
        return False
    if one.sent:
        db.execute(_PUSHED, (*row, now))
        db.executemany(_USED, [(row[0], row[1], device, now) for device in one.sent])
    return True


def _record(row: tuple[Any, ...]) -> PushRecord:
    *plain, dead, attempts, reason, results = row
    return PushRecord(*(*plain, bool(dead), attempts, reason, _results.decode(results)))


_: type[PushStore] = SqlitePushes
