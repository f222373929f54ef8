"""Presence record of one user: sessions go in, visible states come out.

A verb is an operation on the record, such as `touch` or `leave`. Every verb also settles the record (`settle`): it
removes ended sessions and an expired manual status, and compares the visible states before and after. Only a difference
gets a new version and is returned. The change to offline is therefore published exactly once, by the first verb after
the end of the last session.

A session lingers from the end of its connection until its grace is over. The user does not go offline during the
grace.

A record has two visible states: `visible` for other users, and `own` for the user's own devices. They differ only
while the user is invisible. `visible` is then offline and does not change, even when the last session ends.

Times are integer milliseconds of the engine's clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from msgspec import UNSET, Struct, structs

from greendot.presence.profile_model import NO_PROFILE, Profile, shown_name
from greendot.protocol.events import Presence, State, Status


class ManualStatus(Struct, frozen=True, gc=False):
    """Status that the user has set, copied from the store. A copy with a lower revision (`rev`) is older."""

    status: Status = "auto"
    until: int | None = None
    text: str | None = None
    rev: int = 0


class VisibleState(Struct, frozen=True, gc=False):
    """State of a user for other users, or for the user's own devices. Only own devices get `status` and `until`."""

    state: State = "offline"
    since: int | None = None
    last_seen: int | None = None
    version: int = 0
    text: str | None = None
    status: Status = "auto"
    until: int | None = None


class SessionEpoch(NamedTuple):
    """Id of a session, with the incarnation of its node and the number of its connection.

    `linger` and `leave` change nothing if the session has a newer connection than this one.
    """

    session: str
    incarnation: str
    conn: int


class NodeLife(NamedTuple):
    """Life of one incarnation of a node. Both times are None while the node lives, and set after its death."""

    last_renewal: int | None = None  # time of the last renewal of the node's lease
    ends: int | None = None  # time at which the node's sessions end


class SessionRecord(Struct, gc=False):
    """Session in a presence record."""

    device: str
    incarnation: str
    conn: int
    idle: bool
    deadline: int | None = None  # time at which a lingering session ends; None while connected
    heard: int = 0  # time of the last frame of a client whose session lingers; 0 while connected


class Snapshot(NamedTuple):
    """State of one user at the time of a read."""

    visible: VisibleState
    own: VisibleState
    name: str | None
    devices: list[str]
    stale: bool = False  # the engine lost sessions, and nodes restore them: an offline user may be online
    profile: Profile = NO_PROFILE  # from the store


class Change(Struct, frozen=True):
    """Change of a user's state: for other users if `public`, for the user's own devices if `private`.

    If only the devices or the name changed, clients get no event. Nodes update their copies of the user's presence,
    and answer later reads with them.
    """

    visible: VisibleState
    own: VisibleState
    name: str | None
    devices: list[str]
    public: bool
    private: bool
    restored: bool = False  # made while nodes restore lost sessions: other sessions of the user may follow


NOBODY = VisibleState()
_GONE = NodeLife(None, 0)


