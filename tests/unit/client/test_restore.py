"""What a new connection finds again of the one before, told by playing the server."""

from __future__ import annotations

import pytest

from greendot.protocol.commands import RoomJoin, Watch
from greendot.protocol.events import Presence, RoomChanged, RoomMessage, RoomState
from greendot.protocol.replies import PresenceReply

from .wire import a_join, a_message, a_presence, a_welcome, connected, joining, run, serving, state, take, watching


@run
async def test_everybody_is_watched_again_and_only_what_changed_is_told() -> None:
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
        peer, hello = await server.greet()  # a node that did not take the room over from the resume
        assert hello.resume is not None
        assert hello.resume.rooms == {"lobby": 5}
        again = await peer.next(RoomJoin)
        assert again.after == 5
        peer.reply(again, a_join(head=6, messages=(a_message(5), a_message(6))), a_message(6), a_message(7))
        await state(me, "connected")
        assert [event.seq for event in await take(me.events(), 6, RoomMessage)] == told == [2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("resumed", [True, False])
@run
async def test_messages_too_many_to_be_sent_are_told_as_a_gap(resumed: bool) -> None:
    async with serving() as server, connected(server) as (me, peer):
        await joining(me, peer, head=1)
        told: list[RoomChanged] = []
        me.on("room.changed", told.append)
        peer.drop()
        rooms = {"lobby": RoomState(head=900, recovered=False, truncated=True)} if resumed else {}
        peer, _ = await server.greet(a_welcome(**rooms))
        if not resumed:
            peer.reply(await peer.next(RoomJoin), a_join(head=900, truncated=True, recovered=False))
        await state(me, "connected")
        assert told == [RoomChanged("lobby", reason="truncated")]
        peer.event(a_message(901))
        assert [event.seq for event in await take(me.events(), 1, RoomMessage)] == [901]


@run
async def test_a_room_that_may_no_longer_be_entered_is_told_and_let_go() -> None:
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
