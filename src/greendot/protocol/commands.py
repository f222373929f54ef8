"""Commands of clients. One struct per command; the tag is the wire's `type`.

Every command may carry `id`, which its reply or error echoes. Unknown fields are ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from greendot.ids import ID_PATTERN, TEXT_PATTERN

Id = Annotated[str, Meta(pattern=ID_PATTERN, max_length=128)]
Seq = Annotated[int, Meta(ge=0, le=2**53)]  # exact in every client and every store
Text = Annotated[str, Meta(max_length=200, pattern=TEXT_PATTERN)]
Users = Annotated[list[Id], Meta(min_length=1, max_length=10_000)]
Limit = Annotated[int, Meta(ge=1, le=300)]
LastSeen = Literal["shown", "hidden"]
PushProvider = Literal["fcm", "apns", "webpush", "webhook"]
CommandId = str | int
# A client may know events that this server does not have, and many versions of one event.
Version = Annotated[int, Meta(ge=1, le=1_000_000)]
Supports = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Annotated[list[Version], Meta(max_length=32)]], Meta(max_length=200)
]


class Command(Struct, frozen=True, tag_field="type", gc=False, omit_defaults=True):
    """The fields of every command."""

    id: CommandId | None = None
    trace: Annotated[str, Meta(max_length=128)] | None = None  # copied into events caused by the command
    traceparent: Any = None  # W3C Trace Context; an invalid value is ignored


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
    """The first frame: who comes, and what they still have of an earlier session."""

    token: str = ""
    device: Id = "default"
    client: ClientInfo = ClientInfo()
    supports: Supports = {}
    resume: Resume | None = None


class Heartbeat(Command, frozen=True, tag="heartbeat"):
    """I live. Any other frame says so too."""


class Activity(Command, frozen=True, tag="activity"):
    """The person did something: the session is not idle."""


class StatusSet(Command, frozen=True, tag="status.set"):
    """Set one's own status, until a time if there is one, and the text beside it."""

    status: Literal["auto", "busy", "invisible"] = "auto"
    until: Seq | None = None
    text: Text | None = None


class PrivacySet(Command, frozen=True, tag="privacy.set", gc=True):
    """Say who may not see what of oneself. What is left out stays as it is."""

    last_seen: LastSeen | None = None  # None keeps the current value
    hide_from: Annotated[list[Id], Meta(max_length=1_000)] | None = None


class Watch(Command, frozen=True, tag="watch", gc=True, kw_only=True):
    """See how these users are, and hear of every change."""

    users: Users


class Unwatch(Command, frozen=True, tag="unwatch", gc=True, kw_only=True):
    """Hear no more of these users."""

    users: Users


class PresenceGet(Command, frozen=True, tag="presence.get", gc=True, kw_only=True):
    """See how these users are, once."""

    users: Users


class TypingStart(Command, frozen=True, tag="typing.start", kw_only=True):
    """The person types in a room. To be said again every 3 s while it lasts."""

    room: Id


class TypingStop(Command, frozen=True, tag="typing.stop", kw_only=True):
    """The person has stopped typing."""

    room: Id


class RoomList(Command, frozen=True, tag="room.list"):
    """The rooms one is a member of, and the open ones."""


class RoomJoin(Command, frozen=True, tag="room.join", kw_only=True):
    """Enter a room and hear what is said there; with `after` also what was missed."""

    room: Id
    after: Seq | None = None


class RoomLeave(Command, frozen=True, tag="room.leave", kw_only=True):
    """Leave a room."""

    room: Id


class RoomPresent(Command, frozen=True, tag="room.present", kw_only=True):
    """Who is in a room, a page at a time."""

    room: Id
    after: Id | None = None
    limit: Limit = 100


class RoomSend(Command, frozen=True, tag="room.send", kw_only=True):
    """Say something in a room. With `key` it is said once, however often it is sent."""

    room: Id
    body: Raw
    key: Id | None = None


class RoomEdit(Command, frozen=True, tag="room.edit", kw_only=True):
    """Say a message again, otherwise: it stays, and a new record refers to it."""

    room: Id
    ref: Seq
    body: Raw
    key: Id | None = None


class RoomDelete(Command, frozen=True, tag="room.delete", kw_only=True):
    """Take a message back: a new record says so."""

    room: Id
    ref: Seq
    key: Id | None = None


class RoomRead(Command, frozen=True, tag="room.read", kw_only=True):
    """Everything up to this number is read."""

    room: Id
    seq: Seq


class RoomHistory(Command, frozen=True, tag="room.history", kw_only=True):
    """What was said in a room, a page at a time."""

    room: Id
    before: Seq | None = None
    after: Seq | None = None
    limit: Limit = 50


class InboxList(Command, frozen=True, tag="inbox.list", kw_only=True):
    """One's notifications, a page at a time."""

    after: Seq | None = None
    before: Seq | None = None
    limit: Limit = 50
    filter: Literal["all", "unread", "unseen", "archived"] = "all"  # all: all except archived


class InboxMark(Command, frozen=True, kw_only=True, gc=True):
    """Either some by id, or all up to and including a number."""

    ids: Annotated[list[Id], Meta(min_length=1, max_length=1_000)] | None = None
    through: Seq | None = None


class InboxSeen(InboxMark, frozen=True, tag="inbox.seen", kw_only=True, gc=True):
    """Notifications were shown."""


class InboxRead(InboxMark, frozen=True, tag="inbox.read", kw_only=True, gc=True):
    """Notifications were read."""


class InboxArchive(InboxMark, frozen=True, tag="inbox.archive", kw_only=True, gc=True):
    """Notifications are put away."""


class InboxAck(InboxMark, frozen=True, tag="inbox.ack", kw_only=True, gc=True):
    """Notifications that ask for it are acknowledged: they are not sent again."""


class SignalSend(Command, frozen=True, tag="signal.send", kw_only=True):
    """Something for this moment, to a room or to a user's devices; it is not kept."""

    kind: Id
    room: Id | None = None
    user: Id | None = None
    body: Raw | UnsetType = UNSET
    key: Id | None = None


class DeviceRegister(Command, frozen=True, tag="device.register", kw_only=True):
    """Pushes go to this device from now on."""

    provider: PushProvider
    token: str


class DeviceRemove(Command, frozen=True, tag="device.remove"):
    """Pushes go to this device no longer."""


class TokenRefresh(Command, frozen=True, tag="token.refresh", kw_only=True):
    """A new token for this connection, before the old one ends."""

    token: str


class Bye(Command, frozen=True, tag="bye"):
    """Close, and count as gone at once."""


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

# Commands that show activity of the person, not of the client alone. Only these keep a session from idling.
ACTIVITY: frozenset[type[Any]] = frozenset(
    {Activity, TypingStart, RoomSend, RoomEdit, RoomDelete, RoomRead, SignalSend, StatusSet} | MARKS
)
