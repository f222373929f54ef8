"""Messages across lost connections, with a server that the test controls."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from greendot.client import Backoff, CommandRefused, QueueFull, SendQueue
from greendot.protocol.commands import RoomDelete, RoomEdit, RoomJoin, RoomSend
from greendot.protocol.replies import SendReply

from .wire import a_join, connected, joining, run, serving, state


@run
async def test_an_unanswered_message_is_sent_again_with_its_key_until_it_is_answered() -> None:
    async with serving() as server, connected(server) as (me, peer):
        sending = asyncio.create_task(me.send("lobby", {"text": "hi"}))
        first = await peer.next(RoomSend)
        peer.drop()
        for lost in (True, False):
            peer, _ = await server.greet()
            again = await peer.next(RoomSend)
            assert (again.room, again.key, bytes(again.body)) == (first.room, first.key, b'{"text":"hi"}')
            if lost:
                peer.drop()
        peer.reply(again, SendReply("m1", 1))
        assert await sending == SendReply("m1", 1)
        assert not me._session._sends._unanswered


@pytest.mark.parametrize(
    ("call", "kind"),
    [(lambda me: me.edit("lobby", 3, "better"), RoomEdit), (lambda me: me.delete("lobby", 3), RoomDelete)],
)
@run
async def test_changes_of_messages_have_keys_and_are_sent_again_too(call: Any, kind: type[RoomEdit]) -> None:
    async with serving() as server, connected(server) as (me, peer):
        sending = asyncio.create_task(call(me))
        first = await peer.next(kind)
        assert (first.ref, bool(first.key)) == (3, True)
        peer.drop()
        peer, _ = await server.greet()
        again = await peer.next(kind)
        assert again.key == first.key
        peer.reply(again, SendReply("m4", 4))
        assert await sending == SendReply("m4", 4)


@run
async def test_messages_given_while_away_follow_the_rejoining_in_their_order() -> None:
    async with serving() as server, connected(server) as (me, peer):
        await joining(me, peer)
        peer.drop()
        await state(me, "reconnecting")
        sending = [asyncio.create_task(me.send("lobby", n)) for n in range(3)]
        peer, _ = await server.greet()
        peer.reply(await peer.next(RoomJoin), a_join())
        for n in range(3):
            command = await peer.next(RoomSend)
            assert bytes(command.body) == b"%d" % n
            peer.reply(command, SendReply(f"m{n}", n))
        assert [reply.seq for reply in await asyncio.gather(*sending)] == [0, 1, 2]


@run
async def test_a_message_of_a_cancelled_send_is_not_sent_again() -> None:
    async with serving() as server, connected(server) as (me, peer):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await me.send("lobby", 1)
        await peer.next(RoomSend)
        peer.drop()
        peer, _ = await server.greet()
        sending = asyncio.create_task(me.send("lobby", 2))
        command = await peer.next(RoomSend)
        assert bytes(command.body) == b"2"
        peer.reply(command, SendReply("m2", 2))
        await sending


@run
async def test_a_refused_message_is_answered() -> None:
    async with serving() as server, connected(server) as (me, peer):
        sending = asyncio.create_task(me.send("secret", 1))
        peer.error(await peer.next(RoomSend), "not_a_member")
        with pytest.raises(CommandRefused, match="not_a_member"):
            await sending


@run
async def test_a_message_too_long_for_the_server_fails_at_once() -> None:
    async with serving() as server, connected(server) as (me, _):
        with pytest.raises(ValueError, match="over the server's limit"):
            await me.send("lobby", "x" * 70_000)
        assert me.state == "connected"


@run
async def test_what_waits_for_a_connection_is_bounded_and_sent_in_order_when_there_is_one() -> None:
    wait = Backoff(base_s=0.05, random=lambda: 1.0)
    async with serving() as server, connected(server, backoff=wait, queue=SendQueue(most=3)) as (me, peer):
        peer.drop()
        await state(me, "reconnecting")
        sending = [asyncio.create_task(me.send("lobby", number)) for number in range(3)]
        await asyncio.sleep(0)
        assert me.waiting == 3
        with pytest.raises(QueueFull, match="3 messages wait for a connection already"):
            await me.send("lobby", "one too many")
        peer, _ = await server.greet()
        for number in range(3):
            command = await peer.next(RoomSend)
            assert bytes(command.body) == b"%d" % number
            peer.reply(command, SendReply(f"m{number}", number))
        assert [reply.seq for reply in await asyncio.gather(*sending)] == [0, 1, 2]
        assert me.waiting == 0


@run
async def test_queued_bytes_are_bounded_and_a_cancelled_send_frees_its_bytes() -> None:
    slow = Backoff(base_s=60, random=lambda: 1.0)
    async with serving() as server, connected(server, backoff=slow, queue=SendQueue(most_bytes=3000)) as (me, peer):
        peer.drop()
        await state(me, "reconnecting")
        sending = [asyncio.create_task(me.send("lobby", "x" * 1000)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(QueueFull, match=r"2\d\d\d bytes wait"):
            await me.send("lobby", "x" * 1000)
        sending[0].cancel()
        await asyncio.wait([sending[0]])
        sending[0] = asyncio.create_task(me.send("lobby", "x" * 1000))
        await asyncio.sleep(0)
        assert me.waiting == 2
        await me.bye()
        await asyncio.gather(*sending, return_exceptions=True)


@run
async def test_with_a_connection_nothing_is_refused() -> None:
    async with serving() as server, connected(server, queue=SendQueue(most=1)) as (me, peer):
        sending = [asyncio.create_task(me.send("lobby", number)) for number in range(5)]
        for number in range(5):
            peer.reply(await peer.next(RoomSend), SendReply(f"m{number}", number))
        assert len(await asyncio.gather(*sending)) == 5


@run
async def test_what_has_waited_is_given_one_at_a_time_and_again_where_it_is_too_much() -> None:
    wait = Backoff(base_s=0.05, random=lambda: 1.0)
    async with serving() as server, connected(server, backoff=wait) as (me, peer):
        peer.drop()
        await state(me, "reconnecting")
        sending = [asyncio.create_task(me.send("lobby", number)) for number in range(2)]
        await asyncio.sleep(0)
        peer, _ = await server.greet()
        first = await peer.next(RoomSend)
        sending.append(asyncio.create_task(me.send("lobby", 2)))  # queued after the two that already wait
        peer.error(first, "rate_limited", 5)
        again = await peer.next(RoomSend)
        assert (again.key, bytes(again.body)) == (first.key, b"0")
        peer.error(again, "forbidden")
        for number in (1, 2):
            command = await peer.next(RoomSend)
            assert bytes(command.body) == b"%d" % number
            peer.reply(command, SendReply(f"m{number}", number))
        with pytest.raises(CommandRefused, match="forbidden"):
            await sending[0]
        assert [(await task).seq for task in sending[1:]] == [1, 2]


@run
async def test_what_waits_for_one_room_does_not_hold_up_another() -> None:
    wait = Backoff(base_s=0.05, random=lambda: 1.0)
    async with serving() as server, connected(server, backoff=wait) as (me, peer):
        peer.drop()
        await state(me, "reconnecting")
        sending = [asyncio.create_task(me.send(room, 1)) for room in ("lobby", "hall")]
        await asyncio.sleep(0)
        peer, _ = await server.greet()
        assert (await peer.next(RoomSend)).room == "lobby"  # the message gets no answer
        hall = await peer.next(RoomSend)
        peer.reply(hall, SendReply("m1", 1))
        assert (await sending[1]).seq == 1
        await me.bye()
        await asyncio.gather(*sending, return_exceptions=True)


@run
async def test_what_was_being_given_when_the_link_was_lost_is_given_to_the_next() -> None:
    async with serving() as server, connected(server) as (me, peer):
        sending = asyncio.create_task(me.send("lobby", 1))
        key = (await peer.next(RoomSend)).key
        for _ in range(2):
            peer.drop()
            peer, _ = await server.greet()
            command = await peer.next(RoomSend)
            assert command.key == key
            peer.error(command, "unavailable", 60_000)  # the message would wait for a minute
        await state(me, "connected")
        peer.drop()
        peer, _ = await server.greet()
        peer.reply(await peer.next(RoomSend), SendReply("m1", 1))
        assert (await sending).seq == 1


@run
async def test_what_fails_on_the_server_each_time_is_given_up() -> None:
    async with serving() as server, connected(server) as (me, peer):
        sending = asyncio.create_task(me.send("lobby", 1))
        await peer.next(RoomSend)
        peer.drop()
        peer, _ = await server.greet()
        for _ in range(5):
            peer.error(await peer.next(RoomSend), "internal", 1)
        with pytest.raises(CommandRefused, match="internal"):
            await sending
