"""Port for API keys and tenants.

A **key** has a name in its tenant, scopes, and one or more **secrets**. After a rotation the old secret stays valid
beside the new one until its end, so that an app can switch without a gap. Only hashes of secrets are stored.

A tenant needs no row to exist: the signer of a token names it. A registered tenant can be listed, and is accepted where
only registered tenants are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

OPERATOR = ""  # tenant of an operator's key; no tenant has this name


class ApiKey(Struct, frozen=True):
    """API key without its secrets."""

    tenant: str  # or OPERATOR
    name: str
    scopes: tuple[str, ...]
    created_at: int


class Secret(Struct, frozen=True):
    """Secret of an API key."""

    id: str  # part of the key's text, for the lookup
    hash: bytes
    created_at: int
    expires_at: int | None = None
    used_at: int | None = None  # accurate to about an hour


KeyAndSecrets = tuple[ApiKey, list[Secret]]  # oldest secret first


class KeyStore(Protocol):
    """Port for API keys."""

    async def create_key(self, key: ApiKey, secret: Secret) -> bool:
        """Create the key; return False, with nothing written, if the tenant has a key of this name."""
        ...

    async def rotate_key(self, tenant: str, name: str, secret: Secret, *, old_ends_at: int) -> bool:
        """Add a secret to the key; return False if there is no such key.

        Existing secrets end at `old_ends_at`, unless they end before. Secrets that had ended when the new one was
        created are removed.
        """
        ...

    async def remove_key(self, tenant: str, name: str) -> bool:
        """Remove the key with all its secrets; return whether it existed."""
        ...

    async def api_key(self, tenant: str, name: str) -> KeyAndSecrets | None: ...

    async def api_keys(self, tenant: str | None = None) -> list[KeyAndSecrets]:
        """Return all keys, or the keys of one tenant, ordered by tenant and name."""
        ...

    async def key_of_secret(self, id: str) -> tuple[ApiKey, Secret] | None:
        """Return the key and the secret with this id, in one read."""
        ...

    async def key_used(self, id: str, at: int) -> None:
        """Record when the secret was used; `used_at` never goes back."""
        ...


class RegisteredTenant(NamedTuple):
    """Registered tenant."""

    tenant: str
    created_at: int


class TenantStore(Protocol):
    """Port for tenants and all their rows."""

    async def create_tenant(self, tenant: str, at: int) -> bool:
        """Register the tenant; return False if it is already registered."""
        ...

    async def tenant(self, tenant: str) -> RegisteredTenant | None:
        """Return the registration; None if there is none."""
        ...

    async def tenants(self, after: str | None, limit: int) -> list[RegisteredTenant]:
        """Return a page of the registered tenants, ordered by name."""
        ...

    async def tenant_rows(self, tenant: str) -> dict[str, int]:
        """Count the tenant's rows by table name (without prefix).

        Empty tables, the registration and revocations are left out. For operators only: counting is slow.
        """
        ...

    async def erase_tenant(self, tenant: str, *, limit: int) -> int:
        """Erase at most `limit` rows of the tenant, over all tables; return how many. 0: nothing is left.

        Keys are erased first, so that no request can write with them; the registration is erased last. Revocations
        are not counted and stay until they end: without them revoked tokens would be valid again.
        """
        ...


def grouped(rows: Iterable[Sequence[Any]]) -> list[KeyAndSecrets]:
    """Group joined rows into keys; each row has the columns of a key and of one of its secrets. For adapters."""
    found: dict[tuple[str, str], KeyAndSecrets] = {}
    for tenant, name, scopes, created_at, *secret in rows:
        key = ApiKey(tenant, name, tuple(scopes.split()), created_at)
        found.setdefault((tenant, name), (key, []))[1].append(Secret(*secret))
    return [*found.values()]
