"""Devices and the push queue, in PostgreSQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from greendot.ids import Key, check_text
from greendot.push.policy_model import divide
from greendot.store.inbox import Notice, Notification
from greendot.store.postgres.messages import columns
from greendot.store.postgres.pool import Link, Pool
from greendot.store.push import NAMED, Choices, Device, Push, PushCounts, PushRecord, PushResult, PushStore, Settled

_DEVICE = "tenant, user_id, device, provider, token, created_at, used_at"
# Concurrent registrations of one token take turns: else neither would see the other's row to take over.
_REGISTER_ALONE = "SELECT pg_advisory_xact_lock(hashtextextended($1 || ' ' || $2 || ' ' || $3, 0))"
_TAKE_OVER = f"""
    DELETE FROM greendot_push_devices
    WHERE tenant = $1 AND provider = $2 AND token_hash = $3 AND (user_id, device) <> ($4, $5)
        AND (user_id = $4 OR provider <> '{NAMED}')
"""
# Returns no row if only the time of use differs.
_PUT = f"""
    INSERT INTO greendot_push_devices AS d ({_DEVICE}, token_hash) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
    ON CONFLICT (tenant, user_id, device) DO UPDATE
    SET provider = $4, token = $5, created_at = $6, used_at = $7, token_hash = $8
    WHERE d.provider <> $4 OR d.token <> $5 RETURNING 1
"""
_USE = """
    UPDATE greendot_push_devices SET used_at = greatest(used_at, $4)
    WHERE tenant = $1 AND user_id = $2 AND device = $3
"""
_DROP_UNUSED = """
    DELETE FROM greendot_push_devices WHERE (tenant, user_id, device) IN (
        SELECT tenant, user_id, device FROM greendot_push_devices WHERE used_at < $1 ORDER BY used_at LIMIT $2
    ) AND used_at < $1 RETURNING 1 -- asked again of a row that was changed meanwhile
"""
_CHOOSE = """
    INSERT INTO greendot_push_choices VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (tenant, user_id) DO UPDATE SET zone = $3, quiet_begins = $4, quiet_ends = $5
"""
QUEUE = """
    INSERT INTO greendot_pushes (tenant, user_id, seq, notification, importance, room, collapse, created_at, due_at)
    SELECT *, created_at FROM unnest(
        $1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[]
    ) AS p (tenant, user_id, seq, notification, importance, room, collapse, created_at)
"""
DUE = "SELECT tenant FROM greendot_pushes WHERE due_at <= $1 ORDER BY due_at LIMIT $2"
# One index lookup per tenant with queued pushes, however many pushes a tenant has.
BACKLOG = """
    WITH RECURSIVE queued (tenant) AS (
        (SELECT tenant FROM greendot_pushes WHERE due_at IS NOT NULL ORDER BY tenant LIMIT 1)
        UNION ALL
        SELECT next.tenant FROM queued CROSS JOIN LATERAL (
            SELECT p.tenant FROM greendot_pushes p
            WHERE p.due_at IS NOT NULL AND p.tenant > queued.tenant ORDER BY p.tenant LIMIT 1
        ) AS next
    )
    SELECT tenant, (
        SELECT count(*) FROM (
            SELECT 1 FROM greendot_pushes p WHERE p.tenant = queued.tenant AND p.due_at <= $1
            ORDER BY p.due_at LIMIT $2
        ) AS first
    ) FROM queued
"""
# A worker that claims at the same time skips the locked pushes and takes the next ones.
CLAIM = """
    WITH due AS MATERIALIZED (
        SELECT oldest.id FROM unnest($4::text[], $5::bigint[]) AS share (tenant, most)
        CROSS JOIN LATERAL (
            SELECT q.id FROM greendot_pushes q WHERE q.tenant = share.tenant AND q.due_at <= $1
            ORDER BY q.due_at LIMIT share.most FOR UPDATE SKIP LOCKED
        ) AS oldest
    )
    UPDATE greendot_pushes p SET holder = $2, due_at = $3, recheck = false FROM due WHERE p.id = due.id
    RETURNING p.id, p.tenant, p.user_id, p.seq, p.importance, p.room, p.collapse, p.created_at, p.attempts, p.results
