"""Promises of the memory engine beyond the suite that every engine passes."""

from __future__ import annotations

import gc

import pytest

from greendot.engine.memory import MemoryEngine
from greendot.engine.messages import Deliver, Message, Topic, Typing
from greendot.engine.port import Fenced
from greendot.engine.results import EngineSession, Known, NodeInfo, Swept
from greendot.presence.model import NOBODY, Change, ManualStatus, SessionEpoch, Snapshot
from greendot.rooms.typing_model import TypingUsers
from greendot.testing import ManualClock
from hosts import RecordingHost

T = "t1"
AUTO = ManualStatus(rev=1)
DAY_S = 86_400.0


class Lab:
    """An engine, its clock, and a host that records messages."""

    def __init__(self, **periods: int) -> None:
        self.clock = ManualClock()
        self.engine = MemoryEngine(self.clock, **periods)
        self.host = RecordingHost()
        self.node = ""  # the current incarnation, or the last one

    @property
    def heard(self) -> list[tuple[Topic, Message]]:
        return self.host.messages

    async def start(self) -> None:
        self.node = await self.engine.start(self.host)

    def ref(self, session: str = "s1", conn: int = 1) -> SessionEpoch:
        return SessionEpoch(session, self.node, conn)

    async def come(self, user: str, session: str = "s1", name: str | None = None) -> SessionEpoch:
        ref = self.ref(session)
        if not (await self.engine.touch(T, user, ref, "phone", False, name)).status_known:
            await self.engine.set_status(T, user, AUTO)
        return ref

    async def go(self, user: str, session: str = "s1") -> None:
        await self.engine.linger(T, user, self.ref(session), 0, 0)

    async def see(self, user: str) -> Snapshot:
        return (await self.engine.read(T, [user]))[0]

    async def states(self, *users: str) -> list[str]:
        return [snapshot.visible.state for snapshot in await self.engine.read(T, users)]


async def lab(**periods: int) -> Lab:
    made = Lab(**periods)
    await made.start()
    return made


# --- nodes ---


async def test_an_incarnation_is_never_used_twice() -> None:
    it = await lab()
    lives = {it.node}
    for _ in range(100):
        await it.engine.close()
        await it.start()
        lives.add(it.node)
    assert len(lives) == 101
    assert all(len(life) == 4 for life in lives)


async def test_the_nodes_are_listed_with_how_long_their_sessions_count() -> None:
    it = await lab(grace_ms=4_000)
    first, exit_ms = it.node, it.clock.now_ms()
    await it.engine.close()
    await it.start()
    it.clock.advance(1.0)
    assert await it.engine.nodes() == [
        NodeInfo(first, "dead", exit_ms, exit_ms + 4_000),
        NodeInfo(it.node, "live", it.clock.now_ms(), None),
    ]


async def test_after_a_clean_exit_sessions_count_for_the_grace_and_no_longer() -> None:
    it = await lab(grace_ms=4_000)
    await it.come("ann")
    it.clock.advance(10.0)
    exit_ms = it.clock.now_ms()
    await it.engine.close()
    it.clock.advance(3.999)
    assert await it.states("ann") == ["online"]
    it.clock.advance(0.001)
    seen = (await it.see("ann")).visible
    assert (seen.state, seen.last_seen) == ("offline", exit_ms)


async def test_a_session_that_returns_after_the_exit_of_its_node_stays() -> None:
    it = await lab(grace_ms=4_000)
    await it.come("ann")
    await it.engine.close()
    await it.start()
    assert (await it.engine.touch(T, "ann", it.ref(), "phone", None, None)).resumed
    it.clock.advance(60.0)
    assert await it.states("ann") == ["online"]


async def test_a_node_that_has_exited_cannot_write() -> None:
    it = await lab()
    await it.engine.close()
    with pytest.raises(Fenced):
        await it.engine.touch(T, "ann", it.ref(), "phone", False, None)


async def test_a_closed_node_receives_nothing() -> None:
    it = await lab()
    await it.engine.subscribe([Topic("room", T, "lobby")])
    await it.engine.close()
    for kind in ("room", "user", "node"):
        it.engine.publish(Topic(kind, T, "lobby"), Deliver(b"x"))  # type: ignore[arg-type]
    assert it.heard == []


async def test_a_new_node_does_not_receive_messages_of_the_topics_of_the_last_node() -> None:
    it = await lab()
    await it.engine.subscribe([Topic("room", T, "lobby")])
    await it.engine.close()
    await it.start()
    it.engine.publish(Topic("room", T, "lobby"), Deliver(b"x"))
    assert it.heard == []


# --- time ---


