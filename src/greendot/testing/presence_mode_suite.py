"""Contract of every store for modes of presence."""

from __future__ import annotations

import asyncio

from greendot.store.visibility import Changes, Revision
from greendot.testing.store_harness import StoreHarness, T
from greendot.testing.user_data_suite import all_of, erase
from greendot.testing.visibility_suite import changes, head

ANN, BOB, OTHER = (T, "ann"), (T, "bob"), ("t2", "ann")


class PresenceModeSuite(StoreHarness):
    """Contract of `PresenceModeStore`, as tests."""

    async def test_a_presence_mode_is_kept_per_tenant_and_user_until_it_is_auto(self) -> None:
        async with self.opened() as store:
            assert await store.put_presence_mode(*ANN, "live", most=9)
            assert await store.put_presence_mode(*ANN, "poll", most=9)
            assert await store.put_presence_mode(*OTHER, "live", most=9)
            assert await store.presence_modes([ANN, BOB, ("t2", "bob")]) == {ANN: "poll"}
            assert await store.presence_modes([]) == {}
            assert await store.presence_modes_in([T, "t2", "t3"]) == {ANN: "poll", OTHER: "live"}
            assert await store.presence_modes_in(["t2"]) == {OTHER: "live"}
            assert await store.put_presence_mode(*ANN, "auto", most=9)
            assert await store.put_presence_mode(*BOB, "auto", most=9)
            assert await store.presence_modes_in([T, "t2"]) == {OTHER: "live"}

    async def test_each_change_of_a_presence_mode_has_the_next_number(self) -> None:
        async with self.opened() as store:
            assert await changes(store, Revision(), "mode") == Changes(Revision(), frozenset())
            await store.put_presence_mode(*ANN, "poll", most=9)
            first = await head(store, "mode")
            await store.put_presence_mode(*ANN, "poll", most=9)  # the same again is no change
            assert await changes(store, first, "mode") == Changes(first, frozenset())
            await store.put_presence_mode(*ANN, "live", most=9)
            await store.put_presence_mode(*BOB, "poll", most=9)
            await store.put_presence_mode(*OTHER, "poll", most=9)
            found = await changes(store, first, "mode")
            assert (found.users, found.revision.number) == (frozenset({"ann", "bob"}), 3)
            await store.put_presence_mode(*ANN, "auto", most=9)
            assert (await changes(store, found.revision, "mode")).users == frozenset({"ann"})

    async def test_a_tenant_has_at_most_so_many_presence_modes(self) -> None:
        async with self.opened_twice() as (one, two):
            users = [f"u{number}" for number in range(8)]
            await one.put_presence_mode(*OTHER, "poll", most=1)
            puts = (store.put_presence_mode(T, user, "poll", most=3) for user in users for store in (one, two))
            assert sum(await asyncio.gather(*puts)) == 6
            found = await two.presence_modes_in([T])
            assert len(found) == 3
            for tenant, user in found:
                assert await one.put_presence_mode(tenant, user, "live", most=3), "those who have one may change"

    async def test_the_presence_mode_of_an_erased_user_is_gone_and_every_node_can_notice(self) -> None:
        async with self.opened() as store:
            await store.put_presence_mode(*ANN, "poll", most=9)
            await store.put_presence_mode(*BOB, "poll", most=9)
            since = await head(store, "mode")
            assert ("presence_modes", "poll") in [(table, row.get("mode")) for table, row in await all_of(store, "ann")]
            await erase(store, "ann")
            assert await store.presence_modes_in([T]) == {BOB: "poll"}
            assert (await changes(store, since, "mode")).revision.number > since.number
