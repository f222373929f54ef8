"""Contract of every engine for transitions: each arrival and departure is reported once."""

from __future__ import annotations

from greendot.engine.port import Transition
from greendot.engine.results import Known
from greendot.presence.model import ManualStatus, SessionEpoch
from greendot.testing.engine_harness import AUTO, EngineHarness, EngineTests, T


class TurnSuite(EngineTests):
    """Part of `EngineSuite`: transitions."""

    @staticmethod
    def turns(h: EngineHarness) -> list[Transition]:
        """Return a list that collects all transitions from now on."""
        told: list[Transition] = []
        h.engine.turned = told.append
        return told

    async def test_a_user_comes_with_the_first_session_and_goes_with_the_last(self) -> None:
        async with self.harness() as h:
            told = self.turns(h)
            phone = await self.come(h, "ann", "phone", device="p")
            laptop = await self.come(h, "ann", "laptop", device="l")
            assert told == [Transition("user", T, "ann", True)]
            assert await h.engine.linger(T, "ann", phone, 0, 0) == 0
            assert await h.engine.linger(T, "ann", laptop, 1_000, 0) == 1_000
            assert len(told) == 1
            await h.advance(1.1)
            assert await h.engine.leave(T, "ann", laptop) is None
            assert await h.engine.leave(T, "ann", laptop) is None
            assert told[1:] == [Transition("user", T, "ann", False)]

    async def test_the_first_call_after_the_grace_publishes_that_the_user_is_offline(self) -> None:
        async with self.harness() as h:
            ref = await self.come(h, "ann")
            await h.engine.linger(T, "ann", ref, 1_000, 0)
            told = self.turns(h)
            await h.advance(1.1)
            assert (await self.see(h, "ann")).visible.state == "offline"
            assert told == [Transition("user", T, "ann", False)]
            assert await h.engine.leave(T, "ann", ref) is None
            await h.engine.sweep()
            assert len(told) == 1

    async def test_a_sweep_reports_the_users_it_ended(self) -> None:
        async with self.harness() as h:
            for user in ("ann", "bob"):
                await h.engine.linger(T, user, await self.come(h, user, f"{h.incarnation}-{user}"), 1_000, 0)
            await self.come(h, "cid", "s3")
            told = self.turns(h)
            await h.advance(1.1)
            await h.engine.sweep()
            assert sorted(told) == [Transition("user", T, "ann", False), Transition("user", T, "bob", False)]

    async def test_idle_busy_and_invisible_are_reported_as_other_users_see_them(self) -> None:
        async with self.harness() as h:
            told = self.turns(h)
            ref = await self.come(h, "ann")
            await h.engine.touch(T, "ann", ref, "d1", True, None)
            await h.engine.set_status(T, "ann", ManualStatus("busy", rev=2))
            assert told == [Transition("user", T, "ann", True)]
            await h.engine.set_status(T, "ann", ManualStatus("invisible", rev=3))
            assert told[1:] == [Transition("user", T, "ann", False)]
            await h.engine.linger(T, "ann", ref, 0, 0)
            assert len(told) == 2, "the real leave is nobody's business"

    async def test_a_user_who_is_taken_over_neither_comes_nor_goes(self) -> None:
        async with self.harness() as h:
            ref = await self.come(h, "ann", f"{h.incarnation}-1")
            told = self.turns(h)
            await h.engine.linger(T, "ann", ref, 1_000, 0)
            adopted = await h.engine.adopt(T, "ann", ref.session, SessionEpoch(f"{h.incarnation}-2", h.incarnation, 1))
            assert adopted is not None
            assert adopted.incarnation == h.incarnation
            assert told == []

    async def test_a_room_is_occupied_from_the_first_entry_to_the_last_exit(self) -> None:
        async with self.harness() as h:
            told = self.turns(h)
            ann, bob = (SessionEpoch(f"{h.incarnation}-{user}", h.incarnation, 1) for user in ("a", "b"))
            await h.engine.enter(T, "r1", "ann", ann)
            await h.engine.enter(T, "r1", "bob", bob)
            await h.engine.enter(T, "r1", "ann", ann)
            await h.engine.exit(T, "r1", "ann", ann)
            assert told == [Transition("room", T, "r1", True)]
            for _ in range(2):
                await h.engine.exit(T, "r1", "bob", bob)
                assert await h.engine.present(T, "r1") == []
            assert told[1:] == [Transition("room", T, "r1", False)]
            await h.engine.enter("t2", "r1", "ann", ann)
            assert told[2:] == [Transition("room", "t2", "r1", True)]

    async def test_what_is_restored_was_never_gone(self) -> None:
        async with self.harness() as h:
            told = self.turns(h)
            ref = SessionEpoch(f"{h.incarnation}-1", h.incarnation, 1)
            await h.engine.restore(T, "ann", ref, Known("d1", False, "Ann", 5_000, AUTO))
            await h.engine.enter(T, "r1", "ann", ref, restoring=True)
            assert (await self.see(h, "ann")).visible.state == "online"
            assert told == []