"""
NOTIFICATIONS = """
    SELECT n.tenant, n.user_id, n.seq, n.id, n.kind, n.body, n.created_at, n.expires_at, n.live_at, n.push_at,
           n.seen_at, n.read_at, n.archived_at, n.acked_at, n.traceparent, n.ack
    FROM unnest($1::text[], $2::text[], $3::bigint[]) AS p (tenant, user_id, seq)
    JOIN greendot_notifications n USING (tenant, user_id, seq)
"""
DEVICES = f"""
    SELECT {_DEVICE} FROM unnest($1::text[], $2::text[]) AS u (tenant, user_id)
    JOIN greendot_push_devices USING (tenant, user_id) ORDER BY tenant, user_id, device
"""
CHOICES = """
    SELECT tenant, user_id, zone, quiet_begins, quiet_ends FROM unnest($1::text[], $2::text[]) AS u (tenant, user_id)
    JOIN greendot_push_choices USING (tenant, user_id)
"""
RECENT = """
    SELECT tenant, user_id, p.sent_at FROM unnest($1::text[], $2::text[]) AS u (tenant, user_id)
    JOIN greendot_pushes p USING (tenant, user_id) WHERE p.sent_at > $3 ORDER BY p.sent_at
"""
# Locked before the pushes: every transaction that changes notifications locks the inboxes first.
_LOCK_INBOXES = """
    SELECT FROM greendot_inboxes WHERE (tenant, user_id) IN (
        SELECT tenant, user_id FROM greendot_pushes WHERE id = ANY ($2::bigint[]) AND holder = $1
    ) ORDER BY tenant, user_id FOR UPDATE
"""
_SETTLE = """
    UPDATE greendot_pushes p SET
        due_at = CASE WHEN p.recheck AND s.reason = 'busy' THEN least(s.due_at, $2) ELSE s.due_at END,
        over_at = CASE WHEN s.due_at IS NULL THEN $2::bigint END,
        reason = s.reason, results = s.results, dead = s.dead, attempts = p.attempts + s.tried::integer,
        sent_at = CASE WHEN s.sent THEN coalesce(p.sent_at, $2) ELSE p.sent_at END, holder = NULL
    FROM unnest($3::bigint[], $4::bigint[], $5::text[], $6::bytea[], $7::boolean[], $8::boolean[], $9::boolean[])
         AS s (id, due_at, reason, results, dead, tried, sent)
    WHERE p.id = s.id AND p.holder = $1 RETURNING p.id, p.tenant, p.user_id, p.seq
"""
# A push that a worker claims or settles meanwhile is locked; its new row decides.
RECHECK = """
    UPDATE greendot_pushes SET due_at = CASE WHEN holder IS NULL THEN least(due_at, $3) ELSE due_at END,
        recheck = holder IS NOT NULL
    WHERE tenant = $1 AND user_id = $2 AND due_at IS NOT NULL AND (holder IS NOT NULL OR reason = 'busy') RETURNING 1
"""
_PUSHED = """
    UPDATE greendot_notifications n SET push_at = $4
    FROM unnest($1::text[], $2::text[], $3::bigint[]) AS p (tenant, user_id, seq)
    WHERE n.tenant = p.tenant AND n.user_id = p.user_id AND n.seq = p.seq AND n.push_at IS NULL
"""
_USED = """
    UPDATE greendot_push_devices d SET used_at = greatest(used_at, $4)
    FROM unnest($1::text[], $2::text[], $3::text[]) AS u (tenant, user_id, device)
    WHERE d.tenant = u.tenant AND d.user_id = u.user_id AND d.device = u.device
"""
_GONE = """
    DELETE FROM greendot_push_devices d
    USING unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS u (tenant, user_id, device, token)
    WHERE d.tenant = u.tenant AND d.user_id = u.user_id AND d.device = u.device AND d.token = u.token
