from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from msgspec.structs import replace

from greendot.client import Client, CommandRefused, TypingWords, body_of
from greendot.protocol import commands as c
from greendot.protocol.commands import Command
from greendot.protocol.events import Event, NotificationCreated, RoomMessage, TypingStarted, TypingTimes
from greendot.protocol.replies import (
    HistoryReply,
    PresenceReply,
    PresentReply,
    PrivacyReply,
    ReadReply,
    ReceiptEntry,
    ReceiptsReply,
    Reply,
    RoomEntry,
    RoomsReply,
    SendReply,
    StatusReply,
    Typer,
)

from .wire import a_join, a_message, a_notification, a_presence, a_welcome, both, connected, joining, run, serving, take


@pytest.mark.parametrize(
    ("call", "command", "reply", "result"),
    [
        (lambda me: me.watch("bob"), c.Watch(users=["bob"]), PresenceReply([a_presence()]), [a_presence()]),
        (lambda me: me.unwatch("bob"), c.Unwatch(users=["bob"]), Reply(), None),
        (lambda me: me.presence("bob"), c.PresenceGet(users=["bob"]), PresenceReply([a_presence()]), [a_presence()]),
        (
            lambda me: me.set_status("busy", until=9, text="lunch"),
            c.StatusSet(status="busy", until=9, text="lunch"),
            StatusReply(a_presence("me")),
            a_presence("me"),
        ),
        (
            lambda me: me.set_privacy("hidden", hide_from=("ann",)),
            c.PrivacySet(last_seen="hidden", hide_from=["ann"]),
            PrivacyReply("hidden", ["ann"]),
            PrivacyReply("hidden", ["ann"]),
        ),
        (lambda me: me.rooms(), c.RoomList(), RoomsReply([RoomEntry("a", 1, 0, True)]), [RoomEntry("a", 1, 0, True)]),
        (lambda me: me.join("lobby", after=3), c.RoomJoin(room="lobby", after=3), a_join(head=3), a_join(head=3)),
        (lambda me: me.leave("lobby"), c.RoomLeave(room="lobby"), Reply(), None),
        (
            lambda me: me.present("lobby", after="ann", limit=5),
            c.RoomPresent(room="lobby", after="ann", limit=5),
            PresentReply(["bob"], 2),
            PresentReply(["bob"], 2),
        ),
        (
            lambda me: me.history("lobby", before=9, limit=2),
            c.RoomHistory(room="lobby", before=9, limit=2),
            HistoryReply([a_message(7), a_message(8)]),
            [a_message(7), a_message(8)],
        ),
        (
            lambda me: me.send("lobby", {"a": 1}, key="k"),
            c.RoomSend(room="lobby", body=c.Raw(b'{"a":1}'), key="k"),
            SendReply("m1", 1),
            SendReply("m1", 1),
        ),
        (
            lambda me: me.edit("lobby", 1, {"a": 2}, key="k"),
            c.RoomEdit(room="lobby", ref=1, body=c.Raw(b'{"a":2}'), key="k"),
            SendReply("m2", 2),
            SendReply("m2", 2),
        ),
        (
            lambda me: me.delete("lobby", 1, key="k"),
            c.RoomDelete(room="lobby", ref=1, key="k"),
            SendReply("m2", 2),
            SendReply("m2", 2),
        ),
        (lambda me: me.read("lobby", 7), c.RoomRead(room="lobby", seq=7), ReadReply(3), 3),
        (
            lambda me: me.receipts("lobby", "ann", 2),
            c.RoomReceipts(room="lobby", after="ann", limit=2),
            ReceiptsReply(3, [ReceiptEntry("bob", 7)], "bob"),
            ReceiptsReply(3, [ReceiptEntry("bob", 7)], "bob"),
        ),
        (lambda me: me.readers("lobby", 7), c.RoomReceipts(room="lobby", seq=7), ReceiptsReply(3, seq=7), 3),
    ],
)
@run
async def test_a_call_is_a_command_and_its_result_the_reply(
    call: Any, command: Command, reply: Reply, result: object
) -> None:
    async with serving() as server, connected(server) as (me, peer):

        async def answer() -> None:
            asked = await peer.next(type(command))
            assert asked == type(command)(**{**_fields(command), "id": asked.id})
            peer.reply(asked, reply)

        assert await both(call(me), answer()) == result


def _fields(command: Command) -> dict[str, Any]:
    return {name: getattr(command, name) for name in command.__struct_fields__}


