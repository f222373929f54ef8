"""Contract of every store for messages."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from msgspec import structs

from greendot.errors import StaleMembers, Unstorable
from greendot.store.rooms import Record
from greendot.testing.store_harness import BAD_TEXTS, HUGE, NOW, StoreHarness, T, draft, numbers, seq


class MessageSuite(StoreHarness):
    """Contract of `MessageStore`, as tests."""

    async def test_two_nodes_number_a_room_together_without_gaps(self) -> None:
        async with self.opened_twice() as (one, two):
            await one.put_room(T, "r1", open=True)
            written = await asyncio.gather(
                *(
                    store.append(T, "r1", draft(key=f"k{n}-{place}"))
                    for n in range(100)
                    for place, store in enumerate((one, two))
                )
            )
            assert sorted(map(seq, written)) == [*range(1, 201)]
            assert all(result is not None and result.new for result in written)
            assert await numbers(two) == [*range(1, 201)]
            room = await one.room(T, "r1")
            assert room is not None
            assert room.head == 200

    async def test_two_nodes_that_each_write_one_message_at_a_time_do_not_conflict(self) -> None:
        async with self.opened_twice() as (one, two):
            await one.put_room(T, "r1", open=True)
            for turn in range(40):
                both = await asyncio.gather(
                    *(store.append(T, "r1", draft(key=f"{turn}-{n}")) for n, store in enumerate((one, two)))
                )
                assert sorted(map(seq, both)) == [2 * turn + 1, 2 * turn + 2]

    async def test_what_one_node_writes_to_a_room_is_numbered_as_it_came(self) -> None:
        async with self.opened() as store:
            for room in ("r1", "r2", "r3"):
                await store.put_room(T, room, open=True)
            rooms = [f"r{n % 3 + 1}" for n in range(300)]
            written = await asyncio.gather(*(store.append(T, room, draft(key=f"k{n}")) for n, room in enumerate(rooms)))
            for room in ("r1", "r2", "r3"):
                assert [seq(w) for w in written if w is not None and w.record.room == room] == [*range(1, 101)]

    async def test_a_message_is_written_only_under_the_members_its_author_was_admitted_under(self) -> None:
        async with self.opened() as store:
            admitted = (await store.put_room(T, "r1", open=True)).members_rev
            kept = msgspec.structs.replace(draft(), members_rev=admitted)
            assert seq(await store.append(T, "r1", kept)) == 1
            await store.put_room(T, "r1", open=False)
            stale = [msgspec.structs.replace(draft(key=f"s{n}"), members_rev=admitted) for n in range(3)]
            calls = [draft(key="k2"), *stale, draft(key="k3")]
            outcomes = await asyncio.gather(*(store.append(T, "r1", call) for call in calls), return_exceptions=True)
            assert [isinstance(outcome, StaleMembers) for outcome in outcomes] == [False, True, True, True, False]
            assert await numbers(store) == [1, 2, 3]  # refused messages have no number
            again = await store.append(T, "r1", kept)  # the message was written while the author was admitted
            assert again is not None
            assert (again.new, again.record.seq) == (False, 1)

    async def test_the_same_key_is_the_same_message(self) -> None:
        async with self.opened() as store:
            await store.put_room(T, "r1", open=True)
            both = await asyncio.gather(store.append(T, "r1", draft()), store.append(T, "r1", draft(body=b'"other"')))
            first, second = (result for result in both if result is not None)
            assert (first.new, second.new) == (True, False)
            assert first.record == second.record
            other = await store.append(T, "r1", draft(user="bob"))
            assert other is not None
            assert other.new

    async def test_one_key_sent_by_many_at_once_is_written_once(self) -> None:
        async with self.opened_twice() as (one, two):
            await one.put_room(T, "r1", open=True)
            written = await asyncio.gather(*(store.append(T, "r1", draft()) for store in (one, two) * 25))
            assert {seq(result) for result in written} == {1}
            assert sum(result is not None and result.new for result in written) == 1
            assert await numbers(one) == [1]

    async def test_many_keys_sent_twice_over_two_nodes_leave_no_gap(self) -> None:
        async with self.opened_twice() as (one, two):
            await one.put_room(T, "r1", open=True)
            keys = [f"k{n}" for n in range(60)]
            forth = [one.append(T, "r1", draft(key=key)) for key in keys]
            back = [two.append(T, "r1", draft(key=key)) for key in reversed(keys)]
            written = [result for result in await asyncio.gather(*forth, *back) if result is not None]
            assert sorted(result.record.seq for result in written if result.new) == [*range(1, 61)]
            assert await numbers(one) == [*range(1, 61)]

    async def test_two_nodes_that_write_to_the_same_rooms_in_other_orders_do_not_block_each_other(self) -> None:
        async with self.opened_twice() as (one, two):
            rooms = [f"r{n}" for n in range(8)]
            for room in rooms:
                await one.put_room(T, room, open=True)
            for turn in range(5):
                forth = [one.append(T, room, draft(key=f"1-{turn}-{n}")) for room in rooms for n in range(3)]
                back = [two.append(T, room, draft(key=f"2-{turn}-{n}")) for room in reversed(rooms) for n in range(3)]
                await asyncio.gather(*forth, *back)
            for room in rooms:
                assert await numbers(one, room) == [*range(1, 31)]

    async def test_a_message_that_cannot_be_stored_fails_alone(self) -> None:
        async with self.opened() as store:
            await store.put_room(T, "r1", open=True)
            calls = [store.append(T, "r1", draft(key=f"k{n}", at=HUGE if n % 10 == 3 else NOW)) for n in range(40)]
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert [n for n, result in enumerate(results) if isinstance(result, Unstorable)] == [3, 13, 23, 33]
            assert sum(isinstance(result, BaseException) for result in results) == 4
            assert await numbers(store) == [*range(1, 37)]

    async def test_a_message_with_text_that_no_store_keeps_fails_alone(self) -> None:
        async with self.opened() as store:
            await store.put_room(T, "r1", open=True)
            bad = [structs.replace(draft(key=f"b{n}"), name=text) for n, text in enumerate(BAD_TEXTS)]
            bad += [draft(user=text) for text in BAD_TEXTS] + [draft(key=text) for text in BAD_TEXTS]
            drafts = [one for n, text in enumerate(bad) for one in (draft(key=f"k{n}"), text)]
            calls = (store.append(T, "r1", one) for one in drafts)
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert [isinstance(result, Unstorable) for result in results] == [False, True] * len(bad)
            assert await numbers(store) == [*range(1, len(bad) + 1)]

    async def test_a_message_to_a_room_that_does_not_exist_is_not_written(self) -> None:
        async with self.opened() as store:
            await store.put_room(T, "r2", open=True)
            lost, found = await asyncio.gather(store.append(T, "r1", draft()), store.append(T, "r2", draft()))
            assert lost is None
            assert seq(found) == 1
            assert await store.messages(T, "r1", limit=10) == []

    async def test_what_is_written_names_the_members_it_was_written_under(self) -> None:
        async with self.opened() as store:
            await store.put_room(T, "r1")
            await store.put_member(T, "r1", "ann")
            room, written = await store.room(T, "r1"), await store.append(T, "r1", draft())
            assert room is not None
            assert written is not None
            assert written.members_rev == room.members_rev

    async def test_a_message_is_read_as_it_was_written_and_so_is_what_changes_it(self) -> None:
        async with self.opened() as store:
            await store.put_room(T, "r1", open=True)
            body = b'{"text":"\\u0000 \xf0\x9f\x9f\xa2"}'
            first = await store.append(T, "r1", draft(body=body))
            edit = msgspec.structs.replace(draft(key="k2", body=b"{}"), name=None, ref=1, op="edit")
            second = await store.append(T, "r1", edit)
            assert first is not None
            assert second is not None
            assert first.record == Record("r1", 1, first.record.id, "ann", "Ann", body, NOW)
            assert second.record == Record("r1", 2, second.record.id, "ann", None, b"{}", NOW, 1, "edit")
            assert await store.messages(T, "r1", limit=10) == [first.record, second.record]
            assert await store.message(T, "r1", 2) == second.record
            assert await store.message(T, "r1", 3) is None
            assert await store.message("t2", "r1", 1) is None

    async def test_messages_are_read_in_order_with_exclusive_bounds(self) -> None:
        async with self.opened() as store:
            await store.put_room(T, "r1", open=True)
            for number in range(1, 8):
                await store.append(T, "r1", draft(key=f"k{number}", body=b"%d" % number))
            assert [m.seq for m in await store.messages(T, "r1", after=2, limit=3)] == [3, 4, 5]
            assert [m.seq for m in await store.messages(T, "r1", before=5, limit=2)] == [3, 4]
            assert [m.seq for m in await store.messages(T, "r1", after=0, before=3, limit=9)] == [1, 2]
            newest = await store.messages(T, "r1", limit=2)
            assert [(m.seq, m.body) for m in newest] == [(6, b"6"), (7, b"7")]
            assert await store.messages(T, "r1", after=7, limit=2) == []
            assert await store.messages(T, "r1", before=1, limit=2) == []
            assert await store.messages("t2", "r1", limit=2) == []

    async def test_a_number_no_store_can_look_for_is_refused(self) -> None:
        async with self.opened() as store:
            with pytest.raises(Unstorable):
                await store.messages(T, "r1", after=HUGE, limit=1)
            await store.ping()
