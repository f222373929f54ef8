"""Inbox calls of the client, with a server that the test controls."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import UNSET

from greendot.protocol.commands import InboxAck, InboxArchive, InboxList, InboxMark, InboxRead, InboxSeen
from greendot.protocol.events import InboxBadge, NotificationUpdated, NotificationUpdatedV1, Refresh
from greendot.protocol.replies import BadgeReply

from .wire import a_notification, an_inbox, both, connected, run, serving, take


@pytest.mark.parametrize(
    ("call", "command"),
    [
        (lambda inbox: inbox.seen(through=3), InboxSeen(through=3)),
        (lambda inbox: inbox.read("n1", "n2"), InboxRead(ids=["n1", "n2"])),
        (lambda inbox: inbox.archive("n1"), InboxArchive(ids=["n1"])),
        (lambda inbox: inbox.ack("n1"), InboxAck(ids=["n1"])),
    ],
)
@run
async def test_marking_returns_the_remaining_counters_even_through_a_lost_connection(
    call: Any, command: InboxMark
) -> None:
    async with serving() as server, connected(server) as (me, peer):
        marking = asyncio.create_task(call(me.inbox))
        await peer.next(type(command))
        peer.drop()
        peer, _ = await server.greet()
        again = await peer.next(type(command))
        assert (again.ids, again.through) == (command.ids, command.through)
        peer.reply(again, BadgeReply(4, 2))
        assert await marking == BadgeReply(4, 2)
        assert (me.inbox.unread, me.inbox.unseen) == (4, 2)


@run
async def test_marking_needs_to_know_what() -> None:
    async with serving() as server, connected(server) as (me, _):
        for wrong in (me.inbox.read(), me.inbox.read("n1", through=3)):
            with pytest.raises(ValueError, match="either ids or through"):
                await wrong


@run
async def test_the_badge_follows_the_server() -> None:
    async with serving() as server, connected(server) as (me, peer):
        peer.event(InboxBadge(3, 1), InboxBadge(3, 1))
        assert (await take(me.events(), 1, InboxBadge)) == [InboxBadge(3, 1)]
        assert (me.inbox.unread, me.inbox.unseen) == (3, 1)


@run
async def test_marks_of_another_device_are_reported_in_both_versions_of_the_event() -> None:
    async with serving() as server, connected(server) as (me, peer):
        peer.event(NotificationUpdated("read", through=3), NotificationUpdatedV1("read", ["n1", "n2"], 2))
        newer, older = await take(me.events(), 2, NotificationUpdated)
        assert (newer.through, newer.ids) == (3, UNSET)
        assert (older.through, older.ids) == (2, ["n1", "n2"])


@run
async def test_a_refresh_of_the_server_is_passed_to_the_program() -> None:
    async with serving() as server, connected(server) as (me, peer):
        peer.event(Refresh("notification.updated"), Refresh("room.message"), Refresh("something.new"))
        told = await take(me.events(), 3, Refresh)
        assert [event.of for event in told] == ["notification.updated", "room.message", "something.new"]


@run
async def test_a_page_is_what_the_server_gives() -> None:
    async with serving() as server, connected(server) as (me, peer):
        peer.inbox = None

        async def answer() -> None:
            command = await peer.next(InboxList)
            assert (command.before, command.limit, command.filter) == (9, 2, "unread")
            peer.reply(command, an_inbox(9, [a_notification(7), a_notification(8)], unread=5))

        page = await both(me.inbox.page(before=9, limit=2, filter="unread"), answer())
        assert [entry.seq for entry in page.notifications] == [7, 8]
        assert me.inbox.unread == 5


@run
async def test_the_whole_inbox_is_read_page_by_page() -> None:
    async with serving() as server, connected(server) as (me, peer):
        peer.inbox = None

        async def answer() -> None:
            for after, numbers in ((0, (1, 2)), (2, (5,)), (5, ())):
                command = await peer.next(InboxList)
                assert command.after == after
                peer.reply(command, an_inbox(5, map(a_notification, numbers)))

        async def read() -> list[int]:
            return [entry.seq async for entry in me.inbox]

        assert await both(read(), answer()) == [1, 2, 5]
