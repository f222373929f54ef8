"""API keys: what one looks like, and what its bearer may do.

A key is `gd_ID_SECRET`. The id finds the key; the secret proves it and is kept nowhere, only its hash. It is 256 random
bits, so a plain SHA-256 is as good as a slow hash, and a request does not have to wait for one.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Literal, NamedTuple, get_args

from msgspec import Struct

Scope = Literal[
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
SCOPES: tuple[Scope, ...] = tuple(scope for scope in get_args(Scope) if scope != "operator")  # a tenant's key may have

_match = re.compile(r"gd_([0-9A-Za-z]{12})_([0-9A-Za-z]{43})\Z", re.ASCII).match


class Shown(NamedTuple):
    """The parts of a key that somebody shows."""

    id: str
    secret: str


class Caller(Struct, frozen=True):
    """Who asks, by the key that was shown."""

    tenant: str | None  # None: an operator, who belongs to no tenant
    scopes: frozenset[str]
    name: str = ""  # of the key, which has it whatever its secret; empty: the one of the settings

    def may(self, scope: Scope) -> bool:
        if scope in self.scopes:
            return True
        if scope == "operator":
            return False
        return "admin" in self.scopes or (scope == "stats:read" and "operator" in self.scopes)


def parse(text: str) -> Shown | None:
    """None if it is not the text of a key: nobody need look for it."""
    found = _match(text)
    return None if found is None else Shown(*found.groups())


def text_of(id: str, secret: str) -> str:
    return f"gd_{id}_{secret}"


def hash_of(secret: str) -> bytes:
    """What is kept of a secret."""
    return sha256(secret.encode()).digest()
