"""Cluster queries of the dashboard's node, and the reports of the other nodes.

JSON in bus messages, which are signed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec
from msgspec import Struct

from greendot.protocol.decoding import Json, decoder
from greendot.protocol.replies import SessionInfo

MOST_SESSIONS = 200  # sessions of a user, or rooms of a session, in one answer
MOST_DETAILED = 1_000  # sessions of a user in one answer for the HTTP API
TopicKind = Literal["room", "watch", "user"]  # a room, the watchers of a user, the devices of a user
WatchMode = Literal["live", "slices", "asked"]  # delivery of changes to watchers: at once, in slices, or on request


class SampleQuery(Struct, frozen=True, tag="sample"):
    """Query for the counters of a node or a tenant, and for recent events if `tail` is set."""

    asker: str  # reader of the tail: its node and view
    nodes: bool  # True: counts of the node; False: counts of the tenant
    tenant: str = ""
    tail: str | None = None  # tenant whose events to return; "": all tenants; None: no events
    kinds: tuple[str, ...] = ()  # kinds of events to return
    user: str | None = None  # only events of this user
    room: str | None = None  # only events of this room
    most: int = 0  # maximum number of hot topics and of slow clients, of the tenant in `tail`


class UserQuery(Struct, frozen=True, tag="user"):
    """Query for a user's sessions and watchers on a node."""

    tenant: str
    user: str


class SessionsQuery(Struct, frozen=True, tag="sessions"):
    """Query for a user's sessions on a node, as the HTTP API shows them."""

    tenant: str
    user: str


class RoomQuery(Struct, frozen=True, tag="room"):
    """Query for a room's listeners on a node."""

    tenant: str
    room: str


class RoomsQuery(Struct, frozen=True, tag="rooms"):
    """Query for the listeners of several rooms on a node."""

    tenant: str
    rooms: list[str]


class NodeQuery(Struct, frozen=True, tag="node"):
    """Query for the state of a node."""

    tenant: str | None = None  # also count this tenant's connections


class TopicQuery(Struct, frozen=True, tag="topic"):
    """Query for the listeners of a topic on a node."""

    kind: TopicKind
    tenant: str
    name: str


class HistoryQuery(Struct, frozen=True, tag="history"):
    """Query for the figures of a node, or of one tenant on the node, in the last hour."""

    tenant: str | None = None


class DisconnectAll(Struct, frozen=True, tag="end"):
    """Request to close all sessions of a node, or those of one tenant. All other queries only read."""

    code: int
    reason: str
    tenant: str | None = None


class HotTopic(Struct, frozen=True):
    """Topic with many socket writes."""

    kind: str
    tenant: str
    name: str
    listeners: int
    per_s: float  # writes to sockets per second


class SlowClient(Struct, frozen=True):
    """Client whose send buffer has waiting frames."""

    session: str
    tenant: str
    user: str
    device: str
    waiting: int  # bytes that wait


class Sample(Struct, frozen=True):
    """Counters of a node, or of one tenant on the node."""

    at_ms: int  # monotonic, for rates
    gauges: dict[str, float]
    counts: dict[str, int]
    closes: dict[str, int] = {}  # closed sockets by close code
    started_at: int = 0
    level: str = "normal"
    events: list[Any] = []  # `node.event_recorder_model.RecordedEvent`s
    skipped: int = 0  # number of events that were not kept
    hot: list[HotTopic] = []  # busiest topic first
    slow: list[SlowClient] = []  # most waiting bytes first


class SessionReport(Struct, frozen=True):
    """Session on its own node."""

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
    behind: bool  # whether frames wait in the send buffer
    waiting: int = 0  # bytes in the send buffer
    ends_in_ms: int | None = None  # None unless the session lingers


class UserReport(Struct, frozen=True):
    """Sessions and watchers of a user on one node."""

    sessions: list[SessionReport]
    watchers: int = 0
    told: WatchMode = "live"  # delivery mode of the watchers


class SessionsReport(Struct, frozen=True):
    """Sessions of a user on one node, as the HTTP API shows them."""

    sessions: list[SessionInfo]


class RoomReport(Struct, frozen=True):
    """Listeners of a room on one node."""

    listeners: int


class RoomsReport(Struct, frozen=True):
    """Listeners of rooms on one node, in the order of the query."""

    listeners: list[int]


class NodeReport(Struct, frozen=True):
    """State of a node."""

    version: str
    started_at: int
    draining: bool
    connections: int
    strangers: int  # connections before hello
    sessions: int
    lingering: int  # lingering sessions, included in `sessions`
    users: int
    tenants: dict[str, int]  # tenants with the most connections → connections
    rooms: int  # rooms with listeners
    watched: int  # watched users
    timers: int
    level: str
    gauges: dict[str, float]
    theirs: int = 0  # connections of the query's tenant


class TopicReport(Struct, frozen=True):
    """Listeners and waiting frames of a topic on one node."""

    listeners: int
    frames: int = 0  # frames that wait to be written
    writes: int = 0  # writes needed for these frames
    barred: int = 0  # hidden watchers
    told: WatchMode = "live"  # delivery mode of the watchers
    stale: bool = False  # whether the engine is away and watchers have received `stale`
    unheard_in_ms: int | None = None  # time until an unused subscription ends; None while there are listeners


class HistoryReport(Struct, frozen=True):
    """Figures of a node in periods of equal length. A node without a dashboard has none."""

    every_ms: int = 0  # length of a period
    slots: list[int] = []  # numbers of the periods since 1970, ascending
    columns: dict[str, list[float | None]] = {}  # figure → a value for each period; null: not known


class Ended(Struct, frozen=True):
    """Number of sessions that the node closes."""

    sessions: int


class ListenedQuery(Struct, frozen=True, tag=True):
    """Question how many clients listen to a tenant's rooms: to these, or to all with clients of foreign protocols."""

    tenant: str
    rooms: list[str] = []
    prefix: str = ""  # of the rooms, without `rooms`
    shown_only: bool = False  # leave out the clients of invisible users


class ListenedReport(Struct, frozen=True):
    """Listeners of rooms on one node: room → number. Rooms without listeners are left out."""

    listeners: dict[str, int]


Question = (
    SampleQuery
    | UserQuery
    | SessionsQuery
    | RoomQuery
    | RoomsQuery
    | NodeQuery
    | TopicQuery
    | HistoryQuery
    | DisconnectAll
    | ListenedQuery
)
Answer = (
    Sample
    | UserReport
    | SessionsReport
    | RoomReport
    | RoomsReport
    | NodeReport
    | TopicReport
    | HistoryReport
    | Ended
    | ListenedReport
)

encode = msgspec.json.Encoder().encode
read_question: Callable[[Json], Question] = decoder(Question)  # type: ignore[arg-type]  # a union
read_sample = decoder(Sample)
read_user = decoder(UserReport)
read_sessions = decoder(SessionsReport)
read_room = decoder(RoomReport)
read_rooms = decoder(RoomsReport)
read_node = decoder(NodeReport)
read_topic = decoder(TopicReport)
read_history = decoder(HistoryReport)
read_ended = decoder(Ended)
read_listened = decoder(ListenedReport)
