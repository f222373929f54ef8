"""Tokens and sessions that count no longer, though they have not ended.

What is revoked is a token by its `jti`, a session by its id, or everything that a user, a tenant or all tenants were
given before a time. An entry is needed only as long as a token from before it could be valid.
"""

from __future__ import annotations

import re
from hashlib import sha256
from heapq import heappop, heappush
from typing import Literal, NamedTuple, get_args

from msgspec import Struct, structs


class Grants(Struct, frozen=True, gc=False):
    """The claims of a verified token. The user id comes from here and from nowhere else."""

    tenant: str
    user: str
    expires_at: int  # milliseconds UTC
    name: str | None = None
    rooms: tuple[str, ...] = ()  # patterns of rooms that may be joined without membership
    watch: tuple[str, ...] | None = None  # patterns of users that may be watched; None: anyone in the tenant
    send: bool = True
    issued_at: int | None = None
    token_id: str | None = None

    def may_join(self, room: str) -> bool:
        """Whether the token itself opens `room`; membership and open rooms are the store's to know."""
        return any(matches(pattern, room) for pattern in self.rooms)

    def may_watch(self, user: str) -> bool:
        return self.watch is None or user == self.user or any(matches(p, user) for p in self.watch)


def matches(pattern: str, text: str) -> bool:
    """Whether `text` fits `pattern`, in which `*` stands for any run of characters and nothing else is special."""
    first, *rest = pattern.split("*")
    if not rest:
        return pattern == text
    if not text.startswith(first):
        return False
    *middle, last = rest
    at = len(first)
    for part in middle:
        at = text.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return len(text) - len(last) >= at and text.endswith(last)


RevocationKind = Literal["jti", "session", "user", "tenant"]
EVERY_TENANT = "*"  # in place of a tenant, which cannot be called so
Name = tuple[str, RevocationKind, str]  # tenant, kind and value
EVERYTHING: Name = (EVERY_TENANT, "tenant", EVERY_TENANT)


class Revocation(Struct, frozen=True):
    """One entry."""

    tenant: str
    kind: RevocationKind
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


KeyScope = Literal[
    "presence:read",  # who is online
    "rooms:read",  # rooms, members, messages, who is there and types
    "rooms:write",  # make rooms, change members, speak
    "notify",  # notifications, and what became of them
    "signals",
    "users:write",  # what a user could set: status, devices, contacts
    "sessions",  # list and end them
    "stats:read",  # counts of the tenant
    "admin",  # all of these
    "operator",  # the nodes themselves; no tenant's key has it
]
SCOPES: tuple[KeyScope, ...] = tuple(
    scope for scope in get_args(KeyScope) if scope != "operator"
)  # a tenant's key may have

_match = re.compile(r"gd_([0-9A-Za-z]{12})_([0-9A-Za-z]{43})\Z", re.ASCII).match


class ShownKey(NamedTuple):
    """The parts of a key that somebody shows."""

    id: str
    secret: str


class Caller(Struct, frozen=True):
    """Who asks, by the key that was shown."""

    tenant: str | None  # None: an operator, who belongs to no tenant
    scopes: frozenset[str]
    name: str = ""  # of the key, which has it whatever its secret; empty: the one of the settings

    def may(self, scope: KeyScope) -> bool:
        if scope in self.scopes:
            return True
        if scope == "operator":
            return False
        return "admin" in self.scopes or (scope == "stats:read" and "operator" in self.scopes)


def parse(text: str) -> ShownKey | None:
    """None if it is not the text of a key: nobody need look for it."""
    found = _match(text)
    return None if found is None else ShownKey(*found.groups())


def text_of(id: str, secret: str) -> str:
    return f"gd_{id}_{secret}"


def hash_of(secret: str) -> bytes:
    """What is kept of a secret."""
    return sha256(secret.encode()).digest()