class UserPresence:
    """Presence record of a user with sessions.

    The engine removes the record when it is `empty`, and keeps `visible` as the last-seen state.
    """

    __slots__ = ("devices", "last_heard", "manual", "name", "own", "published_name", "sessions", "turned", "visible")

    def __init__(self, visible: VisibleState = NOBODY, name: str | None = None) -> None:
        self.visible = visible
        self.own = visible
        self.name = name
        self.published_name = name
        self.sessions: dict[str, SessionRecord] = {}
        self.manual: ManualStatus | None = None  # None: not read yet; the user appears offline until then
        self.last_heard: int | None = None  # time of the latest frame among the ended sessions
        self.devices: list[str] = []  # devices of all sessions, as last published
        # Effect of the last verb for other users: True if the user came online, False if offline, None if neither.
        self.turned: bool | None = None

    @property
    def empty(self) -> bool:
        return not self.sessions

    def touch(
        self,
        ref: SessionEpoch,
        device: str,
        idle: bool | None,
        now: int,
        nodes: Mapping[str, NodeLife],
        *,
        since: int | None = None,
    ) -> tuple[bool, Change | None]:
        """Record that a session is connected as `ref`; return whether the session existed before, and the change.

        With `idle` None the session stays idle or active as before, because a reconnect is no activity of the person.
        A new connection ends every other lingering session of the same device, because the device has come back.
        `since` is the time at which a new state began (None: now).
        """
        self._prune(now, nodes)
        record = self.sessions.get(ref.session)
        came = record is None or (record.incarnation, record.conn) != (ref.incarnation, ref.conn)
        if record is None:
            self.sessions[ref.session] = SessionRecord(device, ref.incarnation, ref.conn, bool(idle))
        elif not self._current(record, ref):
            return True, self.settle(now, nodes, since)
        else:
            record.incarnation, record.conn = ref.incarnation, ref.conn
            # A returned session lingers no longer. The next end of its connection sets both times again.
            record.deadline, record.heard = None, 0
            if idle is not None:
                record.idle = idle
        for other, its in [*self.sessions.items()] if came else ():
            if other != ref.session and its.device == device and its.deadline is not None:
                del self.sessions[other]
        return record is not None, self.settle(now, nodes, since)

    def adopt(
        self, session: str, ref: SessionEpoch, now: int, nodes: Mapping[str, NodeLife]
    ) -> tuple[tuple[str, bool] | None, Change | None]:
        """Continue the session `session` as `ref`; return a pair, and the change.

        The pair has the incarnation of the session's previous node, and whether the session is idle. Return None
        instead of the pair if the session does not exist.
        """
        self._prune(now, nodes)
        record = self.sessions.pop(session, None)
        if record is None:
            return None, self.settle(now, nodes)
        found = record.incarnation, record.idle
        self.sessions[ref.session] = record
        record.incarnation, record.conn, record.deadline, record.heard = ref.incarnation, ref.conn, None, 0
        return found, self.settle(now, nodes)

    def linger(
        self, ref: SessionEpoch, grace: int, heard: int, now: int, nodes: Mapping[str, NodeLife]
    ) -> tuple[int | None, Change | None]:
        """Let a session linger for `grace` milliseconds; return `grace`, and the change.

        Return None instead of `grace` if `ref` is not the current connection of the session.
        """
        self._prune(now, nodes)  # an ended session must not be prolonged
        record = self._record(ref)
        if record is None:
            return None, self.settle(now, nodes)
        record.deadline, record.heard = now + grace, heard
        return grace, self.settle(now, nodes)

    def leave(self, ref: SessionEpoch, now: int, nodes: Mapping[str, NodeLife]) -> tuple[int | None, Change | None]:
        """End a lingering session whose grace is over; return None, and the change.

        If the call is early, the session continues, and its remaining milliseconds are returned instead of None.
        """
        record = self._record(ref)
        remaining = None
        if record is not None and record.deadline is not None and record.deadline > now:
            remaining = record.deadline - now
        return remaining, self.settle(now, nodes)

    def set_manual(self, manual: ManualStatus, now: int, nodes: Mapping[str, NodeLife]) -> Change | None:
        """Apply a copy of the status from the store; ignore a copy with a lower revision than the known one."""
        if self.manual is None or manual.rev >= self.manual.rev:
            self.manual = manual
        return self.settle(now, nodes)

    def shift(self, jump: int) -> None:
        """Move the deadlines of lingering sessions by `jump` after the clock was set. Each grace keeps its length."""
        for record in self.sessions.values():
            if record.deadline is not None:
                record.deadline += jump

    def settle(self, now: int, nodes: Mapping[str, NodeLife], since: int | None = None) -> Change | None:
        """Remove sessions and a status that have ended by `now`; return the change to publish, or None."""
        self._prune(now, nodes)
        manual = self.manual
        if manual is not None and manual.until is not None and manual.until <= now:
            manual = self.manual = ManualStatus(rev=manual.rev)
        return self._compare(manual or ManualStatus(), now, now if since is None else since)

    @staticmethod
    def _current(record: SessionRecord, ref: SessionEpoch) -> bool:
        """Return whether `ref` is the session's connection or a later one.

        Return False for the connection of a lingering session: the connection has ended, and its `touch` came late.
        """
        if record.incarnation != ref.incarnation:
            return True
        return ref.conn > record.conn or (ref.conn == record.conn and record.deadline is None)

    def _record(self, ref: SessionEpoch) -> SessionRecord | None:
        record = self.sessions.get(ref.session)
        if record is None or record.incarnation != ref.incarnation or record.conn != ref.conn:
            return None
        return record

    def _prune(self, now: int, nodes: Mapping[str, NodeLife]) -> None:
        ended: list[str] | None = None  # nearly always none
        for session, record in self.sessions.items():
            life = nodes.get(record.incarnation, _GONE)
            if record.deadline is not None and record.deadline <= now:
                heard = record.heard
            elif life.ends is not None and life.ends <= now:
                # A node that died has not recorded when it last received frames of its clients: use its last renewal.
                heard = record.heard or life.last_renewal or now
            else:
                continue
            ended = [*(ended or ()), session]
            self.last_heard = max(self.last_heard or 0, heard)
        for session in ended or ():
            del self.sessions[session]

    def _state(self) -> State:
        if not self.sessions or self.manual is None:
            return "offline"
        if self.manual.status == "busy":
            return "busy"
        return "idle" if all(record.idle for record in self.sessions.values()) else "online"

    def _compare(self, manual: ManualStatus, now: int, since: int) -> Change | None:
        state = self._state()
        shown: State = "offline" if manual.status == "invisible" else state
        version = max(self.own.version + 1, now)  # a change of `visible` changes `own` as well
        own = self._visible(self.own, state, manual, version, since, self.last_heard)
        if shown == state and self.visible is self.own:  # most users are never invisible
            visible = own
        else:
            seen = self.last_heard if state == "offline" else now
            visible = self._visible(self.visible, shown, manual, version, since, seen)
        public = visible.state != self.visible.state or visible.text != self.visible.text
        private = own is not self.own
        came_or_went = (visible.state == "offline") != (self.visible.state == "offline")
        self.turned = visible.state != "offline" if came_or_went else None
        devices = [record.device for record in self.sessions.values()]
        if len(devices) > 1:
            devices = sorted({*devices})
        if not public and not private and (devices, self.name) == (self.devices, self.published_name):
            return None
        self.published_name = self.name
        if public:
            self.visible = visible
        # While both states are equal, one object is used for both.
        self.own = self.visible if own == self.visible else own
        self.devices = devices
        return Change(self.visible, self.own, self.name, devices, public, private)

    @staticmethod
    def _visible(
        old: VisibleState, state: State, manual: ManualStatus, version: int, since: int, seen: int | None
    ) -> VisibleState:
        text = manual.text if state != "offline" else None
        if (state, text, manual.status, manual.until) == (old.state, old.text, old.status, old.until):
            return old
        same = state == old.state
        last_seen = (old.last_seen if same else seen) if state == "offline" else None
        if same and old.since is not None:
            since = old.since
        return VisibleState(state, since, last_seen, version, text, manual.status, manual.until)


