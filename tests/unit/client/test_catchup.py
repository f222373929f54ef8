"""Fetches of missed records, with a server that the test controls."""

from __future__ import annotations

import asyncio

import pytest

from greendot.client import Client, Failure, Truncated
from greendot.protocol.commands import InboxList, RoomHistory, RoomJoin
from greendot.protocol.events import NotificationCreated, Refresh, Resync, RoomChanged, RoomMessage, RoomState
from greendot.protocol.replies import HistoryReply

from .wire import (
    Peer,
    a_join,
    a_message,
    a_notification,
    a_welcome,
    an_inbox,
    both,
    connected,
    joining,
    run,
    serving,
    state,
    take,
)


async def tell_history(peer: Peer, head: int, *, page: int = 300, first: int = 1) -> None:
    """Answer one room.history from a room with messages `first` to `head`."""
    command = await peer.next(RoomHistory)
    if command.after is None:
        peer.reply(command, HistoryReply([a_message(head)] if head else []))
        return
    begin = max(command.after + 1, first)
    peer.reply(command, HistoryReply([a_message(seq) for seq in range(begin, min(head, begin + page - 1) + 1)]))


async def numbers(me: Client, count: int) -> list[int]:
    return [event.seq for event in await take(me.events(), count, RoomMessage)]


@pytest.mark.parametrize("hint", [Resync("room:lobby"), Refresh("room.message"), a_message(6)])
@run
async def test_what_the_server_left_out_is_fetched_and_what_comes_meanwhile_waits(
    hint: Resync | Refresh | RoomMessage,
) -> None:
    async with serving() as server, connected(server) as (me, peer):
        await joining(me, peer, head=1)
        events = me.events()
        peer.event(hint)
        await tell_history(peer, 6)
        peer.event(a_message(7))
        await tell_history(peer, 6, page=3)
        await tell_history(peer, 6, page=3)
        peer.event(a_message(8))
        assert [event.seq for event in await take(events, 7, RoomMessage)] == [2, 3, 4, 5, 6, 7, 8]
        assert me.cursors["rooms"] == {"lobby": 8}


@pytest.mark.parametrize("resumed", [True, False])
@run
async def test_a_room_left_far_behind_by_a_lost_connection_is_fetched(resumed: bool) -> None:
    async with serving() as server, connected(server) as (me, peer):
        await joining(me, peer, head=1)
        peer.drop()
        rooms = {"lobby": RoomState(head=500, recovered=False, truncated=True)} if resumed else {}
        peer, _ = await server.greet(a_welcome(**rooms))
        if not resumed:
            peer.reply(await peer.next(RoomJoin), a_join(head=500, truncated=True, recovered=False))
        for _ in range(3):
            await tell_history(peer, 500)
        assert await numbers(me, 499) == [*range(2, 501)]


@run
async def test_messages_too_many_for_a_joins_reply_follow_as_events() -> None:
    async with serving() as server, connected(server) as (me, peer):

        async def answer() -> None:
            peer.reply(await peer.next(RoomJoin), a_join(head=400, truncated=True, recovered=False), a_message(401))
            for _ in range(3):
                await tell_history(peer, 400)

        reply = await both(me.join("lobby", after=10), answer())
        assert reply.truncated
        assert await numbers(me, 391) == [*range(11, 402)]


@run
async def test_a_gap_too_large_to_be_fetched_is_reported_as_truncated() -> None:
    async with serving() as server, connected(server) as (me, peer):
        await joining(me, peer, head=1)
        events = me.events()
        peer.event(Resync("room:lobby"), a_message(9001))
        await tell_history(peer, 9000)
        (skipped,) = await take(events, 1, Truncated)
        assert skipped == Truncated("room:lobby", 1, 9000)
        assert [event.seq for event in await take(events, 1, RoomMessage)] == [9001]


@run
async def test_messages_that_are_no_longer_kept_are_passed_over() -> None:
    async with serving() as server, connected(server) as (me, peer):
        await joining(me, peer, head=1)
        events = me.events()
        peer.event(a_message(9))
        await tell_history(peer, 9)
        await tell_history(peer, 9, first=6)
        assert [event.seq for event in await take(events, 4, RoomMessage)] == [6, 7, 8, 9]


