"""Contract of every store for privacy settings and contacts."""

from __future__ import annotations

import asyncio

from greendot.testing.store_harness import NOW, StoreHarness, T
from greendot.visibility.model import Privacy


class PrivacySuite(StoreHarness):
    """Contract of `PrivacyStore`, as tests."""

    async def test_what_is_hidden_is_kept_with_a_growing_revision(self) -> None:
        async with self.opened() as store:
            first = await store.put_privacy(T, "ann", hide_from=frozenset({"bob", "a@b.c+d=e"}))
            assert first == Privacy("shown", frozenset({"bob", "a@b.c+d=e"}), first.rev)
            second = await store.put_privacy(T, "ann", last_seen="hidden")
            assert second == Privacy("hidden", first.hide_from, second.rev)
            assert second.rev > first.rev
            third = await store.put_privacy(T, "ann", hide_from=frozenset())
            assert (third.last_seen, third.hide_from) == ("hidden", frozenset())
            assert await store.privacies([(T, "ann"), (T, "bob"), ("t2", "ann")]) == {(T, "ann"): third}
            assert await store.privacies([]) == {}

    async def test_privacy_fields_that_are_not_given_do_not_change(self) -> None:
        async with self.opened() as store:
            assert (await store.put_privacy(T, "ann")).is_plain
            before = await store.put_privacy(T, "ann", last_seen="hidden", hide_from=frozenset({"bob"}))
            after = await store.put_privacy(T, "ann")
            assert (after.last_seen, after.hide_from) == (before.last_seen, before.hide_from)

    async def test_the_store_knows_for_each_tenant_whether_a_user_hides(self) -> None:
        async with self.opened() as store:
            await store.put_privacy(T, "ann")
            assert await store.hiding([T]) == set()
            await store.put_privacy(T, "bob", last_seen="hidden")
            await store.put_privacy("t2", "bob", hide_from=frozenset({"eve"}))
            assert await store.hiding([T, "t2", "t3"]) == {T, "t2"}
            assert await store.hiding([]) == set()
            await store.put_privacy(T, "bob", last_seen="shown")
            assert await store.hiding([T, "t2"]) == {"t2"}

    async def test_a_contact_is_one_way_and_its_time_never_goes_back(self) -> None:
        async with self.opened() as store:
            assert await store.put_contact(T, "ann", "bob", NOW, most=10)
            assert await store.put_contact(T, "ann", "bob", NOW - 5, most=10)
            assert await store.put_contact("t2", "ann", "eve", NOW, most=10)
            assert await store.contacts([(T, "ann"), (T, "bob"), ("t2", "bob")]) == {(T, "ann"): {"bob": NOW}}
            await store.put_contact(T, "ann", "bob", NOW + 7, most=10)
            assert await store.contacts([(T, "ann")]) == {(T, "ann"): {"bob": NOW + 7}}
            assert await store.contacts([]) == {}

    async def test_a_contact_is_removed_once(self) -> None:
        async with self.opened() as store:
            await store.put_contact(T, "ann", "bob", NOW, most=10)
            await store.put_contact("t2", "ann", "bob", NOW, most=10)
            assert not await store.remove_contact(T, "bob", "ann")
            assert await store.remove_contact(T, "ann", "bob")
            assert not await store.remove_contact(T, "ann", "bob")
            assert await store.contacts([(T, "ann"), ("t2", "ann")]) == {("t2", "ann"): {"bob": NOW}}

    async def test_contacts_of_one_user_are_limited_across_nodes(self) -> None:
        async with self.opened_twice() as (one, two):
            puts = (store.put_contact(T, "ann", f"u{n}", NOW, most=3) for n, store in enumerate((one, two) * 4))
            assert sum(await asyncio.gather(*puts)) == 3
            (known,) = (await two.contacts([(T, "ann")])).values()
            assert len(known) == 3
            first = min(known)
            assert await one.put_contact(T, "ann", first, NOW + 1, most=3), "one that is there is no further one"
            assert not await one.put_contact(T, "ann", "another", NOW, most=3)
            assert await one.put_contact(T, "bob", "another", NOW, most=3)

    async def test_memberships_of_many_are_one_read(self) -> None:
        async with self.opened() as store:
            for room, *users in (("r1", "ann", "bob"), ("r2", "ann")):
                await store.put_room(T, room)
                for user in users:
                    await store.put_member(T, room, user)
            await store.put_room(T, "public", open=True)
            keys = [(T, "ann"), (T, "bob"), (T, "eve"), ("t2", "ann")]
            both = {(T, "ann"): frozenset({"r1", "r2"}), (T, "bob"): frozenset({"r1"})}
            assert await store.memberships(keys) == both
            await store.remove_member(T, "r1", "bob")
            assert (T, "bob") not in await store.memberships(keys)
            assert await store.memberships([]) == {}
