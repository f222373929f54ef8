"""Memory engine against a model that keeps the history and computes the state from it each time."""

from __future__ import annotations

from collections.abc import Coroutine
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from greendot.engine.memory import MemoryEngine
from greendot.engine.messages import Topic
from greendot.engine.port import Fenced
from greendot.presence.model import NOBODY, Change, ManualStatus, SessionEpoch, Snapshot, VisibleState
from greendot.testing import ManualClock
from hosts import RecordingHost

T = TypeVar("T")
TENANT = "t1"
USERS = ("ann", "bob")
NODE_GRACE_MS = 4_000

users = st.sampled_from(["ann", "ann", "ann", "bob"])  # mostly one user, so that its states become complex
sessions = st.sampled_from(["s1", "s2"])
devices = st.sampled_from(["phone", "phone", "laptop"])
connections = st.integers(1, 3)
graces = st.sampled_from([0, 1, 1_000, 5_000])
silences = st.sampled_from([0, 1, 700])


def done(verb: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits, as all of the memory engine's do."""
    try:
        verb.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise AssertionError("the memory engine must not wait")


class Said(NamedTuple):
    """One call of the engine about a session."""

    at: int
    kind: Literal["touch", "linger"]
    ref: SessionEpoch
    device: str = ""
    idle: bool | None = None
    deadline: int = 0
    heard: int = 0

    def ends(self, ref: SessionEpoch) -> bool:
        """Return whether this linger changes a session with the connection `ref`.

        The end of a session counts although the touch of the latest connection was lost.
        """
        is_earlier = ref[:2] == self.ref[:2] and ref.conn < self.ref.conn
        return ref == self.ref or (self.deadline == self.at and is_earlier)


class Session(NamedTuple):
    ref: SessionEpoch
    device: str
    idle: bool
    deadline: int | None  # None: connected


class Person:
    """Calls about one user, and the state that follows from them."""

    def __init__(self) -> None:
        self.said: list[Said] = []  # since the user last had no session
        self.manual: ManualStatus | None = None
        self.heard = 0  # latest time at which a client of the user was active on its connection
        self.shown: tuple[str, str | None] = ("offline", None)  # state and text, as last published to others
        self.since: int | None = None
        self.last_seen: int | None = None

    def sessions(self, now: int, ends: dict[str, int]) -> dict[str, Session]:
        """Return the sessions that count at `now`, by replaying all calls."""
        found: dict[str, Session] = {}
        for said in self.said:
            found = _counting(found, said.at, ends)
            session = found.get(said.ref.session)
            if said.kind == "linger":
                if session is not None and said.ends(session.ref):
                    found[said.ref.session] = session._replace(deadline=said.deadline)
                continue
            if session is None:
                found[said.ref.session] = Session(said.ref, said.device, bool(said.idle), None)
            elif session.ref.incarnation == said.ref.incarnation and (
                said.ref.conn < session.ref.conn or (said.ref.conn == session.ref.conn and session.deadline is not None)
            ):
                continue  # an older connection, or one that has ended: its late calls do not count
            else:
                idle = session.idle if said.idle is None else said.idle
                found[said.ref.session] = Session(said.ref, session.device, idle, None)
            came = session is None or session.ref != said.ref
            for other, its in [*found.items()]:
                if came and other != said.ref.session and its.device == said.device and its.deadline is not None:
                    del found[other]
        return _counting(found, now, ends)

    def status(self, now: int) -> ManualStatus:
        manual = self.manual or ManualStatus()
        return ManualStatus(rev=manual.rev) if manual.until is not None and manual.until <= now else manual

    def truth(self, now: int, ends: dict[str, int]) -> tuple[str, str | None]:
        """Return the state and text that the user's own devices see."""
        there = self.sessions(now, ends)
        if not there or self.manual is None:
            return "offline", None
        manual = self.status(now)
        if manual.status == "busy":
            return "busy", manual.text
        return "idle" if all(s.idle for s in there.values()) else "online", manual.text

    def look(self, now: int, ends: dict[str, int]) -> None:
        """Update the public state after a command on the user."""
        state, text = self.truth(now, ends)
        public = ("offline", None) if self.status(now).status == "invisible" else (state, text)
        if public[0] != self.shown[0]:
            self.since = now
            # A user who becomes invisible seems to leave at that time. A user who leaves was last seen at the last sign
            # of life.
            departed = self.heard if state == "offline" else now
            self.last_seen = departed if public[0] == "offline" else None
        self.shown = public
        if not self.sessions(now, ends):
            self.said.clear()
            self.manual = None


def _counting(found: dict[str, Session], now: int, ends: dict[str, int]) -> dict[str, Session]:
    return {
        name: session
        for name, session in found.items()
        if (session.deadline is None or session.deadline > now) and now < ends.get(session.ref.incarnation, now + 1)
    }


class PresenceMachine(RuleBasedStateMachine):
    """Commands in any order; only the commands themselves settle the state."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.engine = MemoryEngine(self.clock, grace_ms=NODE_GRACE_MS)
        self.start_ms = self.clock.now_ms()
        self.people = {user: Person() for user in USERS}
        self.ends: dict[str, int] = {}  # incarnation → time from which its sessions do not count
        self.revision = 0
        self.incarnations = 0
        self.host = RecordingHost()

    @property
    def published(self) -> dict[str, list[Change]]:
        """Return the published changes by user."""
        found: dict[str, list[Change]] = {user: [] for user in USERS}
        for topic, message in self.host.messages:
            assert isinstance(message, Change)
            found[topic.name].append(message)
        return found

    # --- nodes ---

    @initialize()
    def begin(self) -> None:
        self.incarnations += 1
        self.node = done(self.engine.start(self.host))
        done(self.engine.subscribe([Topic("watch", TENANT, user) for user in USERS]))

    @precondition(lambda self: self.incarnations < 4)
    @rule()
    def the_node_exits_cleanly_and_another_one_starts(self) -> None:
        for person in self.people.values():
            if any(s.deadline is None and self.lives(s) for s in person.sessions(self.now, self.ends).values()):
                person.heard = self.now
        done(self.engine.close())
        self.ends[self.node] = self.now + NODE_GRACE_MS
        self.begin()

    def lives(self, session: Session) -> bool:
        return session.ref.incarnation not in self.ends

    @property
    def now(self) -> int:
        return self.start_ms + round(self.clock.monotonic() * 1000)

    def look(self, user: str) -> None:
        self.people[user].look(self.now, self.ends)

    # --- time ---

    @rule(ms=st.integers(1, 700))
    def a_moment_passes(self, ms: int) -> None:
        self.clock.advance(ms / 1000)

    @rule(ms=st.sampled_from([1_000, 4_000, 5_000, 60_000]))
    def time_passes(self, ms: int) -> None:
        self.clock.advance(ms / 1000)

    @rule(user=users, session=sessions, device=devices, conn=connections, idle=st.sampled_from([None, False, True]))
    def touch(self, user: str, session: str, device: str, conn: int, idle: bool | None) -> None:
        person, ref = self.people[user], SessionEpoch(session, self.node, conn)
        known = person.sessions(self.now, self.ends).get(session)
        device = device if known is None else known.device  # a session stays on its device
        touched = done(self.engine.touch(TENANT, user, ref, device, idle, user.title()))
        person.said.append(Said(self.now, "touch", ref, device, idle))
        assert (touched.status_known, touched.resumed) == (person.manual is not None, known is not None)
        self.look(user)

    @rule(user=users, data=st.data())
    def a_client_returns(self, user: str, data: st.DataObject) -> None:
        session = self.pick(user, data)
        if session is not None:
            ref, idle = session.ref, data.draw(st.sampled_from([None, False, True]))
            self.touch(user, ref.session, session.device, ref.conn + data.draw(st.integers(0, 1)), idle)
            self.copy_status(user)

    @rule(user=users, data=st.data())
    def a_connection_ends(self, user: str, data: st.DataObject) -> None:
        session = self.pick(user, data)
        if session is not None:
            self.linger(user, session.ref.session, session.ref.conn, data.draw(graces), data.draw(silences))

    @rule(user=users, data=st.data())
    def something_runs_out_unnoticed(self, user: str, data: st.DataObject) -> None:
        session = self.pick(user, data)
        if session is not None:
            ends = [session.deadline, self.ends.get(session.ref.incarnation)]
            moment = min((end for end in ends if end is not None and end > self.now), default=self.now)
            self.clock.advance((moment - self.now) / 1000)

    def pick(self, user: str, data: st.DataObject) -> Session | None:
        """Return one of the sessions that the engine has received, ended or not."""
        latest = {said.ref.session: said for said in self.people[user].said}
        if not latest:
            return None
        said = latest[data.draw(st.sampled_from(sorted(latest)))]
        device = next(each.device for each in self.people[user].said if each.ref.session == said.ref.session)
        deadline = max(said.deadline, self.now) if said.kind == "linger" else None
        return Session(said.ref, device, False, deadline)

    @rule(user=users, session=sessions, device=devices)
    def open(self, user: str, session: str, device: str) -> None:
        """Open a session as a node does: copy the status if the engine does not know it."""
        self.touch(user, session, device, 3, False)
        self.copy_status(user)

    def copy_status(self, user: str) -> None:
        if self.people[user].manual is None:
            self.set_status(user, "auto", None, None, 0)

    @rule(user=users, session=sessions, conn=connections, grace=graces, silent=silences)
    def linger(self, user: str, session: str, conn: int, grace: int, silent: int) -> None:
        person, ref = self.people[user], SessionEpoch(session, self.node, conn)
        known = person.sessions(self.now, self.ends).get(session)
        ours = known is not None and Said(self.now, "linger", ref, deadline=self.now + grace).ends(known.ref)
        # A connection's first sign of life is its start, and later signs only move it forward.
        its = known.ref if known is not None and ours else ref
        before = [said.heard or said.at for said in person.said if said.ref == its]
        heard = max([*before, self.now - silent])
        assert done(self.engine.linger(TENANT, user, ref, grace, self.now - heard)) == (grace if ours else None)
        if ours:
            person.said.append(Said(self.now, "linger", ref, deadline=self.now + grace, heard=heard))
            person.heard = max(person.heard, heard)
        self.look(user)

    @rule(user=users, session=sessions, conn=connections)
    def leave(self, user: str, session: str, conn: int) -> None:
        ref = SessionEpoch(session, self.node, conn)
        known = self.people[user].sessions(self.now, self.ends).get(session)
        deadline = known.deadline if known is not None and known.ref == ref else None
        expected = None if deadline is None else deadline - self.now
        assert done(self.engine.leave(TENANT, user, ref)) == expected
        self.look(user)

    @rule(
        user=users,
        status=st.sampled_from(["auto", "busy", "invisible", "invisible"]),
        until=st.sampled_from([None, None, 0, 1, 1_000, 7_000]),
        text=st.sampled_from([None, "lunch"]),
        step=st.sampled_from([-1, 0, 1, 1, 1]),
    )
    def set_status(self, user: str, status: Any, until: int | None, text: str | None, step: int) -> None:
        person = self.people[user]
        self.revision += max(step, 0)
        manual = ManualStatus(status, None if until is None else self.now + until, text, self.revision + min(step, 0))
        snapshot = done(self.engine.set_status(TENANT, user, manual))
        if person.said and (person.manual is None or manual.rev >= person.status(self.now).rev):
            person.manual = manual
        self.look(user)
        assert (snapshot.visible.state, snapshot.visible.text) == person.shown

    @rule(user=users, text=st.sampled_from([None, "lunch", "back soon"]))
    def the_words_change(self, user: str, text: str | None) -> None:
        manual = self.people[user].manual
        if manual is not None:
            self.a_moment_passes(10)
            self.set_status(user, manual.status, None, text, 1)

    @rule(asked=st.lists(users, max_size=3))
    def read(self, asked: list[str]) -> None:
        snapshots = done(self.engine.read(TENANT, asked))
        assert len(snapshots) == len(asked)
        for user, snapshot in zip(asked, snapshots, strict=True):
            self.look(user)
            self.check(user, snapshot)

    @rule()
    def who_is_online(self) -> None:
        page = done(self.engine.online(TENANT, None, 10))
        for user in USERS:
            self.look(user)
        expected = [user for user in USERS if self.people[user].shown[0] != "offline"]
        assert (page.users, page.next, page.total) == (expected, None, len(expected))

    @rule(user=users, session=sessions)
    def a_dead_node_is_refused(self, user: str, session: str) -> None:
        for incarnation in self.ends:
            try:
                done(self.engine.touch(TENANT, user, SessionEpoch(session, incarnation, 9), "phone", False, None))
            except Fenced:
                continue
            raise AssertionError("the engine accepted a write of a dead incarnation")

    # --- invariants ---

    def check(self, user: str, snapshot: Snapshot) -> None:
        """Check that a read equals the model and the last published change, so that no change was missed."""
        person, visible = self.people[user], snapshot.visible
        assert visible == (self.told(user) or [NOBODY])[-1]
        assert (visible.state, visible.text) == person.shown
        assert (visible.since, visible.last_seen) == (person.since, person.last_seen)
        there = person.sessions(self.now, self.ends)
        assert snapshot.devices == sorted({session.device for session in there.values()})
        if there:
            assert (snapshot.own.state, snapshot.own.text) == person.truth(self.now, self.ends)
            if person.manual is not None:  # else the status of the user's last sessions
                manual = person.status(self.now)
                assert (snapshot.own.status, snapshot.own.until) == (manual.status, manual.until)
            assert snapshot.name == user.title()

    def told(self, user: str) -> list[VisibleState]:
        return [change.visible for change in self.published[user] if change.public]

    @invariant()
    def the_last_change_told_is_what_the_model_shows(self) -> None:
        for user, person in self.people.items():
            visibles = self.told(user)
            last = visibles[-1] if visibles else NOBODY
            assert (last.state, last.text) == person.shown
            assert (last.since, last.last_seen) == (person.since, person.last_seen)

    @invariant()
    def nothing_is_told_twice(self) -> None:
        for user in USERS:
            shown = [(NOBODY.state, NOBODY.text), *((visible.state, visible.text) for visible in self.told(user))]
            assert all(one != next_one for one, next_one in pairwise(shown))

    @invariant()
    def versions_of_what_is_told_strictly_grow(self) -> None:
        for user in USERS:
            versions = [NOBODY.version, *(visible.version for visible in self.told(user))]
            assert all(one < next_one for one, next_one in pairwise(versions))

    @invariant()
    def what_is_not_told_to_others_does_not_move_what_they_read(self) -> None:
        for user in USERS:
            visible = NOBODY
            for change in self.published[user]:
                assert change.public or change.visible == visible
                visible = change.visible


TestPresence = PresenceMachine.TestCase
TestPresence.settings = settings(deadline=None, max_examples=150, stateful_step_count=50)
