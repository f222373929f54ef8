"""Contract of every store for last-seen times."""

from __future__ import annotations

import asyncio

from greendot.auth.model import Revocation, RevocationKind
from greendot.store.last_seen import REVOKED_MS
from greendot.testing.store_harness import NOW, StoreHarness, T
from greendot.testing.user_data_suite import all_of, erase

ANN, BOB, OTHER = (T, "ann"), (T, "bob"), ("t2", "ann")


class LastSeenSuite(StoreHarness):
    """Contract of `LastSeenStore`, as tests."""

    async def test_last_seen_is_kept_per_tenant_and_user_and_never_goes_back(self) -> None:
        async with self.opened() as store:
            await store.put_last_seen({ANN: NOW, OTHER: NOW + 1})
            await store.put_last_seen({ANN: NOW - 5, OTHER: NOW + 2, BOB: NOW + 3})
            assert await store.last_seen([ANN, (T, "eve"), ("t2", "bob")]) == {ANN: NOW}
            assert await store.last_seen([BOB, OTHER]) == {BOB: NOW + 3, OTHER: NOW + 2}
            assert await store.last_seen([]) == {}
            await store.put_last_seen({})

    async def test_the_latest_of_many_concurrent_last_seen_times_stays(self) -> None:
        users = [(T, f"u{number}") for number in range(50)]
        async with self.opened_twice() as (one, two):
            batches = [dict.fromkeys(users[:: 1 if turn % 2 else -1], NOW + turn) for turn in range(10)]
            await asyncio.gather(
                *(store.put_last_seen(batch) for batch in batches for store in (one, two)),
            )
            assert await one.last_seen(users) == dict.fromkeys(users, NOW + 9)

    async def test_old_last_seen_times_are_removed_some_at_a_time(self) -> None:
        async with self.opened() as store:
            seen = {(T, f"u{number}"): NOW + number for number in range(5)}
            await store.put_last_seen(seen)
            assert await store.prune_last_seen(NOW, 10) == 0
            assert await store.prune_last_seen(NOW + 3, 2) == 2
            assert await store.last_seen([*seen]) == {key: at for key, at in seen.items() if at >= NOW + 2}
            assert await store.prune_last_seen(NOW + 3, 2) == 1
            assert await store.prune_last_seen(NOW + 3, 2) == 0
            assert len(await store.last_seen([*seen])) == 2

    async def test_last_seen_of_an_erased_user_is_not_written_again(self) -> None:
        await self._erased("user", "ann")

    async def test_last_seen_of_users_of_an_erased_tenant_is_not_written_again(self) -> None:
        await self._erased("tenant", T)

    async def _erased(self, kind: RevocationKind, value: str) -> None:
        """Check that times up to a minute after a revocation are not written, and later ones are."""
        async with self.opened() as store:
            await store.put_last_seen({ANN: NOW - 9, BOB: NOW, OTHER: NOW})
            assert ("last_seen", NOW - 9) in [(table, row.get("at")) for table, row in await all_of(store, "ann")]
            await store.put_revocation(Revocation(T, kind, value, NOW + 10**9, before=NOW))
            for session in ("ann", T):  # revocations of sessions do not count
                await store.put_revocation(Revocation(T, "session", session, NOW + 10**9, before=NOW + 10**6))
            await erase(store, "ann")
            late = NOW + REVOKED_MS
            await store.put_last_seen({ANN: late, BOB: late, OTHER: late})
            concerned = [ANN] if kind == "user" else [ANN, BOB]
            others = [key for key in (BOB, OTHER) if key not in concerned]
            assert await store.last_seen([ANN, *others]) == dict.fromkeys(others, late)
            await store.put_last_seen({ANN: late + 1})
            assert await store.last_seen([ANN]) == {ANN: late + 1}
