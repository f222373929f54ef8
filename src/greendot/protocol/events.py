"""Events of the server.

One struct per event's `data`; `EVENTS` maps the wire's `type` to the struct of its newest version.

Times are integer milliseconds UTC, `None` where unknown.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from greendot.protocol.fields import (
    AckField,
    CreatedAtField,
    ExpiresInField,
    InfoField,
    KindField,
    MessageIdField,
    MessageSeqField,
    NameField,
    NotificationIdField,
    NotificationSeqField,
    RoomField,
    UnreadField,
    UnseenField,
    UserField,
    about,
)

State = Literal["online", "idle", "busy", "offline"]
Status = Literal["auto", "busy", "invisible"]
Mode = Literal["live", "poll"]
MarkedAs = Literal["seen", "read", "archived", "acked"]


class Event(Struct, frozen=True, gc=False):
    """Data of an event. The frame around the data has `type` and `v`."""

    type: ClassVar[str]
    v: ClassVar[int] = 1


class Presence(Event, frozen=True):
    """Presence of a user, as one reader sees it. `status` and `until` are sent to the user's own devices only."""

    type = "presence.changed"

    user: UserField
    name: NameField
    state: Annotated[State, about("State of the user. A user who is unknown, hidden or invisible is `offline`.")]
    since: Annotated[
        int | None, about("Time when the state began, in milliseconds UTC; null if it is unknown or hidden.")
    ]
    last_seen: Annotated[
        int | None,
        about(
            "Time when an offline user was last online, in milliseconds UTC; null if not offline, unknown or hidden."
        ),
    ]
    version: Annotated[
        int,
        about(
            "Version of the state. Ignore an entry with a lower version than the one shown. "
            "Version 0 means that nothing is known, and may replace any version."
        ),
    ]
    status_text: Annotated[str | None, about("Text that the user has set; null if there is none.")] = None
    mode: Annotated[
        Mode, about("`live`: the server sends changes. `poll`: it does not; read the user with `presence.get`.")
    ] = "live"
    devices: Annotated[
        list[str] | UnsetType,
        about("Names of the user's devices. Replies and HTTP answers have this field, events do not."),
    ] = UNSET
    status: Annotated[Status | UnsetType, about("Status that the user has set. Only for the user's own devices.")] = (
        UNSET
    )
    until: Annotated[
        int | UnsetType | None,
        about(
            "Time when the status ends, in milliseconds UTC; null if it has no end. Only for the user's own devices."
        ),
    ] = UNSET
    stale: Annotated[
        bool | UnsetType,
        about("True: the state may be out of date, because the engine is away or restores lost records."),
    ] = UNSET
    recently_active: Annotated[
        bool | UnsetType,
        about(
            "Whether the user is online or busy, or became idle or offline within the last five minutes. "
            "Only if the mode is `poll`."
        ),
    ] = UNSET
    info: InfoField = UNSET


class RoomState(Struct, frozen=True, gc=False):
    """State of a room that a resuming client has joined again."""

    head: Annotated[int, about("Number of the newest message of the room; 0 if there is none.")]
    recovered: Annotated[bool, about("Whether all missed messages follow the welcome.")]
    truncated: Annotated[
        bool,
        about(
            "Whether missed messages are left out, or the client's number is beyond `head`. "
            "If true, read the messages with `room.history`."
        ),
    ]


class Limits(Struct, frozen=True, gc=False):
    """Limits of the server for this client. For rates, 0 means no limit."""

    frame_bytes: Annotated[int, about("Largest frame that the client may send, in bytes.")]
    commands_per_s: Annotated[int, about("Commands of the connection per second.")]
    watches: Annotated[int, about("Users that the connection may watch.")]
    rooms: Annotated[int, about("Rooms that the connection may join.")]
    commands_burst: Annotated[int, about("Commands that the connection may send at once.")] = 0
    typing_per_s: Annotated[
        int, about("Typing starts and stops per second, of the user or the connection, whichever is less.")
    ] = 0
    signals_per_s: Annotated[int, about("Signals per second, of the user or the connection, whichever is less.")] = 0
    sends_per_s: Annotated[int, about("Messages per second, of the user or the connection, whichever is less.")] = 0
    watches_per_s: Annotated[
        int, about("Users watched or read per second, of the user or the connection, whichever is less.")
    ] = 0
    room_signals_per_s: Annotated[int, about("Signals in one room per second, from all senders together.")] = 0
    room_sends_per_s: Annotated[int, about("Messages in one room per second, from all senders together.")] = 0


