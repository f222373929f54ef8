"""API keys, in SQLite."""

from __future__ import annotations

import sqlite3
from typing import Any

from greendot.store.api_keys import ApiKey, KeyAndSecrets, KeyStore, Secret, grouped
from greendot.store.sqlite.thread import DatabaseThread

_COLUMNS = (
    "k.tenant, k.name, k.scopes, k.created_at, s.id, s.hash, s.created_at, s.expires_at, s.used_at"
    " FROM api_keys k JOIN api_secrets s ON s.tenant = k.tenant AND s.name = k.name"
)
_ORDER = "ORDER BY k.tenant, k.name, s.created_at, s.id"
_ADD_SECRET = "INSERT INTO api_secrets VALUES (?, ?, ?, ?, ?, ?, ?)"  # noqa: S105  (no secret)


class SqliteKeys:
    """SQLite adapter of `KeyStore`."""

    _thread: DatabaseThread

    async def create_key(self, key: ApiKey, secret: Secret) -> bool:
        def work(db: sqlite3.Connection) -> bool:
            sql = "INSERT INTO api_keys VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING 1"
            if not db.execute(sql, (key.tenant, key.name, " ".join(key.scopes), key.created_at)).fetchone():
                return False
            db.execute(_ADD_SECRET, _row(key.tenant, key.name, secret))
            return True

        return await self._thread.do(work)

    async def rotate_key(self, tenant: str, name: str, secret: Secret, *, old_ends_at: int) -> bool:
        def work(db: sqlite3.Connection) -> bool:
            if not db.execute("SELECT 1 FROM api_keys WHERE tenant = ? AND name = ?", (tenant, name)).fetchone():
                return False
            theirs = "WHERE tenant = ? AND name = ?"
            db.execute(f"DELETE FROM api_secrets {theirs} AND expires_at <= ?", (tenant, name, secret.created_at))
            ends = "min(coalesce(expires_at, ?3), ?3)"
            db.execute(
                f"UPDATE api_secrets SET expires_at = {ends} WHERE tenant = ?1 AND name = ?2",
                (tenant, name, old_ends_at),
            )
            db.execute(_ADD_SECRET, _row(tenant, name, secret))
            return True

        return await self._thread.do(work)

    async def remove_key(self, tenant: str, name: str) -> bool:
        def work(db: sqlite3.Connection) -> bool:
            db.execute("DELETE FROM api_secrets WHERE tenant = ? AND name = ?", (tenant, name))
            return db.execute("DELETE FROM api_keys WHERE tenant = ? AND name = ?", (tenant, name)).rowcount > 0

        return await self._thread.do(work)

    async def api_key(self, tenant: str, name: str) -> KeyAndSecrets | None:
        found = await self._read("WHERE k.tenant = ? AND k.name = ?", tenant, name)
        return found[0] if found else None

    async def api_keys(self, tenant: str | None = None) -> list[KeyAndSecrets]:
        return await (self._read("") if tenant is None else self._read("WHERE k.tenant = ?", tenant))

    async def key_of_secret(self, id: str) -> tuple[ApiKey, Secret] | None:
        found = await self._read("WHERE s.id = ?", id)
        return (found[0][0], found[0][1][0]) if found else None

    async def key_used(self, id: str, at: int) -> None:
        sql = "UPDATE api_secrets SET used_at = max(coalesce(used_at, 0), ?) WHERE id = ?"
        await self._thread.do(lambda db: db.execute(sql, (at, id)))

    async def _read(self, where: str, *values: str) -> list[KeyAndSecrets]:
        sql = f"SELECT {_COLUMNS} {where} {_ORDER}"
        rows = await self._thread.do(lambda db: db.execute(sql, values).fetchall())
        return grouped(rows)


def _row(tenant: str, name: str, secret: Secret) -> tuple[Any, ...]:
    return secret.id, tenant, name, secret.hash, secret.created_at, secret.expires_at, secret.used_at


_: type[KeyStore] = SqliteKeys
