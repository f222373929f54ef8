"""Privacy settings and contacts, in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from greendot.ids import Key
from greendot.protocol.commands import LastSeen
from greendot.store.postgres.pool import Link, Pool
from greendot.store.visibility import MOST_CHANGES, Changes, FactKind, PrivacyStore, Revision, changed_since, listed
from greendot.visibility.model import Privacy

_OF_THESE = "(tenant, user_id) IN (SELECT * FROM unnest($1::text[], $2::text[]))"
_PUT = """
    INSERT INTO greendot_privacy AS p VALUES ($1, $2, coalesce($3, 'shown'), coalesce($4, ''), 1)
    ON CONFLICT (tenant, user_id) DO UPDATE
    SET last_seen = coalesce($3, p.last_seen), hide_from = coalesce($4, p.hide_from), rev = p.rev + 1
    RETURNING last_seen, hide_from, rev
"""
PRIVACIES = f"SELECT tenant, user_id, last_seen, hide_from, rev FROM greendot_privacy WHERE {_OF_THESE}"
_HIDING = """
    SELECT t.tenant FROM unnest($1::text[]) AS t (tenant) WHERE EXISTS (
        SELECT 1 FROM greendot_privacy p WHERE p.tenant = t.tenant AND (last_seen = 'hidden' OR hide_from <> '')
    )
"""
RESTRICTED = """
    SELECT user_id, last_seen, hide_from, rev FROM greendot_privacy
    WHERE tenant = $1 AND (last_seen = 'hidden' OR hide_from <> '') AND user_id > $2 ORDER BY user_id LIMIT $3
"""
# Heads and changes are read in one statement: two would see different commits.
CHANGES = f"""
    SELECT s.at, h.number, h.token, c.number, c.user_id, c.token
    FROM unnest($1::text[], $2::text[], $3::bigint[]) WITH ORDINALITY AS s (tenant, kind, number, at)
    JOIN greendot_visibility_heads h ON h.tenant = s.tenant AND h.kind = s.kind
    LEFT JOIN greendot_visibility_changes c ON c.tenant = s.tenant AND c.kind = s.kind
        AND c.number >= CASE WHEN h.number - s.number BETWEEN 1 AND {MOST_CHANGES} THEN s.number END
"""
# Transactions that add contacts of one user take turns: together they could exceed the maximum.
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('greendot contacts ' || $1::text || ' ' || $2::text, 0))"
_COUNT = "SELECT count(*) FROM greendot_contacts WHERE tenant = $1 AND user_id = $2 AND other <> $3"
_PUT_CONTACT = """
    INSERT INTO greendot_contacts AS c VALUES ($1, $2, $3, $4)
    ON CONFLICT (tenant, user_id, other) DO UPDATE
    SET last_contact_at = greatest(c.last_contact_at, excluded.last_contact_at)
"""
_REMOVE_CONTACT = "DELETE FROM greendot_contacts WHERE tenant = $1 AND user_id = $2 AND other = $3 RETURNING 1"
CONTACTS = f"SELECT tenant, user_id, other, last_contact_at FROM greendot_contacts WHERE {_OF_THESE}"
MEMBERSHIPS = f"SELECT tenant, user_id, room FROM greendot_members WHERE {_OF_THESE}"


class PostgresPrivacy:
    """PostgreSQL adapter of `PrivacyStore`."""

    _links: Pool

    async def put_privacy(
        self, tenant: str, user: str, *, last_seen: LastSeen | None = None, hide_from: frozenset[str] | None = None
    ) -> Privacy:
        users = None if hide_from is None else listed(hide_from)
        rows = await self._links.fetch(_PUT, tenant, user, last_seen, users)
        return _privacy(*rows[0])

    async def privacies(self, keys: Sequence[Key]) -> dict[Key, Privacy]:
        rows = await self._links.fetch(PRIVACIES, *_columns(keys))
        return {(row[0], row[1]): _privacy(*row[2:]) for row in rows}

    async def hiding(self, tenants: Sequence[str]) -> set[str]:
        return {row[0] for row in await self._links.fetch(_HIDING, [*tenants])}

    async def restricted(self, tenant: str, after: str, limit: int) -> dict[str, Privacy]:
        rows = await self._links.fetch(RESTRICTED, tenant, after, limit)
        return {row[0]: _privacy(*row[1:]) for row in rows}

    async def changes(self, since: Sequence[tuple[str, FactKind, Revision]]) -> list[Changes]:
        tenants, kinds, revisions = [of[0] for of in since], [of[1] for of in since], [of[2] for of in since]
        heads = [Revision()] * len(since)
        changes: list[list[tuple[int, str, int]]] = [[] for _ in since]
        for row in await self._links.fetch(CHANGES, tenants, kinds, [revision.number for revision in revisions]):
            heads[row[0] - 1] = Revision(row[1], row[2])
            if row[3] is not None:
                changes[row[0] - 1].append(tuple(row[3:]))
        return [changed_since(*of) for of in zip(revisions, heads, changes, strict=True)]

    async def put_contact(self, tenant: str, user: str, other: str, at: int, *, most: int) -> bool:
        async def work(link: Link) -> bool:
            await link.execute(_LOCK, tenant, user)
            if await link.fetchval(_COUNT, tenant, user, other) >= most:
                return False
            await link.execute(_PUT_CONTACT, tenant, user, other, at)
            return True

        return await self._links.transact(work)

    async def remove_contact(self, tenant: str, user: str, other: str) -> bool:
        return bool(await self._links.fetch(_REMOVE_CONTACT, tenant, user, other))

    async def contacts(self, keys: Sequence[Key]) -> dict[Key, dict[str, int]]:
        found: dict[Key, dict[str, int]] = {}
        for tenant, user, other, at in await self._links.fetch(CONTACTS, *_columns(keys)):
            found.setdefault((tenant, user), {})[other] = at
        return found

    async def memberships(self, keys: Sequence[Key]) -> dict[Key, frozenset[str]]:
        found: dict[Key, set[str]] = {}
        for tenant, user, room in await self._links.fetch(MEMBERSHIPS, *_columns(keys)):
            found.setdefault((tenant, user), set()).add(room)
        return {key: frozenset(rooms) for key, rooms in found.items()}


def _columns(keys: Sequence[Key]) -> tuple[list[str], list[str]]:
    return [key[0] for key in keys], [key[1] for key in keys]


def _privacy(last_seen: LastSeen, hide_from: str, rev: int) -> Privacy:
    return Privacy(last_seen, frozenset(hide_from.split()), rev)


_: type[PrivacyStore] = PostgresPrivacy
