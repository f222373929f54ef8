"""Contract of every store for reactions to messages."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from msgspec import structs

from greendot.errors import NoSuchMessage, Refused, StaleMembers
from greendot.rooms.reactions_model import MOST
from greendot.store.port import Store
from greendot.store.rooms import Draft, Written
from greendot.store.user_data import ExportCursor
from greendot.testing.page_suite import changing
from greendot.testing.store_harness import NOW, StoreHarness, T, draft, numbers, seq

_made = 0


def react(user: str = "ann", reaction: str = "👍", ref: int = 1, *, on: bool = True, key: str = "") -> Draft:
    """Return a draft with its own key, unless one is given."""
    global _made
    _made += 1
    op = "react" if on else "unreact"
    body = b'{"reaction":"%s"}' % reaction.encode()
    return Draft(user, None, body, key or f"r{_made}", NOW, ref, op, reaction=reaction)  # type: ignore[arg-type]


async def counts(store: Store, reader: str | None = None, ref: int = 1) -> list[tuple[str, int, bool]]:
    """Return the counted reactions to a message of room `r1`."""
    page = await store.room_page(T, "r1", after=ref - 1, limit=1, reader=reader)
    assert page is not None
    return [*page.reactions.get(ref, ())]


async def room_with(store: Store, messages: int = 1) -> None:
    await store.put_room(T, "r1", open=True)
    for number in range(messages):
        await store.append(T, "r1", draft(key=f"k{number}"))


async def gone(store: Store, user: str) -> int:
    """Erase the user, a few rows at a time; return the number of rows."""
    rows, place = 0, None
    while True:
        step = await store.erase_user(T, user, place, limit=2)
        rows += step.rows
        if (place := step.next) is None:
            return rows


async def own_reactions(store: Store, user: str) -> list[tuple[str, int, str]]:
    """Return the exported reactions of a user: room, message and reaction."""
    found: list[tuple[str, int, str]] = []
    place: ExportCursor | None = None
    while True:
        page = await store.rows_of(T, user, place, limit=2)
        found += [(row["room"], row["ref"], row["reaction"]) for table, row in page.rows if table == "reactions"]
        if (place := page.next) is None:
            return found


def all_new(written: Sequence[Written | None]) -> list[bool]:
    return [of is not None and of.new for of in written]


class ReactionSuite(StoreHarness):
    """Contract of reactions in `MessageStore` and `SnapshotStore`, as tests."""

    async def test_a_reaction_is_a_record_and_is_counted(self) -> None:
        async with self.opened() as store:
            await room_with(store, 2)
            first = await store.append(T, "r1", react())
            await store.append(T, "r1", react("bob"))
            await store.append(T, "r1", react("bob", "🎉"))
            assert first is not None
            assert (first.new, first.record.seq, first.record.ref, first.record.op) == (True, 3, 1, "react")
            assert first.record.body == '{"reaction":"👍"}'.encode()
            assert await counts(store) == [("👍", 2, False), ("🎉", 1, False)]
            assert await counts(store, "ann") == [("👍", 2, True), ("🎉", 1, False)]
            assert await counts(store, ref=2) == []
            await store.append(T, "r1", react(on=False))
            assert await counts(store, "ann") == [("👍", 1, False), ("🎉", 1, False)]
            await store.append(T, "r1", react("bob", on=False))
            assert await counts(store) == [("🎉", 1, False)]
            assert await numbers(store) == [*range(1, 8)]

    async def test_a_page_tells_messages_without_reactions_from_messages_that_lost_them(self) -> None:
        async with self.opened() as store:
            await room_with(store, 2)
            await store.append(T, "r1", react())
            await store.append(T, "r1", react(on=False))
            page = await store.room_page(T, "r1", limit=10)
            assert page is not None
            assert page.reactions == {1: []}
            await store.append(T, "r1", react("bob", "🎉"))
            assert await counts(store) == [("🎉", 1, False)]

    async def test_reactions_are_in_the_order_in_which_they_were_first_set(self) -> None:
        async with self.opened() as store:
            await room_with(store)
            for user, reaction in (("ann", "z"), ("bob", "a"), ("cy", "z"), ("ann", "m")):
                await store.append(T, "r1", react(user, reaction))
            assert [of[0] for of in await counts(store)] == ["z", "a", "m"]
            for user in ("ann", "cy"):
                await store.append(T, "r1", react(user, "z", on=False))
            await store.append(T, "r1", react("cy", "z"))  # set anew
            assert [of[0] for of in await counts(store)] == ["a", "m", "z"]

    async def test_what_is_set_already_is_not_written_again(self) -> None:
        async with self.opened() as store:
            await room_with(store)
            first = await store.append(T, "r1", react())
            again = await store.append(T, "r1", react())
            assert (seq(first), seq(again), all_new([first, again])) == (2, 2, [True, False])
            assert first is not None
            assert again is not None
            assert again.record == first.record
            removed = await store.append(T, "r1", react(on=False))
            twice = await store.append(T, "r1", react(on=False))
            # Nothing set: the answer is the message itself.
            assert (seq(removed), seq(twice), all_new([removed, twice])) == (3, 1, [True, False])
            assert seq(await store.append(T, "r1", react())) == 4
            assert await numbers(store) == [1, 2, 3, 4]

    async def test_a_key_that_was_written_answers_its_record_whatever_came_after(self) -> None:
        async with self.opened() as store:
            await room_with(store)
            await store.append(T, "r1", react(key="on"))
            await store.append(T, "r1", react(on=False, key="off"))
            again = await store.append(T, "r1", react(key="on"))
            assert (seq(again), all_new([again]), await counts(store)) == (2, [False], [])

    async def test_two_nodes_that_set_the_same_at_once_write_it_once(self) -> None:
        async with self.opened_twice() as (one, two):
            await room_with(one)
            written = await asyncio.gather(*(store.append(T, "r1", react()) for store in (one, two) * 25))
            assert {seq(of) for of in written} == {2}
            assert all_new(written).count(True) == 1
            assert await counts(two) == [("👍", 1, False)]
            removed = await asyncio.gather(*(store.append(T, "r1", react(on=False)) for store in (one, two) * 25))
            assert all_new(removed).count(True) == 1
            assert await counts(one) == []
            assert await numbers(one) == [1, 2, 3]

    async def test_counts_are_right_whatever_many_users_of_two_nodes_do_at_once(self) -> None:
        async with self.opened_twice() as (one, two):
            await room_with(one, 2)
            users, reactions = [f"u{n}" for n in range(12)], "abc"
            for turn in range(4):
                # On in the first and third turn, and for every third user both on and off.
                await asyncio.gather(
                    *(
                        store.append(T, "r1", react(user, reaction, ref, on=turn % 2 == 0 or n % 3 == 0))
                        for n, user in enumerate(users)
                        for reaction in reactions
                        for ref in (1, 2)
                        for store in (one, two)
                    )
                )
            kept = [user for n, user in enumerate(users) if n % 3 == 0]
            for ref in (1, 2):
                assert sorted(await counts(one, ref=ref)) == [(reaction, len(kept), False) for reaction in reactions]
            for user in users:
                wanted = [("r1", ref, reaction) for ref in (1, 2) for reaction in reactions] if user in kept else []
                assert await own_reactions(two, user) == wanted

    async def test_on_and_off_and_on_in_one_batch_is_on(self) -> None:
        async with self.opened() as store:
            await room_with(store)
            await store.append(T, "r1", react("bob"))
            drafts = [react(), react(on=False), react(), react("bob", on=False), react("bob")]
            written = await asyncio.gather(*(store.append(T, "r1", of) for of in drafts))
            assert [seq(of) for of in written] == [3, 4, 5, 6, 7]
            assert await counts(store, "ann") == [("👍", 2, True)]
            assert seq(await store.append(T, "r1", react())) == 5
            assert seq(await store.append(T, "r1", react("bob"))) == 7

    async def test_a_message_has_a_bounded_number_of_different_reactions(self) -> None:
        async with self.opened_twice() as (one, two):
            await room_with(one)
            drafts = [react(f"u{n}", f":{n}:") for n in range(MOST + 5)]
            calls = (store.append(T, "r1", of) for of, store in zip(drafts, (one, two) * MOST, strict=False))
            written = await asyncio.gather(*calls, return_exceptions=True)
            refused = [of for of in written if isinstance(of, BaseException)]
            assert len(refused) == 5
            assert all(isinstance(of, Refused) and of.code == "too_many" for of in refused)
            there = await counts(one)
            assert len(there) == MOST
            assert await numbers(one) == [*range(1, MOST + 2)]
            one_of_them = there[0][0]
            assert all_new([await one.append(T, "r1", react("ann", one_of_them))]) == [True]
            # Another one fits when a reaction has gone.
            for user in ("ann", f"u{one_of_them.strip(':')}"):
                await one.append(T, "r1", react(user, one_of_them, on=False))
            assert all_new([await one.append(T, "r1", react("ann", "new"))]) == [True]

    async def test_only_a_message_takes_reactions(self) -> None:
        async with self.opened() as store:
            await room_with(store)
            await store.append(T, "r1", react())
            for ref in (0, 2, 3, 2**53):
                for on in (True, False):
                    with pytest.raises(NoSuchMessage):
                        await store.append(T, "r1", react("bob", ref=ref, on=on))
            assert await store.append(T, "r9", react()) is None
            assert await store.append("t2", "r1", react()) is None
            assert await numbers(store) == [1, 2]

    async def test_a_refused_reaction_fails_alone(self) -> None:
        async with self.opened() as store:
            await room_with(store)
            drafts = [draft(key="a"), react(ref=77), react(), structs.replace(react("bob"), members_rev=9)]
            written = await asyncio.gather(*(store.append(T, "r1", of) for of in drafts), return_exceptions=True)
            assert [type(of) for of in written] == [Written, NoSuchMessage, Written, StaleMembers]
            assert await counts(store) == [("👍", 1, False)]
            assert await numbers(store) == [1, 2, 3]

    async def test_a_deleted_message_has_no_reactions_and_takes_none(self) -> None:
        async with self.opened_twice() as (one, two):
            await room_with(one, 2)
            await one.append(T, "r1", react())
            await one.append(T, "r1", react(ref=2))
            delete = structs.replace(draft(key="d1", body=b"null"), ref=1, op="delete")
            await one.append(T, "r1", delete)
            await one.append(T, "r1", structs.replace(delete, key="d2"))
            assert (await counts(two), await counts(two, ref=2)) == ([], [("👍", 1, False)])
            assert await own_reactions(two, "ann") == [("r1", 2, "👍")]
            for on in (True, False):
                with pytest.raises(NoSuchMessage):
                    await two.append(T, "r1", react("bob", on=on))

    async def test_a_deletion_between_reactions_of_one_batch_is_applied_in_their_order(self) -> None:
        async with self.opened() as store:
            await room_with(store)
            await store.append(T, "r1", react("cy"))
            delete = structs.replace(draft(key="d1", body=b"null"), ref=1, op="delete")
            drafts = [react(), delete, react("bob"), react("cy", on=False)]
            written = await asyncio.gather(*(store.append(T, "r1", of) for of in drafts), return_exceptions=True)
            assert [type(of) for of in written] == [Written, Written, NoSuchMessage, NoSuchMessage]
            assert await counts(store) == []
            assert [await own_reactions(store, user) for user in ("ann", "bob", "cy")] == [[], [], []]

    async def test_counts_include_every_record_up_to_the_head_of_their_page(self) -> None:
        async with self.opened_twice() as (one, two):
            await room_with(one)
            async with changing(lambda number: two.append(T, "r1", react(f"u{number:04}"))):
                head = 0
                while head < 60:
                    page = await one.room_page(T, "r1", after=0, limit=1_000)
                    assert page is not None
                    head = page.room.head
                    assert [of.users for of in page.reactions.get(1, ())] == ([head - 1] if head > 1 else [])

    async def test_rooms_and_tenants_are_apart(self) -> None:
        async with self.opened() as store:
            await room_with(store)
            for other in ((T, "r2"), ("t2", "r1")):
                await store.put_room(*other, open=True)
                await store.append(*other, draft())
                await store.append(*other, react("bob", "🎉"))
            assert await counts(store, "bob") == []
            assert await own_reactions(store, "bob") == [("r2", 1, "🎉")]
            await store.append(T, "r1", react("bob"))
            delete = structs.replace(draft(key="d1", body=b"null"), ref=1, op="delete")
            await store.append(T, "r1", delete)
            assert await own_reactions(store, "bob") == [("r2", 1, "🎉")]

    async def test_reactions_of_an_erased_user_are_gone_and_others_stay(self) -> None:
        async with self.opened() as store:
            await room_with(store, 3)
            for ref in (1, 2, 3):
                for user in ("bob", "cy"):
                    await store.append(T, "r1", react(user, ref=ref))
            await store.append(T, "r1", react("bob", "🎉", 2))
            assert await own_reactions(store, "bob") == [
                ("r1", 1, "👍"),
                ("r1", 2, "🎉"),
                ("r1", 2, "👍"),
                ("r1", 3, "👍"),
            ]
            assert await gone(store, "bob") == 4 + 4  # reactions, and the records that set them
            assert [await counts(store, ref=ref) for ref in (1, 2, 3)] == [[("👍", 1, False)]] * 3
            assert await own_reactions(store, "bob") == []
            record = await store.message(T, "r1", 4)
            assert record is not None
            assert (record.op, record.ref, record.user, record.body) == ("erased", 1, "", b"null")

    async def test_reactions_to_messages_of_an_erased_author_are_gone(self) -> None:
        async with self.opened() as store:
            await room_with(store)
            await store.append(T, "r1", draft("bob"))
            await store.append(T, "r1", react("cy"))
            await store.append(T, "r1", react("cy", ref=2))
            await gone(store, "ann")
            assert (await counts(store), await counts(store, ref=2)) == ([], [("👍", 1, False)])
            assert await own_reactions(store, "cy") == [("r1", 2, "👍")]
            with pytest.raises(NoSuchMessage):
                await store.append(T, "r1", react("cy"))
