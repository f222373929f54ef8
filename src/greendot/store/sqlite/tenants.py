"""Tenants, in SQLite."""

from __future__ import annotations

import sqlite3

from greendot.store.api_keys import RegisteredTenant, TenantStore
from greendot.store.sqlite.thread import DatabaseThread

_FIRST = ("api_secrets", "api_keys")  # erased first
_REGISTRY = "tenants"  # erased last
_KEPT = ("revocations",)  # never erased, they expire: without them revoked tokens would be valid again


class SqliteTenants:
    """SQLite adapter of `TenantStore`."""

    _thread: DatabaseThread

    async def create_tenant(self, tenant: str, at: int) -> bool:
        sql = "INSERT INTO tenants VALUES (?, ?) ON CONFLICT DO NOTHING RETURNING 1"
        return await self._thread.do(lambda db: db.execute(sql, (tenant, at)).fetchone() is not None)

    async def tenant(self, tenant: str) -> RegisteredTenant | None:
        sql = "SELECT tenant, created_at FROM tenants WHERE tenant = ?"
        row = await self._thread.do(lambda db: db.execute(sql, (tenant,)).fetchone())
        return None if row is None else RegisteredTenant(*row)

    async def tenants(self, after: str | None, limit: int) -> list[RegisteredTenant]:
        sql = "SELECT tenant, created_at FROM tenants WHERE tenant > ? ORDER BY tenant LIMIT ?"
        rows = await self._thread.do(lambda db: db.execute(sql, (after or "", limit)).fetchall())
        return [RegisteredTenant(*row) for row in rows]

    async def tenant_rows(self, tenant: str) -> dict[str, int]:
        def work(db: sqlite3.Connection) -> dict[str, int]:
            counts = {table: _count(db, table, tenant) for table in _tables(db) if table != _REGISTRY}
            return {table: count for table, count in counts.items() if count}

        return await self._thread.do(work)

    async def erase_tenant(self, tenant: str, *, limit: int) -> int:
        def work(db: sqlite3.Connection) -> int:
            erased = 0
            for table, key in _tables(db).items():
                if erased < limit:
                    some = f"SELECT {key} FROM {table} WHERE tenant = ? LIMIT ?"
                    sql = f"DELETE FROM {table} WHERE ({key}) IN ({some})"
                    erased += db.execute(sql, (tenant, limit - erased)).rowcount
            return erased

        return await self._thread.do(work)


def _count(db: sqlite3.Connection, table: str, tenant: str) -> int:
    return int(db.execute(f"SELECT count(*) FROM {table} WHERE tenant = ?", (tenant,)).fetchone()[0])


def _tables(db: sqlite3.Connection) -> dict[str, str]:
    """Return the tables with rows of tenants, except revocations, with the columns of their keys, in erasure order.

    They are read from the database schema, so that none can be forgotten.
    """
    names = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    found = {}
    for name in [*_FIRST, *(name for name in names if name not in (*_FIRST, _REGISTRY)), _REGISTRY]:
        columns = db.execute("SELECT name, pk FROM pragma_table_info(?) ORDER BY pk", (name,)).fetchall()
        if name not in _KEPT and any(column == "tenant" for column, _ in columns):
            found[name] = ", ".join(column for column, place in columns if place) or "rowid"
    return found


_: type[TenantStore] = SqliteTenants
