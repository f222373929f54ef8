"""Contract of every engine for the occupants of a room."""

from __future__ import annotations

import asyncio

from greendot.engine.messages import Entered, Left, Topic
from greendot.engine.port import Fenced
from greendot.engine.results import OccupantPage
from greendot.limits.overload_model import Level
from greendot.presence.model import SessionEpoch
from greendot.testing.engine_harness import EngineHarness, EngineTests, T

R1 = Topic("room", T, "r1")


class OccupantSuite(EngineTests):
    """Part of `EngineSuite`: occupants."""

    @staticmethod
    def session_of(h: EngineHarness, name: str) -> SessionEpoch:
        return SessionEpoch(f"{h.incarnation}-{name}", h.incarnation, 1)

    @staticmethod
    async def news(h: EngineHarness) -> list[tuple[str, str]]:
        """Return the events published about the room since the last call."""
        await h.settle()
        told = [(type(m).__name__, m.user) for t, m in h.heard if t == R1 and isinstance(m, Entered | Left)]
        h.heard.clear()
        return told

    async def test_an_empty_room_has_no_users(self) -> None:
        async with self.harness() as h:
            assert await h.engine.present(T, "r1") == []
            await h.engine.exit(T, "r1", "ann", self.session_of(h, "a"))
            assert await h.engine.present(T, "r1") == []

    async def test_a_users_first_session_enters_and_the_last_one_leaves(self) -> None:
        async with self.harness() as h:
            await h.engine.subscribe([R1])
            phone, laptop = self.session_of(h, "phone"), self.session_of(h, "laptop")
            await h.engine.enter(T, "r1", "ann", phone)
            assert await self.news(h) == [("Entered", "ann")]
            await h.engine.enter(T, "r1", "ann", laptop)
            await h.engine.exit(T, "r1", "ann", phone)
            assert await h.engine.present(T, "r1") == ["ann"]
            assert await self.news(h) == []
            await h.engine.exit(T, "r1", "ann", laptop)
            assert await h.engine.present(T, "r1") == []
            assert await self.news(h) == [("Left", "ann")]

    async def test_it_is_known_with_which_sessions_users_are_in_a_room(self) -> None:
        async with self.harness() as h:
            assert await h.engine.sessions_in_room(T, "r1", ["ann"]) == {}
            phone, laptop, other = (
                self.session_of(h, "phone"),
                self.session_of(h, "laptop"),
                self.session_of(h, "other"),
            )
            for user, ref in (("ann", phone), ("ann", laptop), ("bob", other), ("cyd", self.session_of(h, "c"))):
                await h.engine.enter(T, "r1", user, ref)
            await h.engine.enter(T, "r2", "dan", self.session_of(h, "d"))
            found = await h.engine.sessions_in_room(T, "r1", ["ann", "bob", "dan", "eve"])
            assert found == {"ann": {phone.session, laptop.session}, "bob": {other.session}}
            await h.engine.exit(T, "r1", "ann", phone)
            assert await h.engine.sessions_in_room(T, "r1", ["ann"]) == {"ann": {laptop.session}}
            await h.engine.exit(T, "r1", "ann", laptop)
            assert await h.engine.sessions_in_room(T, "r1", ["ann"]) == {}

    async def test_entering_or_leaving_again_changes_nothing(self) -> None:
        async with self.harness() as h:
            await h.engine.subscribe([R1])
            ann = self.session_of(h, "a")
            for _ in range(3):
                await h.engine.enter(T, "r1", "ann", ann._replace(conn=2))
            assert await h.engine.present(T, "r1") == ["ann"]
            for _ in range(3):
                await h.engine.exit(T, "r1", "ann", ann)
            assert await self.news(h) == [("Entered", "ann"), ("Left", "ann")]

    async def test_an_exit_of_an_absent_user_or_session_publishes_no_event(self) -> None:
        async with self.harness() as h:
            await h.engine.subscribe([R1])
            await h.engine.enter(T, "r1", "ann", self.session_of(h, "a"))
            await h.engine.exit(T, "r1", "ann", self.session_of(h, "other"))
            await h.engine.exit(T, "r1", "bob", self.session_of(h, "a"))
            assert await h.engine.present(T, "r1") == ["ann"]
            assert await self.news(h) == [("Entered", "ann")]

    async def test_a_restored_user_enters_only_if_lost_and_the_event_is_marked_as_restored(self) -> None:
        async with self.harness() as h:
            await h.engine.subscribe([R1])
            await h.engine.enter(T, "r1", "ann", self.session_of(h, "a"))
            await h.engine.enter(T, "r1", "ann", self.session_of(h, "a"), restoring=True)
            await h.engine.enter(T, "r1", "bob", self.session_of(h, "b"), restoring=True)
            await h.settle()
            assert [message for _, message in h.heard] == [Entered("ann"), Entered("bob", restored=True)]

    async def test_the_name_is_published_with_the_entry_of_a_first_session(self) -> None:
        async with self.harness() as h:
            await h.engine.subscribe([R1])
            await h.engine.enter(T, "r1", "ann", self.session_of(h, "a"), "Ann | 100 %, r;")
            await h.engine.enter(T, "r1", "ann", self.session_of(h, "a2"), "Anne")
            await h.engine.enter(T, "r1", "bob", self.session_of(h, "b"), "r")
            await h.engine.enter(T, "r1", "cyd", self.session_of(h, "c"), "")
            await h.engine.enter(T, "r1", "dan", self.session_of(h, "d"), "Dan", restoring=True)
            await h.settle()
            assert [message for _, message in h.heard] == [
                Entered("ann", name="Ann | 100 %, r;"),
                Entered("bob", name="r"),
                Entered("cyd"),
                Entered("dan", restored=True),
            ]

    async def test_rooms_and_tenants_are_apart(self) -> None:
        async with self.harness() as h:
            await h.engine.subscribe([R1])
            await h.engine.enter(T, "r2", "ann", self.session_of(h, "a"))
            await h.engine.enter("t2", "r1", "ann", self.session_of(h, "a"))
            assert await h.engine.present(T, "r1") == []
            assert await h.engine.present("t2", "r1") == ["ann"]
            assert await self.news(h) == []

    async def test_those_present_are_listed_by_id(self) -> None:
        async with self.harness() as h:
            users = [f"u{number:03}" for number in range(500)]
            for user in reversed(users):
                await h.engine.enter(T, "r1", user, self.session_of(h, user))
            assert await h.engine.present(T, "r1") == users

    async def test_occupants_are_read_in_pages_with_the_number_of_all(self) -> None:
        async with self.harness() as h:
            assert await h.engine.present_page(T, "r1", None, 10, "ann") == OccupantPage([], 0, is_there=False)
            users = [f"u{number:04}" for number in range(2_500)]
            await asyncio.gather(*(h.engine.enter(T, "r1", user, self.session_of(h, user)) for user in reversed(users)))
            assert await h.engine.present_page(T, "r1", None, 0) == OccupantPage([], 2_500)
            assert await h.engine.present_page(T, "r1", None, 2, "u0009") == OccupantPage(
                users[:2], 2_500, is_there=True
            )
            assert await h.engine.present_page(T, "r1", "u1000", 3, "u") == OccupantPage(users[1_001:1_004], 2_500)
            assert await h.engine.present_page(T, "r1", "u1000x", 1) == OccupantPage(users[1_001:1_002], 2_500)
            assert await h.engine.present_page(T, "r1", "u2498", 1_000) == OccupantPage(users[-1:], 2_500)
            assert await h.engine.present_page(T, "r1", "u2499", 1_000) == OccupantPage([], 2_500)
            assert await h.engine.present(T, "r1") == users
            assert await h.engine.room_nodes(T, "r1") == {h.incarnation}

    async def test_a_page_follows_every_entry_and_exit(self) -> None:
        async with self.harness() as h:
            phone, laptop = self.session_of(h, "phone"), self.session_of(h, "laptop")
            await h.engine.enter(T, "r1", "bob", self.session_of(h, "b"))
            for ref in (phone, laptop):
                await h.engine.enter(T, "r1", "ann", ref)
            assert await h.engine.present_page(T, "r1", None, 9) == OccupantPage(["ann", "bob"], 2)
            await h.engine.exit(T, "r1", "ann", phone)
            assert await h.engine.present_page(T, "r1", None, 9) == OccupantPage(["ann", "bob"], 2)
            await h.engine.exit(T, "r1", "ann", laptop)
            assert await h.engine.present_page(T, "r1", None, 9, "ann") == OccupantPage(["bob"], 1)
            await h.engine.exit(T, "r1", "bob", self.session_of(h, "b"))
            assert await h.engine.present_page(T, "r1", None, 9, "bob") == OccupantPage([], 0)

    async def test_a_lingering_session_stays_in_its_room_until_it_leaves(self) -> None:
        async with self.harness() as h:
            ref = await self.come(h, "ann")
            await h.engine.enter(T, "r1", "ann", ref)
            await h.engine.linger(T, "ann", ref, 0, 0)
            assert await h.engine.present(T, "r1") == ["ann"]

    async def test_a_session_of_an_unknown_node_does_not_enter(self) -> None:
        async with self.harness() as h:
            await h.engine.subscribe([R1])
            try:
                await h.engine.enter(T, "r1", "ann", SessionEpoch("gone-a", "gone", 1))
            except Fenced:
                assert await h.engine.present(T, "r1") == []
                assert await self.news(h) == []
                return
            raise AssertionError("a write of an incarnation that is not live was taken")

    async def test_the_nodes_of_a_room_are_those_of_the_sessions_in_it(self) -> None:
        async with self.harness() as h:
            assert await h.engine.room_nodes(T, "r1") == set()
            for user in ("ann", "bob"):
                await h.engine.enter(T, "r1", user, self.session_of(h, user))
            assert await h.engine.room_nodes(T, "r1") == {h.incarnation}
            # A session keeps its id when its node continues under a new incarnation.
            await h.engine.enter(T, "r2", "ann", self.session_of(h, "a")._replace(session="else-1"))
            assert await h.engine.room_nodes(T, "r2") == {h.incarnation}
            for user in ("ann", "bob"):
                await h.engine.exit(T, "r1", user, self.session_of(h, user))
            assert await h.engine.room_nodes(T, "r1") == set()

    async def test_a_node_that_refuses_new_work_is_known_to(self) -> None:
        async with self.harness() as h:
            assert h.engine.refusing() == frozenset()
            assert h.engine.lag_s >= 0
            h.engine.level = Level.SHEDDING
            assert h.engine.refusing() == frozenset()
            h.engine.level = Level.REFUSING
            assert h.engine.refusing() == {h.incarnation}
            h.engine.level = Level.NORMAL
            assert h.engine.refusing() == frozenset()