@pytest.mark.parametrize("jump_s", [-DAY_S, DAY_S])
async def test_a_wall_clock_that_jumps_ends_no_linger_early_or_late(jump_s: float) -> None:
    it = await lab()
    ref = await it.come("ann")
    await it.engine.linger(T, "ann", ref, 5_000, 0)
    it.clock.jump_wall(jump_s)
    assert await it.engine.leave(T, "ann", ref) == 5_000
    it.clock.advance(4.999)
    assert await it.states("ann") == ["online"]
    it.clock.advance(0.001)
    assert await it.states("ann") == ["offline"]


async def test_times_are_those_of_the_wall_clock_unless_the_clock_is_set() -> None:
    it = await lab()
    it.clock.advance(12.345)
    await it.come("ann")
    visible = (await it.see("ann")).visible
    assert (visible.since, visible.version) == (it.clock.now_ms(), it.clock.now_ms())


# --- records of users who left ---


async def test_who_left_is_remembered_with_name_and_last_seen() -> None:
    it = await lab()
    await it.come("ann", name="Ann")
    it.clock.advance(1.0)
    await it.go("ann")
    it.clock.advance(DAY_S)
    snapshot = await it.see("ann")
    assert (snapshot.name, snapshot.devices) == ("Ann", [])
    assert snapshot.visible.last_seen == it.clock.now_ms() - round(DAY_S * 1000)


async def test_a_name_is_kept_when_the_user_returns_without_one() -> None:
    it = await lab()
    await it.come("ann", name="Ann")
    await it.go("ann")
    await it.come("ann", name=None)
    assert (await it.see("ann")).name == "Ann"


async def test_versions_grow_over_departures_even_within_a_millisecond() -> None:
    it = await lab()
    await it.engine.subscribe([Topic("watch", T, "ann")])
    for _ in range(3):
        await it.come("ann")
        await it.go("ann")
    versions = [m.visible.version for _, m in it.heard if isinstance(m, Change) and m.public]
    assert len(versions) == 6
    assert versions == sorted(set(versions))


async def test_last_seen_is_forgotten_after_its_retention() -> None:
    it = await lab(seen_retention_ms=30_000)
    await it.come("ann")
    await it.go("ann")
    it.clock.advance(29.0)
    await it.come("bob")
    await it.go("bob")
    assert (await it.see("ann")).visible.last_seen is not None
    it.clock.advance(1.0)
    await it.come("bob")
    await it.go("bob")
    assert (await it.see("ann")).visible == NOBODY
    assert (await it.see("bob")).visible.last_seen is not None


async def test_who_came_back_and_left_again_is_remembered_from_then_on() -> None:
    it = await lab(seen_retention_ms=30_000)
    for _ in range(4):
        await it.come("ann")
        await it.go("ann")
        await it.come("bob")
        await it.go("bob")
        it.clock.advance(20.0)
        assert (await it.see("ann")).visible.last_seen is not None


async def test_a_crowd_that_left_is_forgotten_as_others_leave() -> None:
    it = await lab(seen_retention_ms=30_000)
    crowd = [f"u{number}" for number in range(50)]
    for user in crowd:
        await it.come(user)
        await it.go(user)
    it.clock.advance(31.0)
    for number in range(25):
        await it.come(f"later{number}")
        await it.go(f"later{number}")
    assert [snapshot.visible for snapshot in await it.engine.read(T, crowd)] == [NOBODY] * len(crowd)


# --- status ---


async def test_a_status_of_one_who_is_not_here_is_left_to_the_store() -> None:
    it = await lab()
    snapshot = await it.engine.set_status(T, "ann", ManualStatus("busy", rev=5))
    assert snapshot.visible == NOBODY
    touched = await it.engine.touch(T, "ann", it.ref(), "phone", False, None)
    assert not touched.status_known


async def test_a_status_is_requested_again_after_all_sessions_left() -> None:
    it = await lab()
    await it.come("ann")
    assert (await it.engine.touch(T, "ann", it.ref("s2", 2), "laptop", False, None)).status_known
    for session, conn in (("s1", 1), ("s2", 2)):
        await it.engine.linger(T, "ann", it.ref(session, conn), 0, 0)
    assert not (await it.engine.touch(T, "ann", it.ref("s3", 3), "phone", False, None)).status_known


# --- typing ---


async def test_typing_is_held_and_throttled_for_the_periods_given() -> None:
    it = await lab(typing_ttl_ms=3_000, typing_throttle_ms=1_000)
    await it.engine.subscribe([Topic("room", T, "lobby")])
    it.engine.typing_start(T, "lobby", "ann", "Ann")
    it.clock.advance(0.999)
    it.engine.typing_start(T, "lobby", "ann", "Ann")
    it.clock.advance(0.001)
    it.engine.typing_start(T, "lobby", "ann", "Ann")
    assert [message for _, message in it.heard] == [Typing("ann", "Ann", 3_000)] * 2
    it.clock.advance(2.999)
    assert [typist.remaining for typist in await it.engine.typers(T, "lobby")] == [1]
    it.clock.advance(0.001)
    assert await it.engine.typers(T, "lobby") == []


