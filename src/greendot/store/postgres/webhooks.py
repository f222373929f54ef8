"""Queues of webhook events, in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from greendot.ids import Key
from greendot.store.audit import AuditEntry
from greendot.store.inbox import Mark, Notification
from greendot.store.postgres.pool import Link, Pool
from greendot.store.rooms import Record
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
_QUEUE_MARKED = """
    INSERT INTO greendot_hook_events (tenant, type, stream, at, state, ids)
    VALUES ($1, 'notification.updated', $2, $3, $4, $5)
"""
TAKE = """
    SELECT h.id, h.type, h.stream, h.at, h.state, h.ids, h.attempts, h.first_at,
           m.room, m.seq, m.id, m.user_id, m.name, m.body, m.at, m.ref, m.op, m.traceparent,
           n.seq, n.id, n.kind, n.body, n.created_at, n.expires_at, n.live_at, n.push_at, n.seen_at, n.read_at,
           n.archived_at, n.acked_at, n.traceparent, n.ack,
           a.number, a.at, a.tenant, a.actor, a.action, a.room, a.user_id, a.ref, a.reason, a.until, a.slow_mode_s
    FROM (
        SELECT * FROM greendot_hook_events
        WHERE tenant = $1 AND phase = $2 AND coalesce(next_at, 0) <= $3 ORDER BY id LIMIT $4
    ) h
    LEFT JOIN greendot_messages m
        ON h.type = 'room.message' AND m.tenant = h.tenant AND m.room = h.stream AND m.seq = h.seq
    LEFT JOIN greendot_notifications n
        ON h.type = 'notification.created' AND n.seq = h.seq AND n.tenant = h.tenant AND n.user_id = h.stream
    LEFT JOIN greendot_audit a ON h.type = 'audit.created' AND a.tenant = h.tenant AND a.number = h.seq
    ORDER BY h.id
"""
WAITING = """
    SELECT t FROM unnest($1::text[]) t
    WHERE EXISTS (SELECT FROM greendot_hook_events h WHERE h.tenant = t AND h.phase = 0)
       OR EXISTS (SELECT FROM greendot_hook_events h WHERE h.tenant = t AND h.phase = 1 AND h.next_at <= $2)
"""
_CLAIM = """
    INSERT INTO greendot_hooks AS h (tenant, holder, until)
    SELECT t, $2, $4 FROM unnest($1::text[]) t ORDER BY t
    ON CONFLICT (tenant) DO UPDATE SET holder = $2, until = $4 WHERE h.holder = $2 OR h.until <= $3
"""
_CLAIMED = "SELECT tenant, holder = $2, stopped FROM greendot_hooks WHERE tenant = ANY ($1::text[])"
_DONE = "DELETE FROM greendot_hook_events WHERE tenant = $1 AND phase < 2 AND id = ANY ($2::bigint[])"
_FAIL = """
    UPDATE greendot_hook_events h SET phase = f.phase, next_at = f.next_at, reason = f.reason, failed_at = $2,
        first_at = coalesce(h.first_at, $2), attempts = h.attempts + 1
    FROM unnest($3::bigint[], $4::smallint[], $5::bigint[], $6::text[]) AS f (id, phase, next_at, reason)
    WHERE h.tenant = $1 AND h.phase < 2 AND h.id = f.id
"""
_STOP = """
    INSERT INTO greendot_hooks (tenant, stopped, reason, stopped_at) VALUES ($1, $2, $3, $4)
    ON CONFLICT (tenant) DO UPDATE SET stopped = $2, reason = $3, stopped_at = $4
"""
DEPTHS = """
    SELECT t,
        (SELECT count(*) FROM (
            SELECT FROM greendot_hook_events h WHERE h.tenant = t AND h.phase < 2 ORDER BY h.phase, h.id LIMIT $2
        ) waiting),
        (SELECT count(*) FROM (
            SELECT FROM greendot_hook_events h WHERE h.tenant = t AND h.phase = 2 ORDER BY h.id LIMIT $2
        ) dead),
        least(
            (SELECT h.at FROM greendot_hook_events h WHERE h.tenant = t AND h.phase = 0 ORDER BY h.id LIMIT 1),
            (SELECT h.at FROM greendot_hook_events h WHERE h.tenant = t AND h.phase = 1 ORDER BY h.id LIMIT 1)
        )
    FROM unnest($1::text[]) t
"""
_STATES = """
    SELECT tenant, count(*) FILTER (WHERE phase < 2), count(*) FILTER (WHERE phase = 1),
           count(*) FILTER (WHERE phase = 2), min(at) FILTER (WHERE phase < 2)
    FROM greendot_hook_events GROUP BY tenant
"""
_DEAD = """
    SELECT id, tenant, type, stream, seq, at, attempts, failed_at, reason FROM greendot_hook_events
    WHERE phase = 2 AND ($1::text IS NULL OR tenant = $1) ORDER BY id LIMIT $2
"""
_REPLAY = """
    UPDATE greendot_hook_events
    SET phase = 0, attempts = 0, first_at = NULL, next_at = NULL, failed_at = NULL, reason = NULL
    WHERE phase = 2 AND ($1::text IS NULL OR tenant = $1) AND ($2::bigint[] IS NULL OR id = ANY ($2::bigint[]))
    RETURNING id, tenant
"""
_GO_ON = """
    UPDATE greendot_hooks SET stopped = '', stopped_at = NULL, reason = NULL
    WHERE $1::text[] IS NULL OR tenant = ANY ($1::text[])
