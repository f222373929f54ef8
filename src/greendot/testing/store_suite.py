"""What every store must do. Subclass `StoreSuite`, say how to open a store, and run it with pytest."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager

from greendot.core.presence import Manual
from greendot.store.base import Draft, Store

T = "t1"  # a tenant


def draft(user: str = "ann", key: str = "k1", body: bytes = b'{"text":"hi"}') -> Draft:
    return Draft(user, user.title(), body, key, 1_800_000_000_000)


class StoreSuite:
    """The contract of `greendot.store.base`, as tests."""

    def opened(self) -> AbstractAsyncContextManager[Store]:
        """A store with nothing in it."""
        raise NotImplementedError

    # --- rooms ---

    async def test_a_room_is_made_and_changed(self) -> None:
        async with self.opened() as store:
            assert await store.room(T, "r1") is None
            room = await store.put_room(T, "r1", open=True)
            assert (room.open, room.head) == (True, 0)
            await store.append(T, "r1", draft())
            changed = await store.put_room(T, "r1", open=False)
            assert (changed.open, changed.head) == (False, 1)
            assert changed.members_rev > room.members_rev
            assert await store.put_room(T, "r1", open=None) == changed
            assert not (await store.put_room(T, "r2", open=None)).open
            assert await store.room("t2", "r1") is None

    async def test_rooms_are_paged_by_name(self) -> None:
        async with self.opened() as store:
            for name in ("c", "a", "b"):
                await store.put_room(T, name, open=False)
            assert [room.room for room in await store.rooms(T, None, 2)] == ["a", "b"]
            assert [room.room for room in await store.rooms(T, "b", 2)] == ["c"]
            assert await store.rooms("t2", None, 2) == []

    async def test_members_come_and_go(self) -> None:
        async with self.opened() as store:
            assert not await store.put_member(T, "r1", "ann")
            room = await store.put_room(T, "r1", open=False)
            assert await store.put_member(T, "r1", "bob")
            assert await store.put_member(T, "r1", "ann")
            once = await store.room(T, "r1")
            assert await store.put_member(T, "r1", "ann")
            assert await store.room(T, "r1") == once
            assert once is not None
            assert once.members_rev > room.members_rev
            assert await store.members(T, "r1", None, 10) == [("ann", "member"), ("bob", "member")]
            assert await store.members(T, "r1", "ann", 10) == [("bob", "member")]
            assert await store.role(T, "r1", "ann") == "member"
            assert await store.role("t2", "r1", "ann") is None
            assert await store.remove_member(T, "r1", "ann")
            assert not await store.remove_member(T, "r1", "ann")
            assert await store.role(T, "r1", "ann") is None

    async def test_a_user_has_the_rooms_joined_and_the_open_ones(self) -> None:
        async with self.opened() as store:
            for name, is_open in (("mine", False), ("open", True), ("theirs", False)):
                await store.put_room(T, name, open=is_open)
            await store.put_member(T, "mine", "ann")
            await store.put_member(T, "theirs", "bob")
            assert [of.room.room for of in await store.rooms_of(T, "ann")] == ["mine", "open"]

    # --- messages ---

    async def test_messages_are_numbered_without_gaps_also_when_written_at_once(self) -> None:
        async with self.opened() as store:
            await store.put_room(T, "r1", open=True)
            written = await asyncio.gather(*(store.append(T, "r1", draft(key=f"k{n}")) for n in range(200)))
            numbers = [result[0].seq for result in written if result is not None and result[1]]
            assert sorted(numbers) == [*range(1, 201)]
            room = await store.room(T, "r1")
            assert room is not None
            assert room.head == 200

    async def test_the_same_key_is_the_same_message(self) -> None:
        async with self.opened() as store:
            await store.put_room(T, "r1", open=True)
            both = await asyncio.gather(store.append(T, "r1", draft()), store.append(T, "r1", draft(body=b'"other"')))
            (first, new, _), (second, again, _) = (result for result in both if result is not None)
            assert (new, again) == (True, False)
            assert first == second
            other = await store.append(T, "r1", draft(user="bob"))
            assert other is not None
            assert other[1]

    async def test_a_message_to_a_room_that_does_not_exist_is_not_written(self) -> None:
        async with self.opened() as store:
            assert await store.append(T, "r1", draft()) is None
            assert await store.messages(T, "r1", limit=10) == []

    async def test_messages_are_read_in_order_with_exclusive_bounds(self) -> None:
        async with self.opened() as store:
            await store.put_room(T, "r1", open=True)
            for number in range(1, 8):
                await store.append(T, "r1", draft(key=f"k{number}", body=b"%d" % number))
            assert [m.seq for m in await store.messages(T, "r1", after=2, limit=3)] == [3, 4, 5]
            assert [m.seq for m in await store.messages(T, "r1", before=5, limit=2)] == [3, 4]
            newest = await store.messages(T, "r1", limit=2)
            assert [(m.seq, m.body) for m in newest] == [(6, b"6"), (7, b"7")]
            assert await store.messages("t2", "r1", limit=2) == []

    # --- status ---

    async def test_a_status_is_kept_with_a_growing_revision(self) -> None:
        async with self.opened() as store:
            first = await store.put_status(T, "ann", Manual("busy", 5, "away"))
            second = await store.put_status(T, "ann", Manual("invisible"))
            assert second.rev > first.rev
            assert await store.statuses([(T, "ann"), (T, "bob"), ("t2", "ann")]) == {(T, "ann"): second}
            assert (first.status, first.until, first.text) == ("busy", 5, "away")

    async def test_the_store_answers(self) -> None:
        async with self.opened() as store:
            await store.ping()
