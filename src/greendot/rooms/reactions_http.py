"""HTTP routes of reactions to messages."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct
from starlette.requests import Request

from greendot.auth.api_keys import ApiKeys
from greendot.clock import Clock
from greendot.errors import NoSuchMessage
from greendot.http.operation import operation
from greendot.http.problem import Problem
from greendot.ids import new_message_id
from greendot.limits.publisher_backpressure import Backpressure
from greendot.limits.rate_limits import RateLimits
from greendot.protocol.commands import Id, Reaction, Seq
from greendot.protocol.fields import about
from greendot.protocol.replies import SendReply
from greendot.rooms.messages import RoomMessages, reaction_body
from greendot.store.rooms import Draft, Op


class Reacting(Struct, frozen=True):
    """Query of a request that sets or removes a reaction."""

    user: Annotated[Id, about("Id of the user whose reaction it is.")]


class Reacted(Struct, frozen=True):
    """Reaction that the app sets or removes."""

    seq: int
    reaction: str
    user: str
    op: Op


class ReactionRoutes:
    """Routes of `/v1/rooms/{room}/messages/{seq}/reactions`."""

    def __init__(
        self,
        keys: ApiKeys,
        clock: Clock,
        rate_limits: RateLimits,
        room_messages: RoomMessages,
        backpressure: Backpressure,
    ) -> None:
        self._keys = keys
        self._clock = clock
        self._rate_limits = rate_limits
        self._room_messages = room_messages
        self._backpressure = backpressure

    @operation("PUT /v1/rooms/{room}/messages/{seq}/reactions/{reaction}", fails=(404, 429))
    async def put(self, request: Request, room: str, seq: Seq, reaction: Reaction, query: Reacting) -> SendReply:
        """Set a reaction of a user to a message. The user need not be connected or a member.

        If the user has the reaction already, nothing is written; the answer describes the record that set it.
        """
        return await self._react(request, room, Reacted(seq, reaction, query.user, "react"))

    @operation("DELETE /v1/rooms/{room}/messages/{seq}/reactions/{reaction}", fails=(404, 429))
    async def delete(self, request: Request, room: str, seq: Seq, reaction: Reaction, query: Reacting) -> SendReply:
        """Remove a reaction of a user to a message.

        If the user does not have the reaction, nothing is written; the answer describes the message.
        """
        return await self._react(request, room, Reacted(seq, reaction, query.user, "unreact"))

    async def _react(self, request: Request, room: str, it: Reacted) -> SendReply:
        tenant = self._keys.tenant(request)
        await self._backpressure.check_room(tenant, room)
        self._rate_limits.app_message(tenant, room)
        draft = Draft(
            user=it.user,
            name=None,
            body=reaction_body(it.reaction),
            key=new_message_id(),
            at=self._clock.now_ms(),
            ref=it.seq,
            op=it.op,
            reaction=it.reaction,
        )
        try:
            record = await self._room_messages.append(tenant, room, draft)
        except NoSuchMessage:
            raise Problem(404, f"there is no message {it.seq} in room {room!r}", code="bad_field") from None
        return SendReply(record.id, record.seq)
