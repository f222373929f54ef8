"""State that a new connection restores from the previous one, with a server that the test controls."""

from __future__ import annotations

import asyncio

import pytest

from greendot.client import Client, Truncated
from greendot.protocol.commands import Hello, InboxList, Resume, RoomJoin, Watch
from greendot.protocol.events import NotificationCreated, Presence, RoomChanged, RoomMessage, RoomState
from greendot.protocol.replies import PresenceReply

from .wire import (
    AT_ONCE,
    Peer,
    a_join,
    a_message,
    a_notification,
    a_presence,
    a_welcome,
    an_inbox,
    both,
    connected,
    joining,
    run,
    serving,
    state,
    take,
    watching,
)


@run
async def test_all_users_are_watched_again_and_only_changes_are_reported() -> None:
    async with serving() as server, connected(server) as (me, peer):
        await watching(me, peer, "ann", "bob", "eve")
        told: list[Presence] = []
        me.on("presence.changed", told.append)
        peer.drop()
        peer, _ = await server.greet()
        again = await peer.next(Watch)
        assert again.users == ["ann", "bob", "eve"]
        news = [a_presence("ann", 2, "offline"), a_presence("bob", 1), a_presence("eve", 1)]
        peer.reply(again, PresenceReply(news))
        await state(me, "connected")
        assert told == [a_presence("ann", 2, "offline")]
        assert me.people["ann"].state == "offline"


