"""Connecting, reconnecting and giving up, with a server that the test controls."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest

from greendot.client import Backoff, Client, Closed, ConnectionRefused, Disconnected, StateChanged, Unreachable
from greendot.client import session as session_module
from greendot.client import state as state_module
from greendot.protocol.commands import Hello, RoomJoin, RoomList, RoomSend, Watch
from greendot.protocol.events import Drain, Presence, RoomMessage, TypingStarted, TypingStopped
from greendot.protocol.replies import PresenceReply

from .wire import (
    AT_ONCE,
    a_join,
    a_message,
    a_presence,
    a_welcome,
    both,
    connected,
    joining,
    run,
    serving,
    state,
    take,
    watching,
)

# --- first connection ---


@pytest.mark.parametrize("code", [4500, 4504])
@run
async def test_a_bad_token_is_refused_at_once(code: int) -> None:
    async with serving() as server:

        async def refuse() -> None:
            peer = await server.next()
            await peer.next(Hello)
            peer.close(code, "this token is not valid")

        refusing = asyncio.create_task(refuse())
        with pytest.raises(ConnectionRefused, match="this token is not valid") as caught:
            async with Client(server.url, token="bad"):
                pass
        assert caught.value.code == code
        await refusing


@run
async def test_the_first_connection_is_tried_until_the_time_is_over() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"ws://127.0.0.1:{taken.getsockname()[1]}/v1/connect"
        me = Client(url, token="t", backoff=Backoff(base_s=0.01, give_up_s=0.3))
        with pytest.raises(Unreachable, match=r"no connection to ws://127.*0\.3 s: .*failed"):
            async with me:
                pass
        assert me.state == "closed"


@run
async def test_a_server_that_comes_up_late_is_reached() -> None:
    async with serving() as server:
        me = Client(server.url, token="t", backoff=AT_ONCE)

        async def stumble() -> None:
            (await server.next()).drop()
            await server.greet()

        await both(me.__aenter__(), stumble())
        assert me.state == "connected"
        await me.bye()


@run
async def test_a_token_function_that_never_worked_fails_the_first_connection() -> None:
    def broken() -> str:
        raise LookupError("no such file")

    async with serving() as server:
        with pytest.raises(LookupError):
            async with Client(server.url, token=broken):
                pass


@run
async def test_a_client_given_up_while_connecting_leaves_nothing_behind() -> None:
    async with serving() as server:
        me = Client(server.url, token="t")
        opening = asyncio.create_task(me.__aenter__())
        peer = await server.next()
        await peer.next(Hello)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert await peer.closed == 1006
        assert me.state == "closed"


@run
async def test_a_client_that_is_closed_when_an_attempt_reaches_its_time_limit_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session_module, "ATTEMPT_S", 0.05)
    async with serving() as server:
        me = Client(server.url, token="t", backoff=AT_ONCE)
        opening = asyncio.create_task(me.__aenter__())
        await (await server.next()).next(Hello)  # not answered
        keeper = me._session._keeper
        assert keeper is not None
        # The time limit cancels the attempt, and the attempt closes its socket.
        while not keeper.cancelling():  # noqa: ASYNC110  (a state without an event)
            await asyncio.sleep(0)
        async with asyncio.timeout(5):
            await me.close()
        assert me.state == "closed"
        await asyncio.gather(opening, return_exceptions=True)


# --- reconnection ---


@pytest.mark.parametrize("token", ["t", lambda: "t"])
@run
async def test_the_hello_has_token_device_and_client_and_no_resume(token: str | Callable[[], str]) -> None:
    async with serving() as server:
        me = Client(server.url, token=token, device="phone")
        (peer, hello), _ = await asyncio.gather(server.greet(), me.__aenter__())
        assert (hello.token, hello.device, hello.resume) == ("t", "phone", None)
        assert hello.supports == {"notification.updated": [1, 2]}
        assert hello.client.name == "greendot-python"
        await me.bye()
        assert peer.said_bye


@pytest.mark.parametrize("code", [4000, 4002, 4005, 1006, 1011])
@run
async def test_a_returning_client_resumes_with_a_fresh_token(code: int) -> None:
    tokens = iter(["first", "second"])

    async def fresh() -> str:
        return next(tokens)

    async with serving() as server, connected(server, token=fresh) as (me, peer):
        await joining(me, peer, "lobby", head=7)
        peer.event(a_message(8))
        events = me.events()
        peer.close(code) if code != 1006 else peer.drop()
        peer, hello = await server.greet(a_welcome("abcd-2"))
        assert hello.token == "second"
        assert hello.resume is not None
        assert hello.resume.session == "abcd-1"
        assert hello.resume.rooms == {"lobby": 8}
        peer.reply(await peer.next(RoomJoin), a_join(head=8))
        await state(me, "connected")
        changes = await take(events, 3, StateChanged)
        assert [change.state for change in changes] == ["connected", "reconnecting", "connected"]
        assert changes[1].code == code


@run
async def test_a_token_that_has_expired_and_cannot_be_renewed_ends_the_client() -> None:
    async with serving() as server, connected(server, token="always the same") as (me, peer):
        peer.close(4005, "token expired")
        await state(me, "closed")
        with pytest.raises(ConnectionRefused, match="4005: token expired"):
            await me.rooms()


@run
async def test_other_commands_fail_with_the_connection_and_while_there_is_none() -> None:
    async with serving() as server, connected(server) as (me, peer):
        asking = asyncio.create_task(me.rooms())
        await peer.next(RoomList)
        peer.close(4001, "too slow")
        with pytest.raises(Disconnected, match="4001"):
            await asking
        await state(me, "reconnecting")
        with pytest.raises(Disconnected):
            await me.rooms()
        await me.typing("lobby")
        await me.activity()


@run
async def test_the_time_the_server_asks_for_is_given_to_it() -> None:
    asked: list[tuple[int, int | None]] = []

    class Recorded(Backoff):
        def delay(self, failures: int, retry_in_ms: int | None = None) -> float:
            asked.append((failures, retry_in_ms))
            return 0.0

    async with serving() as server, connected(server, backoff=Recorded()) as (me, peer):
        peer.event(Drain(1234))
        peer.close(4000)
        for _ in range(2):
            (await server.next()).drop()
        await server.greet()
        await state(me, "connected")
        assert asked == [(0, 1234), (1, None), (2, None)]


# --- no reconnection ---


@run
async def test_a_session_that_moved_to_a_lost_connection_of_this_client_is_taken_back_once() -> None:
    async with serving() as server, connected(server, backoff=AT_ONCE) as (me, peer):
        peer.drop()
        lost = await server.next()
        await lost.next(Hello)
        lost.drop()
        peer, _ = await server.greet()
        await state(me, "connected")
        peer.close(4505, "session resumed elsewhere")  # the server has executed the lost hello
        peer, _ = await server.greet()
        await state(me, "connected")
        peer.close(4505, "session resumed elsewhere")  # by another program
        await state(me, "closed")


@run
async def test_a_hello_is_repeated_once_if_a_lost_hello_of_this_client_took_the_session() -> None:
    async with serving() as server, connected(server, backoff=AT_ONCE) as (me, peer):
        peer.drop()
        lost = await server.next()
        await lost.next(Hello)
        lost.drop()
        peer = await server.next()
        await peer.next(Hello)
        peer.close(4505, "session resumed elsewhere")  # the server has executed the lost hello
        peer = await server.next()
        await peer.next(Hello)
        peer.close(4505, "session resumed elsewhere")  # by another program
        await state(me, "closed")


@run
async def test_a_hello_that_is_closed_as_replaced_is_not_repeated() -> None:
    async with serving() as server, connected(server, backoff=AT_ONCE) as (me, peer):
        peer.drop()
        peer = await server.next()
        await peer.next(Hello)
        peer.close(4505, "session resumed elsewhere")  # by another program
        await state(me, "closed")


@pytest.mark.parametrize("code", [4501, 4503, 4505])
@run
async def test_a_client_closed_by_the_server_stops_and_fails_all_pending_calls(code: int) -> None:
    async with serving() as server, connected(server) as (me, peer):
        events = me.events()
        waiting = [asyncio.create_task(me.rooms()), asyncio.create_task(me.send("lobby", 1))]
        await peer.next(RoomList)
        peer.close(code, "go away")
        for task in waiting:
            with pytest.raises(ConnectionRefused, match="go away"):
                await task
        await state(me, "closed")
        with pytest.raises(ConnectionRefused, match=str(code)):
            async for _ in events:
                pass
        with pytest.raises(ConnectionRefused):
            await me.watch("bob")
        with pytest.raises(ConnectionRefused):
            await me.send("lobby", 2)
        assert server.peers.empty()


@run
async def test_a_closed_client_ends_its_events_and_refuses_commands() -> None:
    async with serving() as server, connected(server) as (me, peer):
        events = me.events()
        sending = asyncio.create_task(me.send("lobby", 1))
        await peer.next(RoomSend)
        await me.close()
        assert await peer.closed == 1001
        assert not peer.said_bye
        with pytest.raises(Closed):
            await sending
        with pytest.raises(Closed):
            await me.rooms()
        assert [e.state async for e in events if isinstance(e, StateChanged)] == ["connected", "closed"]
        with pytest.raises(Closed):
            await me.__aenter__()


@run
async def test_a_client_may_be_closed_while_it_is_away() -> None:
    async with serving() as server, connected(server, backoff=Backoff(base_s=60, random=lambda: 1.0)) as (me, peer):
        peer.drop()
        await state(me, "reconnecting")
        await me.bye()
        assert me.state == "closed"


@run
async def test_closing_twice_at_once_is_closing_once() -> None:
    async with serving() as server, connected(server) as (me, peer):
        await asyncio.gather(me.bye(), me.close(), me.bye())
        assert peer.said_bye
        assert await peer.closed == 1000


@run
async def test_a_client_never_connected_may_be_closed() -> None:
    me = Client("ws://127.0.0.1:1/", token="t")
    await me.bye()
    with pytest.raises(Closed):
        await me.__aenter__()


# --- typing ---


@run
async def test_a_typer_without_further_events_is_reported_as_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "TYPING_SLACK_S", 0.0)
    async with serving() as server, connected(server) as (me, peer):
        stopped: asyncio.Queue[TypingStopped] = asyncio.Queue()
        me.on("typing.stopped", stopped.put_nowait)
        peer.event(TypingStarted("lobby", "bob", "Bob", 10), TypingStarted("lobby", "ann", "Ann", 30))
        assert await stopped.get() == TypingStopped("lobby", "bob")
        assert await stopped.get() == TypingStopped("lobby", "ann")
        assert me.typers("lobby") == {}


@run
async def test_a_message_ends_the_typing_of_its_user_with_or_without_a_frame_of_the_server() -> None:
    async with serving() as server, connected(server) as (me, peer):
        await joining(me, peer)
        events = me.events()
        peer.event(TypingStarted("lobby", "bob", "Bob", 5000), TypingStarted("lobby", "ann", "Ann", 5000))
        peer.event(a_message(1), TypingStopped("lobby", "bob"), TypingStopped("lobby", "ann"))
        told = await take(events, 3, (TypingStopped, RoomMessage))
        assert [event.type for event in told] == ["typing.stopped", "room.message", "typing.stopped"]
        assert [told[0].user, told[2].user] == ["bob", "ann"]


# --- absence ---


@run
async def test_presence_is_marked_stale_when_the_server_was_silent_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "AGED_S", 0.02)
    slow = Backoff(base_s=60, random=lambda: 1.0)
    async with serving() as server, connected(server, backoff=slow) as (me, peer):
        await watching(me, peer, "bob")
        told: asyncio.Queue[Presence] = asyncio.Queue()
        me.on(Presence, told.put_nowait)
        peer.drop()
        aged = await told.get()
        assert (aged.user, aged.stale, me.people["bob"].stale) == ("bob", True, True)
        assert me.state == "reconnecting"


@run
async def test_who_comes_back_in_time_saw_nothing_age(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as server, connected(server) as (me, peer):
        await watching(me, peer, "bob")
        told: list[Presence] = []
        me.on(Presence, told.append)
        peer.drop()
        peer, _ = await server.greet()
        peer.reply(await peer.next(Watch), PresenceReply([a_presence("bob", 1)]))
        await state(me, "connected")
        assert me._session._ageing is not None
        assert me._session._ageing.cancelled()
        assert told == []


@run
async def test_a_program_receives_the_delay_until_the_next_attempt() -> None:
    async with serving() as server, connected(server, backoff=Backoff(base_s=60, random=lambda: 0.5)) as (me, peer):
        changes: asyncio.Queue[StateChanged] = asyncio.Queue()
        me.on(StateChanged, changes.put_nowait)
        peer.close(4003, "overloaded")
        assert await changes.get() == StateChanged("reconnecting", 4003, "overloaded", 15.0)


@run
async def test_the_servers_clock_is_known_from_the_welcome() -> None:
    async with serving() as server, connected(server) as (me, _):
        assert 0 <= me.now_ms() < 20_000  # the server's clock, which was 0 in the welcome
