"""Rooms over HTTP: making them, their members, what is said in them."""

from __future__ import annotations

from msgspec import UNSET, Raw, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from greendot.api.backend import Backend
from greendot.api.problem import Problem
from greendot.api.request import check_size, cursor, idempotency_key, json, number, path_id, position, read_body
from greendot.engine.base import Deliver, Topic
from greendot.ids import new_message_id
from greendot.protocol.codec import encode_event
from greendot.protocol.commands import Id, Text
from greendot.protocol.events import RoomMessage, Signal
from greendot.protocol.replies import SendReply, Typer
from greendot.store.base import BusMode, Draft, Record, Role, Room
from greendot.store.events import fit, message_event


class PutRoom(Struct):
    """The body of PUT /v1/rooms/{room}."""

    open: bool | None = None  # None keeps what it is; a new room is closed
    bus: BusMode | None = None  # None keeps what it is; a new room is `full`


class PutMember(Struct):
    """The body of PUT /v1/rooms/{room}/members/{user}; it may be left out."""

    role: Role = "member"


class PostMessage(Struct):
    """The body of POST /v1/rooms/{room}/messages."""

    user: Id
    body: Raw
    name: Text | None = None
    key: Id | None = None


class Messages(Struct, frozen=True):
    """The answer to GET /v1/rooms/{room}/messages."""

    messages: list[RoomMessage]
    next: int | None  # what to give as `after` for those that follow, or as `before`; None if there are no more


class PostSignal(Struct, rename={"sender": "from"}):
    """The body of POST /v1/signals."""

    kind: Id
    room: Id | None = None
    user: Id | None = None
    body: Raw | UnsetType = UNSET
    key: Id | None = None
    sender: Id = "system"
    name: Text | None = None


class RoomRoutes:
    """`/v1/rooms` and `/v1/signals`."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def routes(self) -> list[Route]:
        return [
            Route("/v1/rooms", self.all),
            Route("/v1/rooms/{room}", self.put, methods=["PUT"]),
            Route("/v1/rooms/{room}", self.get),
            Route("/v1/rooms/{room}/members", self.members),
            Route("/v1/rooms/{room}/members/{user}", self.add_member, methods=["PUT"]),
            Route("/v1/rooms/{room}/members/{user}", self.remove_member, methods=["DELETE"]),
            Route("/v1/rooms/{room}/present", self.present),
            Route("/v1/rooms/{room}/typing", self.typing),
            Route("/v1/rooms/{room}/messages", self.messages),
            Route("/v1/rooms/{room}/messages", self.send, methods=["POST"]),
            Route("/v1/signals", self.signal, methods=["POST"]),
        ]

    # --- rooms ---

    async def all(self, request: Request) -> Response:
        tenant, limit = self._backend.keys.tenant(request), number(request, "limit", 100, 1_000)
        rooms = await self._backend.store.rooms(tenant, cursor(request), limit)
        return json({"rooms": [_shown(room) for room in rooms]})

    async def put(self, request: Request) -> Response:
        tenant, room = self._backend.keys.tenant(request), path_id(request, "room")
        body = await read_body(request, PutRoom)
        return json(_shown(await self._backend.speaking.put_room(tenant, room, body.open, body.bus)))

    async def get(self, request: Request) -> Response:
        return json(_shown(await self._room(request)))

    # --- members ---

    async def members(self, request: Request) -> Response:
        room, limit = await self._room(request), number(request, "limit", 100, 1_000)
        members = await self._backend.store.members(room.tenant, room.room, cursor(request), limit)
        users = [member.user for member in members]
        roles = {member.user: member.role for member in members}
        return json({"members": users, "roles": roles, "next": users[-1] if len(users) == limit else None})

    async def add_member(self, request: Request) -> Response:
        room, user = await self._room(request), path_id(request, "user")
        body = await read_body(request, PutMember)
        await self._backend.speaking.put_member(room.tenant, room.room, user, body.role)
        return json({"room": room.room, "user": user, "role": body.role})

    async def remove_member(self, request: Request) -> Response:
        room, user = await self._room(request), path_id(request, "user")
        await self._backend.speaking.remove_member(room.tenant, room, user)
        return Response(status_code=204)

    async def present(self, request: Request) -> Response:
        room, limit = await self._room(request), number(request, "limit", 100, 1_000)
        topic = Topic("room", room.tenant, room.room)
        return json(await self._backend.rooms.present(topic, None, cursor(request), limit))

    async def typing(self, request: Request) -> Response:
        room = await self._room(request)
        typists = await self._backend.engine.typers(room.tenant, room.room)
        return json({"typing": [Typer(*typist) for typist in typists]})

    # --- what is said ---

    async def messages(self, request: Request) -> Response:
        room, limit = await self._room(request), number(request, "limit", 50, 300)
        after, before = position(request, "after"), position(request, "before")
        if after is not None and before is not None:
            raise Problem(400, "give either `after` or `before`", code="bad_field")
        found = await self._backend.store.messages(room.tenant, room.room, after=after, before=before, limit=limit)
        page = fit(found, newest=after is None)
        return json(Messages([message_event(record) for record in page], _next(room, page, newest=after is None)))

    async def send(self, request: Request) -> Response:
        room = await self._room(request)
        body = await read_body(request, PostMessage)
        key = body.key or idempotency_key(request) or new_message_id()
        check_size(body.body)
        await self._backend.targets.check_room(room.tenant, room.room)
        self._backend.limiting.app_message(room.tenant, room.room)
        draft = Draft(body.user, body.name, bytes(body.body), key, self._backend.clock.now_ms())
        self._backend.engine.typing_stop(room.tenant, room.room, body.user)
        record = await self._backend.speaking.append(room.tenant, room.room, draft)
        return json(SendReply(record.id, record.seq), 201)

    async def signal(self, request: Request) -> Response:
        tenant = self._backend.keys.tenant(request)
        body = await read_body(request, PostSignal)
        if (body.room is None) == (body.user is None):
            raise Problem(400, "give either `room` or `user`", code="bad_field")
        check_size(body.body)
        if body.room is not None:
            await self._backend.targets.check_room(tenant, body.room)
        else:
            await self._backend.targets.check_users(tenant, [body.user or ""])
        self._backend.limiting.app_signal(tenant, body.room)
        signal = Signal(
            sender=body.sender,
            name=body.name,
            kind=body.kind,
            room=body.room or UNSET,
            body=body.body,
            key=body.key or UNSET,
        )
        key = body.key and (body.sender, body.kind, body.key)
        message = Deliver(encode_event(signal, self._backend.clock.now_ms()), key=key)
        topic = Topic("room", tenant, body.room) if body.room else Topic("user", tenant, body.user or "")
        self._backend.engine.publish(topic, message)
        return Response(status_code=202)

    async def _room(self, request: Request) -> Room:
        tenant, name = self._backend.keys.tenant(request), path_id(request, "room")
        room = await self._backend.store.room(tenant, name)
        if room is None:
            raise Problem(404, f"there is no room {name!r}; make it with PUT /v1/rooms/{name}")
        return room


def _next(room: Room, page: list[Record], *, newest: bool) -> int | None:
    """Numbers have no gaps: the page that reaches the first or the last is the last one."""
    if not page or (page[0].seq <= 1 if newest else page[-1].seq >= room.head):
        return None
    return page[0].seq if newest else page[-1].seq


def _shown(room: Room) -> dict[str, object]:
    return {"room": room.room, "open": room.open, "head": room.head, "bus": room.bus}
