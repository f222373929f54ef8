"""Contract of every store for the audit."""

from __future__ import annotations

import asyncio

import pytest

from greendot.errors import Unstorable
from greendot.store.audit import AUDIT_ACTIONS, AuditAction, AuditEntry, AuditFilter, AuditNote
from greendot.store.port import Store
from greendot.testing.store_harness import BAD_TEXTS, NOW, StoreHarness, T
from greendot.testing.user_data_suite import all_of, erase


def note(action: AuditAction = "user.banned", room: str | None = "r1", user: str | None = "ann") -> AuditNote:
    return AuditNote(T, NOW, "desk", action, room, user, reason="spam", until=NOW + 1)


async def found(store: Store, only: AuditFilter | None = None, tenant: str = T) -> list[int]:
    """Return the numbers of all entries, read page by page."""
    numbers: list[int] = []
    last = 0
    while page := await store.audit(tenant, only or AuditFilter(), after=last, limit=3):
        last = page[-1].number
        numbers += [entry.number for entry in page]
    return numbers


class AuditSuite(StoreHarness):
    """Contract of `AuditStore`, as tests."""

    async def test_an_entry_is_read_as_it_was_written(self) -> None:
        async with self.opened() as store:
            await store.put_audit(note())
            await store.put_audit(AuditNote(T, NOW + 1, "bob", "message.deleted", "r2", "eve", 7))
            await store.put_audit(AuditNote(T, NOW + 2, "desk", "user.unbanned", user="eve"))
            await store.put_audit(AuditNote(T, NOW + 3, "desk", "room.slow_mode", "r1", slow_mode_s=9))
            assert await store.audit(T, limit=10) == [
                AuditEntry(1, NOW, T, "desk", "user.banned", "r1", "ann", None, "spam", NOW + 1, None),
                AuditEntry(2, NOW + 1, T, "bob", "message.deleted", "r2", "eve", 7, None, None, None),
                AuditEntry(3, NOW + 2, T, "desk", "user.unbanned", None, "eve", None, None, None, None),
                AuditEntry(4, NOW + 3, T, "desk", "room.slow_mode", "r1", None, None, None, None, 9),
            ]

    async def test_entries_are_numbered_per_tenant_without_gaps_also_by_two_nodes(self) -> None:
        async with self.opened_twice() as (one, two):
            await one.put_audit(note()._replace(tenant="t2"))
            await asyncio.gather(*(store.put_audit(note()) for store in (one, two) * 20))
            assert await found(two) == [*range(1, 41)]
            assert await found(two, tenant="t2") == [1]

    async def test_pages_of_the_audit_have_exclusive_bounds_and_end_with_the_newest(self) -> None:
        async with self.opened() as store:
            for _ in range(7):
                await store.put_audit(note())
            assert [e.number for e in await store.audit(T, after=2, limit=3)] == [3, 4, 5]
            assert [e.number for e in await store.audit(T, before=5, limit=2)] == [3, 4]
            assert [e.number for e in await store.audit(T, after=0, before=3, limit=9)] == [1, 2]
            assert [e.number for e in await store.audit(T, limit=2)] == [6, 7]
            assert await store.audit(T, after=7, limit=2) == []
            assert await store.audit("t2", limit=2) == []

    async def test_entries_are_found_by_room_user_and_action(self) -> None:
        async with self.opened() as store:
            for place, action in enumerate(AUDIT_ACTIONS):
                await store.put_audit(note(action, f"r{place % 2}", f"u{place % 3}"))
            await store.put_audit(note("user.banned", None, None))
            assert await found(store, AuditFilter(room="r1")) == [2, 4, 6, 8, 10]
            assert await found(store, AuditFilter(user="u2")) == [3, 6, 9]
            assert await found(store, AuditFilter(action="user.banned")) == [9, 11]
            assert await found(store, AuditFilter("r0", "u2", "user.banned")) == [9]
            assert await found(store, AuditFilter("r1", "u2", "user.banned")) == []
            newest = await store.audit(T, AuditFilter(room="r1"), limit=2)
            assert [entry.number for entry in newest] == [8, 10]

    async def test_old_entries_are_removed_some_at_a_time_and_numbers_go_on(self) -> None:
        async with self.opened() as store:
            for age in range(5):
                await store.put_audit(note()._replace(at=NOW + age))
            assert await store.prune_audit(NOW, 10) == 0
            assert await store.prune_audit(NOW + 3, 2) == 2
            assert await found(store) == [3, 4, 5]
            assert await store.prune_audit(NOW + 3, 2) == 1
            assert await store.prune_audit(NOW + 3, 2) == 0
            await store.put_audit(note())
            assert await found(store) == [4, 5, 6]

    async def test_an_entry_with_text_that_no_store_keeps_is_refused(self) -> None:
        async with self.opened() as store:
            for text in BAD_TEXTS:
                bad = [note(room=text), note(user=text), note()._replace(actor=text), note()._replace(reason=text)]
                for one in bad:
                    with pytest.raises(Unstorable):
                        await store.put_audit(one)
            assert await found(store) == []

    async def test_entries_about_an_erased_user_stay_without_the_user_and_the_reason(self) -> None:
        async with self.opened() as store:
            for _ in range(5):
                await store.put_audit(note())
            await store.put_audit(note(user="bob"))
            await store.put_audit(note(user="bob")._replace(actor="ann"))
            await store.put_audit(note()._replace(tenant="t2", actor="ann"))
            assert [row["number"] for table, row in await all_of(store, "ann") if table == "audit"] == [1, 2, 3, 4, 5]
            assert await erase(store, "ann") == 5
            assert await all_of(store, "ann") == []
            kept = [(e.actor, e.user, e.reason, e.action) for e in await store.audit(T, limit=10)]
            assert kept[:5] == [("desk", None, None, "user.banned")] * 5
            assert kept[5:] == [("desk", "bob", "spam", "user.banned"), ("", "bob", None, "user.banned")]
            elsewhere = await store.audit("t2", limit=10)
            assert [(e.actor, e.user) for e in elsewhere] == [("ann", "ann")]
