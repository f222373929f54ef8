"""Data of replies. The reply to a command without data is an empty object."""

from __future__ import annotations

from msgspec import UNSET, Raw, Struct, UnsetType

from greendot.protocol import commands
from greendot.protocol.commands import LastSeen
from greendot.protocol.events import Presence, RoomMessage


class Reply(Struct, frozen=True, gc=False):
    """The data of a reply with nothing to say."""


class PresenceReply(Reply, frozen=True, gc=True):
    """To `watch` and `presence.get`: one entry per user asked for, in that order."""

    presence: list[Presence]


class StatusReply(Reply, frozen=True):
    """To `status.set`: the user as their own devices see them."""

    presence: Presence


class PrivacyReply(Reply, frozen=True, gc=True):
    """To `privacy.set`: what is hidden now."""

    last_seen: LastSeen
    hide_from: list[str]


class Typer(Struct, frozen=True, gc=False):
    """One who is typing in the room."""

    user: str
    name: str | None
    expires_in_ms: int


class JoinReply(Reply, frozen=True, gc=True):
    """To `room.join`: where the room stands, and what was missed since `after`."""

    room: str
    head: int
    messages: list[RoomMessage]
    recovered: bool
    truncated: bool
    typing: list[Typer]
    typing_count: int
    present: int
    unread: int


class RoomEntry(Struct, frozen=True, gc=False):
    """One room of the list."""

    room: str
    head: int
    unread: int
    open: bool


class RoomsReply(Reply, frozen=True, gc=True):
    """To `room.list`: the rooms the user is a member of and the open ones, by name."""

    rooms: list[RoomEntry]


class PresentReply(Reply, frozen=True, gc=True):
    """To `room.present`: a page of who is in the room now, and how many there are in all."""

    users: list[str]
    count: int
    stale: bool | UnsetType = UNSET  # True: occupants may be missing while lost records are restored


class SendReply(Reply, frozen=True):
    """To `room.send`, `room.edit` and `room.delete`: under which number it was written."""

    id: str
    seq: int


class ReadReply(Reply, frozen=True):
    """To `room.read`: how many messages are left to read."""

    unread: int


class HistoryReply(Reply, frozen=True, gc=True):
    """To `room.history`: messages in ascending order."""

    messages: list[RoomMessage]


class InboxEntry(Struct, frozen=True, gc=False):
    """One notification as its reader sees it."""

    seq: int
    id: str
    kind: str
    body: Raw
    created_at: int
    seen_at: int | None
    read_at: int | None
    archived_at: int | None
    acked_at: int | None
    ack: bool = False  # whether the server expects `inbox.ack`


class InboxReply(Reply, frozen=True, gc=True):
    """To `inbox.list`: a page in ascending order, and where the inbox stands."""

    notifications: list[InboxEntry]
    head: int
    unread: int
    unseen: int


class BadgeReply(Reply, frozen=True):
    """To `inbox.seen`, `inbox.read`, `inbox.archive` and `inbox.ack`."""

    unread: int
    unseen: int


class RefreshReply(Reply, frozen=True):
    """To `token.refresh`: until when the new token holds."""

    expires_at: int


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
    commands.RoomRead: ReadReply,
    commands.RoomHistory: HistoryReply,
    commands.InboxList: InboxReply,
    **dict.fromkeys(commands.MARKS, BadgeReply),
    commands.TokenRefresh: RefreshReply,
}


class SessionInfo(Struct, frozen=True):
    """One session as operators see it. What only its own node knows is None when another one is asked."""

    session: str
    user: str
    device: str
    client: dict[str, str] | None
    node: str
    connected_at: int | None
    last_heard: int | None
    state: str  # online, idle or lingering
    ip_hash: str | None
    agent_hash: str | None
