"""Commands of clients. One struct per command; the tag is the wire's `type`.

Every command may have an `id`, which the reply or error to the command repeats. Unknown fields are ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from greendot.ids import ID_PATTERN, TEXT_PATTERN
from greendot.protocol.fields import about

Id = Annotated[str, Meta(pattern=ID_PATTERN, max_length=128)]
Seq = Annotated[int, Meta(ge=0, le=2**53)]  # exact in every client and every store
Text = Annotated[str, Meta(max_length=200, pattern=TEXT_PATTERN)]
# A reaction begins with a visible character: clients would show a blank one as an empty button. It has no characters
# that change the direction of the text around it.
_CONTROL = r"/\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_BLANK = r"\s\xa0\u200b-\u200f\u2060-\u206f\ufe00-\ufe0f\ufeff"
REACTION_PATTERN = rf"^[^{_CONTROL}{_BLANK}][^{_CONTROL}]*\Z"
Reaction = Annotated[str, Meta(min_length=1, max_length=32, pattern=REACTION_PATTERN)]
REACTION = "Reaction, such as an emoji: 1 to 32 characters without `/` and control characters."
Users = Annotated[list[Id], Meta(min_length=1, max_length=10_000)]
Limit = Annotated[int, Meta(ge=1, le=300)]
LastSeen = Literal["shown", "hidden"]
PushProvider = Literal["fcm", "apns", "webpush", "webhook"]
CommandId = str | int
# Types of the field `supports` of `hello`. Event names and versions that this server does not know are allowed: only
# the size of the field is limited.
Version = Annotated[int, Meta(ge=1, le=1_000_000)]
Supports = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Annotated[list[Version], Meta(max_length=32)]], Meta(max_length=200)
]
RoomId = Annotated[Id, about("Id of the room.")]
# Fields of commands. HTTP requests with the same effect have the fields of statuses and signals too.
Status = Annotated[
    Literal["auto", "busy", "invisible"],
    about(
        "Status of the user. `auto`: shown as online, idle or offline, depending on the user's sessions; "
        "`busy`: shown as busy while the user has a session; `invisible`: shown as offline."
    ),
]
StatusEnd = Annotated[
    Seq | None,
    about("Time when the status ends, in milliseconds UTC and in the future; null: it lasts until the next change."),
]
StatusText = Annotated[Text | None, about("Status text that other users see; null removes the text.")]
SignalKind = Annotated[Id, about("Type of the signal, chosen by the app.")]
SignalRoom = Annotated[Id | None, about("Id of the room that gets the signal.")]
SignalUser = Annotated[Id | None, about("Id of the user whose devices get the signal.")]
SignalBody = Annotated[Raw | UnsetType, about("Content of the signal: any JSON value.")]
SignalKey = Annotated[
    Id | None,
    about(
        "While signals wait for a slow client, a newer signal replaces a waiting signal with the same sender, kind and "
        "key. Signals without a key are never replaced."
    ),
]
SendKey = Annotated[
    Id | None,
    about(
        "Idempotency key. If the user has already used the key in this room, the command writes nothing. "
        "The reply then has the `id` and `seq` of the first message."
    ),
]


class Command(Struct, frozen=True, tag_field="type", gc=False, omit_defaults=True):
    """Fields of every command."""

    id: Annotated[
        CommandId | None,
        about(
            "Id that the client chooses. The reply or error repeats the id; the welcome does not. "
            "A command without an id gets no reply. "
            "The server drops `typing.start` and `typing.stop` above the rate limit, without a reply or an error."
        ),
    ] = None
    trace: Annotated[
        Annotated[str, Meta(max_length=128)] | None,
        about("Text that the server copies into the messages and signals that the command causes."),
    ] = None
    traceparent: Annotated[
        Any, about("W3C Trace Context of the command. The server ignores a value that is malformed.")
    ] = None


class ClientInfo(Struct, frozen=True, gc=False):
    """Name and version of the client program. Operators see both."""

    name: Annotated[Text, about("Name of the client program.")] = ""
    version: Annotated[Text, about("Version of the client program.")] = ""


class Resume(Struct, frozen=True):
    """Session, rooms and inbox that a returning client had before."""

    session: Annotated[Id | None, about("Id of the session to resume; null opens a new session.")] = None
    rooms: Annotated[
        dict[Id, Seq],
        about(
            "Rooms to join again, each with the number of the last message that the client has. "
            "The later messages of a room follow the welcome. "
            "If `truncated` of this room is true in `rooms` of the welcome, they do not follow."
        ),
    ] = {}
    inbox: Annotated[
        Seq | None,
        about(
            "Number of the last notification that the client has. The later notifications follow the welcome. "
            "If too many are missing, the event `resync` follows instead of them. "
            "With null, only unacknowledged notifications follow."
        ),
    ] = None


class Hello(Command, frozen=True, tag="hello", gc=True):
    """Authenticate the connection and open or resume a session.

    `hello` is the first frame of a connection. The server answers with the event `welcome`.
    """

    token: Annotated[
        str,
        about(
            "Token of the user. This token takes precedence over a token in the WebSocket request. "
            "If this field is empty, the server uses the token in the WebSocket request."
        ),
    ] = ""
    device: Annotated[Id, about("Name of the device. The name distinguishes the devices of one user.")] = "default"
    client: ClientInfo = ClientInfo()
    supports: Annotated[
        Supports,
        about(
            "Versions that the client reads: event type → versions. "
            "The client gets version 1 of event types that are not listed."
        ),
    ] = {}
    resume: Annotated[
        Resume | None, about("Session, rooms and inbox to resume; null opens a new session, which is in no room.")
    ] = None


class Heartbeat(Command, frozen=True, tag="heartbeat"):
    """Show that the client is alive. Any frame of another type does so too. The server answers with `heartbeat.ack`."""


class Activity(Command, frozen=True, tag="activity"):
    """Report activity of the person, so that the session does not become idle."""


class StatusSet(Command, frozen=True, tag="status.set"):
    """Set the user's own status and status text."""

    status: Status = "auto"
    until: StatusEnd = None
    text: StatusText = None


