"""API keys, in PostgreSQL. A transaction that changes a key's secrets locks the key first."""

from __future__ import annotations

from typing import Any

from greendot.store.api_keys import ApiKey, KeyAndSecrets, KeyStore, Secret, grouped
from greendot.store.postgres.pool import Link, Pool

_COLUMNS = """
    SELECT k.tenant, k.name, k.scopes, k.created_at, s.id, s.hash, s.created_at, s.expires_at, s.used_at
    FROM greendot_api_keys k JOIN greendot_api_secrets s ON s.tenant = k.tenant AND s.name = k.name
"""
_ORDER = "ORDER BY k.tenant, k.name, s.created_at, s.id"
KEY = f"{_COLUMNS} WHERE k.tenant = $1 AND k.name = $2 {_ORDER}"
KEYS_OF = f"{_COLUMNS} WHERE k.tenant = $1 {_ORDER}"
KEYS = f"{_COLUMNS} {_ORDER}"
OF_SECRET = f"{_COLUMNS} WHERE s.id = $1"
_CREATE = "INSERT INTO greendot_api_keys VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING RETURNING 1"
_ADD_SECRET = "INSERT INTO greendot_api_secrets VALUES ($1, $2, $3, $4, $5, $6, $7)"  # noqa: S105  (no secret)
_LOCK = "SELECT 1 FROM greendot_api_keys WHERE tenant = $1 AND name = $2 FOR UPDATE"
_REMOVE_ENDED = "DELETE FROM greendot_api_secrets WHERE tenant = $1 AND name = $2 AND expires_at <= $3"
_END = "UPDATE greendot_api_secrets SET expires_at = least(expires_at, $3) WHERE tenant = $1 AND name = $2"
_REMOVE_SECRETS = "DELETE FROM greendot_api_secrets WHERE tenant = $1 AND name = $2"
_REMOVE = "DELETE FROM greendot_api_keys WHERE tenant = $1 AND name = $2"
_USED = "UPDATE greendot_api_secrets SET used_at = greatest(used_at, $2) WHERE id = $1"


class PostgresKeys:
    """PostgreSQL adapter of `KeyStore`."""

    _links: Pool

    async def create_key(self, key: ApiKey, secret: Secret) -> bool:
        async def work(link: Link) -> bool:
            if await link.fetch(_CREATE, key.tenant, key.name, " ".join(key.scopes), key.created_at):
                await link.execute(_ADD_SECRET, *_row(key.tenant, key.name, secret))
                return True
            # The key is from this call if the reply to an earlier attempt was lost.
            return bool(await link.fetch("SELECT 1 FROM greendot_api_secrets WHERE id = $1", secret.id))

        return await self._links.transact(work)

    async def rotate_key(self, tenant: str, name: str, secret: Secret, *, old_ends_at: int) -> bool:
        async def work(link: Link) -> bool:
            if not await link.fetch(_LOCK, tenant, name):
                return False
            if not await link.fetch("SELECT 1 FROM greendot_api_secrets WHERE id = $1", secret.id):
                await link.execute(_REMOVE_ENDED, tenant, name, secret.created_at)
                await link.execute(_END, tenant, name, old_ends_at)
                await link.execute(_ADD_SECRET, *_row(tenant, name, secret))
            return True

        return await self._links.transact(work)

    async def remove_key(self, tenant: str, name: str) -> bool:
        async def work(link: Link) -> bool:
            found = bool(await link.fetch(_LOCK, tenant, name))
            await link.execute(_REMOVE_SECRETS, tenant, name)
            await link.execute(_REMOVE, tenant, name)
            return found

        return await self._links.transact(work)

    async def api_key(self, tenant: str, name: str) -> KeyAndSecrets | None:
        found = grouped(await self._links.fetch(KEY, tenant, name))
        return found[0] if found else None

    async def api_keys(self, tenant: str | None = None) -> list[KeyAndSecrets]:
        rows = await (self._links.fetch(KEYS) if tenant is None else self._links.fetch(KEYS_OF, tenant))
        return grouped(rows)

    async def key_of_secret(self, id: str) -> tuple[ApiKey, Secret] | None:
        found = grouped(await self._links.fetch(OF_SECRET, id))
        return (found[0][0], found[0][1][0]) if found else None

    async def key_used(self, id: str, at: int) -> None:
        await self._links.fetch(_USED, id, at)


def _row(tenant: str, name: str, secret: Secret) -> tuple[Any, ...]:
    return secret.id, tenant, name, secret.hash, secret.created_at, secret.expires_at, secret.used_at


_: type[KeyStore] = PostgresKeys
