"""Contract of every store for rooms, members and markers."""

from __future__ import annotations

import asyncio

from greendot.store.rooms import MemberState, MembersWritten, Room, UserRoom
from greendot.testing.store_harness import StoreHarness, T, draft


class RoomSuite(StoreHarness):
    """Contract of `RoomStore`, as tests."""

    async def test_a_room_is_made_and_changed(self) -> None:
        async with self.opened() as store:
            assert await store.room(T, "r1") is None
            room = await store.put_room(T, "r1", open=True)
            assert room == Room(T, "r1", True, 0, room.members_rev, "full", epoch=room.epoch)
            await store.append(T, "r1", draft())
            changed = await store.put_room(T, "r1", open=False)
            assert (changed.open, changed.head) == (False, 1)
            assert changed.members_rev > room.members_rev
            assert await store.put_room(T, "r1", open=None) == changed
            assert await store.room(T, "r1") == changed
            assert not (await store.put_room(T, "r2")).open
            assert await store.room("t2", "r1") is None

    async def test_a_room_that_is_made_open_stays_as_it_is_if_it_exists(self) -> None:
        async with self.opened() as store:
            assert (await store.put_room(T, "r1", new="open")).open
            closed = await store.put_room(T, "r2")
            assert await store.put_room(T, "r2", new="open") == closed
            assert not closed.open

    async def test_a_provisional_room_is_open_until_it_is_created(self) -> None:
        async with self.opened() as store:
            for room in ("r1", "r2", "r3"):
                made = await store.put_room(T, room, new="provisional")
                assert made.open
                assert await store.put_room(T, room, new="provisional") == made
                assert await store.put_room(T, room, new="open") == made
            closed = await store.put_room(T, "r1")
            assert (closed.open, closed.members_rev > made.members_rev) == (False, True)
            opened = await store.put_room(T, "r2", open=True)
            assert (opened.open, opened.members_rev) == (True, made.members_rev)
            assert not (await store.put_room(T, "r3", open=False)).open
            # From now on they are rooms as all others.
            assert await store.put_room(T, "r1", new="provisional") == closed
            assert await store.put_room(T, "r2", bus="full") == opened
            assert (await store.put_room(T, "r3", open=True)).open
            assert (await store.put_room(T, "r3")).open
            await store.put_room(T, "r4")
            assert not (await store.put_room(T, "r4", new="provisional")).open

    async def test_whether_content_travels_on_the_bus_is_kept_and_changes_no_membership(self) -> None:
        async with self.opened() as store:
            made = await store.put_room(T, "r1", open=True, bus="hint")
            assert made.bus == "hint"
            assert await store.put_room(T, "r1", open=True) == made
            changed = await store.put_room(T, "r1", bus="full")
            assert (changed.bus, changed.open, changed.members_rev) == ("full", True, made.members_rev)

    async def test_rooms_are_paged_by_name_byte_by_byte(self) -> None:
        async with self.opened() as store:
            for name in ("c", "a", "B", "a-b", "a.b", "ab"):
                await store.put_room(T, name, open=False)
            assert [room.room for room in await store.rooms(T, None, 4)] == ["B", "a", "a-b", "a.b"]
            assert [room.room for room in await store.rooms(T, "a.b", 4)] == ["ab", "c"]
            assert await store.rooms("t2", None, 2) == []

    async def test_many_make_the_same_room_at_once(self) -> None:
        async with self.opened_twice() as (one, two):
            made = await asyncio.gather(*(store.put_room(T, "r1", open=True) for store in (one, two) * 10))
            assert {room.members_rev for room in made} == {made[0].members_rev}

    # --- members ---

    async def test_members_of_several_rooms_are_counted_in_one_read(self) -> None:
        async with self.opened() as store:
            for tenant, room, count in ((T, "r1", 3), (T, "r2", 1), (T, "r3", 0), ("t2", "r1", 2)):
                await store.put_room(tenant, room)
                for number in range(count):
                    await store.put_member(tenant, room, f"u{number}")
            rooms = [(T, "r1"), (T, "r2"), (T, "r3"), (T, "r4"), ("t2", "r1")]
            assert await store.member_counts(rooms) == {(T, "r1"): 3, (T, "r2"): 1, ("t2", "r1"): 2}
            assert await store.member_counts([]) == {}

    async def test_members_come_and_go(self) -> None:
        async with self.opened() as store:
            assert await store.put_member(T, "r1", "ann") is None
            assert await store.remove_member(T, "r1", "ann") is None
            first = (await store.put_room(T, "r1", open=False)).members_rev
            assert await store.put_member(T, "r1", "bob") == MembersWritten(first + 1, changed=True)
            assert await store.put_member(T, "r1", "ann", "reader") == MembersWritten(first + 2, changed=True)
            once = await store.room(T, "r1")
            assert await store.put_member(T, "r1", "ann", "reader") == MembersWritten(first + 2, changed=False)
            assert await store.room(T, "r1") == once
            assert once is not None
            assert once.members_rev == first + 2
            assert await store.members(T, "r1", None, 10) == [("ann", "reader"), ("bob", "member")]
            assert await store.members(T, "r1", "ann", 10) == [("bob", "member")]
            assert await store.role("t2", "r1", "ann") is None
            assert await store.remove_member(T, "r1", "ann") == MembersWritten(first + 3, changed=True)
            assert await store.remove_member(T, "r1", "ann") == MembersWritten(first + 3, changed=False)
            assert await store.role(T, "r1", "ann") is None
            left = await store.room(T, "r1")
            assert left is not None
            assert left.members_rev == first + 3

    async def test_another_role_is_a_change(self) -> None:
        async with self.opened() as store:
            await store.put_room(T, "r1")
            await store.put_member(T, "r1", "ann")
            before = await store.room(T, "r1")
            assert before is not None
            written = await store.put_member(T, "r1", "ann", "admin")
            assert written == MembersWritten(before.members_rev + 1, changed=True)
            assert await store.role(T, "r1", "ann") == "admin"

    async def test_every_change_of_the_members_has_its_own_revision(self) -> None:
        async with self.opened_twice() as (one, two):
            room = await one.put_room(T, "r1")
            users = [f"u{n}" for n in range(20)]
            written = [
                *await asyncio.gather(*(store.put_member(T, "r1", user) for user in users for store in (one, two))),
                *await asyncio.gather(*(store.remove_member(T, "r1", u) for u in users[:5] for store in (one, two))),
            ]
            revisions = sorted(it.members_rev for it in written if it is not None and it.changed)
            assert revisions == [*range(room.members_rev + 1, room.members_rev + 26)]
            assert [user for user, _ in await two.members(T, "r1", None, 100)] == sorted(users[5:])
            changed = await two.room(T, "r1")
            assert changed is not None
            assert changed.members_rev == room.members_rev + 25

    async def test_a_user_has_the_rooms_joined_and_the_open_ones(self) -> None:
        async with self.opened() as store:
            for name, is_open in (("mine", False), ("open", True), ("theirs", False), ("both", True)):
                await store.put_room(T, name, open=is_open)
            await store.put_member(T, "mine", "ann", "reader")
            await store.put_member(T, "both", "ann", "admin")
            await store.put_member(T, "theirs", "bob")
            await store.append(T, "open", draft())
            await store.put_marker(T, "open", "ann", 1)
            found = [(of.room.room, of.room.head, of.role, of.marker) for of in await store.rooms_of(T, "ann")]
            assert found == [("both", 0, "admin", 0), ("mine", 0, "reader", 0), ("open", 1, None, 1)]
            assert await store.rooms_of("t2", "ann") == []
            await store.put_room("t2", "theirs", open=True)  # same name as a closed room of another tenant
            assert [of.room.room for of in await store.rooms_of(T, "ann")] == ["both", "mine", "open"]

    async def test_a_user_gets_all_rooms_joined_and_a_limited_number_of_open_ones(self) -> None:
        async with self.opened() as store:
            for number in range(9):
                await store.put_room(T, f"r{number}", open=True)
            await store.put_room(T, "z", open=False)
            for name in ("z", "r7"):
                await store.put_member(T, name, "ann")
            found = [of.room.room for of in await store.rooms_of(T, "ann", most_open=3)]
            assert found == ["r0", "r1", "r2", "r7", "z"]

    # --- markers and heads ---

    async def test_a_marker_moves_forward_only_and_never_beyond_the_head(self) -> None:
        async with self.opened() as store:
            assert (await store.put_marker(T, "r1", "ann", 3))[:2] == (0, 0)
            await store.put_room(T, "r1", open=True)
            for number in range(5):
                await store.append(T, "r1", draft(key=f"k{number}"))
            assert await store.marker(T, "r1", "ann") == 0
            assert (await store.put_marker(T, "r1", "ann", 3))[:2] == (3, 5)
            assert (await store.put_marker(T, "r1", "ann", 2))[:2] == (3, 5)
            assert (await store.put_marker(T, "r1", "ann", -7))[:2] == (3, 5)
            assert (await store.put_marker(T, "r1", "ann", 99))[:2] == (5, 5)
            assert await store.marker(T, "r1", "ann") == 5
            assert await store.marker(T, "r1", "bob") == 0
            await store.put_room("t2", "r1", open=True)
            await store.append("t2", "r1", draft())
            assert (await store.put_marker("t2", "r1", "ann", 1))[:2] == (1, 1)
            assert (await store.put_marker(T, "r1", "ann", 2))[:2] == (5, 5)
            assert (await store.put_marker("t2", "r1", "ann", 0))[:2] == (1, 1)

    async def test_members_of_one_room_change_no_other(self) -> None:
        async with self.opened() as store:
            others = [(T, "r2"), ("t2", "r1"), ("t2", "r2")]
            for tenant, room in [(T, "r1"), *others]:
                await store.put_room(tenant, room)
            before = [await store.room(*other) for other in others]
            await store.put_member(T, "r1", "ann")
            await store.remove_member(T, "r1", "ann")
            assert [await store.room(*other) for other in others] == before

    async def test_devices_that_read_at_once_leave_the_furthest_marker(self) -> None:
        async with self.opened_twice() as (one, two):
            await one.put_room(T, "r1", open=True)
            await asyncio.gather(*(one.append(T, "r1", draft(key=f"k{n}")) for n in range(20)))
            order = [7, 20, 3, 11, 19, 1, 15, 2]
            told = await asyncio.gather(
                *(store.put_marker(T, "r1", "ann", seq) for seq in order for store in (one, two))
            )
            assert all(
                marker >= asked for (marker, *_), asked in zip(told, [s for s in order for _ in (1, 2)], strict=True)
            )
            assert await two.marker(T, "r1", "ann") == 20

    async def test_heads_are_read_together(self) -> None:
        async with self.opened() as store:
            await store.put_room(T, "r1", open=True)
            await store.put_room("t2", "r1", open=False)
            await store.append(T, "r1", draft())
            heads = await store.heads([(T, "r1"), (T, "nowhere"), ("t2", "r1"), (T, "r1")])
            assert heads == {(T, "r1"): await store.room(T, "r1"), ("t2", "r1"): await store.room("t2", "r1")}
            assert await store.heads([]) == {}

    async def test_where_many_users_stand_is_one_read(self) -> None:
        async with self.opened() as store:
            await store.put_room(T, "r1", open=True)
            await store.append(T, "r1", draft())
            await store.put_member(T, "r1", "ann", "admin")
            await store.put_marker(T, "r1", "ann", 1)
            await store.put_marker(T, "r1", "bob", 1)
            asked = [(T, "r1", "ann"), (T, "r1", "bob"), (T, "r1", "eve"), ("t2", "r1", "ann"), (T, "r2", "ann")]
            found = await store.member_states(asked)
            assert found == {(T, "r1", "ann"): MemberState("admin", 1), (T, "r1", "bob"): MemberState(None, 1)}
            assert await store.member_states([]) == {}

    async def test_the_rooms_users_may_be_in_are_one_read_and_closed_ones_are_left_out_like_absent_ones(self) -> None:
        async with self.opened() as store:
            await store.put_room(T, "hall", open=True)
            await store.put_room(T, "den")
            await store.append(T, "den", draft())
            await store.put_member(T, "den", "ann", "admin")
            for user in ("ann", "bob"):
                await store.put_marker(T, "den", user, 1)
            hall, den = await store.room(T, "hall"), await store.room(T, "den")
            assert hall is not None
            assert den is not None
            asked = [(T, room, user) for room in ("hall", "den", "nowhere") for user in ("ann", "bob")]
            assert await store.user_rooms([*asked, ("t2", "hall", "ann")]) == {
                (T, "hall", "ann"): UserRoom(hall, None, 0),
                (T, "hall", "bob"): UserRoom(hall, None, 0),
                (T, "den", "ann"): UserRoom(den, "admin", 1),
            }
            assert await store.user_rooms([]) == {}
