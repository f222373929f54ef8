"""Cursors that the client saves by itself, up to the last handled record."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from greendot.client import Client, Cursors, FileCursors, MemoryCursors
from greendot.client import storage as storage_module
from greendot.protocol.commands import RoomJoin
from greendot.protocol.events import NotificationCreated, RoomMessage, RoomState

from .wire import (
    AT_ONCE,
    Peer,
    Server,
    a_join,
    a_message,
    a_notification,
    a_welcome,
    connected,
    run,
    serving,
    state,
    take,
)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_module, "SAVE_S", 0.0)


class Kept(MemoryCursors):
    """Cursor storage that records every save."""

    def __init__(self, cursors: Cursors | None = None) -> None:
        super().__init__(cursors)
        self.saved: asyncio.Queue[Cursors] = asyncio.Queue()

    def save(self, cursors: Cursors) -> None:
        super().save(cursors)
        self.saved.put_nowait(cursors)


def at(lobby: int, inbox: int | None = 0) -> Cursors:
    return {"rooms": {"lobby": lobby}, "inbox": inbox}


async def following(server: Server, kept: Any, lobby: int = 0) -> tuple[Client, Peer]:
    """Connect a client that continues the room from its saved cursor."""
    me = Client(server.url, "t", cursors=kept, backoff=AT_ONCE)
    welcome = a_welcome(lobby=RoomState(lobby, True, False))
    (peer, hello), _ = await asyncio.gather(server.greet(welcome), me.__aenter__())
    assert hello.resume is not None
    assert hello.resume.rooms == {"lobby": lobby}
    return me, peer


@run
async def test_a_program_is_brought_to_where_the_last_one_had_handled_everything() -> None:
    kept = Kept(at(3))
    async with serving() as server:
        me, peer = await following(server, kept, 3)
        events = me.events()
        peer.event(a_message(4), a_message(5))
        for number in (4, 5):
            assert (await take(events, 1, RoomMessage))[0].seq == number
        assert await kept.saved.get() == at(4)  # the program has not finished number 5
        await me.bye()
        assert kept.cursors == at(5)


@run
async def test_a_program_that_fails_receives_the_failed_event_again() -> None:
    kept = Kept(at(0))
    async with serving() as server:
        me, peer = await following(server, kept)
        peer.event(a_message(1), a_message(2))
        events = me.events()
        await take(events, 2, RoomMessage)
        await me.__aexit__(LookupError, LookupError(), None)
        assert kept.cursors == at(1)


@run
async def test_what_a_callback_is_busy_with_is_not_handled_yet() -> None:
    kept, go_on = Kept(at(0)), asyncio.Semaphore(0)
    async with serving() as server:
        me, peer = await following(server, kept)

        async def slowly(_: object) -> None:
            await go_on.acquire()

        me.on(RoomMessage, slowly)
        me.on(NotificationCreated, lambda _: None)  # handled at once
        peer.event(a_message(1), a_message(2), a_notification(1))
        while (saved := await kept.saved.get()) != at(0, 1):
            assert saved["rooms"] == {"lobby": 0}
        go_on.release()
        while (saved := await kept.saved.get()) != at(1, 1):
            assert saved == at(0, 1)
        go_on.release()
        while await kept.saved.get() != at(2, 1):
            pass
        await me.bye()


@run
async def test_the_cursor_of_a_joined_room_is_saved_before_its_first_message() -> None:
    kept = Kept()
    async with serving() as server, connected(server, cursors=kept) as (me, peer):
        joining = asyncio.create_task(me.join("lobby"))
        peer.reply(await peer.next(RoomJoin), a_join(head=7))
        await joining
        assert await kept.saved.get() == at(7)


@run
async def test_a_storage_that_fails_does_not_end_the_program() -> None:
    class Full(Kept):
        def save(self, cursors: Cursors) -> None:
            super().save(cursors)
            raise OSError("no space left")

    kept = Full(at(0))
    async with serving() as server:
        me, peer = await following(server, kept)
        me.on(RoomMessage, lambda _: None)
        for number in (1, 2):
            peer.event(a_message(number))
            while await kept.saved.get() != at(number):
                pass
        await me.bye()
        assert me.state == "closed"


@run
async def test_a_client_that_was_never_connected_or_is_refused_keeps_what_there_was() -> None:
    kept = Kept(at(9))
    await Client("ws://127.0.0.1:1/", "t", cursors=kept).bye()
    assert kept.saved.empty()
    async with serving() as server:
        me, peer = await following(server, kept, 9)
        me.on(RoomMessage, lambda _: None)
        peer.event(a_message(10))
        peer.close(4503)
        await state(me, "closed")
        await me.bye()
        assert kept.cursors == at(10)


def test_a_file_keeps_them_and_is_never_half_written(tmp_path: Path) -> None:
    path = tmp_path / "cursors.json"
    assert FileCursors(path).load() is None
    assert FileCursors(path, first=at(0)).load() == at(0)
    FileCursors(path).save(at(5, None))
    assert FileCursors(str(path), first=at(0)).load() == at(5, None)
    assert [file.name for file in tmp_path.iterdir()] == ["cursors.json"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"rooms": {"lobby": "x"}, "inbox": 0}', '{"rooms": {}}'])
def test_a_file_that_holds_something_else_is_not_taken_for_a_beginning(tmp_path: Path, content: str) -> None:
    path = tmp_path / "cursors.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"cursors\.json does not hold cursors .*: remove it to begin anew"):
        FileCursors(path).load()
