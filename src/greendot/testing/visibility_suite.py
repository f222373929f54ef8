"""Contract of every store for privacy settings and contacts."""

from __future__ import annotations

import asyncio

from greendot.store.port import Store
from greendot.store.visibility import MOST_CHANGES, Changes, FactKind, Revision
from greendot.testing.store_harness import NOW, StoreHarness, T
from greendot.visibility.model import Privacy

KINDS: tuple[FactKind, ...] = ("privacy", "contacts", "members")


async def changes(store: Store, since: Revision, kind: FactKind = "privacy", tenant: str = T) -> Changes:
    """Return the changes of one kind in one tenant."""
    (found,) = await store.changes([(tenant, kind, since)])
    return found


async def head(store: Store, kind: FactKind = "privacy", tenant: str = T) -> Revision:
    """Return the revision of one kind in one tenant."""
    return (await changes(store, Revision(), kind, tenant)).revision


async def erase(store: Store, user: str) -> None:
    """Erase all data of a user."""
    step = await store.erase_user(T, user, None, limit=1_000)
    while step.next is not None:
        step = await store.erase_user(T, user, step.next, limit=1_000)


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

    async def test_users_who_hide_something_are_listed_in_pages(self) -> None:
        async with self.opened() as store:
            for user in ("dan", "ann", "cid"):
                await store.put_privacy(T, user, last_seen="hidden")
            bob = await store.put_privacy(T, "bob", hide_from=frozenset({"eve", "ann"}))
            await store.put_privacy(T, "plain")
            await store.put_privacy("t2", "eve", last_seen="hidden")
            first = await store.restricted(T, "", 3)
            assert ([*first], first["bob"]) == (["ann", "bob", "cid"], bob)
            assert [*await store.restricted(T, "cid", 3)] == ["dan"]
            await store.put_privacy(T, "ann", last_seen="shown")
            assert [*await store.restricted(T, "", 9)] == ["bob", "cid", "dan"]
            assert await store.restricted("t3", "", 3) == {}

    async def test_changed_users_are_known_by_revision_and_by_kind(self) -> None:
        async with self.opened() as store:
            assert await changes(store, Revision()) == Changes(Revision(), frozenset())
            await store.put_room(T, "r1")
            first = {kind: await head(store, kind) for kind in KINDS}
            await store.put_privacy(T, "ann", last_seen="hidden")
            await store.put_privacy("t2", "eve", last_seen="hidden")
            await store.put_contact(T, "bob", "ann", NOW, most=10)
            await store.put_member(T, "r1", "cid")
            found = await store.changes([(T, kind, first[kind]) for kind in KINDS])
            assert [of.users for of in found] == [frozenset({user}) for user in ("ann", "bob", "cid")]
            second = [of.revision for of in found]
            assert [of.users for of in await store.changes([(T, *of) for of in zip(KINDS, second, strict=True)])] == [
                frozenset()
            ] * 3
            await store.put_privacy(T, "dan", last_seen="shown")
            await store.put_privacy(T, "ann", last_seen="shown")
            await store.put_contact(T, "bob", "ann", NOW + 1, most=10)
            await store.remove_contact(T, "bob", "ann")
            await store.remove_member(T, "r1", "cid")
            found = await store.changes([(T, *of) for of in zip(KINDS, second, strict=True)])
            assert [of.users for of in found] == [frozenset({"ann", "dan"}), frozenset({"bob"}), frozenset({"cid"})]
            assert [of.revision.number for of in found] == [3, 3, 2]
            assert await store.changes([]) == []

    async def test_changes_of_two_nodes_at_once_have_numbers_of_their_own(self) -> None:
        async with self.opened_twice() as (one, two):
            since = await head(one)
            puts = (store.put_privacy(T, f"u{n}", last_seen="hidden") for n, store in enumerate((one, two) * 10))
            await asyncio.gather(*puts)
            found = await changes(two, since)
            assert (found.users, found.revision.number) == (frozenset(f"u{n}" for n in range(20)), 20)

    async def test_too_many_changes_are_not_listed(self) -> None:
        async with self.opened() as store:
            since = await head(store)
            for number in range(MOST_CHANGES):
                await store.put_privacy(T, f"u{number % 7}")
            found = await changes(store, since)
            assert found.users == frozenset(f"u{number}" for number in range(7))
            await store.put_privacy(T, "u1")
            assert (await changes(store, since)).users is None
            assert (await changes(store, found.revision)).users == frozenset({"u1"})

    async def test_a_revision_of_another_store_is_not_continued(self) -> None:
        async with self.opened() as store:
            await store.put_privacy(T, "ann")
            first = await head(store)
            for since in (Revision(first.number, first.token + 1), Revision(first.number + 1, first.token)):
                assert await changes(store, since) == Changes(first, None)
            await store.put_privacy(T, "bob")
            assert (await changes(store, Revision(first.number, first.token + 1))).users is None
            assert (await changes(store, first)).users == frozenset({"bob"})

    async def test_an_erasure_is_a_change_for_every_node(self) -> None:
        async with self.opened() as store:
            await store.put_privacy(T, "ann", hide_from=frozenset({"bob"}))
            await store.put_privacy(T, "bob", hide_from=frozenset({"ann"}))
            since = await head(store)
            await erase(store, "bob")
            found = await changes(store, since)
            assert found.revision.number > since.number
            assert found.users is None, "the erased user must not be named"
            assert [*await store.restricted(T, "", 9)] == []
            while await store.erase_tenant(T, limit=1_000):
                pass
            assert (await changes(store, found.revision)).users is None

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
