"""Watches of the client, counted per user and sent together, with a server that the test controls."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from greendot.client import CommandRefused, Disconnected
from greendot.protocol.commands import RoomList, Unwatch, Watch
from greendot.protocol.replies import PresenceReply, Reply, RoomsReply

from .wire import Peer, a_presence, both, connected, run, serving, state, watching


async def grant(peer: Peer) -> list[str]:
    """Answer a watch and return its users."""
    command = await peer.next(Watch)
    peer.reply(command, PresenceReply([a_presence(user) for user in command.users]))
    return command.users


async def release(peer: Peer) -> list[str]:
    command = await peer.next(Unwatch)
    peer.reply(command, Reply())
    return command.users


async def nothing_else(me: Any, peer: Peer) -> None:
    """Check that the client has sent no other command: the next one must be the `room.list` of this call."""

    async def answer() -> None:
        peer.reply(await peer.next(RoomList), RoomsReply([]))

    await both(me.rooms(), answer())


@run
async def test_what_is_asked_for_in_one_turn_goes_out_in_one_frame() -> None:
    async with serving() as server, connected(server) as (me, peer):
        asked = asyncio.gather(*(me.watch(f"u{number}", "ann") for number in range(200)))
        assert await grant(peer) == ["u0", "ann", *(f"u{number}" for number in range(1, 200))]
        found = await asked
        assert [[entry.user for entry in entries] for entries in found] == [[f"u{n}", "ann"] for n in range(200)]
        await nothing_else(me, peer)


@run
async def test_a_user_is_unwatched_when_its_last_watcher_leaves() -> None:
    async with serving() as server, connected(server) as (me, peer):
        await watching(me, peer, "bob", "ann")
        assert [entry.user for entry in await me.watch("bob")] == ["bob"]  # no command is sent to the server
        await me.unwatch("bob")
        assert [*me.people] == ["bob", "ann"]
        _, gone = await asyncio.gather(me.unwatch("bob"), release(peer))
        assert (gone, [*me.people]) == (["bob"], ["ann"])
        await nothing_else(me, peer)


@run
async def test_who_is_let_go_and_wanted_again_in_the_same_turn_is_kept() -> None:
    async with serving() as server, connected(server) as (me, peer):
        await watching(me, peer, "bob")
        gone, back = asyncio.create_task(me.unwatch("bob")), asyncio.create_task(me.watch("bob"))
        assert await grant(peer) == ["bob"]
        await asyncio.gather(gone, back)
        assert [*me.people] == ["bob"]
        await nothing_else(me, peer)


@run
async def test_one_bad_wish_does_not_spoil_those_of_others() -> None:
    async with serving() as server, connected(server) as (me, peer):
        good, bad = asyncio.create_task(me.watch("bob")), asyncio.create_task(me.watch("hidden"))
        command = await peer.next(Watch)
        assert command.users == ["bob", "hidden"]
        peer.error(command, "forbidden")
        for _ in range(2):
            command = await peer.next(Watch)
            if command.users == ["bob"]:
                peer.reply(command, PresenceReply([a_presence("bob")]))
            else:
                peer.error(command, "forbidden")
        assert [entry.user for entry in await good] == ["bob"]
        with pytest.raises(CommandRefused):
            await bad
        assert [*me.people] == ["bob"]


@run
async def test_a_wish_that_was_refused_counts_for_nothing() -> None:
    async with serving() as server, connected(server) as (me, peer):

        async def refuse() -> None:
            peer.error(await peer.next(Watch), "too_many")

        with pytest.raises(CommandRefused):
            await both(me.watch("bob"), refuse())
        await watching(me, peer, "bob")
        _, gone = await asyncio.gather(me.unwatch("bob"), release(peer))
        assert gone == ["bob"]


@run
async def test_who_stops_waiting_is_not_left_watching() -> None:
    async with serving() as server, connected(server) as (me, peer):
        wish = asyncio.create_task(me.watch("bob"))
        command = await peer.next(Watch)
        wish.cancel()
        peer.reply(command, PresenceReply([a_presence("bob")]), a_presence("bob", 2))
        assert await release(peer) == ["bob"]
        await nothing_else(me, peer)
        assert dict(me.people) == {}


@run
async def test_a_lost_connection_fails_each_pending_watch_and_adds_no_watched_user() -> None:
    async with serving() as server, connected(server) as (me, peer):
        await watching(me, peer, "ann")
        wishes = [asyncio.create_task(me.watch(user)) for user in ("bob", "eve")]
        await peer.next(Watch)
        peer.drop()
        errors = await asyncio.gather(*wishes, return_exceptions=True)
        assert [type(error) for error in errors] == [Disconnected, Disconnected]
        assert errors[0] is not errors[1]
        peer, _ = await server.greet()
        assert await grant(peer) == ["ann"]
        await state(me, "connected")


@run
async def test_without_a_connection_letting_go_is_done_at_once() -> None:
    async with serving() as server, connected(server) as (me, peer):
        await watching(me, peer, "ann", "bob")
        peer.drop()
        await state(me, "reconnecting")
        await me.unwatch("bob")
        peer, _ = await server.greet()
        assert await grant(peer) == ["ann"]
        await state(me, "connected")


@run
async def test_each_watch_of_a_polled_user_sends_a_request() -> None:
    async with serving() as server, connected(server) as (me, peer):
        for recently in (True, False):

            async def answer(recently: bool = recently) -> None:
                star = replace(a_presence("star"), mode="poll", recently_active=recently)
                peer.reply(await peer.next(Watch), PresenceReply([star]))

            (star,) = await both(me.watch("star"), answer())
            assert star.recently_active is recently


@run
async def test_a_block_watches_while_it_lasts_whatever_ends_it() -> None:
    async with serving() as server, connected(server) as (me, peer):

        async def fail() -> None:
            async with me.watching("bob", "bob") as people:
                assert [person.user for person in people] == ["bob", "bob"]
                raise LookupError

        failing = asyncio.create_task(fail())
        assert await grant(peer) == await release(peer) == ["bob"]
        with pytest.raises(LookupError):
            await failing
        granted = asyncio.create_task(grant(peer))
        async with me.watching("ann"):
            await granted
            await me.bye()
