from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from greendot.client import link as link_module
from greendot.client.codec import Failure
from greendot.client.dial import dial
from greendot.client.errors import BadReply, CommandRefused, ConnectionRefused, Disconnected
from greendot.client.link import Link
from greendot.protocol.codec import encode_event, text_frame
from greendot.protocol.commands import Heartbeat, Hello, PresenceGet, RoomList, TypingStart, Watch
from greendot.protocol.events import Event, HeartbeatAck, Resync
from greendot.protocol.replies import PresenceReply, RoomsReply

from .wire import Peer, a_presence, a_welcome, run, serving


@asynccontextmanager
async def linked(heartbeat_s: float = 30.0) -> AsyncIterator[tuple[Link, Peer, asyncio.Queue[Event]]]:
    """Open a link after the welcome. Yield it with the server's end and the events received since."""
    events: asyncio.Queue[Event] = asyncio.Queue()
    async with serving() as server:
        link = await dial(server.url, None, events.put_nowait)
        try:
            welcome = a_welcome(heartbeat_s=heartbeat_s)
            (peer, _), _ = await asyncio.gather(server.greet(welcome), link.hello(Hello(token="t")))
            assert await events.get() == welcome
            yield link, peer, events
        finally:
            await link.close()


@run
async def test_answers_find_their_questions_in_any_order() -> None:
    async with linked() as (link, peer, _):
        first = link.request(PresenceGet(users=["ann"]), PresenceReply)
        second = link.request(PresenceGet(users=["bob"]), PresenceReply)
        ask_ann, ask_bob = await peer.next(PresenceGet), await peer.next(PresenceGet)
        peer.reply(ask_bob, PresenceReply([a_presence("bob")]))
        peer.reply(ask_ann, PresenceReply([a_presence("ann")]))
        assert (await first).presence == [a_presence("ann")]
        assert (await second).presence == [a_presence("bob")]


@run
async def test_an_answer_is_folded_in_before_the_event_that_follows_it() -> None:
    async with linked() as (link, peer, events):
        order: list[str] = []
        asked = link.request(RoomList(), RoomsReply, lambda _: order.append(f"reply, {events.qsize()} events"))
        peer.reply(await peer.next(RoomList), RoomsReply([]), Resync("x"))
        await asked
        assert order == ["reply, 0 events"]
        assert await events.get() == Resync("x")


@run
async def test_a_refusal_is_raised_where_the_command_was_given() -> None:
    async with linked() as (link, peer, _):
        asked = link.request(RoomList(), RoomsReply)
        peer.error(await peer.next(RoomList), "rate_limited", retry_in_ms=40)
        with pytest.raises(CommandRefused, match="rate_limited: refused") as caught:
            await asked
        assert caught.value.retry
        assert caught.value.retry_in_ms == 40


@run
async def test_an_error_without_a_waiting_request_is_an_event() -> None:
    async with linked() as (link, peer, events):
        link.send(TypingStart(room="secret"))
        peer.error(await peer.next(TypingStart), "not_a_member")
        failure = await events.get()
        assert isinstance(failure, Failure)
        assert failure.code == "not_a_member"


@run
async def test_an_answer_that_cannot_be_read_fails_its_call_only() -> None:
    async with linked() as (link, peer, events):
        asked = link.request(RoomList(), RoomsReply)
        command = await peer.next(RoomList)
        peer.write(text_frame(b'{"type":"reply","id":%d,"data":{"rooms":7}}' % command.id))  # type: ignore[str-bytes-safe]
        with pytest.raises(BadReply, match="RoomsReply"):
            await asked
        deep = b"[" * 20_000 + b"]" * 20_000
        asked = link.request(RoomList(), RoomsReply)
        number = str((await peer.next(RoomList)).id).encode()
        peer.write(text_frame(b'{"type":"reply","id":' + number + b',"data":{"rooms":[],"more":[]}}'))
        assert (await asked).rooms == []
        peer.write(text_frame(b"what?"))
        peer.write(text_frame(b'{"type":"signal","v":1,"ts":0,"data":{"kind":"k","body":' + deep + b"}}"))
        peer.write(text_frame(b'{"type":"error","code":"\xff","message":"?"}'))
        peer.event(Resync("x"))
        assert await events.get() == Resync("x")


