"""Grants of tokens, revocations, and API keys with their scopes: pure rules.

A revocation covers a token by its `jti`, a session by its id, or all tokens that a user, a tenant or all tenants got
before a time. It is needed only as long as a token from before could be valid.
"""

from __future__ import annotations

import re
from hashlib import sha256
from heapq import heappop, heappush
from typing import Literal, NamedTuple, get_args

from msgspec import Struct, structs


class Grants(Struct, frozen=True, gc=False):
    """Claims of a verified token. The user id comes from here and from nowhere else."""

    tenant: str
    user: str
    expires_at: int  # milliseconds UTC
    name: str | None = None
    rooms: tuple[str, ...] = ()  # patterns of rooms that may be joined without membership
    watch: tuple[str, ...] | None = None  # patterns of users that may be watched; None: anyone in the tenant
    send: bool = True
    issued_at: int | None = None
    token_id: str | None = None
    info: bytes | None = None  # claim `info` as JSON, empty if it is an empty object; None without the claim

    def may_join(self, room: str) -> bool:
        """Return whether the token itself opens `room`. Membership and open rooms are known to the store."""
        return any(matches(pattern, room) for pattern in self.rooms)

    def may_watch(self, user: str) -> bool:
        return self.watch is None or user == self.user or any(matches(p, user) for p in self.watch)


def matches(pattern: str, text: str) -> bool:
    """Return whether `text` fits `pattern`. `*` stands for any run of characters; nothing else is special."""
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


RevocationKind = Literal["jti", "session", "user", "tenant", "ban", "mute"]
RESTRICTIONS: tuple[RevocationKind, ...] = ("ban", "mute")  # of a user in the tenant: they end, or are lifted
LIFTED = -1  # `before` of a restriction that was lifted
EVERY_TENANT = "*"  # stands for all tenants; no tenant can have this name
Name = tuple[str, RevocationKind, str]  # tenant, kind and value
EVERYTHING: Name = (EVERY_TENANT, "tenant", EVERY_TENANT)


class Revocation(Struct, frozen=True):
    """Entry that revokes a token, a session, or the tokens of a user or tenant."""

    tenant: str
    kind: RevocationKind
    value: str  # the `jti` of the token, or the id of the session, user or tenant
    expires_at: int  # milliseconds UTC
    before: int = 0  # for a user or tenant: tokens issued before this time are revoked, milliseconds UTC
    number: int = 0  # of a restriction: the entry with the largest number counts

    @property
    def name(self) -> Name:
        return self.tenant, self.kind, self.value


def names_of(grants: Grants) -> list[Name]:
    """Return the names of the entries that could revoke a token, apart from its session's."""
    tenant = grants.tenant
    names: list[Name] = [(tenant, "user", grants.user), (tenant, "tenant", tenant), EVERYTHING]
    return names if grants.token_id is None else [*names, (tenant, "jti", grants.token_id)]


class Revocations:
    """Revocations that are valid now."""

    def __init__(self) -> None:
        self._entries: dict[Name, Revocation] = {}
        self._ends: list[tuple[int, Name]] = []  # a heap
        self._restrictions = 0  # entries that are restrictions

    def put(self, entry: Revocation) -> bool:
        """Store an entry; return whether it adds something. Of two entries with one name, the later dates count."""
        known = self._entries.get(entry.name)
        if entry.kind in RESTRICTIONS:
            if known is not None and known.number >= entry.number:
                return False
            self._restrictions += known is None
        elif known is not None:
            before, expires_at = max(entry.before, known.before), max(entry.expires_at, known.expires_at)
            entry = structs.replace(entry, before=before, expires_at=expires_at)
        if entry == known:
            return False
        self._entries[entry.name] = entry
        heappush(self._ends, (entry.expires_at, entry.name))
        return True

    def covers(self, grants: Grants, session: str | None = None) -> bool:
        """Return whether the token is revoked, or the session it is used for."""
        if not self._entries:
            return False
        if session is not None and (grants.tenant, "session", session) in self._entries:
            return True
        for name in names_of(grants):
            entry = self._entries.get(name)
            # A token without a time of issue may be an old one.
            if entry is not None and (name[1] == "jti" or grants.issued_at is None or grants.issued_at < entry.before):
                return True
        return False

    def restricted_until(self, kind: RevocationKind, tenant: str, user: str, now_ms: int) -> int:
        """Return the end of a user's restriction in the tenant, milliseconds UTC; 0 if there is none now."""
        if not self._restrictions or (entry := self._entries.get((tenant, kind, user))) is None:
            return 0
        return entry.expires_at if entry.before != LIFTED and entry.expires_at > now_ms else 0

    def of_user(self, tenant: str, user: str) -> Revocation | None:
        """Return the entry that revokes the user's earlier tokens, if any."""
        return self._entries.get((tenant, "user", user))

    def expire(self, now_ms: int) -> None:
        """Delete expired entries."""
        while self._ends and self._ends[0][0] <= now_ms:
            _, name = heappop(self._ends)
            entry = self._entries.get(name)
            if entry is not None and entry.expires_at <= now_ms:
                del self._entries[name]
                self._restrictions -= entry.kind in RESTRICTIONS

    @property
    def is_empty(self) -> bool:
        return not self._entries

    def __len__(self) -> int:
        return len(self._entries)


KeyScope = Literal[
    "presence:read",  # presence of users
    "rooms:read",  # rooms, members, messages, occupants and who types
    "rooms:write",  # create rooms, change members, send
    "notify",  # notifications and their receipts
    "signals",
    "users:write",  # what a user could set: status, devices, contacts; the mode of presence
    "sessions",  # list and end sessions
    "stats:read",  # counts of the tenant
    "admin",  # all of these
    "operator",  # the nodes themselves; no tenant's key has it
]
SCOPES: tuple[KeyScope, ...] = tuple(
    scope for scope in get_args(KeyScope) if scope != "operator"
)  # scopes that a tenant's key may have

_match = re.compile(r"gd_([0-9A-Za-z]{12})_([0-9A-Za-z]{43})\Z", re.ASCII).match


class ShownKey(NamedTuple):
    """Parts of a key that a request carries."""

    id: str
    secret: str


class Caller(Struct, frozen=True):
    """Sender of a request, by its API key."""

    tenant: str | None  # None: an operator, who belongs to no tenant
    scopes: frozenset[str]
    name: str = ""  # name of the key, the same for all its secrets; empty: the key of the settings

    def may(self, scope: KeyScope) -> bool:
        if scope in self.scopes:
            return True
        if scope == "operator":
            return False
        return "admin" in self.scopes or (scope == "stats:read" and "operator" in self.scopes)


def parse(text: str) -> ShownKey | None:
    """Return the parts of a key; None if the text is no key, and needs no look-up."""
    found = _match(text)
    return None if found is None else ShownKey(*found.groups())


def text_of(id: str, secret: str) -> str:
    return f"gd_{id}_{secret}"


def hash_of(secret: str) -> bytes:
    """Return the hash that is stored in place of a secret."""
    return sha256(secret.encode()).digest()