@run
async def test_a_lost_connection_while_fetching_begins_again_where_it_was() -> None:
    async with serving() as server, connected(server) as (me, peer):
        await joining(me, peer, head=1)
        peer.event(a_message(9))
        await tell_history(peer, 9)
        await tell_history(peer, 9, page=3)
        await peer.next(RoomHistory)
        peer.drop()
        peer, hello = await server.greet(a_welcome(lobby=RoomState(9, recovered=True, truncated=False)))
        assert hello.resume is not None
        assert hello.resume.rooms == {"lobby": 4}
        peer.event(*(a_message(seq) for seq in range(5, 11)))
        assert await numbers(me, 9) == [*range(2, 11)]


@run
async def test_what_the_server_cannot_give_now_is_asked_for_again() -> None:
    async with serving() as server, connected(server) as (me, peer):
        await joining(me, peer, head=1)
        peer.event(a_message(3))
        peer.error(await peer.next(RoomHistory), "unavailable", retry_in_ms=1)
        await tell_history(peer, 3)
        await tell_history(peer, 3)
        assert await numbers(me, 2) == [2, 3]


@run
async def test_a_refused_history_request_is_reported_and_the_room_continues() -> None:
    async with serving() as server, connected(server) as (me, peer):
        await joining(me, peer, head=1)
        events = me.events()
        peer.event(a_message(3), a_message(7))
        peer.error(await peer.next(RoomHistory), "forbidden")
        (failure,) = await take(events, 1, Failure)
        assert failure.code == "forbidden"
        assert [event.seq for event in await take(events, 2, RoomMessage)] == [3, 7]


@run
async def test_no_more_messages_are_delivered_of_a_room_that_was_lost_meanwhile() -> None:
    async with serving() as server, connected(server) as (me, peer):
        await joining(me, peer, head=1)
        events = me.events()
        peer.event(a_message(9))
        await tell_history(peer, 9)
        page = await peer.next(RoomHistory)
        peer.event(RoomChanged("lobby", removed=True))
        peer.reply(page, HistoryReply([a_message(2), a_message(3)]))
        await joining(me, peer, "lobby", head=9)
        peer.event(a_message(10))
        assert [event.seq for event in await take(events, 1, RoomMessage)] == [10]


@pytest.mark.parametrize("hint", [Resync("inbox"), Refresh("notification.created")])
@run
async def test_notifications_left_out_are_fetched_with_what_is_to_be_acknowledged(hint: Resync | Refresh) -> None:
    async with serving() as server, connected(server) as (me, peer):
        peer.event(a_notification(1))
        events = me.events()
        await take(events, 1, NotificationCreated)
        peer.inbox = None
        peer.event(hint)
        head = await peer.next(InboxList)
        peer.event(a_notification(5))
        peer.reply(head, an_inbox(5))
        page = await peer.next(InboxList)
        assert page.after == 1
        peer.reply(page, an_inbox(5, [a_notification(2), a_notification(4, ack=True)]))  # the third is archived
        last = await peer.next(InboxList)
        assert last.after == 4
        peer.reply(last, an_inbox(5, [a_notification(5)]))
        found = await take(events, 3, NotificationCreated)
        assert [(event.seq, event.ack) for event in found] == [(2, False), (4, True), (5, False)]


@run
async def test_a_client_may_be_closed_while_it_fetches() -> None:
    async with serving() as server, connected(server) as (me, peer):
        await joining(me, peer, head=1)
        peer.event(a_message(3))
        await peer.next(RoomHistory)
        await me.bye()
        assert me.state == "closed"


@run
async def test_callbacks_see_cursors_that_end_with_what_they_are_called_with() -> None:
    async with serving() as server, connected(server) as (me, peer):
        await joining(me, peer, head=1)
        seen: list[tuple[int, int]] = []
        done = asyncio.Event()

        def note(message: RoomMessage) -> None:
            seen.append((message.seq, me.cursors["rooms"]["lobby"]))
            if message.seq == 5:
                done.set()

        me.on("room.message", note)
        peer.event(a_message(3), a_message(4), a_message(5))
        await tell_history(peer, 3)
        await tell_history(peer, 3)
        await done.wait()
        assert seen == [(seq, seq) for seq in range(2, 6)]
        await state(me, "connected")