"""
_RECORD = (
    "id, tenant, user_id, seq, notification, importance, created_at, due_at, over_at, dead, attempts, reason, results"
)
OF = f"SELECT {_RECORD} FROM greendot_pushes WHERE tenant = $1 AND notification = $2 ORDER BY id"
_DEAD = f"SELECT {_RECORD} FROM greendot_pushes WHERE dead AND ($1::text IS NULL OR tenant = $1) ORDER BY id LIMIT $2"
_COUNTS = """
    SELECT count(*), count(*) FILTER (WHERE due_at <= $1), min(due_at) FILTER (WHERE due_at <= $1),
           (SELECT count(*) FROM greendot_pushes WHERE dead)
    FROM greendot_pushes WHERE due_at IS NOT NULL
"""
_REPLAY = """
    UPDATE greendot_pushes SET dead = false, over_at = NULL, due_at = $3, attempts = 0
    WHERE dead AND ($1::text IS NULL OR tenant = $1) AND ($2::bigint[] IS NULL OR id = ANY ($2::bigint[]))
    RETURNING id
"""
_PRUNE = """
    DELETE FROM greendot_pushes WHERE id IN (
        SELECT id FROM greendot_pushes WHERE over_at < $1 ORDER BY over_at LIMIT $2
    ) AND over_at < $1 RETURNING 1