class TypingTimes(Struct, frozen=True, gc=False):
    """Intervals for `typing.start`. A server that does not send them uses the defaults."""

    repeat_ms: Annotated[int, about("Interval between two `typing.start` while the user types, in milliseconds.")] = (
        3_000
    )
    hold_ms: Annotated[int, about("Time until typing ends without another `typing.start`, in milliseconds.")] = 5_000
    throttle_ms: Annotated[
        int,
        about(
            "Shortest time between two `typing.start` of a user in a room, in milliseconds. "
            "The server drops an earlier one, also after a `typing.stop`."
        ),
    ] = 2_000


class Welcome(Event, frozen=True, gc=True):
    """Answer to `hello`: the session, its limits, and the rooms that were joined again."""

    type = "welcome"

    session: Annotated[str, about("Id of the session. A resumed session may have a new id.")]
    user: Annotated[str, about("Id of the user, from the token.")]
    tenant: Annotated[str, about("Tenant of the user.")]
    node: Annotated[str, about("Incarnation of the node that the client is connected to.")]
    resumed: Annotated[bool, about("Whether the session existed before; false: the session is new.")]
    heartbeat_s: Annotated[float, about("Longest time between two frames of the client, in seconds.")]
    server_time: Annotated[int, about("Current time of the server, in milliseconds UTC.")]
    unread: UnreadField
    limits: Limits
    rooms: Annotated[dict[str, RoomState], about("Rooms that were joined again: room id → state.")]
    typing: TypingTimes = TypingTimes()


class HeartbeatAck(Event, frozen=True):
    """Answer to `heartbeat`."""

    type = "heartbeat.ack"


class TypingStarted(Event, frozen=True):
    """A user types in a room. The event is repeated while the user types.

    If it is not repeated, treat the typing as over one second after `expires_in_ms`.
    """

    type = "typing.started"

    room: RoomField
    user: Annotated[str, about("Id of the user who types.")]
    name: NameField
    expires_in_ms: ExpiresInField
    info: InfoField = UNSET


class TypingStopped(Event, frozen=True):
    """A user has stopped typing in a room."""

    type = "typing.stopped"

    room: RoomField
    user: Annotated[str, about("Id of the user who has stopped typing.")]


class TypingCount(Event, frozen=True):
    """Number of users who type in a large room, sent instead of `typing.started` and `typing.stopped`."""

    type = "typing.count"

    room: RoomField
    count: Annotated[int, about("Number of users who type, without the reader.")]
    expires_in_ms: Annotated[int, about("Time until the count is over unless it is repeated, in milliseconds.")]


class ReactionCount(Struct, frozen=True, gc=False):
    """Number of users with one reaction to a message."""

    reaction: Annotated[str, about("The reaction, such as an emoji.")]
    count: Annotated[int, about("Number of users who have this reaction.")]
    mine: Annotated[bool | UnsetType, about("Whether the reader has this reaction; absent over HTTP.")] = UNSET


