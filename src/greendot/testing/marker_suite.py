"""Contract of every store for read receipts."""

from __future__ import annotations

from greendot.presence.model import ManualStatus
from greendot.store.markers import Marked, Reader
from greendot.store.port import Store
from greendot.testing.store_harness import NOW, StoreHarness, T, draft

READERS = "ann", "bob", "eve"


async def write(store: Store, number: int = 9, *, receipts: bool | None = True) -> None:
    """Make the room `r1` with this number of messages."""
    await store.put_room(T, "r1", open=True, receipts=receipts)
    for key in range(number):
        await store.append(T, "r1", draft(key=f"k{key}"))


async def seen(store: Store, viewer: str | None = "zoe", room: str = "r1") -> dict[str, int] | None:
    found = await store.receipts(T, room, viewer, None, 100)
    return None if found is None else dict(found)


class MarkerSuite(StoreHarness):
    """Contract of `MarkerStore` for receipts, as tests."""

    async def test_a_receipt_follows_the_marker_in_rooms_with_receipts_only(self) -> None:
        async with self.opened() as store:
            await write(store, receipts=None)
            assert await store.put_marker(T, "r1", "ann", 3, NOW) == Marked(3, 9, counts=False)
            assert (await seen(store), await store.receipt_count(T, "r1", 1)) == (None, None)
            assert (await seen(store, room="nowhere"), await store.receipt_count(T, "nowhere", 1)) == (None, None)
            assert not (await store.put_room(T, "r1")).receipts
            assert (await store.put_room(T, "r1", receipts=True)).receipts
            assert (await store.put_room(T, "r1", bus="hint")).receipts, "None keeps the setting"
            assert await seen(store) == {}, "what was read before is no receipt"
            assert await store.put_marker(T, "r1", "ann", 3, NOW) == Marked(3, 9, counts=False)
            assert await store.put_marker(T, "r1", "ann", 5, NOW) == Marked(5, 9, counts=True)
            assert await store.put_marker(T, "r1", "ann", 4, NOW) == Marked(5, 9, counts=False)
            assert await store.put_marker(T, "r1", "bob", 99, NOW) == Marked(9, 9, counts=True)
            assert await store.put_marker(T, "r1", "eve", 7) == Marked(7, 9, counts=False), "without a time no receipt"
            assert await seen(store) == await seen(store, None) == {"ann": 5, "bob": 9}
            assert [await store.receipt_count(T, "r1", seq) for seq in (0, 5, 6, 10)] == [2, 2, 1, 0]
            assert not (await store.put_room(T, "r1", receipts=False)).receipts
            assert await seen(store) is None
            assert [room.receipts for room in await store.rooms(T, None, 10)] == [False]

    async def test_what_is_read_while_invisible_is_never_a_receipt(self) -> None:
        async with self.opened() as store:
            await write(store)
            await store.put_marker(T, "r1", "ann", 2, NOW)
            await store.put_status(T, "ann", ManualStatus("invisible"))
            assert await store.put_marker(T, "r1", "ann", 5, NOW) == Marked(5, 9, counts=True)
            assert (await seen(store), await seen(store, "ann")) == ({"ann": 2}, {"ann": 5})
            assert await store.readers([(T, "r1", "ann")], NOW, 5) == {
                (T, "r1", "ann"): Reader(5, 2, is_hidden=True, hides=False, members=0)
            }
            await store.put_status(T, "ann", ManualStatus())
            assert await store.put_marker(T, "r1", "ann", 5, NOW) == Marked(5, 9, counts=False), "read before"
            assert await seen(store) == {"ann": 2}
            await store.put_marker(T, "r1", "ann", 6, NOW)
            assert await seen(store) == {"ann": 6}

    async def test_an_invisible_status_that_is_over_hides_nothing(self) -> None:
        async with self.opened() as store:
            await write(store)
            await store.put_status(T, "ann", ManualStatus("invisible", until=NOW + 5))
            await store.put_marker(T, "r1", "ann", 2, NOW + 4)
            assert await seen(store) == {}
            assert (await store.readers([(T, "r1", "ann")], NOW + 4, 1))[T, "r1", "ann"].is_hidden
            await store.put_marker(T, "r1", "ann", 3, NOW + 5)
            assert await seen(store) == {"ann": 3}
            assert not (await store.readers([(T, "r1", "ann")], NOW + 5, 1))[T, "r1", "ann"].is_hidden

    async def test_who_hides_the_last_seen_time_is_in_no_list_and_no_count(self) -> None:
        async with self.opened() as store:
            await write(store)
            await store.put_marker(T, "r1", "ann", 2, NOW)
            await store.put_privacy(T, "ann", last_seen="hidden")
            await store.put_marker(T, "r1", "ann", 5, NOW)
            assert await seen(store) == await seen(store, None) == {}
            assert (await seen(store, "ann"), await store.receipt_count(T, "r1", 1)) == ({"ann": 5}, 0)
            assert (await store.readers([(T, "r1", "ann")], NOW, 1))[T, "r1", "ann"].is_hidden
            await store.put_privacy(T, "ann", last_seen="shown")
            assert (await seen(store), await store.receipt_count(T, "r1", 3)) == ({"ann": 2}, 0)

    async def test_who_hid_from_a_viewer_shows_the_viewer_only_what_is_read_later(self) -> None:
        async with self.opened() as store:
            await write(store)
            await store.put_marker(T, "r1", "ann", 2, NOW)
            await store.put_privacy(T, "ann", hide_from=frozenset({"bo", "bob"}))
            assert [await seen(store, viewer) for viewer in ("bob", "bo", "b")] == [{}, {}, {"ann": 2}]
            await store.put_marker(T, "r1", "ann", 5, NOW)
            assert [await seen(store, viewer) for viewer in ("bob", "eve", None)] == [{}, {"ann": 5}, {"ann": 5}]
            assert (await store.readers([(T, "r1", "ann")], NOW, 1))[T, "r1", "ann"].hides
            await store.put_privacy(T, "ann", hide_from=frozenset())
            assert [await seen(store, viewer) for viewer in ("bob", "eve")] == [{}, {"ann": 5}]
            assert (await store.readers([(T, "r1", "ann")], NOW, 1))[T, "r1", "ann"].hides
            assert await store.receipt_count(T, "r1", 1) == 0
            await store.put_marker(T, "r1", "ann", 6, NOW)
            assert (await seen(store, "bob"), await store.receipt_count(T, "r1", 1)) == ({"ann": 6}, 1)

    async def test_who_hides_from_anybody_is_not_counted(self) -> None:
        async with self.opened() as store:
            await write(store)
            for user in READERS:
                await store.put_marker(T, "r1", user, 4, NOW)
            assert await store.receipt_count(T, "r1", 4) == 3
            await store.put_privacy(T, "bob", hide_from=frozenset({"someone"}))
            assert await store.receipt_count(T, "r1", 4) == 2
            await store.put_privacy("t2", "ann", hide_from=frozenset({"someone"}))
            assert await store.receipt_count(T, "r1", 4) == 2, "of another tenant"

    async def test_receipts_come_in_pages_with_the_own_one_among_them(self) -> None:
        async with self.opened() as store:
            await write(store)
            await store.put_room("t2", "r1", open=True, receipts=True)
            await store.append("t2", "r1", draft())
            await store.put_marker("t2", "r1", "amy", 1, NOW)
            for user in READERS:
                await store.put_marker(T, "r1", user, 4, NOW)
            await store.put_marker(T, "r1", "bob", 7)
            for limit in (1, 2, 3):
                found: list[tuple[str, int]] = []
                while page := await store.receipts(T, "r1", "bob", found[-1][0] if found else None, limit):
                    assert len(page) <= limit
                    found += page
                assert found == [("ann", 4), ("bob", 7), ("eve", 4)]
            assert await store.receipts("t2", "r1", "bob", None, 9) == [("amy", 1)]

    async def test_members_of_a_readers_room_are_counted_up_to_a_bound(self) -> None:
        async with self.opened() as store:
            await write(store)
            for user in READERS:
                await store.put_member(T, "r1", user)
            keys = [(T, "r1", "ann"), (T, "r1", "nobody"), (T, "nowhere", "ann"), ("t2", "r1", "ann")]
            found = await store.readers(keys, NOW, 2)
            assert {*found} == {*keys}
            assert [found[key].members for key in keys] == [2, 2, 0, 0]
            assert (await store.readers(keys, NOW, 9))[keys[0]].members == 3
            assert await store.readers([], NOW, 2) == {}