@run
async def test_missed_messages_arrive_once_and_in_order_however_they_come() -> None:
    async with serving() as server, connected(server) as (me, peer):
        await joining(me, peer, head=1)
        told: list[int] = []
        me.on("room.message", lambda message: told.append(message.seq))
        peer.event(a_message(2))
        peer.drop()
        welcome = a_welcome(lobby=RoomState(head=4, recovered=True, truncated=False))
        peer, _ = await server.greet(welcome, a_message(3), a_message(4))
        await state(me, "connected")
        peer.event(a_message(4), a_message(5))
        peer.drop()
        peer, hello = await server.greet()  # a node that did not restore the room on resume
        assert hello.resume is not None
        assert hello.resume.rooms == {"lobby": 5}
        again = await peer.next(RoomJoin)
        assert again.after == 5
        peer.reply(again, a_join(head=6, messages=(a_message(5), a_message(6))), a_message(6), a_message(7))
        await state(me, "connected")
        assert [event.seq for event in await take(me.events(), 6, RoomMessage)] == told == [2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("resumed", [True, False])
@run
async def test_too_many_messages_to_fetch_are_reported_as_truncated(resumed: bool) -> None:
    async with serving() as server, connected(server) as (me, peer):
        await joining(me, peer, head=1)
        told: list[Truncated] = []
        me.on("truncated", told.append)
        peer.drop()
        rooms = {"lobby": RoomState(head=9000, recovered=False, truncated=True)} if resumed else {}
        peer, _ = await server.greet(a_welcome(**rooms))
        if not resumed:
            peer.reply(await peer.next(RoomJoin), a_join(head=9000, truncated=True, recovered=False))
        await state(me, "connected")
        assert told == [Truncated("room:lobby", 1, 9000)]
        peer.event(a_message(9001))
        assert [event.seq for event in await take(me.events(), 1, RoomMessage)] == [9001]


@run
async def test_a_restarted_program_receives_the_events_it_missed() -> None:
    async with serving() as server:
        me = Client(server.url, token="t", backoff=AT_ONCE, cursors={"rooms": {"lobby": 7, "hall": 2}, "inbox": 4})
        welcome = a_welcome(lobby=RoomState(head=9, recovered=True, truncated=False))
        missed = (a_message(8), a_message(9), a_notification(5), a_notification(6))

        async def play() -> None:
            peer, hello = await server.greet(welcome, *missed, inbox=an_inbox(6, unread=2, unseen=1))
            assert hello.resume == Resume(session=None, rooms={"lobby": 7, "hall": 2}, inbox=4)
            again = await peer.next(RoomJoin)
            assert (again.room, again.after) == ("hall", 2)
            peer.reply(again, a_join("hall", head=3, messages=(a_message(3, "hall"),)))

        await both(me.__aenter__(), play())
        try:
            assert (me.inbox.unread, me.inbox.unseen) == (2, 1)
            events = me.events()
            found = await take(events, 5, (RoomMessage, NotificationCreated))
            assert [(event.type, event.seq) for event in found] == [
                ("room.message", 8),
                ("room.message", 9),
                ("notification.created", 5),
                ("notification.created", 6),
                ("room.message", 3),
            ]
            assert me.cursors == {"rooms": {"lobby": 9, "hall": 3}, "inbox": 6}
        finally:
            await me.bye()


@run
async def test_an_unacknowledged_notification_arrives_once_and_moves_no_cursor() -> None:
    async with serving() as server:
        me = Client(server.url, token="t", backoff=AT_ONCE, cursors={"rooms": {}, "inbox": 20})
        (peer, _), _ = await asyncio.gather(server.greet(inbox=an_inbox(20)), me.__aenter__())
        try:
            events = me.events()
            peer.event(a_notification(5, ack=True), a_notification(5, ack=True), a_notification(21))
            first, second = await take(events, 2, NotificationCreated)
            assert (first.seq, first.ack, second.seq) == (5, True, 21)
            assert me.cursors["inbox"] == 21
        finally:
            await me.bye()


@run
async def test_a_head_older_than_a_notification_that_came_before_it_takes_nothing_back() -> None:
    async with serving() as server:
        me = Client(server.url, token="t", backoff=AT_ONCE, cursors={"rooms": {}, "inbox": 5})

        async def greet() -> None:
            peer: Peer = await server.next()
            peer.inbox = None
            await peer.next(Hello)
            peer.event(a_welcome())
            asked = await peer.next(InboxList)
            peer.event(a_notification(6))  # written after the server read the head
            peer.reply(asked, an_inbox(5, unread=5), a_notification(7))

        events = me.events()
        await asyncio.gather(greet(), me.__aenter__())
        try:
            told = await take(events, 2, NotificationCreated | Truncated)
            assert [type(event) is NotificationCreated and event.seq for event in told] == [6, 7]
            assert me.cursors["inbox"] == 7
        finally:
            await me.bye()


@run
async def test_notifications_are_delivered_once_and_those_missed_by_a_lost_connection_are_recovered() -> None:
    async with serving() as server, connected(server) as (me, peer):
        told: list[int] = []
        me.on("notification.created", lambda event: told.append(event.seq))
        # Number 2 is sent again until it is acknowledged, but the client delivers it once.
        peer.event(a_notification(1), a_notification(2, ack=True), a_notification(2, ack=True))
        await take(me.events(), 2, NotificationCreated)
        peer.drop()
        peer, hello = await server.greet(inbox=an_inbox(4, [a_notification(3), a_notification(4)], unread=4))
        assert hello.resume is not None
        assert hello.resume.inbox == 2
        await state(me, "connected")
        await take(me.events(), 2, NotificationCreated)
        peer.event(a_notification(2, ack=True), a_notification(5))
        await take(me.events(), 1, NotificationCreated)
        assert told == [1, 2, 3, 4, 5]
        assert me.inbox.unread == 4


@run
async def test_a_room_that_refuses_a_rejoin_is_reported_and_removed() -> None:
    async with serving() as server, connected(server) as (me, peer):
        await joining(me, peer, "lobby")
        await joining(me, peer, "secret")
        told: list[RoomChanged] = []
        me.on("room.changed", told.append)
        peer.drop()
        peer, _ = await server.greet()
        lobby, secret = await peer.next(RoomJoin), await peer.next(RoomJoin)
        peer.error(secret, "not_a_member")
        peer.error(lobby, "unavailable", retry_in_ms=1)
        peer.reply(await peer.next(RoomJoin), a_join("lobby"))
        await state(me, "connected")
        assert told == [RoomChanged("secret", removed=True, reason="not_a_member")]
        peer.drop()
        _, hello = await server.greet()
        assert hello.resume is not None
        assert hello.resume.rooms == {"lobby": 0}