class RoomMessage(Event, frozen=True):
    """Record of a room: a message, or a change of an earlier message. Records arrive in the order of their numbers."""

    type = "room.message"

    room: RoomField
    seq: MessageSeqField
    id: MessageIdField
    user: Annotated[str, about("Id of the author; empty if the author was erased.")]
    name: Annotated[str | None, about("Display name of the author when the message was sent; null if there is none.")]
    body: Annotated[Raw, about("Content of the message: any JSON value.")]
    at: Annotated[int, about("Time when the message was written, in milliseconds UTC.")]
    ref: Annotated[
        int | None,
        about("Number of the message that this record edits, deletes or reacts to; null for a new message."),
    ] = None
    op: Annotated[
        str | None,
        about(
            "`edit` or `delete`: the record changes the message `ref`. `react` or `unreact`: the user has set or "
            "removed the reaction in `body` to the message `ref`. `erased`: the content was erased, because the app "
            "deleted the message or the author was erased. "
            "Null: a new message."
        ),
    ] = None
    info: InfoField = UNSET
    reactions: Annotated[
        list[ReactionCount] | UnsetType,
        about("Reactions to the message, in pages of the history only; absent if there never were any."),
    ] = UNSET
    reacted: Annotated[
        int | UnsetType,
        about(
            "With `reactions`: the number up to which they include all records. Apply only `react` and `unreact` "
            "records with a higher number."
        ),
    ] = UNSET


class RoomEntered(Event, frozen=True):
    """A user has entered a room: the user's first session has joined."""

    type = "room.entered"

    room: RoomField
    user: Annotated[str, about("Id of the user who has entered.")]
    name: NameField = None
    info: InfoField = UNSET


class RoomLeft(Event, frozen=True):
    """A user has left a room: the user's last session in the room has left or ended."""

    type = "room.left"

    room: RoomField
    user: Annotated[str, about("Id of the user who has left.")]


class RoomProfile(Event, frozen=True):
    """The name or the info of an occupant has changed. The event has both, as they are now."""

    type = "room.profile"

    room: RoomField
    user: Annotated[str, about("Id of the occupant.")]
    name: NameField
    info: InfoField = UNSET


class RoomCount(Event, frozen=True):
    """Number of occupants of a large room, sent instead of `room.entered` and `room.left`."""

    type = "room.count"

    room: RoomField
    count: Annotated[int, about("Number of occupants that the reader may see.")]


class RoomReceipt(Event, frozen=True):
    """A user has read a room up to a message. Only rooms with read receipts have this event.

    The latest event of a user counts. Each node sends at most one per user, room and second.
    """

    type = "room.receipt"

    room: RoomField
    user: Annotated[str, about("Id of the user who has read.")]
    seq: Annotated[int, about("Number of the last message that the user has read.")]


class RoomReceiptCount(Event, frozen=True):
    """Number of users who have read a message, sent to large rooms instead of `room.receipt`.

    Each node sends at most one per room and second.
    """

    type = "room.receipt_count"

    room: RoomField
    seq: Annotated[int, about("Number of a message.")]
    count: Annotated[int, about("Number of users who have read this message. Users who hide are not counted.")]


class RoomChanged(Event, frozen=True):
    """Change of the user's own access or read marker, or of the room. `removed`: the user is no longer in the room."""

    type = "room.changed"

    room: RoomField
    removed: Annotated[
        bool, about("True: the connection was removed from the room and gets no more of its events.")
    ] = False
    reason: Annotated[str | None, about("Reason for the removal; null if `removed` is false.")] = None
    read: Annotated[int | UnsetType, about("Number of the last message that the user has read, on another device.")] = (
        UNSET
    )
    unread: Annotated[int | UnsetType, about("Number of messages after `read`.")] = UNSET
    archived: Annotated[bool | UnsetType, about("Whether the app has archived the room: it can only be read.")] = UNSET
    slow_mode_s: Annotated[
        int | UnsetType, about("Seconds between two messages of one user in slow mode; 0: slow mode has ended.")
    ] = UNSET
    muted_until: Annotated[
        int | UnsetType | None,
        about("End of the user's mute, in milliseconds UTC; null: no end; 0: the user is not muted any more."),
    ] = UNSET


