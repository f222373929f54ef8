"""HTTP routes of mutes and bans, in a room and in the whole tenant."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct
from starlette.requests import Request

from greendot.auth.api_keys import ApiKeys
from greendot.clock import Clock
from greendot.http.operation import operation
from greendot.http.problem import Problem
from greendot.http.request import Body, Page
from greendot.protocol.fields import RoomField, about
from greendot.rooms.http import By, ReasonField, no_room
from greendot.rooms.moderation import SETTINGS
from greendot.rooms.moderation_http import Removal
from greendot.rooms.restrictions import RestrictionService
from greendot.store.audit import AuditAction, AuditNote
from greendot.store.port import Store
from greendot.store.restrictions import EVERYWHERE, FOREVER, Restriction, RestrictionKind

_ACTIONS: dict[tuple[RestrictionKind, bool], AuditAction] = {
    ("mute", True): "user.muted",
    ("mute", False): "user.unmuted",
    ("ban", True): "user.banned",
    ("ban", False): "user.unbanned",
}


class PutRestriction(Body):
    """Mute or ban of a user. The body may be empty."""

    until: Annotated[
        Annotated[int, Meta(ge=0, le=FOREVER)] | None,
        about("Time when it ends, in milliseconds UTC; null: no end."),
    ] = None
    by: By = None
    reason: ReasonField = None


class RestrictionShown(Struct):
    """Mute or ban of a user."""

    user: Annotated[str, about("Id of the user.")]
    room: Annotated[RoomField | None, about("Id of the room; null: the whole tenant.")]
    until: Annotated[int | None, about("Time when it ends, in milliseconds UTC; null: no end.")]
    at: Annotated[int, about("Time when it was made, in milliseconds UTC.")]
    by: Annotated[str, about("Who made it: `by` of the request, else the name of the API key.")]
    reason: Annotated[str | None, about("Reason that the request gave; null: none.")]


class Restrictions(Struct):
    """Page of mutes or bans that have not ended."""

    users: Annotated[list[RestrictionShown], about("Mutes or bans, in the order of user ids.")]
    next: Annotated[str | None, about("Value of `after` for the next page; null: this page is the last one.")]


class RestrictionRoutes:
    """Routes that mute and ban users, and list whom."""

    def __init__(self, keys: ApiKeys, store: Store, clock: Clock, restrictions: RestrictionService) -> None:
        self._keys = keys
        self._store = store
        self._clock = clock
        self._restrictions = restrictions

    # --- in a room ---

    @operation("GET /v1/rooms/{room}/mutes", fails=(404,))
    async def room_mutes(self, request: Request, room: str, query: Page) -> Restrictions:
        """List the users who are muted in a room in the order of their ids, one page at a time."""
        return await self._list(request, room, "mute", query)

    @operation("PUT /v1/rooms/{room}/mutes/{user}", fails=(404,))
    async def mute_in_room(self, request: Request, room: str, user: str, body: PutRestriction) -> RestrictionShown:
        """Mute a user in a room, until a time or without end. A muted user can read, but cannot send."""
        return await self._restrict(request, room, user, "mute", body)

    @operation("DELETE /v1/rooms/{room}/mutes/{user}", fails=(404,))
    async def unmute_in_room(self, request: Request, room: str, user: str, query: Removal) -> None:
        """End the mute of a user in a room."""
        await self._lift(request, room, user, "mute", query)

    @operation("GET /v1/rooms/{room}/bans", fails=(404,))
    async def room_bans(self, request: Request, room: str, query: Page) -> Restrictions:
        """List the users who are banned from a room in the order of their ids, one page at a time."""
        return await self._list(request, room, "ban", query)

    @operation("PUT /v1/rooms/{room}/bans/{user}", fails=(404,))
    async def ban_from_room(self, request: Request, room: str, user: str, body: PutRestriction) -> RestrictionShown:
        """Ban a user from a room, until a time or without end. A membership stays, and has no effect meanwhile.

        No node delivers frames of the room to the user after the answer. A 503 means that a node has not confirmed the
        ban; send the request again.
        """
        return await self._restrict(request, room, user, "ban", body)

    @operation("DELETE /v1/rooms/{room}/bans/{user}", fails=(404,))
    async def unban_from_room(self, request: Request, room: str, user: str, query: Removal) -> None:
        """End the ban of a user from a room."""
        await self._lift(request, room, user, "ban", query)

    # --- in the tenant ---

    @operation("GET /v1/mutes")
    async def mutes(self, request: Request, query: Page) -> Restrictions:
        """List the mutes in the tenant, without mutes in single rooms, in the order of user ids, one page at a time."""
        return await self._list(request, EVERYWHERE, "mute", query)

    @operation("PUT /v1/mutes/{user}")
    async def mute(self, request: Request, user: str, body: PutRestriction) -> RestrictionShown:
        """Mute a user in all rooms, until a time or without end."""
        return await self._restrict(request, EVERYWHERE, user, "mute", body)

    @operation("DELETE /v1/mutes/{user}")
    async def unmute(self, request: Request, user: str, query: Removal) -> None:
        """End the mute of a user in all rooms. Mutes in single rooms stay."""
        await self._lift(request, EVERYWHERE, user, "mute", query)

    @operation("GET /v1/bans")
    async def bans(self, request: Request, query: Page) -> Restrictions:
        """List the users who are banned from the tenant in the order of their ids, one page at a time."""
        return await self._list(request, EVERYWHERE, "ban", query)

    @operation("PUT /v1/bans/{user}")
    async def ban(self, request: Request, user: str, body: PutRestriction) -> RestrictionShown:
        """Ban a user from the tenant, until a time or without end. The user's connections are closed with 4501.

        A 503 means that a node has not confirmed the ban; send the request again.
        """
        return await self._restrict(request, EVERYWHERE, user, "ban", body)

    @operation("DELETE /v1/bans/{user}")
    async def unban(self, request: Request, user: str, query: Removal) -> None:
        """End the ban of a user from the tenant. Bans from single rooms stay."""
        await self._lift(request, EVERYWHERE, user, "ban", query)

    async def _list(self, request: Request, room: str, kind: RestrictionKind, query: Page) -> Restrictions:
        tenant, limit = self._keys.tenant(request), query.limit
        if room != EVERYWHERE and await self._store.room(tenant, room) is None:
            raise no_room(room)
        found = await self._store.restrictions(tenant, room, kind, query.after, limit, self._clock.now_ms())
        return Restrictions([_shown(entry) for entry in found], found[-1].user if len(found) == limit else None)

    async def _restrict(
        self, request: Request, room: str, user: str, kind: RestrictionKind, body: PutRestriction
    ) -> RestrictionShown:
        note = self._note(request, room, user, _ACTIONS[kind, True], body)._replace(until=body.until)
        if body.until is not None and body.until <= note.at:
            raise Problem(400, "field `until` is in the past: give milliseconds UTC, not seconds", code="bad_field")
        until = FOREVER if body.until is None else body.until
        restriction = Restriction(note.tenant, room, user, kind, until, note.at, note.actor, body.reason)
        if not await self._restrictions.restrict(restriction, note):
            raise no_room(room)
        return _shown(restriction)

    async def _lift(self, request: Request, room: str, user: str, kind: RestrictionKind, query: Removal) -> None:
        note = self._note(request, room, user, _ACTIONS[kind, False], query)
        if not await self._restrictions.lift(note.tenant, room, user, kind, note):
            raise no_room(room)

    def _note(
        self, request: Request, room: str, user: str, action: AuditAction, why: PutRestriction | Removal
    ) -> AuditNote:
        actor = why.by or self._keys.caller(request).name or SETTINGS
        tenant, now = self._keys.tenant(request), self._clock.now_ms()
        return AuditNote(tenant, now, actor, action, room or None, user, reason=why.reason)


def _shown(of: Restriction) -> RestrictionShown:
    until = None if of.until == FOREVER else of.until
    return RestrictionShown(of.user, of.room or None, until, of.at, of.actor, of.reason)
