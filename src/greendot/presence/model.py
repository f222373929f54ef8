"""Presence record of one user. The record has the user's sessions, and computes the state that clients see.

A session is one continuous presence of one device, and may have several connections in turn. When a connection ends,
the session lingers: the session continues for a while, so that the client can reconnect. This time is the grace. The
user does not go offline during the grace.

A verb is an operation on the record, such as `touch` or `leave`. Every verb except `shift` removes ended sessions and
an expired status, and then computes the state, as `settle` does. A changed state gets a new version. If the state, the
devices or the name has changed, the verb returns the change. No later verb returns the same change again. So the change
to offline is returned exactly once, by the first verb after the end of the last session.

A record has two visible states: `visible` for other users, and `own` for the user's own devices. Their `state` and
`text` are the same, except while the user is invisible. `visible` is then offline, and stays offline when the last
session ends.

A node is one server process. The incarnation of a node is an id that the node gets at its start, and again after
it was declared dead. No other process ever gets the same incarnation.

Times are integer milliseconds of the engine's clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from msgspec import UNSET, Struct, structs

from greendot.presence.profile_model import NO_PROFILE, Profile, shown_name
from greendot.protocol.events import Presence, State, Status


class ManualStatus(Struct, frozen=True, gc=False):
    """Status that the user has set, such as busy: a copy from the store. An older copy has a lower `rev`."""

    status: Status = "auto"
    until: int | None = None
    text: str | None = None
    rev: int = 0


class VisibleState(Struct, frozen=True, gc=False):
    """State of a user, as other users or the user's own devices see it.

    `status` and `until` are sent only to the user's own devices.
    """

    state: State = "offline"
    since: int | None = None
    last_seen: int | None = None
    version: int = 0
    text: str | None = None
    status: Status = "auto"
    until: int | None = None


class SessionEpoch(NamedTuple):
    """One connection of a session: id of the session, incarnation of the node, number of the connection.

    A verb about an old connection may come late, when the session already has a newer connection. `linger` and `leave`
    then do not change the session. `touch` does not change the session either, if both connections are of the same
    node. If they are of different nodes, their order is unknown. `touch` then treats the connection that it is called
    with as the newer one.
    """

    session: str
    incarnation: str
    conn: int


class NodeLife(NamedTuple):
    """Times of a dead node. `ends` is None while the node lives."""

    last_renewal: int | None = None  # time at which the node last renewed its lease; None: unknown, or the node lives
    ends: int | None = None  # time at which the sessions of the dead node end


class SessionRecord(Struct, gc=False):
    """Session in a presence record."""

    device: str
    incarnation: str
    conn: int
    idle: bool
    deadline: int | None = None  # time at which a lingering session ends; None while connected
    heard: int = 0  # for a lingering session: time of the last frame from its client; 0 while connected


class RestoredState(NamedTuple):
    """Facts about the state of a session that is being restored."""

    since: int  # time at which the state began
    # After a loss of data, a time after the loss. A state with an older version gets a new version, even if it does not
    # change: the record may be older than states that clients were shown before, and clients ignore lower versions.
    lost_at: int = 0


class Snapshot(NamedTuple):
    """State of one user at the time of a read."""

    visible: VisibleState
    own: VisibleState
    name: str | None
    devices: list[str]
    stale: bool = False  # the engine has lost sessions that are not restored yet: a user shown as offline may be online
    profile: Profile = NO_PROFILE  # from the store


class Change(Struct, frozen=True):
    """Change of a user's presence.

    If `public` is True, other users get an event. If `private` is True, the user's own devices get an event. If only
    the devices or the name changed, `public` and `private` are False, and clients get no event. Nodes still update
    their copies of the user's presence, and use the copies for later reads.
    """

    visible: VisibleState
    own: VisibleState
    name: str | None
    devices: list[str]
    public: bool
    private: bool
    restored: bool = False  # True while nodes restore lost sessions: more sessions of the user may follow


NOBODY = VisibleState()
_GONE = NodeLife(None, 0)  # a node that is not in the table of nodes: dead, and its sessions have ended long ago


class UserPresence:
    """Presence record of a user with sessions.

    When the record is `empty`, the engine removes it. The engine then keeps `visible` as the last-seen state.
    """

    __slots__ = ("devices", "last_heard", "manual", "name", "own", "published_name", "sessions", "turned", "visible")

    def __init__(self, visible: VisibleState = NOBODY, name: str | None = None) -> None:
        self.visible = visible
        self.own = visible
        self.name = name
        self.published_name = name
        self.sessions: dict[str, SessionRecord] = {}
        self.manual: ManualStatus | None = None  # None: not read from the store yet, and the user appears offline
        self.last_heard: int | None = None  # time of the latest frame among the ended sessions
        self.devices: list[str] = []  # devices of all sessions, as last published
        # Effect of the last verb for other users. True: the user came online. False: went offline. None: neither.
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
        restored: RestoredState | None = None,
    ) -> tuple[bool, Change | None]:
        """Record that a session has the connection `ref`. Return whether the session existed before, and the change.

        If `idle` is None, an existing session stays idle or active as before. A new connection shows that the device
        has come back. So every other lingering session of the same device ends.

        Pass `restored` only to restore a session. A restore does not show that the device has come back: another
        lingering session of the device may be newer. So a restore ends no other session.

        The session does not change if the connection `ref` has already ended and the session lingers. Nor does it
        change if it already has a newer connection of the same node.

        The caller must ensure that the node of `ref` lives.
        """
        self._prune(now, nodes)
        record = self.sessions.get(ref.session)
        came = record is None or (record.incarnation, record.conn) != (ref.incarnation, ref.conn)
        if record is None:
            self.sessions[ref.session] = SessionRecord(device, ref.incarnation, ref.conn, bool(idle))
        elif not self._current(record, ref):
            return True, self._settle(now, restored)
        else:
            record.incarnation, record.conn = ref.incarnation, ref.conn
            # The client has returned, so the session lingers no longer. When this connection ends, `linger` sets the
            # deadline and the time of the last frame again.
            record.deadline, record.heard = None, 0
            if idle is not None:
                record.idle = idle
        if came and restored is None:
            self._end_others(ref.session, device)
        return record is not None, self._settle(now, restored)

    def _end_others(self, session: str, device: str) -> None:
        """End the lingering sessions of a device that has come back with the session `session`."""
        if len(self.sessions) > 1:
            for other, its in [*self.sessions.items()]:
                if other != session and its.device == device and its.deadline is not None:
                    del self.sessions[other]

    def adopt(
        self, session: str, ref: SessionEpoch, now: int, nodes: Mapping[str, NodeLife]
    ) -> tuple[tuple[str, bool] | None, Change | None]:
        """Move the session `session` to the node of `ref`, because its client has resumed the session there.

        The session gets the connection and the id in `ref`. This id is a new one, which begins with the incarnation of
        the new node. Return a pair, and the change. The pair is (incarnation of the previous node, whether the session
        is idle). If the session does not exist, return None instead of the pair.

        As in `touch`, every other lingering session of the same device ends.
        """
        self._prune(now, nodes)
        record = self.sessions.pop(session, None)
        if record is None:
            return None, self.settle(now, nodes)
        found = record.incarnation, record.idle
        self.sessions[ref.session] = record
        record.incarnation, record.conn, record.deadline, record.heard = ref.incarnation, ref.conn, None, 0
        self._end_others(ref.session, record.device)
        return found, self.settle(now, nodes)

    def linger(
        self, ref: SessionEpoch, grace: int, heard: int, now: int, nodes: Mapping[str, NodeLife]
    ) -> tuple[int | None, Change | None]:
        """Let a session linger for `grace` milliseconds, because its connection `ref` has ended.

        Return `grace`, and the change. If `ref` is not the current connection of the session, do not change the
        session, and return None instead of `grace`.

        With `grace` 0, `ref` may also be a later connection of the same node, whose `touch` was lost: the session ends.
        """
        self._prune(now, nodes)  # an ended session must not begin to linger again
        record = self._record(ref, or_earlier=not grace)
        if record is None:
            return None, self.settle(now, nodes)
        record.deadline, record.heard = now + grace, heard
        return grace, self.settle(now, nodes)

    def leave(self, ref: SessionEpoch, now: int, nodes: Mapping[str, NodeLife]) -> tuple[int | None, Change | None]:
        """End a lingering session if its grace is over. Return the remaining milliseconds of the grace, and the change.

        If the grace is not over, the session continues to linger. The remaining milliseconds are None if the grace is
        over, if the session does not linger, or if `ref` is not the current connection of the session.
        """
        record = self._record(ref)
        remaining = None
        if record is not None and record.deadline is not None and record.deadline > now:
            remaining = record.deadline - now
        return remaining, self.settle(now, nodes)

    def set_manual(self, manual: ManualStatus, now: int, nodes: Mapping[str, NodeLife]) -> Change | None:
        """Apply a copy of the status from the store, unless the record already has a newer copy (higher `rev`)."""
        if self.manual is None or manual.rev >= self.manual.rev:
            self.manual = manual
        return self.settle(now, nodes)

    def shift(self, jump: int) -> None:
        """Move the ends of all graces by `jump` milliseconds, because the clock has jumped by `jump` milliseconds.

        So each grace keeps its length. Only the memory engine uses this verb, because the Redis engine corrects its
        time instead. This verb does not settle the record.
        """
        for record in self.sessions.values():
            if record.deadline is not None:
                record.deadline += jump

    def settle(self, now: int, nodes: Mapping[str, NodeLife]) -> Change | None:
        """Remove the sessions that have ended by `now`, and the status if its time is over.

        Return the change of the user's state, devices or name, or None if nothing changed.
        """
        self._prune(now, nodes)
        return self._settle(now)

    def _settle(self, now: int, restored: RestoredState | None = None) -> Change | None:
        """Do the same as `settle`, but keep all sessions: the caller has removed those that have ended."""
        manual = self.manual
        if manual is None:
            # The user is offline until the status is known. Then the state changes, and so does all that is published.
            self.turned = None
            return None
        if manual.until is not None and manual.until <= now:
            manual = self.manual = ManualStatus(rev=manual.rev)
        since, lost_at = (now, 0) if restored is None else restored
        return self._compare(manual, now, since, lost_at)

    @staticmethod
    def _current(record: SessionRecord, ref: SessionEpoch) -> bool:
        """Return whether `ref` is the session's present connection, or a later connection.

        While the session lingers, its last connection has ended. The result for this connection is then False, so a
        late `touch` does not revive the session. A connection of another node always counts as later, because
        connections of different nodes have no common order.
        """
        if record.incarnation != ref.incarnation:
            return True
        return ref.conn > record.conn or (ref.conn == record.conn and record.deadline is None)

    def _record(self, ref: SessionEpoch, *, or_earlier: bool = False) -> SessionRecord | None:
        """Return the session if `ref` is its connection. With `or_earlier`, it may have an earlier one of the node."""
        record = self.sessions.get(ref.session)
        if record is None or record.incarnation != ref.incarnation:
            return None
        return record if record.conn == ref.conn or (or_earlier and record.conn < ref.conn) else None

    def _prune(self, now: int, nodes: Mapping[str, NodeLife]) -> None:
        ended: list[str] | None = None  # nearly always none
        for session, record in self.sessions.items():
            life = nodes.get(record.incarnation, _GONE)
            if (deadline := record.deadline) is not None and deadline <= now:
                heard = record.heard
            elif (ends := life.ends) is not None and ends <= now:
                # The node is dead. A session that lingered has the time of its client's last frame. For any other
                # session, the node did not record this time. Use the time at which the node last renewed its lease.
                heard = record.heard or life.last_renewal or now
            else:
                continue
            ended = [*(ended or ()), session]
            self.last_heard = max(self.last_heard or 0, heard)
        for session in ended or ():
            del self.sessions[session]

    def _state(self, manual: ManualStatus) -> State:
        if not self.sessions:
            return "offline"
        if manual.status == "busy":
            return "busy"
        for record in self.sessions.values():
            if not record.idle:
                return "online"
        return "idle"

    def _compare(self, manual: ManualStatus, now: int, since: int, lost_at: int) -> Change | None:
        before, own_before, state = self.visible, self.own, self._state(manual)
        version = own_before.version + 1  # `own` has the highest version: `own` changes whenever `visible` does
        if version < now:
            version = now
        own = visible = self._visible(own_before, state, manual, version, since, self.last_heard)
        if before is not own_before or manual.status == "invisible":  # most users are never invisible
            shown: State = "offline" if manual.status == "invisible" else state
            seen = self.last_heard if state == "offline" else now
            if shown != state or before is not own_before:
                visible = self._visible(before, shown, manual, version, since, seen)
        public, private, self.turned = False, own is not own_before, None
        if visible is not before:
            public = visible.state != before.state or visible.text != before.text
            if (visible.state == "offline") != (before.state == "offline"):
                self.turned = visible.state != "offline"
        # The version for others stays while the user is invisible: a new one would show that the user has a session.
        if not public and before.version < lost_at and before.state != "offline":
            visible, public = structs.replace(before, version=version), True
        if own.version < (version if public else lost_at) and own.state != "offline":
            own, private = structs.replace(own, version=version), True
        devices = self._devices()
        if not public and not private and self.name == self.published_name and devices == self.devices:
            return None
        self.published_name, self.devices = self.name, devices
        if public:
            self.visible = before = visible
        if public or private:
            # While the states `own` and `visible` are equal, both attributes refer to the same object.
            self.own = own = before if own is before or own == before else own
        return Change(before, own, self.name, devices, public, private)

    def _devices(self) -> list[str]:
        devices = [record.device for record in self.sessions.values()]
        return sorted({*devices}) if len(devices) > 1 else devices

    def snapshot(self) -> Snapshot:
        devices = self._devices() if self.manual is None else self.devices
        return Snapshot(self.visible, self.own, self.name, devices)

    @staticmethod
    def _visible(
        old: VisibleState, state: State, manual: ManualStatus, version: int, since: int, seen: int | None
    ) -> VisibleState:
        same, text = state == old.state, manual.text if state != "offline" else None
        if same and text == old.text and manual.status == old.status and manual.until == old.until:
            return old
        last_seen = (old.last_seen if same else seen) if state == "offline" else None
        if same and old.since is not None:
            since = old.since
        return VisibleState(state, since, last_seen, version, text, manual.status, manual.until)


T = TypeVar("T")


def ordered(items: Sequence[T], order: Sequence[int]) -> Sequence[T]:
    """Return the items at the positions in `order`. If `order` is a range, the items are already in this order.

    An engine reads many users in fewer round trips if they are in the order that `PresenceEngine.order` returns. So
    `ordered` puts the users of a request into this order, and `restored_order` undoes this for the results.
    """
    return items if isinstance(order, range) else [items[position] for position in order]


def restored_order(items: Sequence[T], order: Sequence[int]) -> Sequence[T]:
    """Undo `ordered`: return the items in the order that they had before `ordered`."""
    if isinstance(order, range):
        return items
    by_position = dict(zip(order, items, strict=True))
    return [by_position[position] for position in range(len(items))]


RECENTLY_MS = 300_000  # a user who is idle or offline is `recently_active` for this time


def entry(
    user: str,
    visible: VisibleState,
    name: str | None,
    devices: list[str] | None = None,
    *,
    own: bool = False,
    stale: bool = False,
) -> Presence:
    """Return the presence entry that is sent to clients. With `own`, the entry is for the user's own devices.

    Pass `devices` for the reply to a read. Leave `devices` out for the event about a change: the entry then has no
    field `devices`.
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

    For an offline user, `since` and the version would reveal the same time. So `since` is removed, and the version is
    set to 0. A client always shows an entry with version 0, even if it has an entry with a higher version.
    """
    return structs.replace(shown, since=None, last_seen=None, version=0) if shown.state == "offline" else shown


def polled(shown: Presence, now: int) -> Presence:
    """Return the entry of a polled user: with the mode `poll`, and with the field `recently_active`.

    A polled user is, for example, a user with very many watchers. Nodes do not send the user's changes to watchers: the
    watchers' clients ask for the state at intervals. `recently_active` is True if the user is online or busy, became
    idle in the last RECENTLY_MS, or is offline and was last seen in that time. The value is computed from fields that
    the client gets anyway, so the value reveals nothing new.
    """
    at = {"idle": shown.since, "offline": shown.last_seen}.get(shown.state, now)
    return structs.replace(shown, mode="poll", recently_active=at is not None and now - at <= RECENTLY_MS)


def project(user: str, snapshot: Snapshot, *, own: bool = False) -> Presence:
    """Return the presence entry of a snapshot. With `own`, the entry is for the user's own devices."""
    visible = snapshot.own if own else snapshot.visible
    shown = entry(user, visible, snapshot.name, snapshot.devices, own=own, stale=snapshot.stale)
    return with_profile(shown, snapshot.profile)
