"""Data of replies. The reply to a command without data is an empty object."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Raw, Struct, UnsetType

from greendot.protocol import commands
from greendot.protocol.commands import LastSeen
from greendot.protocol.events import Presence, RoomMessage
from greendot.protocol.fields import (
    AckedAtField,
    AckField,
    ArchivedAtField,
    CreatedAtField,
    ExpiresInField,
    InboxHeadField,
    InfoField,
    KindField,
    MessageIdField,
    MessageSeqField,
    NameField,
    NotificationIdField,
    NotificationSeqField,
    PublicKeyField,
    ReadAtField,
    RoomField,
    RoomHeadField,
    RoomUnreadField,
    SeenAtField,
    UnreadField,
    UnseenField,
    UserField,
    about,
)


class Reply(Struct, frozen=True, gc=False):
    """Empty data: the command was executed and has nothing to return."""


class PresenceReply(Reply, frozen=True, gc=True):
    """Presence of the requested users, one entry per user, in the order of the request."""

    presence: Annotated[list[Presence], about("One entry per requested user, in the order of the request.")]


class StatusReply(Reply, frozen=True):
    """Presence of the user after a change of the status, as the user's own devices see it."""

    presence: Presence


class PrivacyReply(Reply, frozen=True, gc=True):
    """Privacy settings of the user after the command."""

    last_seen: Annotated[LastSeen, about("Whether other users see when this user was last online.")]
    hide_from: Annotated[list[str], about("Ids of the users who cannot see this user.")]


class Typer(Struct, frozen=True, gc=False):
    """User who types in a room."""

    user: Annotated[str, about("Id of the user who types.")]
    name: NameField
    expires_in_ms: ExpiresInField
    info: InfoField = UNSET


class JoinReply(Reply, frozen=True, gc=True):
    """State of a joined room, and the messages that the client has missed since `after`, or the newest ones."""

    room: RoomField
    head: RoomHeadField
    messages: Annotated[
        list[RoomMessage],
        about(
            "Messages after `after`, or the newest ones if the command has `history`, in ascending order; "
            "empty with neither, or if truncated. With `history`, their bodies have at most 1 MiB."
        ),
    ]
    recovered: Annotated[bool, about("Whether `messages` has every message after `after`; false without `after`.")]
    truncated: Annotated[
        bool,
        about(
            "Whether missed messages are left out because they are too many, or `after` is beyond `head`. "
            "If true, read the messages with `room.history`."
        ),
    ]
    typing: Annotated[list[Typer], about("Users who type, without the reader; empty in a large room.")]
    typing_count: Annotated[int, about("Number of users who type, without the reader.")]
    present: Annotated[int, about("Number of occupants that the reader may see.")]
    unread: RoomUnreadField
    archived: Annotated[bool, about("Whether the app has archived the room: it can only be read.")] = False
    slow_mode_s: Annotated[
        int | UnsetType, about("Seconds between two messages of one user in slow mode. Absent without slow mode.")
    ] = UNSET
    muted_until: Annotated[
        int | UnsetType | None,
        about("End of the user's mute, in milliseconds UTC; null: no end. Absent if the user is not muted."),
    ] = UNSET


class RoomEntry(Struct, frozen=True, gc=False):
    """Room in the list of a user's rooms."""

    room: RoomField
    head: RoomHeadField
    unread: RoomUnreadField
    open: Annotated[bool, about("Whether users can join the room without being members.")]
    archived: Annotated[bool, about("Whether the app has archived the room: it can only be read.")] = False


class RoomsReply(Reply, frozen=True, gc=True):
    """Rooms that the user is a member of, and all open rooms, which any user may join. Ordered by id."""

    rooms: Annotated[list[RoomEntry], about("Rooms, in the order of their ids.")]


class UserProfile(Struct, frozen=True, gc=False):
    """Display name and info of a user."""

    name: NameField = None
    info: InfoField = UNSET


class PresentReply(Reply, frozen=True, gc=True):
    """Page of a room's occupants, and the number of all occupants."""

    users: Annotated[list[str], about("Ids of the occupants, in ascending order.")]
    count: Annotated[int, about("Number of all occupants, not only those in this page.")]
    stale: Annotated[
        bool | UnsetType, about("True: occupants may be missing, because lost records are being restored.")
    ] = UNSET
    profiles: Annotated[
        dict[str, UserProfile],
        about("Names and info of the users in this page: user id → profile. Users with neither are left out."),
    ] = {}


class SendReply(Reply, frozen=True):
    """Id and number of the record that was written."""

    id: MessageIdField
    seq: MessageSeqField


class ReadReply(Reply, frozen=True):
    """Number of messages that the user has not read."""

    unread: RoomUnreadField


class ReceiptEntry(Struct, frozen=True, gc=False):
    """Read receipt of a user."""

    user: UserField
    seq: Annotated[int, about("Number of the last message that the user has read.")]


