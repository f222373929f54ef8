"""HTTP routes of rooms, their members, occupants, typists and messages, and of signals."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from starlette.requests import Request

from greendot.auth.api_keys import ApiKeys
from greendot.clock import Clock
from greendot.engine.messages import Deliver, Topic
from greendot.engine.port import Engine
from greendot.errors import RoomBeingDeleted
from greendot.http.operation import operation
from greendot.http.problem import Problem
from greendot.http.request import Body, Page, Position, Span, check_size
from greendot.http.schema import one_of
from greendot.ids import APP_USER, TEXT_PATTERN, new_message_id
from greendot.limits.publisher_backpressure import Backpressure
from greendot.limits.rate_limits import RateLimits
from greendot.presence.profile_model import NO_PROFILE
from greendot.protocol.codec import encode_event
from greendot.protocol.codes import Err
from greendot.protocol.commands import Id, SignalBody, SignalKey, SignalKind, SignalRoom, SignalUser, Text
from greendot.protocol.events import RoomMessage, Signal
from greendot.protocol.fields import RoomField, RoomHeadField, about
from greendot.protocol.replies import PresentReply, ReceiptEntry, SendReply, Typer
from greendot.rooms.members import archived
from greendot.rooms.messages import RoomMessages
from greendot.rooms.moderation import SETTINGS, RoomModeration
from greendot.rooms.service import RoomService
from greendot.store.audit import AuditAction, AuditNote
from greendot.store.port import Store
from greendot.store.restrictions import PACE_MS
from greendot.store.rooms import BusMode, Draft, Role, Room
from greendot.store.wire import message_page, with_reactions
from greendot.telemetry.spans import parent

Reason = Annotated[str, Meta(max_length=500, pattern=TEXT_PATTERN)]

By = Annotated[
    Id | None,
    about(
        "Id of the person who makes the change, for the audit and the lists of mutes and bans. Default: the name of"
        " the API key."
    ),
]
ReasonField = Annotated[Reason | None, about("Reason for the change, for the audit.")]


class PutRoom(Body):
    """Settings of a room. The body may be empty."""

    open: Annotated[
        bool | None,
        about("Whether users can join the room without being members; null: unchanged. A new room is closed."),
    ] = None
    bus: Annotated[
        BusMode | None,
        about(
            "`full`: the bus between nodes carries messages. `hint`: it carries hints without the content. "
            "Null: unchanged. A new room is `full`."
        ),
    ] = None
    receipts: Annotated[
        bool | None,
        about("Whether users see how far others have read; null: unchanged. A new room has no read receipts."),
    ] = None
    archived: Annotated[
        bool | None,
        about("Whether the room can only be read: no messages, signals or typing. Null: unchanged."),
    ] = None
    slow_mode_s: Annotated[
        Annotated[int, Meta(ge=0, le=PACE_MS // 1000)] | None,
        about("Slow mode: seconds between two messages of one user. 0: no slow mode. Null: unchanged."),
    ] = None
    by: By = None
    reason: ReasonField = None

    def __post_init__(self) -> None:
        if self.archived is None and self.slow_mode_s is None and (self.by is not None or self.reason is not None):
            raise ValueError("`by` and `reason` are for `archived` and `slow_mode_s`; give one of these")


class PutMember(Body):
    """Role of a member. The body may be empty."""

    role: Annotated[
        Role,
        about(
            "`reader`: only receives messages. `member`: also sends messages. "
            "`admin`: also changes messages of other users."
        ),
    ] = "member"


class PostMessage(Body):
    """Message to send to a room."""

    user: Annotated[Id, about("Id of the user who is the author of the message.")]
    body: Annotated[Raw, about("Content of the message: any JSON value.")]
    name: Annotated[Text | None, about("Display name of the author; null: none.")] = None
    key: Annotated[
        Id | None,
        about(
            "Idempotency key. If the author already has a message with this key in the room, nothing is written; "
            "the answer describes that message. Without it, the header `Idempotency-Key` counts."
        ),
    ] = None


class PostSignal(Body, rename={"sender": "from"}):
    """Signal to send to a room or to the devices of a user: exactly one of `room` and `user`."""

    RULE: ClassVar = one_of("room", "user")

    kind: SignalKind
    room: SignalRoom = None
    user: SignalUser = None
    body: SignalBody = UNSET
    key: SignalKey = None
    sender: Annotated[Id, about("Id that recipients see as the sender.")] = APP_USER
    name: Annotated[Text | None, about("Display name of the sender; null: none.")] = None


class RoomShown(Struct):
    """Room with its settings and the number of its newest message."""

    room: RoomField
    open: Annotated[bool, about("Whether users can join the room without being members.")]
    head: RoomHeadField
    bus: Annotated[
        BusMode, about("`full`: the bus between nodes carries messages. `hint`: it carries hints without the content.")
    ]
    receipts: Annotated[bool, about("Whether users see how far others have read.")] = False
    archived: Annotated[bool, about("Whether the room can only be read: no messages, signals or typing.")] = False
    slow_mode_s: Annotated[int, about("Seconds between two messages of one user in slow mode; 0: no slow mode.")] = 0


class RoomList(Struct):
    """Page of rooms, in the order of their ids."""

    rooms: Annotated[list[RoomShown], about("Rooms, in the order of their ids.")]


class Members(Struct):
    """Page of a room's members with their roles."""

    members: Annotated[list[str], about("Ids of the members, in ascending order.")]
    roles: Annotated[dict[str, Role], about("Roles of these members: user id → role.")]
    next: Annotated[str | None, about("Value of `after` for the next page; null: this page is the last one.")]