async def test_a_stop_in_a_room_without_typers_is_not_published() -> None:
    it = await lab()
    await it.engine.subscribe([Topic("room", T, "lobby")])
    it.engine.typing_stop(T, "lobby", "ann")
    assert it.heard == []


async def test_rooms_without_typing_users_are_not_kept() -> None:
    it = await lab()
    for number in range(500):
        it.engine.typing_start(T, f"room{number}", "ann", None)
    assert typing_rooms() >= 500
    it.clock.advance(11.0)
    it.engine.typing_start(T, "lobby", "ann", None)
    assert typing_rooms() == 1
    assert [typist.user for typist in await it.engine.typers(T, "lobby")] == ["ann"]


def typing_rooms() -> int:
    gc.collect()
    # The type itself: `isinstance` would load lazy objects of Django, which other tests of this process import.
    return sum(type(each) is TypingUsers for each in gc.get_objects())


# --- reading ---


async def test_a_list_of_those_online_leaves_out_whose_time_is_over() -> None:
    it = await lab()
    await it.come("ann")
    await it.come("bob")
    await it.engine.linger(T, "ann", it.ref(), 1_000, 0)
    it.clock.advance(1.0)
    page = await it.engine.online(T, None, 10)
    assert (page.users, page.next, page.total) == (["bob"], None, 1)


async def test_reading_no_users_returns_nothing() -> None:
    assert await (await lab()).engine.read(T, []) == []


async def test_a_session_is_listed_with_its_node_and_how_long_it_lingers() -> None:
    it = await lab()
    await it.come("ann", "s1")
    await it.come("ann", "s2")
    await it.engine.linger(T, "ann", it.ref("s2"), 5_000, 0)
    it.clock.advance(2.0)
    assert await it.engine.sessions(T, "ann") == [
        EngineSession("s1", "phone", it.node, "online", None),
        EngineSession("s2", "phone", it.node, "online", 3_000),
    ]
    it.clock.advance(3.0)
    assert [info.session for info in await it.engine.sessions(T, "ann")] == ["s1"]
    assert await it.engine.sessions(T, "bob") == []


# --- repair ---


async def test_a_sweep_ends_expired_sessions_and_publishes_it_once() -> None:
    it = await lab(grace_ms=4_000)
    for user in ("ann", "bob"):
        await it.come(user)
    await it.engine.close()
    await it.start()
    await it.engine.subscribe([Topic("watch", T, "ann")])
    assert await it.engine.sweep() == Swept()
    it.clock.advance(4.0)
    assert await it.engine.sweep() == Swept(sessions=2, users=2)
    assert await it.engine.sweep() == Swept()
    assert [message.visible.state for _, message in it.heard if isinstance(message, Change)] == ["offline"]


async def test_an_audit_ends_only_the_sessions_the_node_does_not_know() -> None:
    it = await lab()
    for user in ("ann", "bob"):
        await it.come(user, f"{user}-1")
    assert await it.engine.audit(lambda ref: ref.session == "ann-1") == 1
    assert await it.states("ann", "bob") == ["online", "offline"]


async def test_a_restored_session_keeps_its_start_and_its_change_is_marked_as_restored() -> None:
    it = await lab()
    await it.engine.subscribe([Topic("watch", T, "ann")])
    it.clock.advance(60.0)
    await it.engine.restore(T, "ann", it.ref(), Known("phone", True, "Ann", 10_000, AUTO))
    ((_, change),) = it.heard
    assert isinstance(change, Change)
    assert (change.restored, change.visible.state, change.visible.since) == (True, "idle", it.clock.now_ms() - 10_000)
    await it.engine.restore(T, "ann", it.ref(), Known("phone", True, "Ann", 10_000, AUTO))
    assert len(it.heard) == 1


async def test_an_adopted_session_continues_under_its_new_name_without_a_published_change() -> None:
    it = await lab()
    await it.engine.subscribe([Topic("watch", T, "ann")])
    await it.come("ann")
    before, told = it.node, len(it.heard)
    await it.engine.close()
    await it.start()
    await it.engine.subscribe([Topic("watch", T, "ann")])
    assert await it.engine.adopt(T, "ann", "s1", it.ref("s2")) == (before, False)
    assert [info.session for info in await it.engine.sessions(T, "ann")] == ["s2"]
    assert await it.engine.adopt(T, "ann", "s1", it.ref("s3")) is None
    assert await it.engine.adopt(T, "bob", "s1", it.ref("s3")) is None
    assert len(it.heard) == told
