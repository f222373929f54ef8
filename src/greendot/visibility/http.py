"""HTTP routes of contacts, which the app sets."""

from __future__ import annotations

from msgspec import Struct
from starlette.requests import Request

from greendot.auth.api_keys import ApiKeys
from greendot.clock import Clock
from greendot.http.operation import operation
from greendot.http.problem import Problem
from greendot.protocol.commands import Seq
from greendot.visibility.updates import VisibilityUpdates


class PutContact(Struct):
    """The body of PUT /v1/users/{user}/contacts/{other}; it may be left out."""

    last_contact_at: Seq | None = None  # None: now


class Contact(Struct):
    """Whom a user has as a contact, and since when they were in contact last."""

    user: str
    contact: str
    last_contact_at: int


class ContactRoutes:
    """Routes of `/v1/users/{user}/contacts`."""

    def __init__(
        self,
        keys: ApiKeys,
        clock: Clock,
        visibility_updates: VisibilityUpdates,
    ) -> None:
        self._keys = keys
        self._clock = clock
        self._visibility_updates = visibility_updates

    @operation("PUT /v1/users/{user}/contacts/{other}")
    async def put(self, request: Request, user: str, other: str, body: PutContact) -> Contact:
        """Make one user a contact of another, or say that they were in contact. One way."""
        key, now, at = self._key(request, user, other), self._clock.now_ms(), body.last_contact_at
        # A time in the future would be recent for longer than the settings allow.
        at = now if at is None else min(at, now)
        await self._visibility_updates.put_contact(key, other, at)
        return Contact(user, other, at)

    @operation("DELETE /v1/users/{user}/contacts/{other}")
    async def remove(self, request: Request, user: str, other: str) -> None:
        """Take a contact back: in force on every node. 503: not known to be; do it again."""
        await self._visibility_updates.remove_contact(self._key(request, user, other), other)

    def _key(self, request: Request, user: str, other: str) -> tuple[str, str]:
        if user == other:
            raise Problem(400, "a user cannot be their own contact; name two different users", code="bad_field")
        return self._keys.tenant(request), user