@run
async def test_signals_and_activity_are_sent_without_waiting_for_a_reply() -> None:
    async with serving() as server, connected(server) as (me, peer):
        await me.signal("cursor", room="lobby", body={"x": 1}, key="me")
        await me.signal("wave", user="bob")
        await me.activity()
        cursor = await peer.next(c.SignalSend)
        assert (cursor.id, cursor.kind, cursor.room, cursor.key) == (None, "cursor", "lobby", "me")
        assert bytes(cursor.body) == b'{"x":1}'  # type: ignore[arg-type]
        assert await peer.next(c.SignalSend) == c.SignalSend(kind="wave", user="bob")
        await me.activity()  # called at every move, but sent once per interval
        await peer.next(c.Activity)
        await me.signal("wave", user="bob")
        await peer.next(c.SignalSend)
        with pytest.raises(ValueError, match="one of the two"):
            await me.signal("wave")


@run
async def test_typing_is_announced_once_and_taken_back_once() -> None:
    async with serving() as server, connected(server) as (me, peer):
        for _ in range(5):
            await me.typing("lobby")
        await me.stop_typing("lobby")
        await me.stop_typing("lobby")
        await me.typing("lobby")  # too soon: the server would throttle it
        await me.typing("elsewhere")
        assert (await peer.next(c.TypingStart)).room == "lobby"
        assert (await peer.next(c.TypingStop)).room == "lobby"
        assert (await peer.next(c.TypingStart)).room == "elsewhere"


@run
async def test_typing_is_announced_at_the_pace_of_the_welcome() -> None:
    async with serving() as server:
        me = Client(server.url, token="t", device="laptop")
        welcome = replace(a_welcome(), typing=TypingTimes(repeat_ms=0, hold_ms=1_000, throttle_ms=0))
        (peer, _), _ = await asyncio.gather(server.greet(welcome), me.__aenter__())
        for _ in range(3):
            await me.typing("lobby")
        await me.stop_typing("lobby")
        for _ in range(3):
            await peer.next(c.TypingStart)
        await peer.next(c.TypingStop)
        await me.bye()


@run
async def test_an_event_is_asked_for_by_its_class_or_its_name_until_it_is_undone() -> None:
    async with serving() as server, connected(server) as (me, peer):
        by_class: asyncio.Queue[TypingStarted] = asyncio.Queue()
        by_name: list[object] = []
        undo = me.on("typing.started", by_name.append)
        me.on(TypingStarted, by_class.put_nowait)
        for user in ("bob", "ann"):
            peer.event(TypingStarted("lobby", user, None, 5000))
            assert (await by_class.get()).user == user
            undo()
        assert len(by_name) == 1
        assert me.typing_text("lobby") == "bob and ann are typing…"
        assert me.typing_text("lobby", TypingWords(two="{0} und {1} schreiben …")) == "bob und ann schreiben …"


@run
async def test_many_users_are_watched_in_frames_the_server_reads() -> None:
    users = [f"{n:0128}" for n in range(1000)]
    async with serving() as server, connected(server) as (me, peer):

        async def answer() -> None:
            for _ in range(3):
                command = await peer.next(c.Watch)
                peer.reply(command, PresenceReply([a_presence(user) for user in command.users]))

        found = await both(me.watch(*users), answer())
        assert [entry.user for entry in found] == users == list(me.people)


@run
async def test_older_presence_is_not_delivered() -> None:
    async with serving() as server, connected(server) as (me, peer):

        async def answer() -> None:
            command = await peer.next(c.Watch)
            # The change comes after the snapshot. The client reads both in one turn, before the caller of `watch`
            # wakes.
            peer.reply(command, PresenceReply([a_presence(version=5)]), a_presence(version=6, state="idle"))
            peer.event(a_presence(version=5), a_presence(version=7, state="offline"))

        told: asyncio.Queue[Any] = asyncio.Queue()
        me.on("presence.changed", told.put_nowait)
        assert await both(me.watch("bob"), answer()) == [a_presence(version=5)]
        assert [(await told.get()).version, (await told.get()).version] == [6, 7]
        assert me.people["bob"].state == "offline"


@run
async def test_a_message_right_behind_a_joins_answer_is_neither_lost_nor_doubled() -> None:
    async with serving() as server, connected(server) as (me, peer):

        async def answer() -> None:
            reply = a_join(head=2, messages=(a_message(1), a_message(2)), typing=[Typer("ann", "Ann", 5000)])
            peer.reply(await peer.next(c.RoomJoin), reply, a_message(2), a_message(3))

        room = await both(me.join("lobby", after=0), answer())
        assert [message.seq for message in room.messages] == [1, 2]
        assert me.typers("lobby") == {"ann": "Ann"}
        async for event in me.events():
            if isinstance(event, RoomMessage):
                assert event.seq == 3
                assert body_of(event) == {"text": "hi"}
                break


