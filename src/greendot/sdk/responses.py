"""Responses of the HTTP API, typed. Times are milliseconds UTC; fields that a newer server adds are ignored."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from greendot.protocol.events import Presence
from greendot.protocol.replies import SessionInfo, Typer

Role = Literal["reader", "member", "admin"]
Bus = Literal["full", "hint"]


class Sent(Struct, frozen=True):
    """A message is written, under this number."""

    id: str
    seq: int


class Notified(Struct, frozen=True):
    """What became of a notification. Not `new`: its key was known, and this is the one that was written then.

    Without number and id: its kind is not kept.
    """

    id: str | None
    seq: int | None
    new: bool


class NotifiedList(Struct, frozen=True):
    """The answer to many."""

    notifications: list[Notified]


class InboxEntry(Struct, frozen=True):
    """One notification, and when what became of it."""

    seq: int
    id: str
    kind: str
    body: Any
    created_at: int
    expires_at: int | None = None
    live_at: int | None = None  # first given to a connected device
    push_at: int | None = None  # first given to a push provider
    seen_at: int | None = None
    read_at: int | None = None
    archived_at: int | None = None
    acked_at: int | None = None
    ack: bool = False


class Inbox(Struct, frozen=True):
    """A page of a user's inbox in ascending order, and where the inbox stands."""

    notifications: list[InboxEntry]
    head: int
    unread: int
    unseen: int


class Room(Struct, frozen=True):
    """A room; `head` is the number of its newest message."""

    room: str
    open: bool
    head: int
    bus: Bus = "full"


class Rooms(Struct, frozen=True):
    """A page of rooms."""

    rooms: list[Room]


class Member(Struct, frozen=True):
    """One who may be in a room."""

    room: str
    user: str
    role: Role


class Members(Struct, frozen=True):
    """A page of members, with their roles; the next one is after `next`."""

    members: list[str]
    roles: dict[str, Role]
    next: str | None


class Present(Struct, frozen=True):
    """A page of who is in the room now, and how many there are in all."""

    users: list[str]
    count: int


class Typers(Struct, frozen=True):
    """Who types in a room now."""

    typing: list[Typer]


class Message(Struct, frozen=True):
    """A message of a room. `op` and `ref`: it edits or deletes the one with that number."""

    room: str
    seq: int
    id: str
    user: str
    name: str | None
    body: Any
    at: int
    ref: int | None = None
    op: str | None = None


class Messages(Struct, frozen=True):
    """A page of messages in ascending order."""

    messages: list[Message]


class PresenceList(Struct, frozen=True):
    """One entry per user asked for."""

    presence: list[Presence]


class OnePresence(Struct, frozen=True):
    """A user, after a change."""

    presence: Presence


class Online(Struct, frozen=True):
    """A page of those who are online, and how many there are in all; the next one is after `next`."""

    users: list[str]
    next: str | None
    count: int


class Sessions(Struct, frozen=True):
    """A user's sessions on all nodes."""

    sessions: list[SessionInfo]


class Contact(Struct, frozen=True):
    """`user` has `contact` as a contact: one way."""

    user: str
    contact: str
    last_contact_at: int


class Revoked(Struct, frozen=True):
    """How many sockets were closed, and until when the entry is kept."""

    closed: int
    expires_at: int
