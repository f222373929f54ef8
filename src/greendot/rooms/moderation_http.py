"""HTTP routes of moderation: messages that the app edits or deletes, deleted rooms, and the audit."""

from __future__ import annotations

from typing import Annotated

from msgspec import Raw, Struct, structs
from starlette.requests import Request

from greendot.auth.api_keys import ApiKeys
from greendot.clock import Clock
from greendot.errors import NoSuchMessage
from greendot.http.operation import operation
from greendot.http.problem import Problem
from greendot.http.request import Body, Span, check_size
from greendot.ids import APP_USER, new_message_id
from greendot.limits.publisher_backpressure import Backpressure
from greendot.limits.rate_limits import RateLimits
from greendot.protocol.commands import Id, Seq
from greendot.protocol.fields import RoomField, about
from greendot.protocol.replies import SendReply
from greendot.rooms.http import By, ReasonField, no_room
from greendot.rooms.messages import NOTHING
from greendot.rooms.moderation import SETTINGS, RoomModeration
from greendot.store.audit import AuditAction, AuditEntry, AuditFilter, AuditNote
from greendot.store.port import Store
from greendot.store.rooms import Draft

SYSTEM = APP_USER  # shown as the author of a change without `by`


class PatchMessage(Body):
    """New content of a message."""

    body: Annotated[Raw, about("New content of the message: any JSON value.")]
    by: Annotated[
        Id | None,
        about("Id that clients see as the editor, and the actor in the audit. Default: `system`, and the API key."),
    ] = None
    reason: ReasonField = None
    key: Annotated[
        Id | None,
        about(
            "Idempotency key. If the editor already has a record with this key in the room, nothing is written; the "
            "answer describes that record. Without it, the header `Idempotency-Key` counts."
        ),
    ] = None


class Removal(Struct, frozen=True):
    """Query of a deletion."""

    by: By = None
    reason: ReasonField = None


class AuditQuery(Span, frozen=True):
    """Query of the audit: a page of entries with these properties."""

    room: Annotated[Id | None, about("Only entries about this room.")] = None
    user: Annotated[Id | None, about("Only entries about this user, such as the author of a deleted message.")] = None
    action: Annotated[AuditAction | None, about("Only entries of this action.")] = None


class AuditShown(Struct):
    """Entry of the audit."""

    number: Annotated[int, about("Number of the entry in the tenant: 1, 2, 3 …")]
    at: Annotated[int, about("Time of the change, in milliseconds UTC.")]
    actor: Annotated[
        str, about("Who made the change: `by` of the request, else the name of the API key. Empty: an erased user.")
    ]
    action: Annotated[AuditAction, about("What was changed.")]
    room: Annotated[RoomField | None, about("Id of the room; null: the whole tenant.")]
    user: Annotated[
        str | None, about("User whom the change concerns, such as the author of the message; null: none, or erased.")
    ]
    ref: Annotated[int | None, about("Number of the message; null: none.")]
    reason: Annotated[str | None, about("Reason that the request gave; null: none.")]
    until: Annotated[int | None, about("End of a mute or a ban, in milliseconds UTC; null: no end.")]
    slow_mode_s: Annotated[
        int | None, about("Seconds that slow mode was set to; 0: slow mode was ended; null: another action.")
    ]


class AuditPage(Struct):
    """Page of the audit, in ascending order."""

    entries: Annotated[list[AuditShown], about("Entries in ascending order: the newest is the last one.")]


class ModerationRoutes:
    """Routes that change messages and rooms by order of the app, and the route of the audit."""

    def __init__(
        self,
        keys: ApiKeys,
        store: Store,
        clock: Clock,
        rate_limits: RateLimits,
        backpressure: Backpressure,
        moderation: RoomModeration,
    ) -> None:
        self._keys = keys
        self._store = store
        self._clock = clock
        self._rate_limits = rate_limits
        self._backpressure = backpressure
        self._moderation = moderation

    @operation("PATCH /v1/rooms/{room}/messages/{seq}", fails=(404, 429))
    async def edit(
        self, request: Request, room: str, seq: Seq, body: PatchMessage, idempotency_key: str | None
    ) -> SendReply:
        """Edit a message of any author. The answer describes the record that carries the edit."""
        check_size(body.body)
        draft = self._draft(body.by, body.key or idempotency_key, seq)
        note = self._note(request, "message.edited", body.by, body.reason)
        return await self._change(room, structs.replace(draft, op="edit", body=bytes(body.body)), note)

    @operation("DELETE /v1/rooms/{room}/messages/{seq}", fails=(404, 429))
    async def delete(self, request: Request, room: str, seq: Seq, query: Removal) -> SendReply:
        """Delete a message of any author, and erase its content and that of its edits.

        The message keeps its number. The answer describes the record that carries the deletion. For a message that was
        deleted before, this is the record of the first deletion.
        """
        draft = self._draft(query.by, None, seq)
        note = self._note(request, "message.deleted", query.by, query.reason)
        return await self._change(room, structs.replace(draft, op="delete"), note)

    @operation("DELETE /v1/rooms/{room}", status=202, fails=(404,))
    async def delete_room(self, request: Request, room: str, query: Removal) -> None:
        """Delete a room with its messages and members.

        From now on, no user can join or read the room, or send to it. Its listeners get `room.changed` with `removed`.
        A job removes the data of the room. Until it has ended, `PUT` of a room with the same name fails with 409.
        """
        note = self._note(request, "room.deleted", query.by, query.reason)
        if not await self._moderation.delete(note.tenant, room, note._replace(room=room)):
            raise no_room(room)

    @operation("GET /v1/audit")
    async def audit(self, request: Request, query: AuditQuery) -> AuditPage:
        """Return changes that the app made by moderation, in ascending order, one page at a time."""
        only = AuditFilter(query.room, query.user, query.action)
        tenant = self._keys.tenant(request)
        found = await self._store.audit(tenant, only, after=query.after, before=query.before, limit=query.limit)
        return AuditPage([_shown(entry) for entry in found])

    def _draft(self, by: str | None, key: str | None, seq: int) -> Draft:
        return Draft(by or SYSTEM, None, NOTHING, key or new_message_id(), self._clock.now_ms(), seq)

    def _note(self, request: Request, action: AuditAction, by: str | None, reason: str | None) -> AuditNote:
        caller = self._keys.caller(request)
        actor = by or caller.name or SETTINGS
        return AuditNote(self._keys.tenant(request), self._clock.now_ms(), actor, action, reason=reason)

    async def _change(self, room: str, draft: Draft, note: AuditNote) -> SendReply:
        await self._backpressure.check_room(note.tenant, room)
        self._rate_limits.app_message(note.tenant, room)
        try:
            record = await self._moderation.change(note.tenant, room, draft, note._replace(room=room, ref=draft.ref))
        except NoSuchMessage:
            raise Problem(404, f"room {room!r} has no message {draft.ref}, or it was deleted") from None
        if record is None:
            raise no_room(room)
        return SendReply(record.id, record.seq)


def _shown(entry: AuditEntry) -> AuditShown:
    e = entry
    return AuditShown(e.number, e.at, e.actor, e.action, e.room, e.user, e.ref, e.reason, e.until, e.slow_mode_s)