class Membership(Struct):
    """Member of a room."""

    room: RoomField
    user: Annotated[str, about("Id of the member.")]
    role: Annotated[Role, about("Role of the member.")]


class TypingNow(Struct):
    """Users who type in a room."""

    typing: Annotated[list[Typer], about("Users who type.")]


class Messages(Struct, frozen=True):
    """Page of a room's messages, in ascending order."""

    messages: Annotated[list[RoomMessage], about("Messages in ascending order.")]
    next: Annotated[
        int | None,
        about(
            "Number for the next page: the value of `after` if the request has `after`, else of `before`. "
            "Null: this page is the last one."
        ),
    ]


class ReceiptQuery(Page, frozen=True):
    """Query of read receipts: a page, or with `seq` a count."""

    seq: Annotated[Position | None, about("Number of a message: return the number of users who have read it.")] = None

    def __post_init__(self) -> None:
        if self.seq is not None and self.after is not None:
            raise ValueError("give at most one of `after` and `seq`")


class Receipts(Struct):
    """Page of read receipts, in the order of user ids; or the number of users who have read a message."""

    receipts: Annotated[
        list[ReceiptEntry] | UnsetType, about("Receipts, in the order of user ids. Absent if the request has `seq`.")
    ] = UNSET
    next: Annotated[
        str | UnsetType | None,
        about("Value of `after` for the next page; null: this page is the last one. Absent if the request has `seq`."),
    ] = UNSET
    seq: Annotated[int | UnsetType, about("Number of the message from the request. Absent without it.")] = UNSET
    count: Annotated[
        int | UnsetType, about("Number of users who have read the message. Absent if the request has no `seq`.")
    ] = UNSET


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
        moderation: RoomModeration,
    ) -> None:
        self._keys = keys
        self._engine = engine
        self._store = store
        self._clock = clock
        self._rate_limits = rate_limits
        self._room_messages = room_messages
        self._rooms = rooms
        self._backpressure = backpressure
        self._moderation = moderation

    # --- rooms ---

    @operation("GET /v1/rooms")
    async def all(self, request: Request, query: Page) -> RoomList:
        """List the rooms of the tenant in the order of their ids, one page at a time."""
        rooms = await self._store.rooms(self._keys.tenant(request), query.after, query.limit)
        return RoomList([_shown(room) for room in rooms])

    @operation("PUT /v1/rooms/{room}", fails=(409,))
    async def put(self, request: Request, room: str, body: PutRoom) -> RoomShown:
        """Create a room, or change its settings. While a deleted room of this name is removed, this fails with 409."""
        tenant = self._keys.tenant(request)
        try:
            found = await self._room_messages.put_room(tenant, room, body.open, body.bus, body.receipts)
        except RoomBeingDeleted:
            raise _deleting(room) from None
        actor = body.by or self._keys.caller(request).name or SETTINGS
        note = AuditNote(tenant, self._clock.now_ms(), actor, "room.slow_mode", room, reason=body.reason)
        changed: Room | None = found
        if body.slow_mode_s is not None:
            slowed = note._replace(slow_mode_s=body.slow_mode_s)
            changed = await self._moderation.slow_mode(tenant, room, body.slow_mode_s, slowed)
        if changed is not None and body.archived is not None:
            action: AuditAction = "room.archived" if body.archived else "room.unarchived"
            changed = await self._moderation.archive(tenant, room, body.archived, note._replace(action=action))
        if changed is None:  # deleted meanwhile
            raise _deleting(room)
        return _shown(changed)

    @operation("GET /v1/rooms/{room}", fails=(404,))
    async def get(self, request: Request, room: str) -> RoomShown:
        """Return a room."""
        return _shown(await self._room(request, room))

    # --- members ---

    @operation("GET /v1/rooms/{room}/members", fails=(404,))
    async def members(self, request: Request, room: str, query: Page) -> Members:
        """List the members of a room in the order of their ids, one page at a time."""
        of, limit = await self._room(request, room), query.limit
        members = await self._store.members(of.tenant, room, query.after, limit)
        users = [member.user for member in members]
        roles = {member.user: member.role for member in members}
        return Members(users, roles, users[-1] if len(users) == limit else None)

    @operation("PUT /v1/rooms/{room}/members/{user}", fails=(404,))
    async def add_member(self, request: Request, room: str, user: str, body: PutMember) -> Membership:
        """Add a member to a room, or change the role of a member."""
        of = await self._room(request, room)
        await self._room_messages.put_member(of.tenant, room, user, body.role)
        return Membership(room, user, body.role)

    @operation("DELETE /v1/rooms/{room}/members/{user}", fails=(404,))
    async def remove_member(self, request: Request, room: str, user: str) -> None:
        """Remove a member from a room.

        Unless the room is open, no node delivers frames of the room to the user after the answer. A 503 means that a
        node has not confirmed the removal; send the request again.
        """
        of = await self._room(request, room)
        await self._room_messages.remove_member(of.tenant, of, user)

    @operation("GET /v1/rooms/{room}/present", fails=(404,))
    async def present(self, request: Request, room: str, query: Page) -> PresentReply:
        """List the occupants of a room on all nodes in the order of their ids, one page at a time."""
        topic = Topic("room", (await self._room(request, room)).tenant, room)
        return await self._rooms.present_page(topic, None, query.after, query.limit)

    @operation("GET /v1/rooms/{room}/typing", fails=(404,))
    async def typing(self, request: Request, room: str) -> TypingNow:
        """List the users who type in a room."""
        of = await self._room(request, room)
        typists = await self._engine.typers(of.tenant, room)
        profiles = await self._rooms.profiles.learnt(of.tenant, [typist.user for typist in typists])
        return TypingNow([Typer(*typist, info=profiles.get(typist.user, NO_PROFILE).wire) for typist in typists])

    @operation("GET /v1/rooms/{room}/receipts", fails=(404,))
    async def receipts(self, request: Request, room: str, query: ReceiptQuery) -> Receipts:
        """List how far users have read, one page at a time, or count the readers of a message. The room has receipts.

        Users who hide when they were last seen are left out, as is what users read while they were invisible. Users
        who hide from any user are not counted.
        """
        of, limit = await self._room(request, room), query.limit
        if query.seq is not None:
            count = await self._store.receipt_count(of.tenant, room, query.seq)
            if count is not None:
                return Receipts(seq=query.seq, count=count)
        else:
            found = await self._store.receipts(of.tenant, room, None, query.after, limit)
            if found is not None:
                following = found[-1].user if len(found) == limit else None
                return Receipts([ReceiptEntry(*receipt) for receipt in found], following)
        detail = f"room {room!r} has no read receipts; turn them on with `receipts` of PUT /v1/rooms/{room}"
        raise Problem(404, detail)

    # --- messages and signals ---

    @operation("GET /v1/rooms/{room}/messages", fails=(404,))
    async def messages(self, request: Request, room: str, query: Span) -> Messages:
        """Return messages of a room in ascending order, one page at a time.

        A page has at most 1 MiB of bodies.
        """
        tenant, newest = self._keys.tenant(request), query.after is None
        found = await self._store.room_page(tenant, room, after=query.after, before=query.before, limit=query.limit)
        if found is None:
            raise no_room(room)
        profiles = await self._rooms.profiles.learnt(tenant, {record.user for record in found.messages})
        page = with_reactions(message_page(found.messages, profiles, newest=newest), found, for_reader=False)
        return Messages(page, _next(found.room, page, newest=newest))

    @operation("POST /v1/rooms/{room}/messages", status=201, fails=(404, 429))
    async def send(self, request: Request, room: str, body: PostMessage, idempotency_key: str | None) -> SendReply:
        """Send a message to a room as a user. The user need not be connected or a member."""
        of = await self._room(request, room)
        key = body.key or idempotency_key or new_message_id()
        check_size(body.body)
        await self._backpressure.check_room(of.tenant, room)
        self._rate_limits.app_message(of.tenant, room)
        draft = Draft(body.user, body.name, bytes(body.body), key, self._clock.now_ms())
        self._engine.typing_stop(of.tenant, room, body.user)
        record = await self._room_messages.append(of.tenant, room, draft)
        return SendReply(record.id, record.seq)

    @operation("POST /v1/signals", status=202, fails=(404, 429))
    async def signal(self, request: Request, body: PostSignal) -> None:
        """Send a signal to a room or to the devices of a user.

        Signals are not stored: a client that is not connected does not get them.
        """
        tenant = self._keys.tenant(request)
        if (body.room is None) == (body.user is None):
            raise Problem(400, "give exactly one of `room` and `user`", code="bad_field")
        check_size(body.body)
        if body.room is not None:
            room = await self._rooms.membership.find(tenant, body.room)
            if room is None:
                raise no_room(body.room)
            if isinstance(room, Room) and room.archived:
                raise archived(body.room)
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
            raise no_room(name)
        return room


def no_room(name: str) -> Problem:
    return Problem(404, f"there is no room {name!r}; create it with PUT /v1/rooms/{name}", code=Err.NO_SUCH_ROOM)


def _deleting(name: str) -> Problem:
    return Problem(409, f"a room {name!r} is being deleted; send the request again in some seconds", retry_after_s=5)


def _next(room: Room, page: list[RoomMessage], *, newest: bool) -> int | None:
    """Return the `before` or `after` of the next page; None if this page is the last.

    Numbers have no gaps: the page that reaches the first number, or the head, is the last one.
    """
    if not page or (page[0].seq <= 1 if newest else page[-1].seq >= room.head):
        return None
    return page[0].seq if newest else page[-1].seq


def _shown(room: Room) -> RoomShown:
    return RoomShown(room.room, room.open, room.head, room.bus, room.receipts, room.archived, room.slow_mode_s)
