"""Contract of every engine for used names."""

from __future__ import annotations

from greendot.testing.engine_harness import EngineTests, T

KEEP_MS = 600_000


class UsedNameSuite(EngineTests):
    """Part of `EngineSuite`: used names."""

    async def test_the_first_use_of_a_name_is_known(self) -> None:
        async with self.harness() as h:
            assert await h.engine.use(T, "a", KEEP_MS) == 0
            await h.advance(3.0)
            assert 3_000 <= await h.engine.use(T, "a", KEEP_MS) < KEEP_MS
            await h.advance(2.0)
            assert 5_000 <= await h.engine.use(T, "a", KEEP_MS) < KEEP_MS  # the first use counts, not the last

    async def test_names_and_tenants_are_apart(self) -> None:
        async with self.harness() as h:
            await h.engine.use(T, "a", KEEP_MS)
            await h.advance(3.0)
            assert await h.engine.use(T, "A", KEEP_MS) == 0
            assert await h.engine.use("t2", "a", KEEP_MS) == 0
            assert await h.engine.use(T, "", KEEP_MS) == 0

    async def test_a_used_name_is_forgotten_after_its_time(self) -> None:
        async with self.harness() as h:
            await h.engine.use(T, "a", 1)
            await h.advance(0.002)
            for _ in range(1_000):  # the memory of Redis ends by a clock that no test sets
                if not await h.engine.use(T, "a", 1):
                    return
                await h.advance(0.002)
            raise AssertionError("the name is not forgotten")
