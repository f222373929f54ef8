"""Mutes, bans and slow mode, in PostgreSQL.

A restriction in a room locks the row of the room, as every append does. A restriction in the tenant concerns all rooms,
and locks none. Appends read it in a statement after the lock of their rooms. So `restrict` waits for the transactions
that had locked rooms when it had committed; all later ones see the restriction.
"""

from __future__ import annotations

import asyncio

from greendot.auth.model import LIFTED, Revocation
from greendot.errors import StoreUnavailable
from greendot.ids import check_text
from greendot.store.audit import AuditNote, check_note
from greendot.store.postgres.audit import write_notes
from greendot.store.postgres.pool import Link, Pool
from greendot.store.postgres.revocations import NEXT
from greendot.store.postgres.rooms import ROOM, ROOM_FIELDS
from greendot.store.restrictions import (
    EVERYWHERE,
    LIFTED_MS,
    PACE_MS,
    Restriction,
    RestrictionKind,
    RestrictionStore,
    RestrictionWritten,
)
from greendot.store.rooms import Room
from greendot.store.webhooks import Hooked

POLL_S = 0.005  # between two looks at the transactions under way
_LOCK = "SELECT members_rev FROM greendot_rooms WHERE tenant = $1 AND room = $2 FOR UPDATE"
_RAISE = "UPDATE greendot_rooms SET members_rev = members_rev + 1 WHERE tenant = $1 AND room = $2"
_PUT = """
    INSERT INTO greendot_restrictions AS r (tenant, room, user_id, kind, until, at, actor, reason)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
    ON CONFLICT (tenant, user_id, room, kind) DO UPDATE
    SET until = excluded.until, at = excluded.at, actor = excluded.actor, reason = excluded.reason
    WHERE r.until <> excluded.until OR r.actor <> excluded.actor OR r.reason IS DISTINCT FROM excluded.reason
    RETURNING 1
"""
_LIFT = """
    DELETE FROM greendot_restrictions WHERE tenant = $1 AND room = $2 AND user_id = $3 AND kind = $4 RETURNING until
"""
LIST = """
    SELECT tenant, room, user_id, kind, until, at, actor, reason FROM greendot_restrictions
    WHERE tenant = $1 AND room = $2 AND kind = $3 AND user_id > $4 AND until > $5 ORDER BY user_id LIMIT $6
"""
_ENTRY = """
    SELECT expires_at, before, number FROM greendot_revocations WHERE tenant = $1 AND kind = $2 AND value = $3
"""
_PUT_ENTRY = """
    INSERT INTO greendot_revocations (tenant, kind, value, expires_at, before, number) VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT (tenant, kind, value) DO UPDATE
    SET expires_at = excluded.expires_at, before = excluded.before, number = excluded.number
"""
_SLOW = f"""
    UPDATE greendot_rooms r SET slow_mode_s = $3 WHERE tenant = $1 AND room = $2 AND slow_mode_s <> $3
    RETURNING {ROOM_FIELDS}
"""
PRUNE = """
    WITH chosen AS MATERIALIZED (
        SELECT tenant, user_id, room, kind FROM greendot_restrictions WHERE until <= $1 ORDER BY until LIMIT $2
        FOR UPDATE SKIP LOCKED
    )
    DELETE FROM greendot_restrictions t USING chosen c
    WHERE t.tenant = c.tenant AND t.user_id = c.user_id AND t.room = c.room AND t.kind = c.kind RETURNING 1
"""
PRUNE_SENDS = """
    WITH chosen AS MATERIALIZED (
        SELECT tenant, user_id, room FROM greendot_slow_sends WHERE at < $1 ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED
    )
    DELETE FROM greendot_slow_sends t USING chosen c
    WHERE t.tenant = c.tenant AND t.user_id = c.user_id AND t.room = c.room RETURNING 1
"""
# Transactions that have locked rows of rooms, and may have read the restrictions already.
_WRITERS = """
    SELECT DISTINCT virtualtransaction FROM pg_locks
    WHERE locktype = 'relation' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND relation = 'greendot_rooms'::regclass AND mode = 'RowShareLock' AND granted AND pid <> pg_backend_pid()
"""


