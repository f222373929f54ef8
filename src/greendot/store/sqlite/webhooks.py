"""Queues of webhook events, in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import msgspec

from greendot.store.audit import AuditEntry
from greendot.store.inbox import Mark, Notification
from greendot.store.rooms import Record
from greendot.store.sqlite.thread import DatabaseThread
from greendot.store.webhooks import (
    MOST_IDS,
    STATES,
    Claim,
    DeadEvent,
    Failed,
    HookDepth,
    Hooked,
    HookState,
    HookStore,
    Queued,
)

NEW, AGAIN, DEAD = range(3)  # phases of an event
QUEUE = "INSERT INTO hook_events (tenant, type, stream, seq, at) VALUES (?, ?, ?, ?, ?)"
QUEUE_MARKED = "INSERT INTO hook_events (tenant, type, stream, at, state, ids) VALUES (?, ?, ?, ?, ?, ?)"
TAKE = """
    SELECT h.id, h.type, h.stream, h.at, h.state, h.ids, h.attempts, h.first_at,
           m.room, m.seq, m.id, m.user, m.name, m.body, m.at, m.ref, m.op, m.traceparent,
           n.seq, n.id, n.kind, n.body, n.created_at, n.expires_at, n.live_at, n.push_at, n.seen_at, n.read_at,
           n.archived_at, n.acked_at, n.traceparent, n.ack,
           a.number, a.at, a.tenant, a.actor, a.action, a.room, a.user, a.ref, a.reason, a.until, a.slow_mode_s
    FROM hook_events h
    LEFT JOIN messages m ON h.type = 'room.message' AND m.tenant = h.tenant AND m.room = h.stream AND m.seq = h.seq
    LEFT JOIN notifications n
        ON h.type = 'notification.created' AND n.tenant = h.tenant AND n.user = h.stream AND n.seq = h.seq
    LEFT JOIN audit a ON h.type = 'audit.created' AND a.tenant = h.tenant AND a.number = h.seq
    WHERE h.tenant = ?1 AND h.phase = ?2 AND ifnull(h.next_at, 0) <= ?3 ORDER BY h.id LIMIT ?4
"""
WAITING = """
    SELECT EXISTS (SELECT 1 FROM hook_events WHERE tenant = ?1 AND phase = 0)
        OR EXISTS (SELECT 1 FROM hook_events WHERE tenant = ?1 AND phase = 1 AND next_at <= ?2)
"""
_CLAIM = """
    INSERT INTO hooks (tenant, holder, until) VALUES (?1, ?2, ?4) ON CONFLICT DO UPDATE
    SET holder = ?2, until = ?4 WHERE holder = ?2 OR until <= ?3
"""
_CLAIMED = "SELECT tenant, holder, stopped FROM hooks WHERE tenant = ?"
_FAIL = """
    UPDATE hook_events SET phase = ?3, next_at = ?4, reason = ?5, failed_at = ?6, first_at = ifnull(first_at, ?6),
        attempts = attempts + 1 WHERE tenant = ?1 AND id = ?2 AND phase < 2
"""
_STOP = """
    INSERT INTO hooks (tenant, stopped, reason, stopped_at) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO UPDATE
    SET stopped = ?2, reason = ?3, stopped_at = ?4
"""
DEPTH = "SELECT count(*) FROM (SELECT 1 FROM hook_events WHERE tenant = ? AND phase BETWEEN ? AND ? LIMIT ?)"
FIRST = "SELECT at FROM hook_events WHERE tenant = ? AND phase = ? ORDER BY id LIMIT 1"
_COUNT = """
    SELECT ifnull(sum(phase < 2), 0), ifnull(sum(phase = 1), 0), ifnull(sum(phase = 2), 0),
           min(CASE WHEN phase < 2 THEN at END) FROM hook_events WHERE tenant = ?
"""
_DEAD = """
    SELECT id, tenant, type, stream, seq, at, attempts, failed_at, reason FROM hook_events
    WHERE phase = 2 AND (?1 IS NULL OR tenant = ?1) ORDER BY id LIMIT ?2
"""
_REPLAY = """
    UPDATE hook_events SET phase = 0, attempts = 0, first_at = NULL, next_at = NULL, failed_at = NULL, reason = NULL
    WHERE phase = 2 AND (?1 IS NULL OR tenant = ?1)
