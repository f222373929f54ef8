"""What a token lets its bearer do."""

from __future__ import annotations

from msgspec import Struct


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