T = TypeVar("T")


def ordered(items: Sequence[T], order: Sequence[int]) -> Sequence[T]:
    """Return the item at each position of `order`. A range as `order` stands for all positions: return `items`."""
    return items if isinstance(order, range) else [items[position] for position in order]


def restored_order(items: Sequence[T], order: Sequence[int]) -> Sequence[T]:
    """Undo `ordered`: move each item back to its position in the original sequence."""
    if isinstance(order, range):
        return items
    by_position = dict(zip(order, items, strict=True))
    return [by_position[position] for position in range(len(items))]


RECENTLY_MS = 300_000


def entry(
    user: str,
    visible: VisibleState,
    name: str | None,
    devices: list[str] | None = None,
    *,
    own: bool = False,
    stale: bool = False,
) -> Presence:
    """Return the presence entry for a frame. Only entries of snapshots have `devices`.

    With `own`, the entry is for the user's own devices.
    """
    return Presence(
        user=user,
        name=name,
        state=visible.state,
        since=visible.since,
        last_seen=visible.last_seen,
        version=visible.version,
        status_text=visible.text,
        devices=UNSET if devices is None else devices if own or visible.state != "offline" else [],
        status=visible.status if own else UNSET,
        until=visible.until if own else UNSET,
        stale=stale or UNSET,
    )


def with_profile(shown: Presence, profile: Profile) -> Presence:
    """Return the entry with the name and the info of the user's profile."""
    if not profile.rev:  # most users have none
        return shown
    return structs.replace(shown, name=shown_name(profile, shown.name), info=profile.wire)


def without_last_seen(shown: Presence) -> Presence:
    """Return the entry without the time at which the user was last seen.

    `since` and the version of an offline user contain the same time, so both are removed as well. A client shows an
    entry with version 0 whatever version it had before.
    """
    return structs.replace(shown, since=None, last_seen=None, version=0) if shown.state == "offline" else shown


def polled(shown: Presence, now: int) -> Presence:
    """Return the entry, with `recently_active`, of a polled user, whose changes are not delivered.

    `recently_active` is computed from fields that the client gets anyway, so it discloses nothing.
    """
    at = {"idle": shown.since, "offline": shown.last_seen}.get(shown.state, now)
    return structs.replace(shown, mode="poll", recently_active=at is not None and now - at <= RECENTLY_MS)


def project(user: str, snapshot: Snapshot, *, own: bool = False) -> Presence:
    """Return the presence entry of a snapshot. With `own`, the entry is for the user's own devices."""
    visible = snapshot.own if own else snapshot.visible
    shown = entry(user, visible, snapshot.name, snapshot.devices, own=own, stale=snapshot.stale)
    return with_profile(shown, snapshot.profile)