"""
_PRUNE = """
    WITH dead AS MATERIALIZED (
        SELECT tenant, phase, id FROM greendot_hook_events WHERE failed_at < $1 LIMIT $2 FOR UPDATE
    )
    DELETE FROM greendot_hook_events h USING dead d
    WHERE h.tenant = d.tenant AND h.phase = d.phase AND h.id = d.id RETURNING 1
"""


class PostgresHooks:
    """PostgreSQL adapter of `HookStore`."""

    _links: Pool
    _hooked: Hooked

    def _wants(self, tenant: str, event: str) -> bool:
        return event in self._hooked.get(tenant, ())

    def _wanting(self, event: str) -> list[str]:
        """Return the tenants whose hook wants events of this type."""
        return [tenant for tenant, wanted in self._hooked.items() if event in wanted]

    async def claim_hooks(self, holder: str, tenants: Sequence[str], now: int, lease_ms: int) -> dict[str, Claim]:
        await self._links.fetch(_CLAIM, [*tenants], holder, now, now + lease_ms)
        rows = await self._links.fetch(_CLAIMED, [*tenants], holder)
        return {row[0]: Claim(row[1], row[2]) for row in rows}

    async def release_hooks(self, holder: str) -> None:
        await self._links.fetch("UPDATE greendot_hooks SET until = 0 WHERE holder = $1", holder)

    async def waiting_hooks(self, tenants: Sequence[str], now: int) -> list[str]:
        return [row[0] for row in await self._links.fetch(WAITING, [*tenants], now)]

    async def take_hooks(self, tenant: str, now: int, limit: int, *, again: bool) -> list[Queued]:
        rows = await self._links.fetch(TAKE, tenant, AGAIN if again else NEW, now, limit)
        return [_queued(tenant, row) for row in rows]

    async def settle_hooks(self, tenant: str, done: Sequence[int], failed: Sequence[Failed], now: int) -> None:
        async def work(link: Link) -> None:
            if done:
                await link.execute(_DONE, tenant, [*done])
            if failed:
                phases = [DEAD if event.next_at is None else AGAIN for event in failed]
                due, reasons = [event.next_at for event in failed], [event.reason for event in failed]
                await link.execute(_FAIL, tenant, now, [event.id for event in failed], phases, due, reasons)

        await self._links.transact(work)

    async def stop_hook(self, tenant: str, place: str, reason: str, now: int) -> None:
        await self._links.fetch(_STOP, tenant, place, reason, now)

    async def hook_depths(self, tenants: Sequence[str], most: int) -> list[HookDepth]:
        async def work(link: Link) -> list[HookDepth]:
            # A plan with a bitmap reads the whole backlog before it counts the first event.
            await link.execute("SET LOCAL enable_bitmapscan = off")
            return [HookDepth(*row) for row in await link.fetch(DEPTHS, [*tenants], most)]

        return await self._links.transact(work)

    async def hook_states(self, tenants: Sequence[str]) -> list[HookState]:
        counts = {row[0]: row[1:] for row in await self._all(_STATES)}
        rows = await self._all("SELECT tenant, stopped_at, reason FROM greendot_hooks")
        stopped = {row[0]: row[1:] for row in rows}
        return [
            HookState(tenant, *counts.get(tenant, (0, 0, 0, None)), *stopped.get(tenant, (None, None)))
            for tenant in sorted({*tenants} | counts.keys())
        ]

    async def dead_hooks(self, tenant: str | None, limit: int) -> list[DeadEvent]:
        return [DeadEvent(*row) for row in await self._all(_DEAD, tenant, limit)]

    async def replay_hooks(self, tenant: str | None, ids: Sequence[int] | None) -> list[int]:
        async def work(link: Link) -> list[int]:
            await link.execute("SET LOCAL enable_seqscan = on")
            found = await link.fetch(_REPLAY, tenant, None if ids is None else [*ids])
            named = [tenant] if tenant is not None else None
            await link.execute(_GO_ON, named if ids is None else sorted({row[1] for row in found}))
            return sorted(row[0] for row in found)

        return await self._links.transact(work)

    async def prune_hooks(self, before: int, limit: int) -> int:
        return len(await self._all(_PRUNE, before, limit))

    async def _all(self, sql: str, *values: object) -> list[Any]:
        """Run a statement that may scan whole tables. For operators and upkeep."""

        async def work(link: Link) -> list[Any]:
            await link.execute("SET LOCAL enable_seqscan = on")
            found: list[Any] = await link.fetch(sql, *values)
            return found

        return await self._links.transact(work)


async def queue_marked(link: Link, key: Key, mark: Mark, ids: Sequence[str], at: object) -> None:
    for first in range(0, len(ids), MOST_IDS):
        await link.execute(_QUEUE_MARKED, *key, at, STATES[mark], [*ids[first : first + MOST_IDS]])


def _queued(tenant: str, row: Any) -> Queued:
    event, kind, stream, at, state, ids, attempts, first_at, *found = row
    record = Record(*found[:10]) if found[0] is not None else None
    notification = Notification(*found[10:24]) if found[10] is not None else None
    audit = AuditEntry(*found[24:]) if found[24] is not None else None
    return Queued(event, tenant, kind, stream, at, state, ids or [], attempts, first_at, record, notification, audit)


_: type[HookStore] = PostgresHooks
