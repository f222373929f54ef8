"""Reads of watched users in mode `poll`: about once a minute, while there are such users, and no longer."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from greendot.client import polling
from greendot.protocol.commands import PresenceGet, RoomList, Unwatch, Watch
from greendot.protocol.events import Presence
from greendot.protocol.replies import PresenceReply, Reply, RoomsReply

from .wire import Peer, a_presence, both, connected, run, serving


def star(version: int = 1, *, recently: bool = True, user: str = "star") -> Presence:
    return replace(a_presence(user, version), mode="poll", recently_active=recently)


async def answer(peer: Peer, kind: type[Watch] | type[PresenceGet], *entries: Presence) -> list[str]:
    command = await peer.next(kind)
    peer.reply(command, PresenceReply([*entries]))
    return command.users


@run
async def test_polled_users_are_read_again_and_again_and_changes_are_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "POLL_S", 0.01)
    async with serving() as server, connected(server) as (me, peer):
        told: list[Presence] = []
        me.on(Presence, told.append)
        await both(me.watch("star", "bob"), answer(peer, Watch, star(), a_presence("bob")))
        assert await answer(peer, PresenceGet, star(recently=False)) == ["star"]
        assert await answer(peer, PresenceGet, star(recently=False)) == ["star"]
        assert await answer(peer, PresenceGet, star(2)) == ["star"]
        await answer(peer, PresenceGet, star(2))
        assert [(entry.version, entry.recently_active) for entry in told] == [(1, False), (2, True)]
        assert me.people["star"].recently_active is True


@run
async def test_a_user_is_polled_from_the_change_of_the_mode_until_it_is_live_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(polling, "POLL_S", 0.01)
    async with serving() as server, connected(server) as (me, peer):
        await both(me.watch("star"), answer(peer, Watch, a_presence("star")))
        peer.event(star())
        assert await answer(peer, PresenceGet, a_presence("star", 3)) == ["star"]
        await asyncio.sleep(0.05)

        async def rooms() -> None:
            peer.reply(await peer.next(RoomList), RoomsReply([]))  # no read came before it

        await both(me.rooms(), rooms())


@run
async def test_a_user_who_is_no_longer_watched_is_not_polled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "POLL_S", 0.05)
    async with serving() as server, connected(server) as (me, peer):
        await both(me.watch("star"), answer(peer, Watch, star()))

        async def release() -> None:
            peer.reply(await peer.next(Unwatch), Reply())

        await both(me.unwatch("star"), release())
        await asyncio.sleep(0.1)

        async def rooms() -> None:
            peer.reply(await peer.next(RoomList), RoomsReply([]))

        await both(me.rooms(), rooms())


@run
async def test_polling_continues_after_a_reconnect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "POLL_S", 0.03)
    async with serving() as server, connected(server) as (me, peer):
        await both(me.watch("star"), answer(peer, Watch, star()))
        peer.drop()
        peer, _ = await server.greet()
        await answer(peer, Watch, star())
        assert await answer(peer, PresenceGet, star(2)) == ["star"]


@run
async def test_the_first_read_is_after_a_random_time_around_a_minute() -> None:
    async with serving() as server, connected(server) as (me, peer):
        await both(me.watch("star"), answer(peer, Watch, star()))
        timer = me._polling._timer
        assert timer is not None
        assert 47 < timer.when() - asyncio.get_running_loop().time() < 73
