"""Events of the server.

One struct per event's `data`; `EVENTS` maps the wire's `type` to the struct of its newest version.

Times are integer milliseconds UTC, `None` where unknown.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import UNSET, Raw, Struct, UnsetType

State = Literal["online", "idle", "busy", "offline"]
Status = Literal["auto", "busy", "invisible"]
Mode = Literal["live", "poll"]
MarkedAs = Literal["seen", "read", "archived", "acked"]


class Event(Struct, frozen=True, gc=False):
    """The data of an event. `type` and `v` stand in the envelope."""

    type: ClassVar[str]
    v: ClassVar[int] = 1


class Presence(Event, frozen=True):
    """One user as one reader sees them. `status` is there only for the user's own devices."""

    type = "presence.changed"

    user: str
    name: str | None
    state: State
    since: int | None
    last_seen: int | None  # None unless offline
    version: int
    status_text: str | None = None
    mode: Mode = "live"  # poll: changes are not sent; the client requests them
    devices: list[str] | UnsetType = UNSET  # in snapshots only
    status: Status | UnsetType = UNSET
    until: int | UnsetType | None = UNSET
    stale: bool | UnsetType = UNSET
    recently_active: bool | UnsetType = UNSET  # present if the mode is poll


class RoomState(Struct, frozen=True, gc=False):
    """Where a resumed room stands."""

    head: int
    recovered: bool
    truncated: bool


class Limits(Struct, frozen=True, gc=False):
    """What this server lets one client do, so that it can stay within it. Rates are a second; 0 is no limit."""

    frame_bytes: int
    commands_per_s: int
    watches: int
    rooms: int
    commands_burst: int = 0
    typing_per_s: int = 0
    signals_per_s: int = 0
    sends_per_s: int = 0
    watches_per_s: int = 0
    room_signals_per_s: int = 0
    room_sends_per_s: int = 0


class TypingTimes(Struct, frozen=True, gc=False):
    """How a client announces typing. The defaults are those of servers that do not send it."""

    repeat_ms: int = 3_000  # interval of repeated starts while the person types
    hold_ms: int = 5_000  # lifetime of a start
    throttle_ms: int = 2_000  # a start that follows another sooner is dropped, also after a stop


class Welcome(Event, frozen=True, gc=True):
    """The answer to `hello`: the session, its limits, and where the rooms stand."""

    type = "welcome"

    session: str
    user: str
    tenant: str
    node: str
    resumed: bool
    heartbeat_s: float
    server_time: int
    unread: int
    limits: Limits
    rooms: dict[str, RoomState]
    typing: TypingTimes = TypingTimes()


class HeartbeatAck(Event, frozen=True):
    """The answer to `heartbeat`."""

    type = "heartbeat.ack"


class TypingStarted(Event, frozen=True):
    """Somebody types in a room, and is taken to until `expires_in_ms` and a second have passed."""

    type = "typing.started"

    room: str
    user: str
    name: str | None
    expires_in_ms: int


class TypingStopped(Event, frozen=True):
    """Somebody has stopped typing."""

    type = "typing.stopped"

    room: str
    user: str


class TypingCount(Event, frozen=True):
    """Sent instead of names in large rooms."""

    type = "typing.count"

    room: str
    count: int
    expires_in_ms: int


class RoomMessage(Event, frozen=True):
    """A record of a room, in the order of its numbers."""

    type = "room.message"

    room: str
    seq: int
    id: str
    user: str
    name: str | None
    body: Raw
    at: int
    ref: int | None = None
    op: str | None = None


class RoomEntered(Event, frozen=True):
    """Somebody is in the room now."""

    type = "room.entered"

    room: str
    user: str


class RoomLeft(Event, frozen=True):
    """Somebody is in the room no longer."""

    type = "room.left"

    room: str
    user: str


class RoomCount(Event, frozen=True):
    """Sent instead of names in large rooms."""

    type = "room.count"

    room: str
    count: int


class RoomChanged(Event, frozen=True):
    """The reader lost access (`removed`), or read up to `read` on another device."""

    type = "room.changed"

    room: str
    removed: bool = False
    reason: str | None = None
    read: int | UnsetType = UNSET
    unread: int | UnsetType = UNSET


class Signal(Event, frozen=True, rename={"sender": "from"}):
    """Something for this moment, from a user or from the app."""

    type = "signal"

    sender: str
    name: str | None
    kind: str
    room: str | UnsetType = UNSET
    body: Raw | UnsetType = UNSET
    key: str | UnsetType = UNSET


class NotificationCreated(Event, frozen=True):
    """A new entry of the reader's inbox; sent again until it is acknowledged if its kind wants that."""

    type = "notification.created"

    seq: int
    id: str
    kind: str
    body: Raw
    created_at: int
    ack: bool = False  # whether the server expects `inbox.ack`


class NotificationUpdated(Event, frozen=True, gc=True):
    """Entries were marked, on whichever device: either some, or all up to and including a number.

    It is made of version 1, which `greendot.protocol.versions` does. Servers that have only that say both.
    """

    type = "notification.updated"
    v = 2

    state: MarkedAs
    ids: list[str] | UnsetType = UNSET
    through: int | UnsetType = UNSET


class NotificationUpdatedV1(Event, frozen=True, gc=True):
    """The same as clients read it that do not ask for version 2."""

    type = "notification.updated"

    state: MarkedAs
    ids: list[str]  # changed notifications, the newest 1,000; if there are more, `refresh` follows
    through: int | UnsetType = UNSET  # all notifications up to and including this number


class InboxBadge(Event, frozen=True):
    """How many notifications are unread and unseen."""

    type = "inbox.badge"

    unread: int
    unseen: int


class Refresh(Event, frozen=True):
    """There was something of this type that no version the client reads can show: fetch it again."""

    type = "refresh"

    of: str


class Resync(Event, frozen=True):
    """More was missed than is sent again: fetch it. `scope` is `inbox` or `room:NAME`."""

    type = "resync"

    scope: str


class Drain(Event, frozen=True):
    """The server is stopping: come back after this time, which is another for each client."""

    type = "drain"

    retry_in_ms: int


class Overloaded(Event, frozen=True):
    """The server has too much to do: come back after this time."""

    type = "overloaded"

    retry_in_ms: int


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
        RoomCount,
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
