"""Presence record of one user: sessions go in, visible states come out.

Every verb first settles the record: it drops sessions that no longer count, and ends an expired manual status. Then it
compares the visible states before and after. Only a difference gets a new version and is returned. An offline is
therefore published exactly once, however many verbs notice it.

A record has two visible states: `visible` for others, and `own` for the user's own devices. They differ only
while the user is invisible: then `visible` stays frozen, also through the real leave.

Times are integer milliseconds of the engine's clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from msgspec import UNSET, Struct, structs

from greendot.protocol.events import Presence, State, Status


class ManualStatus(Struct, frozen=True, gc=False):
    """Status set by the user. Durable; `rev` lets a late copy of an older setting be ignored."""

    status: Status = "auto"
    until: int | None = None
    text: str | None = None
    rev: int = 0


class VisibleState(Struct, frozen=True, gc=False):
    """State that one group of readers sees. `status` and `until` are for the user's own devices only."""

    state: State = "offline"
    since: int | None = None
    last_seen: int | None = None
    version: int = 0
    text: str | None = None
    status: Status = "auto"
    until: int | None = None


class SessionEpoch(NamedTuple):
    """Session with its incarnation and connection number. A verb of an older epoch must not end a newer one."""

    session: str
    incarnation: str
    conn: int


class NodeLife(NamedTuple):
    """Life of a node's incarnation. Both times are None while it lives, and set once it is dead."""

    last_renewal: int | None = None  # time at which the node was last known to live
    ends: int | None = None  # time from which its sessions no longer count


class SessionRecord(Struct, gc=False):
    """Session in a presence record."""

    device: str
    incarnation: str
    conn: int
    idle: bool
    deadline: int | None = None  # end of the linger; None while connected
    heard: int = 0  # time of the client's last frame; 0 until the session lingers


class Snapshot(NamedTuple):
    """State of one user at the time of a read."""

    visible: VisibleState
    own: VisibleState
    name: str | None
    devices: list[str]
    stale: bool = False  # the engine lost records, and not all nodes have restored theirs: absence proves nothing


class Change(Struct, frozen=True):
    """Change of a user's state: for others if `public`, for the user's own devices if `private`.

    A change of only the devices or the name is delivered to no client. Nodes update the copy they keep for later
    readers.
    """

    visible: VisibleState
    own: VisibleState
    name: str | None
    devices: list[str]
    public: bool
    private: bool
    restored: bool = False  # after a loss; further sessions of the user may follow


NOBODY = VisibleState()
_GONE = NodeLife(None, 0)