@pytest.mark.parametrize(
    ("bounds", "asked"),
    [
        ({"after": 2}, [(None, 2, (3, 4)), (None, 4, (5,)), (None, 5, ())]),
        ({"before": 5}, [(5, None, (3, 4)), (3, None, (1, 2)), (1, None, ())]),
        ({}, [(None, None, (4, 5)), (4, None, (2, 3)), (2, None, ())]),
    ],
)
@run
async def test_the_history_is_walked_in_both_directions(bounds: dict[str, int], asked: list[Any]) -> None:
    async with serving() as server, connected(server) as (me, peer):

        async def answer() -> None:
            for before, after, numbers in asked:
                command = await peer.next(c.RoomHistory)
                assert (command.before, command.after) == (before, after)
                peer.reply(command, HistoryReply([*map(a_message, numbers)]))

        async def walk() -> list[tuple[int, ...]]:
            return [tuple(message.seq for message in page) async for page in me.pages("lobby", **bounds)]

        assert await both(walk(), answer()) == [numbers for _, _, numbers in asked if numbers]


@run
async def test_cursors_hold_what_the_program_took_and_not_what_waits_for_it() -> None:
    async with serving() as server, connected(server) as (me, peer):
        await joining(me, peer, head=3)
        peer.event(a_message(4), a_message(5), a_notification(1))
        assert me.cursors == {"rooms": {"lobby": 3}, "inbox": 0}
        events = me.events()
        for number, inbox in ((4, 0), (5, 0), (5, 1)):
            await take(events, 1, (RoomMessage, NotificationCreated))
            assert me.cursors == {"rooms": {"lobby": number}, "inbox": inbox}


@run
async def test_cursors_wait_for_callbacks_that_are_still_to_be_called() -> None:
    async with serving() as server, connected(server) as (me, peer):
        await joining(me, peer, head=3)
        go_on, called = asyncio.Semaphore(0), asyncio.Queue[int]()

        async def slowly(message: RoomMessage) -> None:
            called.put_nowait(message.seq)
            await go_on.acquire()

        me.on("room.message", slowly)
        peer.event(a_message(4), a_message(5))
        for number in (4, 5):
            assert await called.get() == number == me.cursors["rooms"]["lobby"]
            go_on.release()


@run
async def test_each_call_of_events_is_a_consumer_of_its_own_and_one_dropped_is_forgotten() -> None:
    async with serving() as server, connected(server) as (me, peer):
        first, second = me.events(), me.events()
        peer.event(TypingStarted("lobby", "bob", "Bob", 5000))
        assert await anext(second) == TypingStarted("lobby", "bob", "Bob", 5000)
        assert [(await anext(first)).type for _ in range(3)] == ["welcome", "state", "typing.started"]
        assert me.typers("lobby") == {"bob": "Bob"}
        del first, second
        gc.collect()
        assert len(me._audience._streams) == 0


@run
async def test_a_callback_may_close_the_client() -> None:
    async with serving() as server, connected(server) as (me, peer):
        closed = asyncio.Event()

        async def leave(_: object) -> None:
            await me.bye()
            closed.set()

        me.on("typing.started", leave)
        peer.event(TypingStarted("lobby", "bob", "Bob", 5000))
        await closed.wait()
        assert peer.said_bye
        assert me.state == "closed"


@run
async def test_an_async_callback_receives_the_closed_state() -> None:
    states: list[str] = []

    async def note(event: Any) -> None:
        await asyncio.sleep(0)
        states.append(event.state)

    async with serving() as server, connected(server) as (me, _):
        me.on("state", note)
        await me.bye()
        assert states == ["closed"]


def test_wrong_arguments_are_refused_before_a_connection_is_opened() -> None:
    with pytest.raises(ValueError, match="ws://127"):
        Client("http://127.0.0.1:8000", token="t")
    with pytest.raises(ValueError, match="not a valid id"):
        Client("ws://127.0.0.1:8000/v1/connect", token="t", device="my laptop")
    with pytest.raises(ValueError, match=r"unknown event `presence\.change`; did you mean `presence\.changed`"):
        Client("ws://127.0.0.1:8000/v1/connect", token="t").on("presence.change", print)
    with pytest.raises(ValueError, match="unknown event"):
        Client("ws://127.0.0.1:8000/v1/connect", token="t").on(Event, print)
    with pytest.raises(TypeError, match="no option storage"):
        Client("ws://127.0.0.1:8000/v1/connect", token="t", storage=1)  # type: ignore[call-arg]


def test_a_token_is_not_shown() -> None:
    assert "s3cret" not in repr(Client("ws://127.0.0.1/", token="s3cret")._session._target)


@run
async def test_a_refused_signal_raises_if_a_reply_was_asked_for() -> None:
    async with serving() as server, connected(server) as (me, peer):
        await me.signal("wave", user="bob")
        assert (await peer.next(c.SignalSend)).id is None

        async def refuse() -> None:
            peer.error(await peer.next(c.SignalSend), "forbidden")

        with pytest.raises(CommandRefused, match="forbidden"):
            await both(me.signal("wave", user="bob", reply=True), refuse())