class PrivacySet(Command, frozen=True, tag="privacy.set", gc=True):
    """Change what the user hides from other users. A command without fields only reads the settings."""

    last_seen: Annotated[
        LastSeen | None,
        about("Whether other users see when this user was last online; null keeps the current value."),
    ] = None
    hide_from: Annotated[
        Annotated[list[Id], Meta(max_length=1_000)] | None,
        about("Users who cannot see this user. The list replaces the current list; null keeps the current list."),
    ] = None


class Watch(Command, frozen=True, tag="watch", gc=True, kw_only=True):
    """Return the presence of users and subscribe to its changes."""

    users: Annotated[Users, about("Ids of the users to watch.")]


class Unwatch(Command, frozen=True, tag="unwatch", gc=True, kw_only=True):
    """Unsubscribe from the presence of users."""

    users: Annotated[Users, about("Ids of the users to stop watching.")]


class PresenceGet(Command, frozen=True, tag="presence.get", gc=True, kw_only=True):
    """Return the presence of users once, without a subscription."""

    users: Annotated[Users, about("Ids of the users to read.")]


class TypingStart(Command, frozen=True, tag="typing.start", kw_only=True):
    """Report that the user types in a room. Repeat the command while the user types.

    The interval between two such commands is `typing.repeat_ms` of the welcome, 3 s by default.
    """

    room: RoomId


class TypingStop(Command, frozen=True, tag="typing.stop", kw_only=True):
    """Report that the user has stopped typing in a room."""

    room: RoomId


class RoomList(Command, frozen=True, tag="room.list"):
    """List the rooms that the user is a member of, and all open rooms.

    A user may join an open room without being a member.
    """


