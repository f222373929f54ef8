"""What the dashboard's node asks the others, and what they answer. JSON within bus messages, which are signed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec
from msgspec import Struct

from greendot.protocol.decoding import Json, decoder

MOST_SESSIONS = 200  # of a user, or listeners of a room, in one answer
TopicKind = Literal["room", "watch", "user"]  # a room, those who watch a user, a user's own devices
WatchMode = Literal["live", "slices", "asked"]  # how watchers learn of changes: at once, in slices, or when they ask


class SampleQuery(Struct, frozen=True, tag="sample"):
    """How is it there? And what has happened, if the tail is wanted."""

    asker: str
    nodes: bool  # the node's own counts; else those of the tenant
    tenant: str = ""
    tail: str | None = None  # whose events: a tenant's, "" for everybody's; None: nobody's
    kinds: tuple[str, ...] = ()  # of events
    user: str | None = None  # only this one's events
    room: str | None = None  # the same
    most: int = 0  # hot topics and slow clients, of those whose events they are


class UserQuery(Struct, frozen=True, tag="user"):
    """What is there of a user?"""

    tenant: str
    user: str


class RoomQuery(Struct, frozen=True, tag="room"):
    """What is there of a room?"""

    tenant: str
    room: str


class NodeQuery(Struct, frozen=True, tag="node"):
    """What does the node hold?"""

    tenant: str | None = None  # how many connections of this one's, too


class TopicQuery(Struct, frozen=True, tag="topic"):
    """Who listens to a topic there?"""

    kind: TopicKind
    tenant: str
    name: str


class DisconnectAll(Struct, frozen=True, tag="end"):
    """Close all sessions there, or all of a tenant. The one question that changes something."""

    code: int
    reason: str
    tenant: str | None = None


class HotTopic(Struct, frozen=True):
    """A topic that much is written to."""

    kind: str
    tenant: str
    name: str
    listeners: int
    per_s: float  # writes to sockets


class SlowClient(Struct, frozen=True):
    """A client for which frames wait."""

    session: str
    tenant: str
    user: str
    device: str
    waiting: int  # bytes


class Sample(Struct, frozen=True):
    """A node, or a tenant's part of it."""

    at_ms: int  # monotonic, for rates
    gauges: dict[str, float]
    counts: dict[str, int]
    closes: dict[str, int] = {}  # sockets ended, by close code
    started_at: int = 0
    level: str = "normal"
    events: list[Any] = []  # `node.event_recorder_model.RecordedEvent`s
    skipped: int = 0  # events that were not kept
    hot: list[HotTopic] = []  # what most is written to, first
    slow: list[SlowClient] = []  # for which most waits, first


class SessionReport(Struct, frozen=True):
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
    waiting: int = 0  # bytes that do
    ends_in_ms: int | None = None  # of one that lingers


class UserReport(Struct, frozen=True):
    """A user's sessions on one node."""

    sessions: list[SessionReport]
    watchers: int = 0
    told: WatchMode = "live"  # them


class RoomReport(Struct, frozen=True):
    """A room's listeners on one node."""

    listeners: int


class NodeReport(Struct, frozen=True):
    """What a node holds."""

    version: str
    started_at: int
    draining: bool
    connections: int
    strangers: int  # that have not said who they are
    sessions: int
    lingering: int  # of them
    users: int
    tenants: dict[str, int]  # with the most connections, and how many
    rooms: int  # that are listened to
    watched: int  # users
    timers: int
    level: str
    gauges: dict[str, float]
    theirs: int = 0  # connections of the tenant that was asked about


class TopicReport(Struct, frozen=True):
    """A topic on one node."""

    listeners: int
    frames: int = 0  # that wait to be written to them
    writes: int = 0  # to be made for that
    barred: int = 0  # who watch and may not see
    told: WatchMode = "live"  # watchers
    stale: bool = False  # the engine is away, and watchers know it
    unheard_in_ms: int | None = None  # nobody listens: when it is given up


class Ended(Struct, frozen=True):
    """How many are being closed."""

    sessions: int


Question = SampleQuery | UserQuery | RoomQuery | NodeQuery | TopicQuery | DisconnectAll
Answer = Sample | UserReport | RoomReport | NodeReport | TopicReport | Ended

encode = msgspec.json.Encoder().encode
read_question: Callable[[Json], Question] = decoder(Question)  # type: ignore[arg-type]  # a union
read_sample = decoder(Sample)
read_user = decoder(UserReport)
read_room = decoder(RoomReport)
read_node = decoder(NodeReport)
read_topic = decoder(TopicReport)
read_ended = decoder(Ended)