"""
_results = msgspec.json.Decoder(list[PushResult])


class PostgresPushes:
    """PostgreSQL adapter of `PushStore`."""

    _links: Pool
    _pushed: Collection[str]  # tenants that push

    # --- devices ---

    async def put_device(self, device: Device) -> bool:
        check_text(device[:5])

        async def work(link: Link) -> bool:
            token_hash = sha256(device.token.encode()).hexdigest()
            await link.execute(_REGISTER_ALONE, device.tenant, device.provider, token_hash)
            await link.execute(_TAKE_OVER, device.tenant, device.provider, token_hash, device.user, device.device)
            is_new = bool(await link.fetch(_PUT, *device, token_hash))
            if not is_new:
                await link.execute(_USE, device.tenant, device.user, device.device, device.used_at)
            return is_new

        return await self._links.transact(work)

    async def devices(self, tenant: str, user: str) -> list[Device]:
        return [Device(*row) for row in await self._links.fetch(DEVICES, [tenant], [user])]

    async def drop_device(self, tenant: str, user: str, device: str) -> bool:
        sql = "DELETE FROM greendot_push_devices WHERE tenant = $1 AND user_id = $2 AND device = $3 RETURNING 1"
        return bool(await self._links.fetch(sql, tenant, user, device))

    async def drop_unused_devices(self, before: int, limit: int) -> int:
        return len(await self._links.fetch(_DROP_UNUSED, before, limit))

    async def put_choices(self, tenant: str, user: str, choices: Choices) -> None:
        check_text((tenant, user, choices.zone))
        await self._links.fetch(_CHOOSE, tenant, user, choices.zone, choices.quiet_begins, choices.quiet_ends)

    async def choices(self, tenant: str, user: str) -> Choices:
        rows = await self._links.fetch(CHOICES, [tenant], [user])
        return Choices(*rows[0][2:]) if rows else Choices()

    # --- the queue ---

    async def claim_pushes(
        self, holder: str, now: int, lease_ms: int, limit: int, *, since: int, held: Mapping[str, int] | None = None
    ) -> list[Push]:
        async def work(link: Link) -> list[Push]:
            shares = divide(await _due(link, now, limit), limit, held)
            if not shares:
                return []
            rows = await link.fetch(CLAIM, now, holder, now + lease_ms, [*shares], [*shares.values()])
            return await _pushes(link, rows, since) if rows else []

        return await self._links.transact(work)

    async def settle_pushes(
        self, holder: str, settled: Sequence[Settled], gone: Sequence[Device], now: int
    ) -> set[int]:
        values = [
            (s.id, s.due_at, s.reason, msgspec.json.encode(s.results), s.is_dead, s.tried, bool(s.sent))
            for s in sorted(settled, key=lambda s: s.id)
        ]
        sent = {s.id: s.sent for s in settled if s.sent}

        async def work(link: Link) -> set[int]:
            if sent:
                await link.execute(_LOCK_INBOXES, holder, [*sent])
            held = {row[0]: tuple(row[1:]) for row in await link.fetch(_SETTLE, holder, now, *columns(values, 7))}
            pushed = sorted(held[push] for push in sent if push in held)
            used = sorted(
                (*held[push][:2], device) for push, devices in sent.items() if push in held for device in devices
            )
            if pushed:
                await link.execute(_PUSHED, *columns(pushed, 3), now)
                await link.execute(_USED, *columns(used, 3), now)
            if gone:
                await link.execute(_GONE, *columns(sorted((d.tenant, d.user, d.device, d.token) for d in gone), 4))
            return {*held}

        return await self._links.transact(work)

    async def recheck_pushes(self, tenant: str, user: str, now: int) -> bool:
        return bool(await self._links.fetch(RECHECK, tenant, user, now))

    async def push_of(self, tenant: str, notification: str) -> list[PushRecord]:
        return [_record(row) for row in await self._links.fetch(OF, tenant, notification)]

    async def push_counts(self, now: int) -> PushCounts:
        return PushCounts(*(await self._links.fetch(_COUNTS, now))[0])

    async def dead_pushes(self, tenant: str | None, limit: int) -> list[PushRecord]:
        return [_record(row) for row in await self._links.fetch(_DEAD, tenant, limit)]

    async def replay_pushes(self, tenant: str | None, ids: Sequence[int] | None, now: int) -> list[int]:
        rows = await self._links.fetch(_REPLAY, tenant, None if ids is None else [*ids], now)
        return sorted(row[0] for row in rows)

    async def prune_pushes(self, before: int, limit: int) -> int:
        return len(await self._links.fetch(_PRUNE, before, limit))


def push_row(notice: Notice, made: Notification) -> tuple[Any, ...]:
    """Return the values of `QUEUE` for a notification."""
    n = notice
    return n.tenant, n.user, made.seq, made.id, n.importance, n.room, n.collapse, made.created_at


async def _due(link: Link, now: int, limit: int) -> Mapping[str, int]:
    """Count the due pushes of each tenant, up to `limit`."""
    oldest = [row[0] for row in await link.fetch(DUE, now, limit)]
    if len(oldest) < limit:
        return Counter(oldest)
    return dict(await link.fetch(BACKLOG, now, limit))


async def _pushes(link: Link, rows: Sequence[Any], since: int) -> list[Push]:
    """Return the claimed pushes with notification, devices, quiet hours and recent pushes of their users."""
    places = columns(sorted({(row[1], row[2], row[3]) for row in rows}), 3)
    users = columns(sorted({(row[1], row[2]) for row in rows}), 2)
    found = {tuple(row[:3]): Notification(*row[2:]) for row in await link.fetch(NOTIFICATIONS, *places)}
    devices: dict[Key, list[Device]] = {}
    for row in await link.fetch(DEVICES, *users):
        devices.setdefault((row[0], row[1]), []).append(Device(*row))
    choices = {(row[0], row[1]): Choices(*row[2:]) for row in await link.fetch(CHOICES, *users)}
    recent: dict[Key, list[int]] = {}
    for tenant, user, at in await link.fetch(RECENT, *users, since):
        recent.setdefault((tenant, user), []).append(at)
    claimed = []
    for *plain, results in sorted(rows):
        place, key = tuple(plain[1:4]), (plain[1], plain[2])
        around = (found.get(place), devices.get(key, []), choices.get(key, Choices()), recent.get(key, []))
        claimed.append(Push(*(*plain, _results.decode(results), *around)))
    return claimed


def _record(row: Any) -> PushRecord:
    return PushRecord(*(*row[:12], _results.decode(row[12])))


_: type[PushStore] = PostgresPushes