@run
async def test_a_caller_that_gives_up_leaves_nothing_behind() -> None:
    async with linked() as (link, peer, events):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await link.request(RoomList(), RoomsReply)
        assert not link._waiting
        peer.reply(await peer.next(RoomList), RoomsReply([]), Resync("x"))
        assert await events.get() == Resync("x")


@pytest.mark.parametrize(("code", "error"), [(4000, Disconnected), (1011, Disconnected), (4503, ConnectionRefused)])
@run
async def test_a_waiting_request_fails_with_the_reason_of_the_end_of_the_link(
    code: int, error: type[Exception]
) -> None:
    async with linked() as (link, peer, _):
        asked = link.request(RoomList(), RoomsReply)
        await peer.next(RoomList)
        peer.close(code, "because")
        with pytest.raises(error, match=f"{code}: because"):
            await asked
        with pytest.raises(error, match=f"{code}: because"):
            await link.lost()
        with pytest.raises(error):
            await link.request(RoomList(), RoomsReply)


@run
async def test_a_lost_socket_is_close_code_1006() -> None:
    async with linked() as (link, peer, _):
        asked = link.request(RoomList(), RoomsReply)
        await peer.next(RoomList)
        peer.drop()
        with pytest.raises(Disconnected) as caught:
            await asked
        assert caught.value.code == 1006


@run
async def test_a_hello_that_is_refused() -> None:
    async with serving() as server:
        link = await dial(server.url, None, print)
        handshake = asyncio.ensure_future(link.hello(Hello(token="t")))
        peer = await server.next()
        peer.error(await peer.next(Hello), "bad_field")
        with pytest.raises(CommandRefused, match="bad_field"):
            await handshake
        await link.close()


@run
async def test_a_frame_the_server_would_not_read_is_not_sent() -> None:
    async with linked() as (link, peer, _):
        with pytest.raises(ValueError, match="over the server's limit of 65536"):
            link.request(Watch(users=["u" * 128] * 600), PresenceReply)
        asked = link.request(RoomList(), RoomsReply)
        peer.reply(await peer.next(RoomList), RoomsReply([]))
        await asked


@run
async def test_heartbeats_are_sent_and_a_silent_server_is_given_up() -> None:
    async with linked(heartbeat_s=0.02) as (link, peer, _):
        await peer.next(Heartbeat)
        with pytest.raises(Disconnected):
            await link.lost()
        assert await peer.closed == 1006


@pytest.mark.parametrize("life", ["ack", "ping"])
@run
async def test_any_frame_received_keeps_the_link_open(life: str) -> None:
    async with linked(heartbeat_s=0.1) as (link, peer, _):
        for _ in range(4):
            await peer.next(Heartbeat)
            peer.event(HeartbeatAck()) if life == "ack" else peer.ping()
        assert not link._ended.done()


@run
async def test_a_message_in_fragments_is_put_together() -> None:
    async with linked() as (_, peer, events):
        payload = encode_event(Resync("x"), 0)[2:]
        peer.write(b"\x01%c" % 10 + payload[:10] + b"\x80%c" % (len(payload) - 10) + payload[10:])
        assert await events.get() == Resync("x")


@run
async def test_a_server_that_breaks_the_websocket_protocol_is_left() -> None:
    async with linked() as (link, peer, _):
        peer.write(b"\x8f\x00")
        with pytest.raises(Disconnected):
            await link.lost()


@run
async def test_closing_sends_bye_and_waits_for_the_close_of_the_server() -> None:
    async with linked() as (link, peer, _):
        await link.close(bye=True)
        assert peer.said_bye
        await link.close(bye=True)


@run
async def test_a_server_that_does_not_answer_a_bye_is_left_anyway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "FAREWELL_S", 0.02)
    async with linked() as (link, peer, _):
        peer.answers_bye = False
        await link.close(bye=True)
        assert await peer.closed == 1006