class RoomJoin(Command, frozen=True, tag="room.join", kw_only=True):
    """Join a room and subscribe to its messages and events."""

    room: RoomId
    after: Annotated[
        Seq | None,
        about(
            "Number of the last message that the client has. The reply has the later messages, or `truncated` "
            "if too many are missing. With null, the reply has no messages, unless there is `history`."
        ),
    ] = None
    history: Annotated[
        Annotated[int, Meta(ge=0, le=100)] | None,
        about(
            "Number of the newest messages that the reply has. The events that follow continue after `head` of the "
            "reply, without a gap or a duplicate. Not together with `after`."
        ),
    ] = None


class RoomLeave(Command, frozen=True, tag="room.leave", kw_only=True):
    """Leave a room and unsubscribe from its messages and events."""

    room: RoomId


class RoomPresent(Command, frozen=True, tag="room.present", kw_only=True):
    """List the occupants of a room (the users who are in the room), one page at a time."""

    room: RoomId
    after: Annotated[Id | None, about("Last user id of the previous page; null returns the first page.")] = None
    limit: Annotated[Limit, about("Maximum number of users in the page.")] = 100


class RoomSend(Command, frozen=True, tag="room.send", kw_only=True):
    """Send a message to a room. With `key`, a repeated command does not write the message again."""

    room: RoomId
    body: Annotated[Raw, about("Content of the message: any JSON value.")]
    key: SendKey = None


class RoomEdit(Command, frozen=True, tag="room.edit", kw_only=True):
    """Edit a message. The server writes a new record that refers to the message.

    Only the author of the message and admins of the room may edit it.
    """

    room: RoomId
    ref: Annotated[Seq, about("Number of the message to edit.")]
    body: Annotated[Raw, about("New content of the message: any JSON value.")]
    key: SendKey = None


class RoomDelete(Command, frozen=True, tag="room.delete", kw_only=True):
    """Delete a message. The server writes a new record that refers to the message.

    Only the author of the message and admins of the room may delete it.
    """

    room: RoomId
    ref: Annotated[Seq, about("Number of the message to delete.")]
    key: SendKey = None


class RoomReact(Command, frozen=True, tag="room.react", kw_only=True):
    """Set or remove a reaction of the user to a message. If this changes anything, the server writes a new record.

    Otherwise the reply has the `id` and `seq` of the record that set the reaction, or of the message.
    """

    room: RoomId
    ref: Annotated[Seq, about("Number of the message to react to.")]
    reaction: Annotated[Reaction, about(REACTION)]
    on: Annotated[bool, about("Whether the user has the reaction from now on.")] = True
    key: SendKey = None


class RoomRead(Command, frozen=True, tag="room.read", kw_only=True):
    """Move the user's read marker of a room forward. The marker never moves back."""

    room: RoomId
    seq: Annotated[Seq, about("Number of the last message that the user has read.")]


class RoomReceipts(Command, frozen=True, tag="room.receipts", kw_only=True):
    """Return how far users have read a room with read receipts, one page at a time, or count the readers of a message.

    The server leaves out users who hide from the reader or hide when they were last seen, and what users read while
    they were invisible. In a large room, only counts are available.
    """

    room: RoomId
    after: Annotated[Id | None, about("Last user id of the previous page; null returns the first page.")] = None
    limit: Annotated[Limit, about("Maximum number of receipts in the page.")] = 100
    seq: Annotated[
        Seq | None,
        about("Number of a message. The reply has the number of users who have read this message, without a page."),
    ] = None


class RoomHistory(Command, frozen=True, tag="room.history", kw_only=True):
    """Return messages of a room, one page at a time."""

    room: RoomId
    before: Annotated[Seq | None, about("Return the newest messages before this number.")] = None
    after: Annotated[Seq | None, about("Return the oldest messages after this number.")] = None
    limit: Annotated[Limit, about("Maximum number of messages in the page.")] = 50


