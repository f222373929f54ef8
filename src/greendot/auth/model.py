"""Tokens and sessions that count no longer, though they have not ended.

What is revoked is a token by its `jti`, a session by its id, or everything that a user, a tenant or all tenants were
given before a time. An entry is needed only as long as a token from before it could be valid.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Literal

from msgspec import Struct, structs

from greendot.auth.grants_model import Grants

Kind = Literal["jti", "session", "user", "tenant"]
EVERY_TENANT = "*"  # in place of a tenant, which cannot be called so
Name = tuple[str, Kind, str]  # tenant, kind and value
EVERYTHING: Name = (EVERY_TENANT, "tenant", EVERY_TENANT)


class Revocation(Struct, frozen=True):
    """One entry."""

    tenant: str
    kind: Kind
    value: str  # the token's `jti`, the session's id, the user's or the tenant's
    expires_at: int  # milliseconds UTC
    before: int = 0  # of a user or tenant: tokens issued before, in milliseconds UTC

    @property
    def name(self) -> Name:
        return self.tenant, self.kind, self.value


def names_of(grants: Grants) -> list[Name]:
    """Names of the entries that would revoke a token, its session aside."""
    tenant = grants.tenant
    names: list[Name] = [(tenant, "user", grants.user), (tenant, "tenant", tenant), EVERYTHING]
    return names if grants.token_id is None else [*names, (tenant, "jti", grants.token_id)]


class Revocations:
    """Those that hold now."""

    def __init__(self) -> None:
        self._entries: dict[Name, Revocation] = {}
        self._ends: list[tuple[int, Name]] = []  # a heap

    def put(self, entry: Revocation) -> bool:
        """Whether it says more than was known. Of two with one name the later dates count."""
        known = self._entries.get(entry.name)
        if known is not None:
            before, expires_at = max(entry.before, known.before), max(entry.expires_at, known.expires_at)
            entry = structs.replace(entry, before=before, expires_at=expires_at)
        if entry == known:
            return False
        self._entries[entry.name] = entry
        heappush(self._ends, (entry.expires_at, entry.name))
        return True

    def covers(self, grants: Grants, session: str | None = None) -> bool:
        """Whether the token is revoked, or the session it is used for."""
        if session is not None and (grants.tenant, "session", session) in self._entries:
            return True
        for name in names_of(grants):
            entry = self._entries.get(name)
            # A token that does not say when it was issued may be an old one.
            if entry is not None and (name[1] == "jti" or grants.issued_at is None or grants.issued_at < entry.before):
                return True
        return False

    def of_user(self, tenant: str, user: str) -> Revocation | None:
        """What everything the user was given before is revoked by."""
        return self._entries.get((tenant, "user", user))

    def expire(self, now_ms: int) -> None:
        """Forget what has ended."""
        while self._ends and self._ends[0][0] <= now_ms:
            _, name = heappop(self._ends)
            entry = self._entries.get(name)
            if entry is not None and entry.expires_at <= now_ms:
                del self._entries[name]

    def __len__(self) -> int:
        return len(self._entries)
