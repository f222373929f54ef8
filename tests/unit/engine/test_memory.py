"""What the embedded engine promises beyond the suite every engine passes."""

from __future__ import annotations

import gc

import pytest

from greendot.core.presence import NOBODY, Change, Manual, Ref, Snapshot
from greendot.core.typists import Typists
from greendot.engine.base import Deliver, Fenced, Message, Topic, Typing
from greendot.engine.memory import MemoryEngine
from greendot.testing import ManualClock

T = "t1"
AUTO = Manual(rev=1)
DAY_S = 86_400.0


class Lab:
    """An engine, its clock and what its node hears."""

    def __init__(self, **periods: int) -> None:
        self.clock = ManualClock()
        self.engine = MemoryEngine(self.clock, **periods)
        self.node = "n1"
        self.heard: list[tuple[Topic, Message]] = []

    async def start(self, node: str = "n1") -> None:
        self.node = node
        await self.engine.start(node, lambda topic, message: self.heard.append((topic, message)))

    async def come(self, user: str, session: str = "s1", name: str | None = None) -> Ref:
        ref = Ref(session, self.node, 1)
        if not (await self.engine.touch(T, user, ref, "phone", False, name)).status_known:
            await self.engine.set_status(T, user, AUTO)
        return ref

    async def go(self, user: str, session: str = "s1") -> None:
        await self.engine.linger(T, user, Ref(session, self.node, 1), 0, 0)

    async def see(self, user: str) -> Snapshot:
        return (await self.engine.read(T, [user]))[0]

    async def states(self, *users: str) -> list[str]:
        return [snapshot.face.state for snapshot in await self.engine.read(T, users)]


async def lab(**periods: int) -> Lab:
    made = Lab(**periods)
    await made.start()
    return made


# --- nodes ---


async def test_an_incarnation_is_never_used_twice() -> None:
    it = await lab()
    with pytest.raises(Fenced):
        await it.start("n1")
    await it.engine.close()
    with pytest.raises(Fenced):
        await it.start("n1")
    await it.start("n2")


async def test_after_a_clean_exit_sessions_count_for_the_grace_and_no_longer() -> None:
    it = await lab(grace_ms=4_000)
    await it.come("ann")
    it.clock.advance(10.0)
    exit_ms = it.clock.now_ms()
    await it.engine.close()
    it.clock.advance(3.999)
    assert await it.states("ann") == ["online"]
    it.clock.advance(0.001)
    seen = (await it.see("ann")).face
    assert (seen.state, seen.last_seen) == ("offline", exit_ms)


async def test_a_session_that_returns_after_the_exit_of_its_node_stays() -> None:
    it = await lab(grace_ms=4_000)
    await it.come("ann")
    await it.engine.close()
    await it.start("n2")
    assert (await it.engine.touch(T, "ann", Ref("s1", "n2", 1), "phone", None, None)).resumed
    it.clock.advance(60.0)
    assert await it.states("ann") == ["online"]


async def test_a_node_that_has_exited_cannot_write() -> None:
    it = await lab()
    await it.engine.close()
    with pytest.raises(Fenced):
        await it.engine.touch(T, "ann", Ref("s1", "n1", 1), "phone", False, None)


async def test_a_node_that_has_exited_hears_nothing() -> None:
    it = await lab()
    await it.engine.subscribe([Topic("room", T, "lobby")])
    await it.engine.close()
    for kind in ("room", "user", "node"):
        it.engine.publish(Topic(kind, T, "lobby"), Deliver(b"x"))  # type: ignore[arg-type]
    assert it.heard == []


async def test_the_next_node_does_not_hear_what_the_last_one_had_subscribed_to() -> None:
    it = await lab()
    await it.engine.subscribe([Topic("room", T, "lobby")])
    await it.engine.close()
    await it.start("n2")
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


async def test_times_are_the_wall_clocks_when_nobody_sets_it() -> None:
    it = await lab()
    it.clock.advance(12.345)
    await it.come("ann")
    face = (await it.see("ann")).face
    assert (face.since, face.version) == (it.clock.now_ms(), it.clock.now_ms())


# --- what stays of those who left ---


async def test_who_left_is_remembered_with_name_and_last_seen() -> None:
    it = await lab()
    await it.come("ann", name="Ann")
    it.clock.advance(1.0)
    await it.go("ann")
    it.clock.advance(DAY_S)
    snapshot = await it.see("ann")
    assert (snapshot.name, snapshot.devices) == ("Ann", [])
    assert snapshot.face.last_seen == it.clock.now_ms() - round(DAY_S * 1000)


async def test_a_name_outlives_a_return_that_does_not_say_it() -> None:
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
    versions = [m.face.version for _, m in it.heard if isinstance(m, Change) and m.public]
    assert len(versions) == 6
    assert versions == sorted(set(versions))


async def test_last_seen_is_forgotten_after_its_retention() -> None:
    it = await lab(seen_retention_ms=30_000)
    await it.come("ann")
    await it.go("ann")
    it.clock.advance(29.0)
    await it.come("bob")
    await it.go("bob")
    assert (await it.see("ann")).face.last_seen is not None
    it.clock.advance(1.0)
    await it.come("bob")
    await it.go("bob")
    assert (await it.see("ann")).face == NOBODY
    assert (await it.see("bob")).face.last_seen is not None


async def test_who_came_back_and_left_again_is_remembered_from_then_on() -> None:
    it = await lab(seen_retention_ms=30_000)
    for _ in range(4):
        await it.come("ann")
        await it.go("ann")
        await it.come("bob")
        await it.go("bob")
        it.clock.advance(20.0)
        assert (await it.see("ann")).face.last_seen is not None


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
    assert [snapshot.face for snapshot in await it.engine.read(T, crowd)] == [NOBODY] * len(crowd)


# --- status ---


async def test_a_status_of_one_who_is_not_here_is_left_to_the_store() -> None:
    it = await lab()
    snapshot = await it.engine.set_status(T, "ann", Manual("busy", rev=5))
    assert snapshot.face == NOBODY
    touched = await it.engine.touch(T, "ann", Ref("s1", "n1", 1), "phone", False, None)
    assert not touched.status_known


async def test_a_status_is_asked_for_again_after_everybody_left() -> None:
    it = await lab()
    await it.come("ann")
    assert (await it.engine.touch(T, "ann", Ref("s2", "n1", 2), "laptop", False, None)).status_known
    for session, conn in (("s1", 1), ("s2", 2)):
        await it.engine.linger(T, "ann", Ref(session, "n1", conn), 0, 0)
    assert not (await it.engine.touch(T, "ann", Ref("s3", "n1", 3), "phone", False, None)).status_known


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


async def test_a_stop_where_nobody_types_is_told_to_nobody() -> None:
    it = await lab()
    await it.engine.subscribe([Topic("room", T, "lobby")])
    it.engine.typing_stop(T, "lobby", "ann")
    assert it.heard == []


async def test_rooms_nobody_types_in_any_more_are_not_kept() -> None:
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
    return sum(isinstance(each, Typists) for each in gc.get_objects())


# --- reading ---


async def test_a_list_of_those_online_leaves_out_whose_time_is_over() -> None:
    it = await lab()
    await it.come("ann")
    await it.come("bob")
    await it.engine.linger(T, "ann", Ref("s1", "n1", 1), 1_000, 0)
    it.clock.advance(1.0)
    assert await it.engine.online(T, None, 10) == (["bob"], None, 1)


async def test_reading_nobody_is_nothing() -> None:
    assert await (await lab()).engine.read(T, []) == []