class PostgresRestrictions:
    """PostgreSQL adapter of `RestrictionStore`."""

    _links: Pool
    _hooked: Hooked

    async def restrict(self, restriction: Restriction, note: AuditNote) -> RestrictionWritten | None:
        check_note(note)
        check_text((restriction.user, restriction.actor, restriction.reason))
        tenant, room, user, kind, until, *_ = restriction

        async def in_room(link: Link) -> RestrictionWritten | None:
            found = await link.fetch(_LOCK, tenant, room)
            if not found:
                return None
            changed = bool(await link.fetch(_PUT, *restriction))
            return await _written(link, note, found[0][0], changed, self._hooked)

        async def everywhere(link: Link) -> RestrictionWritten:
            number = await link.fetchval(NEXT)  # first, so that two requests about one user take turns
            changed = bool(await link.fetch(_PUT, *restriction))
            entry = await _entry(link, tenant, kind, user)
            if entry is None or (entry.expires_at, entry.before) != (until, 0):
                entry = await _put_entry(link, Revocation(tenant, kind, user, until, 0, number))
            if changed:
                await write_notes(link, [note], self._hooked)
            return RestrictionWritten(changed, 0, entry)

        if room != EVERYWHERE:
            return await self._links.transact(in_room)
        written = await self._links.transact(everywhere)
        await self._writers_ended()
        return written

    async def lift(
        self, tenant: str, room: str, user: str, kind: RestrictionKind, note: AuditNote
    ) -> RestrictionWritten | None:
        check_note(note)
        key = tenant, room, user, kind

        async def in_room(link: Link) -> RestrictionWritten | None:
            found = await link.fetch(_LOCK, tenant, room)
            if not found:
                return None
            gone = await link.fetch(_LIFT, *key)
            return await _written(link, note, found[0][0], bool(gone) and gone[0][0] > note.at, self._hooked)

        async def everywhere(link: Link) -> RestrictionWritten:
            number = await link.fetchval(NEXT)
            gone = await link.fetch(_LIFT, *key)
            changed = bool(gone) and gone[0][0] > note.at
            entry = await _entry(link, tenant, kind, user)
            if entry is not None and entry.before != LIFTED and entry.expires_at > note.at:
                # Also if an erasure of the user has removed the restriction itself.
                changed = True
                entry = await _put_entry(link, Revocation(tenant, kind, user, note.at + LIFTED_MS, LIFTED, number))
            if changed:
                await write_notes(link, [note], self._hooked)
            return RestrictionWritten(changed, 0, entry)

        return await self._links.transact(in_room if room != EVERYWHERE else everywhere)

    async def restrictions(
        self, tenant: str, room: str, kind: RestrictionKind, after: str | None, limit: int, now: int
    ) -> list[Restriction]:
        rows = await self._links.fetch(LIST, tenant, room, kind, after or "", now, limit)
        return [Restriction(*row) for row in rows]

    async def set_slow_mode(self, tenant: str, room: str, seconds: int, note: AuditNote) -> Room | None:
        check_note(note)

        async def work(link: Link) -> Room | None:
            rows = await link.fetch(_SLOW, tenant, room, seconds)
            if rows:
                await write_notes(link, [note], self._hooked)
            else:
                rows = await link.fetch(ROOM, tenant, room)
            return Room(*rows[0]) if rows else None

        return await self._links.transact(work)

    async def prune_restrictions(self, now: int, limit: int) -> int:
        removed = len(await self._links.fetch(PRUNE, now, limit))
        return removed + len(await self._links.fetch(PRUNE_SENDS, now - PACE_MS, limit - removed))

    async def _writers_ended(self) -> None:
        """Wait until the transactions have ended that have locked rows of rooms by now."""
        try:
            async with asyncio.timeout(self._links.limits.call_s):
                writers = await self._writers()
                while writers:
                    await asyncio.sleep(POLL_S)
                    writers &= await self._writers()
        except TimeoutError:
            raise StoreUnavailable("a transaction of another client of the database does not end") from None

    async def _writers(self) -> set[str]:
        return {row[0] for row in await self._links.fetch(_WRITERS)}


async def _written(link: Link, note: AuditNote, members_rev: int, changed: bool, hooked: Hooked) -> RestrictionWritten:
    """Raise the revision of a room whose row is locked, and write the note, if there was a change."""
    if changed:
        assert note.room is not None
        await link.execute(_RAISE, note.tenant, note.room)
        await write_notes(link, [note], hooked)
    return RestrictionWritten(changed, members_rev + changed)


async def _entry(link: Link, tenant: str, kind: RestrictionKind, user: str) -> Revocation | None:
    rows = await link.fetch(_ENTRY, tenant, kind, user)
    return Revocation(tenant, kind, user, *rows[0]) if rows else None


async def _put_entry(link: Link, entry: Revocation) -> Revocation:
    await link.execute(_PUT_ENTRY, *entry.name, entry.expires_at, entry.before, entry.number)
    return entry


_: type[RestrictionStore] = PostgresRestrictions
