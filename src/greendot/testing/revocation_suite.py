"""Contract of every store for revocations."""

from __future__ import annotations

import asyncio

import pytest

from greendot.auth.model import Revocation, RevocationKind
from greendot.errors import Unstorable
from greendot.store.revocations import KEPT_MS
from greendot.testing.store_harness import BAD_TEXTS, NOW, StoreHarness, T


def entry(
    value: str = "ann", kind: RevocationKind = "user", expires_at: int = NOW + 10, before: int = 0, tenant: str = T
) -> Revocation:
    return Revocation(tenant, kind, value, expires_at, before)


class RevocationSuite(StoreHarness):
    """Contract of `RevocationStore`, as tests."""

    async def test_what_was_revoked_is_read_in_order_by_who_has_read_the_rest(self) -> None:
        async with self.opened_twice() as (one, two):
            assert await two.revocations(0, 10) == []
            entries = [
                entry(),
                entry(kind="jti"),
                entry("s-1", "session"),
                entry(tenant="t2"),
                entry("a jti/with {odd} things: ü*", "jti"),
            ]
            for number, store in enumerate((one, two, one, two, one)):
                assert await store.put_revocation(entries[number]) == entries[number]
            read = await two.revocations(0, 3)
            assert [revocation for _, revocation in read] == entries[:3]
            assert [revocation for _, revocation in await two.revocations(read[-1].number, 3)] == entries[3:]

    async def test_a_revocation_of_text_that_no_store_keeps_is_refused(self) -> None:
        async with self.opened() as store:
            for text in BAD_TEXTS:
                with pytest.raises(Unstorable):
                    await store.put_revocation(entry(text, "jti"))
            assert await store.revocations(0, 10) == []

    async def test_revoked_again_the_later_dates_count_and_it_is_read_again(self) -> None:
        async with self.opened() as store:
            await store.put_revocation(entry(expires_at=NOW + 10, before=5))
            ((first, _),) = await store.revocations(0, 10)
            kept = await store.put_revocation(entry(expires_at=NOW + 3, before=7))
            assert kept == entry(expires_at=NOW + 10, before=7)
            ((second, found),) = await store.revocations(first, 10)
            assert (second > first, found) == (True, kept)

    async def test_what_has_expired_is_removed_after_a_while_and_its_number_is_not_given_again(self) -> None:
        async with self.opened() as store:
            for number in range(5):
                await store.put_revocation(entry(f"u{number}", expires_at=NOW + number))
            last = (await store.revocations(0, 10))[-1].number
            late = NOW + 10 + KEPT_MS
            assert await store.remove_revocations(NOW - 1 + KEPT_MS, limit=10) == 0
            assert await store.remove_revocations(late, limit=3) == 3
            assert await store.remove_revocations(late, limit=3) == 2
            assert await store.revocations(0, 10) == []
            await store.put_revocation(entry())
            assert len(await store.revocations(last, 10)) == 1

    async def test_what_a_tenant_revoked_stays_when_the_tenant_is_erased(self) -> None:
        async with self.opened() as store:
            await store.put_room(T, "r1", open=True)
            entries = [entry(), entry("j", "jti"), entry(T, "tenant", before=7)]
            for one in entries:
                await store.put_revocation(one)
            while await store.erase_tenant(T, limit=10):
                pass
            assert await store.tenant_rows(T) == {}
            assert [revocation for _, revocation in await store.revocations(0, 10)] == entries

    async def test_how_far_a_server_has_come_is_kept_and_never_falls_back(self) -> None:
        async with self.opened_twice() as (one, two):
            assert (await two.revocation_progress())[:2] == (0, 0)
            for number in range(3):
                await one.put_revocation(entry(f"u{number}"))
            await two.confirm_revocations(2)
            await two.confirm_revocations(1)
            assert (await one.revocation_progress())[:2] == (3, 2)

    async def test_what_has_expired_is_not_read_again_and_is_found_by_its_name(self) -> None:
        async with self.opened() as store:
            expired = [
                entry(expires_at=NOW),
                entry("j", "jti", NOW),
                entry("s", "session", NOW),
                entry(T, "tenant", NOW),
            ]
            holds = entry("bob", expires_at=NOW + 1)
            for one in (*expired, holds):
                await store.put_revocation(one)
            assert [revocation for _, revocation in await store.revocations(0, 10, NOW)] == [holds]
            assert await store.remove_revocations(NOW, limit=10) == 1  # the session: session ids are not reused
            names = [one.name for one in (*expired, holds)]
            found = await store.find_revocations([*names, (T, "user", "nobody"), ("t2", "user", "ann")])
            assert found == {one.name: one for one in (*expired, holds) if one.kind != "session"}
            assert await store.find_revocations([]) == {}
            assert await store.find_revocations([holds.name]) == {holds.name: holds}

    async def test_a_reader_that_goes_on_from_the_last_number_misses_none_of_many_writers(self) -> None:
        async with self.opened_twice() as (one, two):
            seen: list[str] = []
            after = 0

            async def write(number: int) -> None:
                await (one, two)[number % 2].put_revocation(entry(f"u{number}"))

            async def read() -> None:
                nonlocal after
                found = await two.revocations(after, 7)
                seen.extend(revocation.value for _, revocation in found)
                after = found[-1].number if found else after

            for at in range(0, 60, 12):
                await asyncio.gather(*(write(number) for number in range(at, at + 12)), read())
            while len(seen) < 60 and await two.revocations(after, 1):
                await read()
            assert sorted(seen) == sorted(f"u{number}" for number in range(60))
