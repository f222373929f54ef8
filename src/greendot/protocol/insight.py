"""What the dashboard's node asks the others, and what they answer. JSON within bus messages, which are signed."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

MOST_SESSIONS = 200  # of a user, or listeners of a room, in one answer


class SampleOf(Struct, frozen=True, tag="sample"):
    """How is it there? And what has happened, if the tail is wanted."""

    asker: str
    nodes: bool  # the node's own counts; else those of the tenant
    tenant: str = ""
    tail: str | None = None  # whose events: a tenant's, "" for everybody's; None: nobody's
    kinds: tuple[str, ...] = ()  # of events


class UserOf(Struct, frozen=True, tag="user"):
    """What is there of a user?"""

    tenant: str
    user: str


class RoomOf(Struct, frozen=True, tag="room"):
    """What is there of a room?"""

    tenant: str
    room: str


class Sample(Struct, frozen=True):
    """A node, or a tenant's part of it."""

    at_ms: int  # monotonic, for rates
    gauges: dict[str, float]
    counts: dict[str, int]
    closes: dict[str, int] = {}  # sockets ended, by close code
    started_at: int = 0
    level: str = "normal"
    events: list[Any] = []  # `core.tailing.Event`s
    skipped: int = 0  # events that were not kept


class SessionThere(Struct, frozen=True):
    """A session as its own node knows it."""

    session: str
    device: str
    client: str
    state: str  # online, idle or lingering
    connected_at: int
    last_heard: int
    token_expires_at: int
    token_issued_at: int | None
    token_id: str | None
    rooms: list[str]
    watches: int
    behind: bool  # whether frames wait for it


class UserThere(Struct, frozen=True):
    """A user's sessions on one node."""

    sessions: list[SessionThere]


class RoomThere(Struct, frozen=True):
    """A room's listeners on one node."""

    listeners: int


Question = SampleOf | UserOf | RoomOf
Answer = Sample | UserThere | RoomThere

encode = msgspec.json.Encoder().encode
read_question = msgspec.json.Decoder(Question).decode
read_sample = msgspec.json.Decoder(Sample).decode
read_user = msgspec.json.Decoder(UserThere).decode
read_room = msgspec.json.Decoder(RoomThere).decode