class ReceiptsReply(Reply, frozen=True, gc=True):
    """Page of a room's read receipts, or the number of users who have read a message."""

    count: Annotated[
        int, about("Number of all receipts that the reader may see; with `seq`, of users who have read this message.")
    ]
    receipts: Annotated[
        list[ReceiptEntry] | UnsetType, about("Receipts, in the order of user ids. Absent if the command has `seq`.")
    ] = UNSET
    next: Annotated[
        str | UnsetType | None,
        about("Value of `after` for the next page; null: this page is the last one. Absent if the command has `seq`."),
    ] = UNSET
    seq: Annotated[int | UnsetType, about("Number of the message from the command. Absent without it.")] = UNSET


class HistoryReply(Reply, frozen=True, gc=True):
    """Page of a room's messages, in ascending order."""

    messages: Annotated[list[RoomMessage], about("Messages in ascending order; empty if there are no more.")]


class InboxEntry(Struct, frozen=True, gc=False):
    """Notification in a page of the user's inbox."""

    seq: NotificationSeqField
    id: NotificationIdField
    kind: KindField
    body: Annotated[Raw, about("Content of the notification: any JSON value.")]
    created_at: CreatedAtField
    seen_at: SeenAtField
    read_at: ReadAtField
    archived_at: ArchivedAtField
    acked_at: AckedAtField
    ack: AckField = False


class InboxReply(Reply, frozen=True, gc=True):
    """Page of the user's inbox in ascending order, with the inbox's head and counters."""

    notifications: Annotated[list[InboxEntry], about("Notifications in ascending order.")]
    head: InboxHeadField
    unread: UnreadField
    unseen: UnseenField


class BadgeReply(Reply, frozen=True):
    """Counters of the inbox after notifications were marked."""

    unread: UnreadField
    unseen: UnseenField


class DeviceKeyReply(Reply, frozen=True):
    """Public key with which a browser subscribes to Web Push."""

    public_key: PublicKeyField


class RefreshReply(Reply, frozen=True):
    """Expiry of the connection's new token."""

    expires_at: Annotated[int, about("Time when the new token expires, in milliseconds UTC.")]


# Reply type of each command with an `id`. A command that is not listed gets an empty `Reply`.
REPLIES: dict[type[commands.Command], type[Reply]] = {
    commands.StatusSet: StatusReply,
    commands.PrivacySet: PrivacyReply,
    commands.Watch: PresenceReply,
    commands.PresenceGet: PresenceReply,
    commands.RoomList: RoomsReply,
    commands.RoomJoin: JoinReply,
    commands.RoomPresent: PresentReply,
    commands.RoomSend: SendReply,
    commands.RoomEdit: SendReply,
    commands.RoomDelete: SendReply,
    commands.RoomReact: SendReply,
    commands.RoomRead: ReadReply,
    commands.RoomReceipts: ReceiptsReply,
    commands.RoomHistory: HistoryReply,
    commands.InboxList: InboxReply,
    **dict.fromkeys(commands.MARKS, BadgeReply),
    commands.DeviceKey: DeviceKeyReply,
    commands.TokenRefresh: RefreshReply,
}


class SessionInfo(Struct, frozen=True):
    """Session of a user. Some fields are null if the node of the session did not answer."""

    session: Annotated[str, about("Id of the session.")]
    user: Annotated[str, about("Id of the user.")]
    device: Annotated[str, about("Name of the device.")]
    client: Annotated[
        dict[str, str] | None,
        about("Name and version of the client program; null if the node did not answer."),
    ]
    node: Annotated[str, about("Incarnation of the node that holds the session.")]
    connected_at: Annotated[
        int | None,
        about("Time of the last connect or resume, in milliseconds UTC; null if the node did not answer."),
    ]
    last_heard: Annotated[
        int | None,
        about("Time of the client's last frame, in milliseconds UTC; null if the node did not answer."),
    ]
    state: Annotated[str, about("`online`, `idle`, or `lingering`: the session has no connection and still counts.")]
    ip_hash: Annotated[str | None, about("Hash of the client's address; null if the node did not answer.")]
    agent_hash: Annotated[
        str | None,
        about("Hash of the client's User-Agent; null without a connection, or if the node did not answer."),
    ]
    ends_in_ms: Annotated[
        int | None, about("Time until a lingering session ends, in milliseconds; null for other sessions.")
    ] = None


class SessionsReply(Struct, frozen=True):
    """Sessions of a user on all nodes."""

    sessions: Annotated[list[SessionInfo], about("Sessions of the user, on all nodes.")]
    incomplete: Annotated[
        list[str],
        about("Nodes that did not answer in time or are dead. Details of their sessions are null."),
    ] = []
    stale: Annotated[
        bool | UnsetType, about("True: sessions may be missing, because the engine is away or restores lost records.")
    ] = UNSET
