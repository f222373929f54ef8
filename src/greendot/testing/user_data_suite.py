"""Contract of every store for the export and the erasure of a user's data."""

from __future__ import annotations

from typing import Any

from greendot.presence.model import ManualStatus
from greendot.presence.profile_model import ProfileChange
from greendot.store.inbox import Notice
from greendot.store.port import Store
from greendot.store.user_data import ERASED, ExportCursor
from greendot.testing.store_harness import NOW, StoreHarness, T, draft

PEOPLE = "ann", "bob", "an", "anna"  # some ids are prefixes of another
ROOMS = "r0", "r1", "r2"


async def live(store: Store, tenant: str = T) -> None:
    """Write records of every type for every user, in turn."""
    for room in ROOMS:
        await store.put_room(tenant, room, open=room == "r0", receipts=True)
        for user in PEOPLE:
            await store.put_member(tenant, room, user)
            for number in range(3):
                await store.append(tenant, room, draft(user, f"k{number}", b'{"by":"%s"}' % user.encode()))
            await store.put_marker(tenant, room, user, 2)
    for user in PEOPLE:
        await store.notify([Notice(tenant, user, "k", b'"for %s"' % user.encode(), f"k{n}", NOW + n) for n in range(7)])
        await store.mark(tenant, user, "archive", through=2, at=NOW)
        await store.mark(tenant, user, "read", through=4, at=NOW)
        await store.mark(tenant, user, "seen", through=5, at=NOW)
        await store.put_status(tenant, user, ManualStatus("busy", text=f"text of {user}"))
        await store.put_last_seen({(tenant, user): NOW})
        await store.put_profile(
            tenant, user, ProfileChange(NOW, NOW, f"name of {user}", b'{"of":"%s"}' % user.encode())
        )
        await store.put_presence_mode(tenant, user, "poll", most=10)
        await store.put_privacy(tenant, user, hide_from=frozenset(PEOPLE) - {user})
        await store.put_marker(tenant, "r1", user, 3, NOW)
        for other in PEOPLE:
            if other != user:
                await store.put_contact(tenant, user, other, NOW, most=10)


async def all_of(store: Store, user: str, tenant: str = T, limit: int = 4) -> list[tuple[str, dict[str, Any]]]:
    """Return all rows of the user, read page by page."""
    rows: list[tuple[str, dict[str, Any]]] = []
    place: ExportCursor | None = None
    while True:
        found = await store.rows_of(tenant, user, place, limit=limit)
        assert len(found.rows) <= limit
        rows += found.rows
        if (place := found.next) is None:
            return rows


async def erase(store: Store, user: str, tenant: str = T, limit: int = 4) -> int:
    """Erase all data of the user, step by step; return the number of rows."""
    rows = 0
    place: ExportCursor | None = None
    while True:
        step = await store.erase_user(tenant, user, place, limit=limit)
        assert step.rows <= limit
        assert await store.recount(fix=False) == [], "the counters are right after every step"
        rows += step.rows
        if (place := step.next) is None:
            return rows


class PeopleSuite(StoreHarness):
    """Contract of `UserDataStore`, as tests."""

    async def test_all_of_a_user_is_found_and_nothing_of_others(self) -> None:
        async with self.opened() as store:
            await live(store)
            await live(store, "t2")
            for limit in (1, 4, 1_000):
                rows = await all_of(store, "ann", limit=limit)
                counts = {table: sum(name == table for name, _ in rows) for table, _ in rows}
                expected = {"contacts": 3, "inboxes": 1, "markers": 3, "members": 3, "messages": 9, "notifications": 7}
                expected |= {"last_seen": 1, "presence_modes": 1, "privacy": 1, "receipts": 1}
                expected |= {"status": 1, "user_info": 1, "visibility_changes": 9}
                assert counts == expected
                assert all(row["tenant"] == T and "ann" in (row.get("user"), row.get("user_id")) for _, row in rows)
            bodies = [bytes(row["body"]) for table, row in rows if table == "messages"]
            assert bodies == [b'{"by":"ann"}'] * 9
            assert await all_of(store, "nobody") == []

    async def test_an_erased_user_is_nowhere_and_all_of_others_stays(self) -> None:
        async with self.opened() as store:
            await live(store)
            await live(store, "t2")
            others = {user: await all_of(store, user) for user in ("an", "anna")}
            changed = ("contacts", "privacy", "receipts", "visibility_changes")
            elsewhere = await all_of(store, "ann", "t2")
            rooms = await store.rooms("t2", None, 10)
            assert await erase(store, "ann") == 32 + 18  # rows, and the changes of visibility that they were and are
            assert await store.rooms("t2", None, 10) == rooms
            assert await all_of(store, "ann") == []
            assert await all_of(store, "ann", "t2") == elsewhere
            for user, before in others.items():
                left = [row for row in await all_of(store, user) if row[0] not in changed]
                assert left == [row for row in before if row[0] not in changed]
                assert [row["other"] for table, row in await all_of(store, user) if table == "contacts"] == [
                    other for other in sorted(PEOPLE) if other not in ("ann", user)
                ]
            hidden = [row["hide_from"] for table, row in await all_of(store, "bob") if table == "privacy"]
            hidden += [row["hidden_from"] for table, row in await all_of(store, "bob") if table == "receipts"]
            assert [text.split() for text in hidden] == [["an", "anna"], ["an", "anna"]]
            assert await store.inbox(T, "ann") == (0, 0, 0)
            assert await store.role(T, "r1", "ann") is None
            assert await store.statuses([(T, "ann")]) == {}

    async def test_messages_of_an_erased_user_keep_their_numbers_and_nothing_else(self) -> None:
        async with self.opened() as store:
            await live(store)
            before = await store.messages(T, "r1", after=0, limit=100)
            revs = (await store.heads([(T, "r1")]))[T, "r1"].members_rev
            await erase(store, "ann")
            await erase(store, "bob")  # same keys in the same rooms
            after = await store.messages(T, "r1", after=0, limit=100)
            assert [(message.seq, message.id, message.at) for message in after] == [
                (message.seq, message.id, message.at) for message in before
            ]
            for was, now in zip(before, after, strict=True):
                if was.user in ("ann", "bob"):
                    assert (now.user, now.name, now.body, now.op) == ("", None, b"null", ERASED)
                else:
                    assert now == was
            assert (await store.heads([(T, "r1")]))[T, "r1"].members_rev == revs + 2  # nodes read members again
            written = await store.append(T, "r1", draft("ann"))
            assert written is not None
            assert (written.new, written.record.seq) == (True, before[-1].seq + 1)

    async def test_erasing_that_was_cut_short_is_begun_again_and_erasing_twice_is_erasing_once(self) -> None:
        async with self.opened() as store:
            await live(store)
            place: ExportCursor | None = None
            for _ in range(5):
                place = (await store.erase_user(T, "ann", place, limit=2)).next
            assert await all_of(store, "ann") != []
            await erase(store, "ann")
            assert await all_of(store, "ann") == []
            rows = await all_of(store, "anna")
            assert await erase(store, "ann") == 0
            assert await all_of(store, "anna") == rows