class InboxList(Command, frozen=True, tag="inbox.list", kw_only=True):
    """Return notifications of the user's inbox, one page at a time."""

    after: Annotated[Seq | None, about("Return the oldest notifications after this number.")] = None
    before: Annotated[Seq | None, about("Return the newest notifications before this number.")] = None
    limit: Annotated[Limit, about("Maximum number of notifications in the page.")] = 50
    filter: Annotated[
        Literal["all", "unread", "unseen", "archived"],
        about("Notifications to return. `all` excludes archived notifications."),
    ] = "all"


class InboxMark(Command, frozen=True, kw_only=True, gc=True):
    """Fields of the commands that mark notifications: some by id, or all up to and including a number."""

    ids: Annotated[
        Annotated[list[Id], Meta(min_length=1, max_length=1_000)] | None,
        about("Ids of the notifications to mark."),
    ] = None
    through: Annotated[
        Seq | None, about("Number of a notification. All notifications up to and including this number are marked.")
    ] = None


class InboxSeen(InboxMark, frozen=True, tag="inbox.seen", kw_only=True, gc=True):
    """Mark notifications as seen: the user opened the list with these notifications."""


class InboxRead(InboxMark, frozen=True, tag="inbox.read", kw_only=True, gc=True):
    """Mark notifications as read. Read implies seen."""


class InboxArchive(InboxMark, frozen=True, tag="inbox.archive", kw_only=True, gc=True):
    """Archive notifications. Archived implies read."""


class InboxAck(InboxMark, frozen=True, tag="inbox.ack", kw_only=True, gc=True):
    """Acknowledge notifications, so that the server stops sending them again. Acknowledged implies read."""


class SignalSend(Command, frozen=True, tag="signal.send", kw_only=True):
    """Send a signal to a room or to the devices of a user. Signals are not stored."""

    kind: SignalKind
    room: SignalRoom = None
    user: SignalUser = None
    body: SignalBody = UNSET
    key: SignalKey = None


class DeviceRegister(Command, frozen=True, tag="device.register", kw_only=True):
    """Register this connection's device for pushes. A registration replaces the device's previous registration."""

    provider: Annotated[PushProvider, about("Service that delivers pushes to the device.")]
    token: Annotated[
        str, about("Token of the device from the provider. For `webpush`, the subscription as a JSON string.")
    ]


class DeviceRemove(Command, frozen=True, tag="device.remove"):
    """Remove this connection's device, so that the device gets no more pushes."""


class DeviceKey(Command, frozen=True, tag="device.key"):
    """Return the public key with which a browser subscribes to Web Push. The subscription is a token of the device."""


class TokenRefresh(Command, frozen=True, tag="token.refresh", kw_only=True):
    """Replace the token of this connection before the old token expires."""

    token: Annotated[str, about("New token, for the same user and tenant.")]


class Bye(Command, frozen=True, tag="bye"):
    """End the session at once and close the connection."""


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
    | RoomReact
    | RoomRead
    | RoomReceipts
    | RoomHistory
    | InboxList
    | InboxSeen
    | InboxRead
    | InboxArchive
    | InboxAck
    | SignalSend
    | DeviceRegister
    | DeviceRemove
    | DeviceKey
    | TokenRefresh
    | Bye
)

COMMANDS: dict[str, type[Command]] = {str(kind.__struct_config__.tag): kind for kind in AnyCommand.__args__}

MARKS: frozenset[type[InboxMark]] = frozenset({InboxSeen, InboxRead, InboxArchive, InboxAck})

# Commands that show activity of the person, not of the client alone. Only these keep a session from idling.
ACTIVITY: frozenset[type[Any]] = frozenset(
    {Activity, TypingStart, RoomSend, RoomEdit, RoomDelete, RoomReact, RoomRead, SignalSend, StatusSet} | MARKS
)
