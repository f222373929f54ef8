"""Contract of every store for pages: the records and the head or counters beside them are of one moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from greendot.store.inbox import Filter, Inbox
from greendot.store.port import Store
from greendot.testing.store_harness import NOW, StoreHarness, T, draft, notice

MOST = 900  # changes; a page has up to 1,000 records
FILTERS: tuple[Filter, ...] = ("all", "unread", "unseen", "archived")


@asynccontextmanager
async def changing(change: Callable[[int], Awaitable[object]]) -> AsyncIterator[None]:
    """Call `change` with 0, 1, 2 … as fast as possible, while the block runs.

    At most `MOST` calls are made: a reader that waits long for a busy store must still find all changes on one page.
    """

    async def go_on() -> None:
        for number in range(MOST):
            await change(number)
        await asyncio.Event().wait()

    task = asyncio.ensure_future(go_on())
    try:
        yield
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def agrees(store: Store) -> int:
    """Return the head of a whole inbox.

    Check that its page has every number up to the head, and that the counters match the page.
    """
    page = await store.inbox_page(T, "ann", after=0, limit=1_000)
    assert [one.seq for one in page.notifications] == [*range(1, page.inbox.head + 1)]
    assert page.inbox.unread == sum(one.read_at is None for one in page.notifications)
    assert page.inbox.unseen == sum(one.seen_at is None for one in page.notifications)
    return page.inbox.head


class SnapshotSuite(StoreHarness):
    """Contract of `SnapshotStore`, as tests."""

    async def test_a_page_of_an_inbox_is_what_the_single_reads_answer(self) -> None:
        async with self.opened() as store:
            assert await store.inbox_page(T, "ann", limit=5) == ([], Inbox())
            made = await store.notify([notice("ann", f"k{n}", expires_at=NOW + n) for n in range(8)])
            ids = [one.notification.id for one in made]
            await store.mark(T, "ann", "read", ids=[ids[1], ids[4]], at=NOW)
            await store.mark(T, "ann", "archive", ids=[ids[2], ids[7]], at=NOW)
            await store.mark(T, "ann", "seen", through=4, at=NOW)
            inbox = await store.inbox(T, "ann")
            for only in FILTERS:
                for span in ({}, {"before": 5}, {"after": 0}, {"after": 3}, {"after": 8}, {"before": 1}):
                    wanted = await store.notifications(T, "ann", limit=3, only=only, **span)
                    assert await store.inbox_page(T, "ann", limit=3, only=only, **span) == (wanted, inbox)
            assert await store.inbox_page("t2", "ann", limit=3) == ([], Inbox())

    async def test_a_page_of_a_room_is_what_the_single_reads_answer(self) -> None:
        async with self.opened() as store:
            assert await store.room_page(T, "r1", limit=5) is None
            empty = await store.put_room(T, "r1", open=True, bus="hint")
            assert await store.room_page(T, "r1", limit=5) == ([], empty, {})
            for number in range(6):
                await store.append(T, "r1", draft(key=f"k{number}"))
            room = await store.room(T, "r1")
            spans: tuple[dict[str, Any], ...] = (
                {},
                {"before": 5},
                {"after": 0},
                {"after": 3},
                {"after": 6},
                {"before": 1},
            )
            for span in spans:
                wanted = await store.messages(T, "r1", limit=3, **span)
                assert await store.room_page(T, "r1", limit=3, **span) == (wanted, room, {})
            assert await store.room_page("t2", "r1", limit=3) is None

    async def test_a_page_of_members_has_the_room_and_how_many_there_are(self) -> None:
        async with self.opened() as store:
            assert await store.member_page(T, "r1", None, 2) is None
            empty = await store.put_room(T, "r1")
            for other in ((T, "r2"), ("t2", "r1")):  # rooms with their own members
                await store.put_room(*other)
                await store.put_member(*other, "eve")
            assert await store.member_page(T, "r1", None, 2) == ([], 0, empty)
            for user in ("cy", "ann", "bob"):
                await store.put_member(T, "r1", user, "admin" if user == "bob" else "member")
            room = await store.room(T, "r1")
            assert await store.member_page(T, "r1", None, 2) == ([("ann", "member"), ("bob", "admin")], 3, room)
            assert await store.member_page(T, "r1", "bob", 2) == ([("cy", "member")], 3, room)
            assert await store.member_page(T, "r1", "cy", 2) == ([], 3, room)

    async def test_a_page_of_an_inbox_has_every_notification_up_to_its_head_while_some_are_written(self) -> None:
        async with self.opened_twice() as (one, two):

            async def change(number: int) -> None:
                await two.notify([notice("ann", f"k{number}")])
                if number % 3 == 2:
                    await two.mark(T, "ann", "read", through=number, at=NOW)
                elif number % 3 == 1:
                    await two.mark(T, "ann", "seen", through=number, at=NOW)

            async with changing(change):
                head = 0
                while head < 60:
                    head = await agrees(one)

    async def test_a_page_of_a_room_has_every_message_up_to_its_head_while_some_are_written(self) -> None:
        async with self.opened_twice() as (one, two):
            await one.put_room(T, "r1", open=True)
            async with changing(lambda number: two.append(T, "r1", draft(key=f"k{number}"))):
                head = 0
                while head < 60:
                    page = await one.room_page(T, "r1", after=0, limit=1_000)
                    assert page is not None
                    head = page.room.head
                    assert [message.seq for message in page.messages] == [*range(1, head + 1)]

    async def test_a_page_of_members_has_as_many_as_it_counts_while_some_come(self) -> None:
        async with self.opened_twice() as (one, two):
            await one.put_room(T, "r1")
            async with changing(lambda number: two.put_member(T, "r1", f"u{number:04}")):
                total = 0
                while total < 40:
                    page = await one.member_page(T, "r1", None, 1_000)
                    assert page is not None
                    total = page.total
                    assert len(page.members) == total
