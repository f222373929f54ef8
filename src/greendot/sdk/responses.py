"""Typed responses of the HTTP API.

Times are milliseconds UTC. Fields that a newer server adds are ignored.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from greendot.protocol.events import Presence
from greendot.protocol.replies import SessionInfo, Typer

Role = Literal["reader", "member", "admin"]
Bus = Literal["full", "hint"]


class Sent(Struct, frozen=True):
    """Id and number of a message that was written."""

    id: str
    seq: int


class Notified(Struct, frozen=True):
    """Result of a notification."""

    id: str | None  # None: the kind of the notification is not kept
    seq: int | None
    new: bool  # False: the key was used before, and this is the earlier notification


class NotifiedList(Struct, frozen=True):
    """Results of several notifications, in order."""

    notifications: list[Notified]


class InboxEntry(Struct, frozen=True):
    """Notification of an inbox, with the times of its delivery and its marks."""

    seq: int
    id: str
    kind: str
    body: Any
    created_at: int
    expires_at: int | None = None
    live_at: int | None = None  # first delivery to a connected device
    push_at: int | None = None  # first delivery to a push provider
    seen_at: int | None = None
    read_at: int | None = None
    archived_at: int | None = None
    acked_at: int | None = None
    ack: bool = False  # whether a device must acknowledge the notification


class Inbox(Struct, frozen=True):
    """Page of a user's inbox in ascending order, with the inbox's head and counters."""

    notifications: list[InboxEntry]
    head: int
    unread: int
    unseen: int


class Room(Struct, frozen=True):
    """Room of a tenant. `head` is the number of its newest message."""

    room: str
    open: bool
    head: int
    bus: Bus = "full"
    receipts: bool = False
    archived: bool = False
    slow_mode_s: int = 0


class Rooms(Struct, frozen=True):
    """Page of rooms."""

    rooms: list[Room]


class Member(Struct, frozen=True):
    """Member of a room."""

    room: str
    user: str
    role: Role


class Members(Struct, frozen=True):
    """Page of a room's members with their roles. `next` is the `after` of the next page, None at the end."""

    members: list[str]
    roles: dict[str, Role]
    next: str | None


class UserInfo(Struct, frozen=True):
    """Name and info of a user."""

    name: str | None = None
    info: dict[str, Any] | None = None


class Present(Struct, frozen=True):
    """Page of a room's occupants with their names and info, and the number of all occupants."""

    users: list[str]
    count: int
    profiles: dict[str, UserInfo] = {}


class Receipt(Struct, frozen=True):
    """Number of the last message that a user has read."""

    user: str
    seq: int


class Receipts(Struct, frozen=True):
    """Page of a room's read receipts, in the order of user ids. `next` is the `after` of the next page."""

    receipts: list[Receipt]
    next: str | None = None


class ReaderCount(Struct, frozen=True):
    """Number of users who have read a message."""

    seq: int
    count: int


class Typers(Struct, frozen=True):
    """Users who type in a room."""

    typing: list[Typer]


class Reaction(Struct, frozen=True):
    """Number of users with one reaction to a message."""

    reaction: str
    count: int


class Message(Struct, frozen=True):
    """Message of a room. With `op` and `ref` it edits, deletes or reacts to the message with the number `ref`."""

    room: str
    seq: int
    id: str
    user: str
    name: str | None
    body: Any
    at: int
    ref: int | None = None
    op: str | None = None
    info: dict[str, Any] | None = None  # current info of the author
    reactions: list[Reaction] = []
    reacted: int | None = None  # number up to which `reactions` include all records


class Messages(Struct, frozen=True):
    """Page of a room's messages, in ascending order."""

    messages: list[Message]


class AuditEntry(Struct, frozen=True):
    """Change by moderation. `actor` made it.

    `user` was muted or banned, or is the author of the changed message. None: the change is about no user, or the user
    was erased.
    """

    number: int
    at: int
    actor: str
    action: str
    room: str | None
    user: str | None
    ref: int | None
    reason: str | None
    until: int | None
    slow_mode_s: int | None = None  # seconds that slow mode was set to; 0: ended


class AuditEntries(Struct, frozen=True):
    """Page of the audit, in ascending order."""

    entries: list[AuditEntry]


class Restriction(Struct, frozen=True):
    """Mute or ban of a user. `room` None: in the whole tenant. `until` is in ms UTC; None: no end."""

    user: str
    room: str | None
    until: int | None
    at: int
    by: str
    reason: str | None


class Restrictions(Struct, frozen=True):
    """Page of mutes or bans, in the order of user ids."""

    users: list[Restriction]
    next: str | None


class PresenceList(Struct, frozen=True):
    """Presence of users, one entry per requested user."""

    presence: list[Presence]


class OnePresence(Struct, frozen=True):
    """Presence of a user after a change."""

    presence: Presence


class OneMode(Struct, frozen=True):
    """Mode of presence of a user."""

    user: str
    mode: Literal["auto", "live", "poll"]


class Online(Struct, frozen=True):
    """Page of the users online, and the number of all. `next` is the `after` of the next page, None at the end."""

    users: list[str]
    next: str | None
    count: int


class Sessions(Struct, frozen=True):
    """Sessions of a user on all nodes."""

    sessions: list[SessionInfo]


class Contact(Struct, frozen=True):
    """Contact of a user. The contact is one-way: `contact` does not get `user` as a contact."""

    user: str
    contact: str
    last_contact_at: int


class Revoked(Struct, frozen=True):
    """Result of a revocation: the number of closed connections, and the time until which the revocation is kept."""

    closed: int
    expires_at: int
