"""Contract of every store for profiles: names and info of users."""

from __future__ import annotations

import asyncio

import pytest

from greendot.errors import Unstorable
from greendot.presence.profile_model import Profile, ProfileChange
from greendot.store.port import Store
from greendot.store.visibility import LATEST, Changes
from greendot.testing.store_harness import BAD_TEXTS, NOW, StoreHarness, T
from greendot.testing.user_data_suite import all_of, erase

ANN = T, "ann"
BLUE, RED = b'{"colour":"blue"}', b'{"colour":"red"}'


def change(at: int = NOW, **fields: object) -> ProfileChange:
    return ProfileChange(at, NOW, **fields)  # type: ignore[arg-type]


async def logged(store: Store, tenant: str = T) -> Changes:
    """Return the newest revision of the log of changes."""
    (found,) = await store.changes([(tenant, "info", LATEST)])
    return found


class ProfileSuite(StoreHarness):
    """Contract of `ProfileStore`, as tests."""

    async def test_a_profile_is_kept_per_tenant_and_user_with_a_growing_revision(self) -> None:
        async with self.opened() as store:
            first = await store.put_profile(*ANN, change(name="Ann", info=BLUE))
            assert first == Profile("Ann", BLUE, NOW, NOW)
            second = await store.put_profile(*ANN, change(name="Anne", info=RED))
            assert second == Profile("Anne", RED, NOW, NOW + 1)
            other = await store.put_profile("t2", "ann", change(name="Other"))
            assert other == Profile("Other", b"", NOW, NOW)
            keys = [ANN, (T, "bob"), ("t2", "ann")]
            assert await store.profiles(keys) == {ANN: second, ("t2", "ann"): other}
            assert await store.profiles([]) == {}

    async def test_fields_that_are_left_out_stay_and_empty_ones_are_removed(self) -> None:
        async with self.opened() as store:
            await store.put_profile(*ANN, change(name="Ann"))
            assert (await store.put_profile(*ANN, change(info=BLUE))) == Profile("Ann", BLUE, NOW, NOW + 1)
            assert (await store.put_profile(*ANN, change(name=None))) == Profile(None, BLUE, NOW, NOW + 2)
            assert (await store.put_profile(*ANN, change(info=b""))) == Profile(None, b"", NOW, NOW + 3)
            assert await store.profiles([ANN]) == {ANN: Profile(None, b"", NOW, NOW + 3)}

    async def test_a_change_that_must_be_newer_is_written_unless_the_profile_changed_later(self) -> None:
        async with self.opened() as store:
            assert await store.put_profile(*ANN, change(NOW - 9, info=BLUE, only_newer=True)) is not None
            assert await store.put_profile(*ANN, change(NOW - 10, info=RED, only_newer=True)) is None
            assert (await store.profiles([ANN]))[ANN] == Profile(None, BLUE, NOW - 9, NOW)
            same = await store.put_profile(*ANN, change(NOW - 9, info=RED, only_newer=True))
            assert same == Profile(None, RED, NOW - 9, NOW + 1)
            older = await store.put_profile(*ANN, change(NOW - 20, name="Ann"))
            assert older == Profile("Ann", RED, NOW - 9, NOW + 2), "other changes are always written"

    async def test_each_change_of_a_profile_is_logged_in_its_tenant(self) -> None:
        async with self.opened() as store:
            assert (await logged(store)).revision.number == 0
            await store.put_profile(*ANN, change(name="Ann"))
            before = (await logged(store)).revision
            await store.put_profile(*ANN, change(info=BLUE))
            await store.put_profile(T, "bob", change(info=BLUE))
            await store.put_profile(*ANN, change(NOW - 1, info=RED, only_newer=True))  # changes nothing
            (found,) = await store.changes([(T, "info", before)])
            assert found.users == frozenset({"ann", "bob"})
            assert found.revision.number == before.number + 2
            assert (await logged(store, "t2")).revision.number == 0
            ((privacy, _),) = await store.changes([(T, "privacy", LATEST)])
            assert privacy.number == 0, "visibility has not changed"

    async def test_a_profile_is_exported_and_erased_and_the_erasure_is_logged(self) -> None:
        async with self.opened() as store:
            await store.put_profile(*ANN, change(name="Ann", info=BLUE))
            await store.put_profile(T, "bob", change(name="Bob"))
            rows = [row for table, row in await all_of(store, "ann") if table == "user_info"]
            assert [(row["name"], bytes(row["info"])) for row in rows] == [("Ann", BLUE)]
            before = await logged(store)
            await erase(store, "ann")
            assert await store.profiles([ANN, (T, "bob")]) == {(T, "bob"): Profile("Bob", b"", NOW, NOW)}
            assert await all_of(store, "ann") == []
            (found,) = await store.changes([(T, "info", before.revision)])
            assert found.revision != before.revision
            assert found.users is None, "all profiles are read again: the log does not name erased users"

    async def test_of_concurrent_changes_each_has_its_own_revision(self) -> None:
        async with self.opened_twice() as (one, two):
            kept = await asyncio.gather(
                *(store.put_profile(*ANN, change(name=f"n{turn}")) for turn in range(10) for store in (one, two))
            )
            revisions = sorted(profile.rev for profile in kept if profile is not None)
            assert revisions == [NOW + number for number in range(20)]
            (last,) = (profile for profile in kept if profile is not None and profile.rev == NOW + 19)
            assert await one.profiles([ANN]) == {ANN: last}

    async def test_a_name_that_no_store_keeps_is_refused(self) -> None:
        async with self.opened() as store:
            for text in BAD_TEXTS:
                with pytest.raises(Unstorable):
                    await store.put_profile(*ANN, change(name=text))
            assert await store.profiles([ANN]) == {}
