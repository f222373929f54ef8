"""Tenants, in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from greendot.store.api_keys import RegisteredTenant, TenantStore
from greendot.store.postgres.pool import Link, Pool

_PREFIX = "greendot_"
_FIRST = ("greendot_api_secrets", "greendot_api_keys")  # erased first
_REGISTRY = "greendot_tenants"  # erased last
_KEPT = ("greendot_revocations",)  # never erased, they expire: without them revoked tokens would be valid again
# Tables are read from the database catalogue, so that none can be forgotten.
_TABLES = """
    SELECT c.relname, (SELECT array_agg(k.attname::text) FROM pg_attribute k
                       WHERE k.attrelid = i.indrelid AND k.attnum = ANY (i.indkey::int2[]))
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
    LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
    WHERE c.relkind IN ('r', 'p') AND c.relname LIKE 'greendot\\_%' AND pg_table_is_visible(c.oid)
      AND a.attname = 'tenant' AND NOT a.attisdropped
    ORDER BY c.relname
"""
# Tables without a full index that begins with the tenant: each of these parts has a partial index that does.
PARTS = {"greendot_notifications": ("AND archived_at IS NULL", "AND archived_at IS NOT NULL")}
_COUNT_S = 3600.0


class PostgresTenants:
    """PostgreSQL adapter of `TenantStore`."""

    _links: Pool

    async def create_tenant(self, tenant: str, at: int) -> bool:
        sql = "INSERT INTO greendot_tenants VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING 1"
        return bool(await self._links.fetch(sql, tenant, at))

    async def tenant(self, tenant: str) -> RegisteredTenant | None:
        rows = await self._links.fetch("SELECT tenant, created_at FROM greendot_tenants WHERE tenant = $1", tenant)
        return RegisteredTenant(*rows[0]) if rows else None

    async def tenants(self, after: str | None, limit: int) -> list[RegisteredTenant]:
        sql = "SELECT tenant, created_at FROM greendot_tenants WHERE tenant > $1 ORDER BY tenant LIMIT $2"
        return [RegisteredTenant(*row) for row in await self._links.fetch(sql, after or "", limit)]

    async def tenant_rows(self, tenant: str) -> dict[str, int]:
        async def work(link: Link) -> dict[str, int]:
            await link.execute("SET LOCAL statement_timeout = 0")
            counts: dict[str, int] = {}
            for table, _, part in await _parts(link):
                if table != _REGISTRY:
                    name = table.removeprefix(_PREFIX)
                    sql = f"SELECT count(*) FROM {table} WHERE tenant = $1 {part}"
                    counts[name] = counts.get(name, 0) + await link.fetchval(sql, tenant)
            return {name: count for name, count in counts.items() if count}

        return await self._links.patiently(lambda: self._links.transact_once(work, _COUNT_S))

    async def erase_tenant(self, tenant: str, *, limit: int) -> int:
        async def work(link: Link) -> int:
            erased = 0
            for table, key, part in await _parts(link):
                if erased < limit:
                    done = await link.execute(erase_sql(table, key, part), tenant, limit - erased)
                    erased += int(done.rpartition(" ")[2])
            return erased

        return await self._links.transact(work)


def erase_sql(table: str, key: Sequence[str], part: str) -> str:
    """Return a statement that deletes at most $2 rows of tenant $1."""
    some = f"SELECT {', '.join(key)} FROM {table} WHERE tenant = $1 {part} LIMIT $2 FOR UPDATE"
    return f"WITH chosen AS MATERIALIZED ({some}) DELETE FROM {table} t USING chosen WHERE {is_chosen(key)}"


def is_chosen(key: Sequence[str]) -> str:
    """Return a condition that joins the rows of table `t` to `chosen` by their key.

    Never by `ctid`: a row that another transaction changes while the statement waits gets another `ctid` and would be
    skipped.
    """
    return " AND ".join(f"t.{column} = chosen.{column}" for column in key)


async def _parts(link: Link) -> list[tuple[str, list[str], str]]:
    """Return the tables with rows of tenants, except revocations, with their primary keys, in erasure order.

    Tables in `PARTS` appear once per part.
    """
    keys: dict[str, list[str]] = {row[0]: row[1] for row in await link.fetch(_TABLES) if row[0] not in _KEPT}
    others = [name for name in keys if name not in (*_FIRST, _REGISTRY)]
    return [(name, keys[name], part) for name in (*_FIRST, *others, _REGISTRY) for part in PARTS.get(name, ("",))]


_: type[TenantStore] = PostgresTenants