class Signal(Event, frozen=True, rename={"sender": "from"}):
    """Signal from a user or from the app. Signals are not stored."""

    type = "signal"

    sender: Annotated[
        str | None,
        about(
            "Id of the sender: a user, or a name that the app has chosen; null if an invisible user sent the signal."
        ),
    ]
    name: Annotated[str | None, about("Display name of the sender; null if there is none.")]
    kind: Annotated[str, about("Type of the signal, chosen by the app.")]
    room: Annotated[str | UnsetType, about("Id of the room. Absent if the signal was sent to the user.")] = UNSET
    body: Annotated[Raw | UnsetType, about("Content of the signal: any JSON value.")] = UNSET
    key: Annotated[
        str | UnsetType,
        about(
            "Key of the signal. While this signal waits, a newer one with the same sender, kind and key replaces it."
        ),
    ] = UNSET


class NotificationCreated(Event, frozen=True):
    """New notification in the user's inbox.

    If `ack` is true, the notification waits until a device acknowledges it. While it waits, the server sends it to each
    device that connects, and repeats it to the connected devices. Each node stops after ten repetitions, and begins
    again when a device connects to this node.
    """

    type = "notification.created"

    seq: NotificationSeqField
    id: NotificationIdField
    kind: KindField
    body: Annotated[Raw, about("Content of the notification: any JSON value.")]
    created_at: CreatedAtField
    ack: AckField = False


class NotificationUpdated(Event, frozen=True, gc=True):
    """Notifications were marked: either the listed ones, or all up to and including a number.

    The server derives this version from version 1. A server that has only version 1 sends both fields.
    """

    type = "notification.updated"
    v = 2

    state: Annotated[MarkedAs, about("State that the notifications have now.")]
    ids: Annotated[list[str] | UnsetType, about("Ids of the changed notifications.")] = UNSET
    through: Annotated[int | UnsetType, about("All notifications up to and including this number were changed.")] = (
        UNSET
    )


class NotificationUpdatedV1(Event, frozen=True, gc=True):
    """Notifications were marked. Clients that do not declare version 2 get this version."""

    type = "notification.updated"

    state: Annotated[MarkedAs, about("State that the notifications have now.")]
    ids: Annotated[
        list[str],
        about("Ids of the changed notifications, at most the newest 1,000. If there are more, `refresh` follows."),
    ]
    through: Annotated[
        int | UnsetType,
        about("All notifications up to and including this number were changed. Absent if they were marked by id."),
    ] = UNSET


class InboxBadge(Event, frozen=True):
    """Counters of the user's inbox."""

    type = "inbox.badge"

    unread: UnreadField
    unseen: UnseenField


class Refresh(Event, frozen=True):
    """An event was not sent, because no version that the client reads can express it. Fetch the data again."""

    type = "refresh"

    of: Annotated[str, about("Type of the event that was not sent.")]


class Resync(Event, frozen=True):
    """The client has missed more records than the server sends again. Fetch the records of `scope`."""

    type = "resync"

    scope: Annotated[
        str, about("`inbox`: read the inbox with `inbox.list`. `room:NAME`: read the room with `room.history`.")
    ]


class Drain(Event, frozen=True):
    """The server is stopping. Reconnect after `retry_in_ms`, which differs between clients."""

    type = "drain"

    retry_in_ms: Annotated[int, about("Time to wait before reconnecting, in milliseconds.")]


class Overloaded(Event, frozen=True):
    """The server cannot serve this connection now and closes it. Reconnect after `retry_in_ms`."""

    type = "overloaded"

    retry_in_ms: Annotated[int, about("Time to wait before reconnecting, in milliseconds.")]


EVENTS: dict[str, type[Event]] = {
    kind.type: kind
    for kind in (
        Welcome,
        HeartbeatAck,
        Presence,
        TypingStarted,
        TypingStopped,
        TypingCount,
        RoomMessage,
        RoomEntered,
        RoomLeft,
        RoomProfile,
        RoomCount,
        RoomReceipt,
        RoomReceiptCount,
        RoomChanged,
        Signal,
        NotificationCreated,
        NotificationUpdated,
        InboxBadge,
        Refresh,
        Resync,
        Drain,
        Overloaded,
    )
}
