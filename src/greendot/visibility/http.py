"""HTTP routes of contacts, which the app sets."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct
from starlette.requests import Request

from greendot.auth.api_keys import ApiKeys
from greendot.clock import Clock
from greendot.http.operation import operation
from greendot.http.problem import Problem
from greendot.http.request import Body
from greendot.protocol.commands import Seq
from greendot.protocol.fields import about
from greendot.visibility.updates import VisibilityUpdates


class PutContact(Body):
    """Time of the last contact between two users. The body may be empty."""

    last_contact_at: Annotated[
        Seq | None,
        about(
            "Time of the last contact, in milliseconds UTC; null or a time in the future: now. "
            "An earlier time than the stored one changes nothing."
        ),
    ] = None


class Contact(Struct):
    """Contact of a user. The contact is one-way: `contact` does not get `user` as a contact."""

    user: Annotated[str, about("Id of the user who has the contact.")]
    contact: Annotated[str, about("Id of the user who is the contact.")]
    last_contact_at: Annotated[int, about("Time of the last contact, in milliseconds UTC.")]


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
        """Add a contact to a user, or record the time of the last contact. Contacts are one-way."""
        key, now, at = self._key(request, user, other), self._clock.now_ms(), body.last_contact_at
        # A time in the future would be recent for longer than the settings allow.
        at = now if at is None else min(at, now)
        await self._visibility_updates.put_contact(key, other, at)
        return Contact(user, other, at)

    @operation("DELETE /v1/users/{user}/contacts/{other}")
    async def remove(self, request: Request, user: str, other: str) -> None:
        """Remove a contact. The removal is in force on every node when the request is answered.

        A 503 means that a node has not confirmed the removal; send the request again.
        """
        await self._visibility_updates.remove_contact(self._key(request, user, other), other)

    def _key(self, request: Request, user: str, other: str) -> tuple[str, str]:
        if user == other:
            raise Problem(400, "a user cannot be their own contact; name two different users", code="bad_field")
        return self._keys.tenant(request), user
