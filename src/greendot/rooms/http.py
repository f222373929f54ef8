"""HTTP routes of rooms, their members, occupants, typists and messages, and of signals."""

from __future__ import annotations

from typing import ClassVar

from msgspec import UNSET, Raw, Struct, UnsetType
from starlette.requests import Request

from greendot.auth.api_keys import ApiKeys
from greendot.clock import Clock
from greendot.engine.messages import Deliver, Topic
from greendot.engine.port import Engine
from greendot.http.operation import operation
from greendot.http.problem import Problem
from greendot.http.request import Page, Span, check_size
from greendot.http.schema import one_of
from greendot.ids import new_message_id
from greendot.limits.publisher_backpressure import Backpressure
from greendot.limits.rate_limits import RateLimits
from greendot.protocol.codec import encode_event
from greendot.protocol.commands import Id, Text
from greendot.protocol.events import RoomMessage, Signal
from greendot.protocol.replies import PresentReply, SendReply, Typer
from greendot.rooms.messages import RoomMessages
from greendot.rooms.service import RoomService
from greendot.store.port import Store
from greendot.store.rooms import BusMode, Draft, Record, Role, Room
from greendot.store.wire import fit, message_event
from greendot.telemetry.spans import parent


class PutRoom(Struct):
    """The body of PUT /v1/rooms/{room}."""

    open: bool | None = None  # None: unchanged; a new room is closed
    bus: BusMode | None = None  # None: unchanged; a new room is `full`


class PutMember(Struct):
    """The body of PUT /v1/rooms/{room}/members/{user}; it may be left out."""

    role: Role = "member"


class PostMessage(Struct):
    """The body of POST /v1/rooms/{room}/messages."""

    user: Id
    body: Raw
    name: Text | None = None
    key: Id | None = None


class PostSignal(Struct, rename={"sender": "from"}):
    """The body of POST /v1/signals."""

    RULE: ClassVar = one_of("room", "user")

    kind: Id
    room: Id | None = None
    user: Id | None = None
    body: Raw | UnsetType = UNSET
    key: Id | None = None
    sender: Id = "system"
    name: Text | None = None


class RoomShown(Struct):
    """A room and the number of its newest message, 0 if there is none."""

    room: str
    open: bool
    head: int
    bus: BusMode


class RoomList(Struct):
    """A page of rooms."""

    rooms: list[RoomShown]


class Members(Struct):
    """A page of members, what each is, and where the next page begins (None: this is the last)."""

    members: list[str]
    roles: dict[str, Role]
    next: str | None


class Membership(Struct):
    """One member of a room."""

    room: str
    user: str
    role: Role


class TypingNow(Struct):
    """Who is typing."""

    typing: list[Typer]


class Messages(Struct, frozen=True):
    """A page of messages in ascending order."""

    messages: list[RoomMessage]
    next: int | None  # `after` or `before` of the next page; None: this is the last