"""
_GO_ON = "UPDATE hooks SET stopped = '', stopped_at = NULL, reason = NULL WHERE ?1 IS NULL OR tenant = ?1"


class SqliteHooks:
    """SQLite adapter of `HookStore`."""

    _thread: DatabaseThread
    _hooked: Hooked

    def _wants(self, tenant: str, event: str) -> bool:
        return event in self._hooked.get(tenant, ())

    async def claim_hooks(self, holder: str, tenants: Sequence[str], now: int, lease_ms: int) -> dict[str, Claim]:
        def work(db: sqlite3.Connection) -> dict[str, Claim]:
            db.executemany(_CLAIM, [(tenant, holder, now, now + lease_ms) for tenant in tenants])
            rows = (db.execute(_CLAIMED, (tenant,)).fetchone() for tenant in tenants)
            return {row[0]: Claim(row[1] == holder, row[2]) for row in rows}

        return await self._thread.do(work)

    async def release_hooks(self, holder: str) -> None:
        await self._thread.do(lambda db: db.execute("UPDATE hooks SET until = 0 WHERE holder = ?", (holder,)))

    async def waiting_hooks(self, tenants: Sequence[str], now: int) -> list[str]:
        return await self._thread.do(lambda db: [t for t in tenants if db.execute(WAITING, (t, now)).fetchone()[0]])

    async def take_hooks(self, tenant: str, now: int, limit: int, *, again: bool) -> list[Queued]:
        values = (tenant, AGAIN if again else NEW, now, limit)
        return await self._thread.do(lambda db: [_queued(tenant, row) for row in db.execute(TAKE, values)])

    async def settle_hooks(self, tenant: str, done: Sequence[int], failed: Sequence[Failed], now: int) -> None:
        rows = [(tenant, f.id, DEAD if f.next_at is None else AGAIN, f.next_at, f.reason, now) for f in failed]

        def work(db: sqlite3.Connection) -> None:
            db.executemany("DELETE FROM hook_events WHERE tenant = ? AND id = ?", [(tenant, event) for event in done])
            db.executemany(_FAIL, rows)

        await self._thread.do(work)

    async def stop_hook(self, tenant: str, place: str, reason: str, now: int) -> None:
        await self._thread.do(lambda db: db.execute(_STOP, (tenant, place, reason, now)))

    async def hook_depths(self, tenants: Sequence[str], most: int) -> list[HookDepth]:
        # One call per tenant, so that pending writes run in between.
        return [await self._thread.do(partial(_depth, tenant, most)) for tenant in tenants]

    async def hook_states(self, tenants: Sequence[str]) -> list[HookState]:
        def work(db: sqlite3.Connection) -> list[HookState]:
            queued = {row[0] for row in db.execute("SELECT DISTINCT tenant FROM hook_events")}
            stopped = {row[0]: row[1:] for row in db.execute("SELECT tenant, stopped_at, reason FROM hooks")}
            return [
                HookState(tenant, *db.execute(_COUNT, (tenant,)).fetchone(), *stopped.get(tenant, (None, None)))
                for tenant in sorted({*tenants} | queued)
            ]

        return await self._thread.do(work)

    async def dead_hooks(self, tenant: str | None, limit: int) -> list[DeadEvent]:
        return await self._thread.do(lambda db: [DeadEvent(*row) for row in db.execute(_DEAD, (tenant, limit))])

    async def replay_hooks(self, tenant: str | None, ids: Sequence[int] | None) -> list[int]:
        def work(db: sqlite3.Connection) -> list[int]:
            if ids is None:
                db.execute(_GO_ON, (tenant,))
                return sorted(row[0] for row in db.execute(f"{_REPLAY} RETURNING id", (tenant,)))
            sql = f"{_REPLAY} AND id = ?2 RETURNING id, tenant"
            found = [row for event in ids if (row := db.execute(sql, (tenant, event)).fetchone()) is not None]
            db.executemany(_GO_ON, {(row[1],) for row in found})
            return sorted(row[0] for row in found)

        return await self._thread.do(work)

    async def prune_hooks(self, before: int, limit: int) -> int:
        sql = "DELETE FROM hook_events WHERE id IN (SELECT id FROM hook_events WHERE failed_at < ? ORDER BY id LIMIT ?)"
        return await self._thread.do(lambda db: db.execute(sql, (before, limit)).rowcount)


def queue(db: sqlite3.Connection, rows: Iterable[tuple[str, str, str, int, int]]) -> None:
    """Queue events; a row is tenant, type, stream, number and time."""
    db.executemany(QUEUE, rows)


def queue_marked(db: sqlite3.Connection, key: tuple[str, str], mark: Mark, ids: Sequence[str], at: int) -> None:
    rows = (ids[first : first + MOST_IDS] for first in range(0, len(ids), MOST_IDS))
    encode = msgspec.json.encode
    db.executemany(
        QUEUE_MARKED, [(key[0], "notification.updated", key[1], at, STATES[mark], encode(part)) for part in rows]
    )


def _depth(tenant: str, most: int, db: sqlite3.Connection) -> HookDepth:
    waiting, dead = (
        db.execute(DEPTH, (tenant, *phases, most)).fetchone()[0] for phases in ((NEW, AGAIN), (DEAD, DEAD))
    )
    firsts = (db.execute(FIRST, (tenant, phase)).fetchone() for phase in (NEW, AGAIN))
    return HookDepth(tenant, waiting, dead, min((first[0] for first in firsts if first is not None), default=None))


def _queued(tenant: str, row: tuple[Any, ...]) -> Queued:
    event, kind, stream, at, state, ids, attempts, first_at, *found = row
    record = Record(*found[:10]) if found[0] is not None else None
    notification = Notification(*(*found[10:23], bool(found[23]))) if found[10] is not None else None
    audit = AuditEntry(*found[24:]) if found[24] is not None else None
    named = msgspec.json.decode(ids, type=list[str]) if ids is not None else []
    return Queued(event, tenant, kind, stream, at, state, named, attempts, first_at, record, notification, audit)


_: type[HookStore] = SqliteHooks
