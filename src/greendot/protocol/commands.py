"""What a client may say. One struct per command; the tag is the wire's `type`.

Every command may carry `id`, which its reply or error echoes. Unknown fields are ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from greendot.ids import ID_PATTERN

Id = Annotated[str, Meta(pattern=ID_PATTERN, max_length=128)]
Seq = Annotated[int, Meta(ge=0, le=2**53)]  # every client can count so far, and every store keep it
Text = Annotated[str, Meta(max_length=200)]
Users = Annotated[list[Id], Meta(min_length=1, max_length=10_000)]
Limit = Annotated[int, Meta(ge=1, le=300)]
LastSeen = Literal["shown", "hidden"]
PushProvider = Literal["fcm", "apns", "webpush", "webhook"]
CommandId = str | int
# A client may know more events than there are, and have read many versions of one.
Version = Annotated[int, Meta(ge=1, le=1_000_000)]
Supports = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Annotated[list[Version], Meta(max_length=32)]], Meta(max_length=200)
]


class Command(Struct, frozen=True, tag_field="type", gc=False, omit_defaults=True):
    """The fields of every command."""

    id: CommandId | None = None
    trace: Annotated[str, Meta(max_length=128)] | None = None  # passed on in the events it leads to


class ClientInfo(Struct, frozen=True, gc=False):
    """The program that connects, for operators to read."""

    name: Text = ""
    version: Text = ""


class Resume(Struct, frozen=True):
    """What a returning client still has."""

    session: Id | None = None
    rooms: dict[Id, Seq] = {}
    inbox: Seq | None = None


class Hello(Command, frozen=True, tag="hello", gc=True):
    token: str = ""
    device: Id = "default"
    client: ClientInfo = ClientInfo()
    supports: Supports = {}
    resume: Resume | None = None


class Heartbeat(Command, frozen=True, tag="heartbeat"):
    pass


class Activity(Command, frozen=True, tag="activity"):
    pass


class StatusSet(Command, frozen=True, tag="status.set"):
    status: Literal["auto", "busy", "invisible"] = "auto"
    until: Seq | None = None
    text: Text | None = None


class PrivacySet(Command, frozen=True, tag="privacy.set", gc=True):
    last_seen: LastSeen | None = None  # None keeps what is
    hide_from: Annotated[list[Id], Meta(max_length=1_000)] | None = None


class Watch(Command, frozen=True, tag="watch", gc=True, kw_only=True):
    users: Users


class Unwatch(Command, frozen=True, tag="unwatch", gc=True, kw_only=True):
    users: Users


class PresenceGet(Command, frozen=True, tag="presence.get", gc=True, kw_only=True):
    users: Users


class TypingStart(Command, frozen=True, tag="typing.start", kw_only=True):
    room: Id


class TypingStop(Command, frozen=True, tag="typing.stop", kw_only=True):
    room: Id


class RoomList(Command, frozen=True, tag="room.list"):
    pass


class RoomJoin(Command, frozen=True, tag="room.join", kw_only=True):
    room: Id
    after: Seq | None = None


class RoomLeave(Command, frozen=True, tag="room.leave", kw_only=True):
    room: Id


class RoomPresent(Command, frozen=True, tag="room.present", kw_only=True):
    room: Id
    after: Id | None = None
    limit: Limit = 100


class RoomSend(Command, frozen=True, tag="room.send", kw_only=True):
    room: Id
    body: Raw
    key: Id | None = None


class RoomEdit(Command, frozen=True, tag="room.edit", kw_only=True):
    room: Id
    ref: Seq
    body: Raw
    key: Id | None = None


class RoomDelete(Command, frozen=True, tag="room.delete", kw_only=True):
    room: Id
    ref: Seq
    key: Id | None = None


class RoomRead(Command, frozen=True, tag="room.read", kw_only=True):
    room: Id
    seq: Seq


class RoomHistory(Command, frozen=True, tag="room.history", kw_only=True):
    room: Id
    before: Seq | None = None
    after: Seq | None = None
    limit: Limit = 50


class InboxList(Command, frozen=True, tag="inbox.list", kw_only=True):
    after: Seq | None = None
    before: Seq | None = None
    limit: Limit = 50
    filter: Literal["all", "unread", "unseen", "archived"] = "all"  # all: all but the archived


class InboxMark(Command, frozen=True, kw_only=True, gc=True):
    """Either some by id, or all up to and including a number."""

    ids: Annotated[list[Id], Meta(min_length=1, max_length=1_000)] | None = None
    through: Seq | None = None


class InboxSeen(InboxMark, frozen=True, tag="inbox.seen", kw_only=True, gc=True):
    pass


class InboxRead(InboxMark, frozen=True, tag="inbox.read", kw_only=True, gc=True):
    pass


class InboxArchive(InboxMark, frozen=True, tag="inbox.archive", kw_only=True, gc=True):
    pass


class InboxAck(InboxMark, frozen=True, tag="inbox.ack", kw_only=True, gc=True):
    pass


class SignalSend(Command, frozen=True, tag="signal.send", kw_only=True):
    kind: Id
    room: Id | None = None
    user: Id | None = None
    body: Raw | UnsetType = UNSET
    key: Id | None = None


class DeviceRegister(Command, frozen=True, tag="device.register", kw_only=True):
    provider: PushProvider
    token: str


class DeviceRemove(Command, frozen=True, tag="device.remove"):
    pass


class TokenRefresh(Command, frozen=True, tag="token.refresh", kw_only=True):
    token: str


class Bye(Command, frozen=True, tag="bye"):
    pass


AnyCommand = (
    Hello
    | Heartbeat
    | Activity
    | StatusSet
    | PrivacySet
    | Watch
    | Unwatch
    | PresenceGet
    | TypingStart
    | TypingStop
    | RoomList
    | RoomJoin
    | RoomLeave
    | RoomPresent
    | RoomSend
    | RoomEdit
    | RoomDelete
    | RoomRead
    | RoomHistory
    | InboxList
    | InboxSeen
    | InboxRead
    | InboxArchive
    | InboxAck
    | SignalSend
    | DeviceRegister
    | DeviceRemove
    | TokenRefresh
    | Bye
)

COMMANDS: dict[str, type[Command]] = {str(kind.__struct_config__.tag): kind for kind in AnyCommand.__args__}

MARKS: frozenset[type[InboxMark]] = frozenset({InboxSeen, InboxRead, InboxArchive, InboxAck})

# What a person does, as opposed to what a client does by itself: only this keeps a session from idling.
ACTIVITY: frozenset[type[Any]] = frozenset(
    {Activity, TypingStart, RoomSend, RoomEdit, RoomDelete, RoomRead, SignalSend, StatusSet} | MARKS
)