class RoomRoutes:
    """Routes of `/v1/rooms` and `/v1/signals`."""

    def __init__(
        self,
        keys: ApiKeys,
        engine: Engine,
        store: Store,
        clock: Clock,
        rate_limits: RateLimits,
        room_messages: RoomMessages,
        rooms: RoomService,
        backpressure: Backpressure,
    ) -> None:
        self._keys = keys
        self._engine = engine
        self._store = store
        self._clock = clock
        self._rate_limits = rate_limits
        self._room_messages = room_messages
        self._rooms = rooms
        self._backpressure = backpressure

    # --- rooms ---

    @operation("GET /v1/rooms")
    async def all(self, request: Request, query: Page) -> RoomList:
        """The rooms there are, by id."""
        rooms = await self._store.rooms(self._keys.tenant(request), query.after, query.limit)
        return RoomList([_shown(room) for room in rooms])

    @operation("PUT /v1/rooms/{room}")
    async def put(self, request: Request, room: str, body: PutRoom) -> RoomShown:
        """Make a room, or change it."""
        tenant = self._keys.tenant(request)
        return _shown(await self._room_messages.put_room(tenant, room, body.open, body.bus))

    @operation("GET /v1/rooms/{room}", fails=(404,))
    async def get(self, request: Request, room: str) -> RoomShown:
        """A room."""
        return _shown(await self._room(request, room))

    # --- members ---

    @operation("GET /v1/rooms/{room}/members", fails=(404,))
    async def members(self, request: Request, room: str, query: Page) -> Members:
        """The members of a room, by id."""
        of, limit = await self._room(request, room), query.limit
        members = await self._store.members(of.tenant, room, query.after, limit)
        users = [member.user for member in members]
        roles = {member.user: member.role for member in members}
        return Members(users, roles, users[-1] if len(users) == limit else None)

    @operation("PUT /v1/rooms/{room}/members/{user}", fails=(404,))
    async def add_member(self, request: Request, room: str, user: str, body: PutMember) -> Membership:
        """Make a user a member of a room, or give a member another role."""
        of = await self._room(request, room)
        await self._room_messages.put_member(of.tenant, room, user, body.role)
        return Membership(room, user, body.role)

    @operation("DELETE /v1/rooms/{room}/members/{user}", fails=(404,))
    async def remove_member(self, request: Request, room: str, user: str) -> None:
        """Remove a member: the user hears nothing more of the room. 503: not every node has said so; do it again."""
        of = await self._room(request, room)
        await self._room_messages.remove_member(of.tenant, of, user)

    @operation("GET /v1/rooms/{room}/present", fails=(404,))
    async def present(self, request: Request, room: str, query: Page) -> PresentReply:
        """Who is in the room now, on all nodes, by id."""
        topic = Topic("room", (await self._room(request, room)).tenant, room)
        return await self._rooms.present(topic, None, query.after, query.limit)

    @operation("GET /v1/rooms/{room}/typing", fails=(404,))
    async def typing(self, request: Request, room: str) -> TypingNow:
        """Who is typing in the room."""
        of = await self._room(request, room)
        return TypingNow([Typer(*typist) for typist in await self._engine.typers(of.tenant, room)])

    # --- messages and signals ---

    @operation("GET /v1/rooms/{room}/messages", fails=(404,))
    async def messages(self, request: Request, room: str, query: Span) -> Messages:
        """Messages of a room, in ascending order, of no more than 1 MiB of bodies."""
        tenant, newest = self._keys.tenant(request), query.after is None
        found = await self._store.room_page(tenant, room, after=query.after, before=query.before, limit=query.limit)
        if found is None:
            raise _no_room(room)
        page = fit(found.messages, newest=newest)
        return Messages([message_event(record) for record in page], _next(found.room, page, newest=newest))

    @operation("POST /v1/rooms/{room}/messages", status=201, fails=(404, 429))
    async def send(self, request: Request, room: str, body: PostMessage, idempotency_key: str | None) -> SendReply:
        """Send a message as a user, who need not be connected or a member."""
        of = await self._room(request, room)
        key = body.key or idempotency_key or new_message_id()
        check_size(body.body)
        await self._backpressure.check_room(of.tenant, room)
        self._rate_limits.app_message(of.tenant, room)
        draft = Draft(body.user, body.name, bytes(body.body), key, self._clock.now_ms())
        self._engine.typing_stop(of.tenant, room, body.user)
        record = await self._room_messages.append(of.tenant, room, draft)
        return SendReply(record.id, record.seq)

    @operation("POST /v1/signals", status=202, fails=(429,))
    async def signal(self, request: Request, body: PostSignal) -> None:
        """Send a signal to a room or to a user's devices. It is not kept: who is not there misses it."""
        tenant = self._keys.tenant(request)
        if (body.room is None) == (body.user is None):
            raise Problem(400, "give exactly one of `room` and `user`", code="bad_field")
        check_size(body.body)
        if body.room is not None:
            await self._backpressure.check_room(tenant, body.room)
        else:
            await self._backpressure.check_users(tenant, [body.user or ""])
        self._rate_limits.app_signal(tenant, body.room)
        signal = Signal(
            sender=body.sender,
            name=body.name,
            kind=body.kind,
            room=body.room or UNSET,
            body=body.body,
            key=body.key or UNSET,
        )
        key = body.key and (body.sender, body.kind, body.key)
        traceparent = parent()
        frame = encode_event(signal, self._clock.now_ms(), None, traceparent)
        message = Deliver(frame, key=key, traceparent=traceparent)
        topic = Topic("room", tenant, body.room) if body.room else Topic("user", tenant, body.user or "")
        self._engine.publish(topic, message)

    async def _room(self, request: Request, name: str) -> Room:
        room = await self._store.room(self._keys.tenant(request), name)
        if room is None:
            raise _no_room(name)
        return room


def _no_room(name: str) -> Problem:
    return Problem(404, f"there is no room {name!r}; create it with PUT /v1/rooms/{name}")


def _next(room: Room, page: list[Record], *, newest: bool) -> int | None:
    """Return the `before` or `after` of the next page; None if this page is the last.

    Numbers have no gaps: the page that reaches the first number, or the head, is the last one.
    """
    if not page or (page[0].seq <= 1 if newest else page[-1].seq >= room.head):
        return None
    return page[0].seq if newest else page[-1].seq


def _shown(room: Room) -> RoomShown:
    return RoomShown(room.room, room.open, room.head, room.bus)
