"""API keys and tenants, as the store keeps them.

A **key** has a name in its tenant, its scopes, and one or more **secrets**: one that replaces another is valid beside
it until that ends, so that an app can change over without a gap. Only hashes are kept.

A tenant needs no row to exist: whoever signs tokens names it. A registered one can be listed, and is known where only
registered ones may come.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

OPERATOR = ""  # in place of a tenant: the key is of those who run the servers; no tenant has this name


class ApiKey(Struct, frozen=True):
    """What a key is, whichever of its secrets is shown."""

    tenant: str  # or OPERATOR
    name: str
    scopes: tuple[str, ...]
    created_at: int


class Secret(Struct, frozen=True):
    """One of a key's secrets."""

    id: str  # in the key's text, to find it by
    hash: bytes
    created_at: int
    expires_at: int | None = None
    used_at: int | None = None  # to the hour or so


KeyAndSecrets = tuple[ApiKey, list[Secret]]  # the oldest first


class KeyStore(Protocol):
    """API keys."""

    async def create_key(self, key: ApiKey, secret: Secret) -> bool:
        """False if the tenant has a key of this name; then nothing was written."""
        ...

    async def rotate_key(self, tenant: str, name: str, secret: Secret, *, old_ends_at: int) -> bool:
        """Give the key another secret. The present ones end at `old_ends_at`, unless they end before; those that had
        ended when the new one was made are removed. False if there is no such key."""
        ...

    async def remove_key(self, tenant: str, name: str) -> bool:
        """With all its secrets. False if there is no such key."""
        ...

    async def api_key(self, tenant: str, name: str) -> KeyAndSecrets | None: ...

    async def api_keys(self, tenant: str | None = None) -> list[KeyAndSecrets]:
        """All, or those of a tenant, by tenant and name."""
        ...

    async def key_of_secret(self, id: str) -> tuple[ApiKey, Secret] | None:
        """In one read."""
        ...

    async def key_used(self, id: str, at: int) -> None:
        """Note that the secret was used. Never back."""
        ...


class RegisteredTenant(NamedTuple):
    """A tenant that was registered."""

    tenant: str
    created_at: int


class TenantStore(Protocol):
    """Tenants, and all that is theirs."""

    async def create_tenant(self, tenant: str, at: int) -> bool:
        """Register it. False if it was registered before."""
        ...

    async def tenant(self, tenant: str) -> RegisteredTenant | None:
        """None if it is not registered."""
        ...

    async def tenants(self, after: str | None, limit: int) -> list[RegisteredTenant]:
        """A page of the registered ones, by name."""
        ...

    async def tenant_rows(self, tenant: str) -> dict[str, int]:
        """How much of a tenant's there is, by table (without any prefix); empty tables are left out, and so are its
        registration and its revocations. For operators: it counts."""
        ...

    async def erase_tenant(self, tenant: str, *, limit: int) -> int:
        """Erase at most `limit` rows of the tenant, in whatever table, and say how many: its keys first, so that no
        more is written with them, its registration last. 0: nothing is left.

        Revocations are not counted, and stay until they end: without them revoked tokens would be good again.
        """
        ...


def grouped(rows: Iterable[Sequence[Any]]) -> list[KeyAndSecrets]:
    """Keys from rows that are a key's columns and one of its secrets' each; for adapters."""
    found: dict[tuple[str, str], KeyAndSecrets] = {}
    for tenant, name, scopes, created_at, *secret in rows:
        key = ApiKey(tenant, name, tuple(scopes.split()), created_at)
        found.setdefault((tenant, name), (key, []))[1].append(Secret(*secret))
    return [*found.values()]