class UserPresence:
    """Presence record of a user with sessions. Dropped when `empty`; `visible` remains as the last-seen state."""

    __slots__ = ("devices", "last_heard", "manual", "name", "own", "published_name", "sessions", "turned", "visible")

    def __init__(self, visible: VisibleState = NOBODY, name: str | None = None) -> None:
        self.visible = visible
        self.own = visible
        self.name = name
        self.published_name = name
        self.sessions: dict[str, SessionRecord] = {}
        self.manual: ManualStatus | None = None  # None: not known yet, so the user appears offline
        self.last_heard: int | None = None  # latest time of the sessions that have left
        self.devices: list[str] = []  # of the sessions that count, as last published
        self.turned: bool | None = None  # the last verb made others see the user come (True), or go (False)

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
        """Record that a session lives on the connection of `ref`; return whether it was there before, and the change.

        `idle` None keeps the state of the session: a return is no activity. A new connection ends the linger of every
        other session of the same device, because the device has come back. A new state began at `since` (None: now).
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
            # The time noted before the return does not apply to the next linger.
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
        """Continue a session as `ref`; return its previous incarnation and whether it is idle, and the change.

        Return None in place of both if the session does not exist.
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
        """Let a session linger for `grace`; return the milliseconds that remain, and the change.

        Return None for the time if `ref` is not the current epoch of the session.
        """
        self._prune(now, nodes)  # a linger that is over must not be prolonged
        record = self._record(ref)
        if record is None:
            return None, self.settle(now, nodes)
        record.deadline, record.heard = now + grace, heard
        return grace, self.settle(now, nodes)

    def leave(self, ref: SessionEpoch, now: int, nodes: Mapping[str, NodeLife]) -> tuple[int | None, Change | None]:
        """End a linger that is over; return the milliseconds that remain, and the change.

        Return None for the time unless the call is early.
        """
        record = self._record(ref)
        remaining = None
        if record is not None and record.deadline is not None and record.deadline > now:
            remaining = record.deadline - now
        return remaining, self.settle(now, nodes)

    def set_manual(self, manual: ManualStatus, now: int, nodes: Mapping[str, NodeLife]) -> Change | None:
        """Apply a copy of the durable status; ignore a revision lower than the known one."""
        if self.manual is None or manual.rev >= self.manual.rev:
            self.manual = manual
        return self.settle(now, nodes)

    def shift(self, jump: int) -> None:
        """Move the ends of lingers by `jump` after the clock was set forward, so that they last as long as before."""
        for record in self.sessions.values():
            if record.deadline is not None:
                record.deadline += jump

    def settle(self, now: int, nodes: Mapping[str, NodeLife], since: int | None = None) -> Change | None:
        """Bring the record up to `now`; return the change to publish, or None."""
        self._prune(now, nodes)
        manual = self.manual
        if manual is not None and manual.until is not None and manual.until <= now:
            manual = self.manual = ManualStatus(rev=manual.rev)
        return self._compare(manual or ManualStatus(), now, now if since is None else since)

    @staticmethod
    def _current(record: SessionRecord, ref: SessionEpoch) -> bool:
        """Return whether `ref` is the session's connection or a later one. A late touch of a lingering one is void."""
        if record.incarnation != ref.incarnation:
            return True
        return ref.conn > record.conn or (ref.conn == record.conn and record.deadline is None)

    def _record(self, ref: SessionEpoch) -> SessionRecord | None:
        record = self.sessions.get(ref.session)
        if record is None or record.incarnation != ref.incarnation or record.conn != ref.conn:
            return None
        return record

    def _prune(self, now: int, nodes: Mapping[str, NodeLife]) -> None:
        for session, record in [*self.sessions.items()]:
            life = nodes.get(record.incarnation, _GONE)
            if record.deadline is not None and record.deadline <= now:
                heard = record.heard
            elif life.ends is not None and life.ends <= now:
                # A node that died has not recorded when it last received frames of its clients: use its last renewal.
                heard = record.heard or life.last_renewal or now
            else:
                continue
            del self.sessions[session]
            self.last_heard = max(self.last_heard or 0, heard)

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
        visible = self._visible(
            self.visible, shown, manual, version, since, self.last_heard if state == "offline" else now
        )
        own = self._visible(self.own, state, manual, version, since, self.last_heard)
        public = (visible.state, visible.text) != (self.visible.state, self.visible.text)
        private = own is not self.own
        came_or_went = (visible.state == "offline") != (self.visible.state == "offline")
        self.turned = visible.state != "offline" if came_or_went else None
        devices = sorted({record.device for record in self.sessions.values()})
        if not public and not private and (devices, self.name) == (self.devices, self.published_name):
            return None
        self.published_name = self.name
        if public:
            self.visible = visible
        # One object serves both states while they agree: most users are never invisible.
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
        return VisibleState(state, old.since if same else since, last_seen, version, text, manual.status, manual.until)


T = TypeVar("T")


def ordered(items: Sequence[T], order: Sequence[int]) -> Sequence[T]:
    """Return the items in the order of these positions; `items` itself if `order` is a range."""
    return items if isinstance(order, range) else [items[position] for position in order]


def restored_order(items: Sequence[T], order: Sequence[int]) -> Sequence[T]:
    """Return items that were made in the order of `ordered`, sorted by position."""
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
    """Return the presence entry of the wire. `devices` is for snapshots, `own` for the user's own devices."""
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


def without_last_seen(shown: Presence) -> Presence:
    """Return the entry without the time at which the user was last seen.

    For an offline user the time is also in `since` and in the version. Version 0 may replace any version.
    """
    return structs.replace(shown, since=None, last_seen=None, version=0) if shown.state == "offline" else shown


def polled(shown: Presence, now: int) -> Presence:
    """Return the entry of a polled user: with `recently_active`, because changes are not delivered.

    The value derives only from the entry that the reader gets anyway, so it shows nothing hidden.
    """
    at = {"idle": shown.since, "offline": shown.last_seen}.get(shown.state, now)
    return structs.replace(shown, mode="poll", recently_active=at is not None and now - at <= RECENTLY_MS)


def project(user: str, snapshot: Snapshot, *, own: bool = False) -> Presence:
    """Return a snapshot as the entry that a reader may see."""
    visible = snapshot.own if own else snapshot.visible
    return entry(user, visible, snapshot.name, snapshot.devices, own=own, stale=snapshot.stale)
