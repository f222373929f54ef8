"""The Python client against the real server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from greendot.client import Client, ConnectionRefused
from greendot.client.backoff import Backoff
from greendot.protocol.events import Presence, RoomMessage, Signal, TypingStarted
from greendot.testing import Served, serving


def client(served: Served, user: str, **options: Any) -> Client:
    url = f"ws://127.0.0.1:{served.port}/v1/connect"
    return Client(url, lambda: served.token(user), backoff=Backoff(base_s=0.01, cap_s=0.05), **options)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  (a condition of the client's state, which has no event)
            await asyncio.sleep(0.005)


async def next_of(events: Any, kind: type) -> Any:
    async with asyncio.timeout(10):
        async for event in events:
            if isinstance(event, kind):
                return event
    raise AssertionError(f"the events ended without a {kind.__name__}")


async def test_two_people_see_each_other_type_and_talk() -> None:
    async with serving() as served:
        await served.lobby()
        async with client(served, "alice", device="laptop") as alice, client(served, "bob") as bob:
            (seen,) = await bob.watch("alice")
            assert (seen.state, seen.devices) == ("online", ["laptop"])
            await asyncio.gather(alice.join("lobby"), bob.join("lobby"))
            events = bob.events()
            await alice.typing("lobby")
            assert (await next_of(events, TypingStarted)).user == "alice"
            assert bob.typers("lobby") == {"alice": "Alice"}
            reply = await alice.send("lobby", {"text": "hi"})
            message = await next_of(events, RoomMessage)
            assert (message.seq, bytes(message.body)) == (reply.seq, b'{"text":"hi"}')
            assert bob.typers("lobby") == {}
            await alice.signal("cursor", room="lobby", body={"x": 1}, key="me")
            assert (await next_of(events, Signal)).kind == "cursor"
            await alice.set_status("busy", text="away")
            assert (await next_of(events, Presence)).state == "busy"
            assert bob.people["alice"].status_text == "away"


async def test_a_lost_socket_is_found_again_with_its_watches_and_rooms_and_what_was_missed() -> None:
    async with serving() as served:
        await served.lobby()
        async with client(served, "alice") as alice, client(served, "bob") as bob, client(served, "carol") as carol:
            await bob.watch("carol")
            await asyncio.gather(alice.join("lobby"), bob.join("lobby"))
            await carol.watch("bob")
            told: list[str] = []
            carol.on("presence.changed", lambda event: told.append(event.state))
            heard: list[int] = []
            bob.on("room.message", lambda event: heard.append(event.seq))
            await alice.send("lobby", 1)
            await until(lambda: heard == [1])
            session = bob.welcome.session
            states: list[str] = []
            bob.on("state", lambda event: states.append(event.state))
            for connection in served.node.registry.connections_of("default", "bob"):
                connection.abort()
            await alice.send("lobby", 2)
            await until(lambda: states == ["reconnecting", "connected"])
            await alice.send("lobby", 3)
            await until(lambda: heard == [1, 2, 3])
            assert bob.welcome.session == session
            assert bob.welcome.resumed
            await carol.set_status("busy")
            await until(lambda: bob.people["carol"].state == "busy")
            assert told == []


async def test_a_wrong_token_is_refused_with_its_code() -> None:
    async with serving() as served:
        wrong = Client(f"ws://127.0.0.1:{served.port}/v1/connect", "not a token")
        with pytest.raises(ConnectionRefused) as refused:
            await wrong.__aenter__()
        assert refused.value.code == 4500


async def test_leaving_says_bye_so_that_others_see_it_at_once() -> None:
    async with serving() as served, client(served, "bob") as bob:
        async with client(served, "alice"):
            await bob.watch("alice")
        await until(lambda: bob.people["alice"].state == "offline")
        assert bob.people["alice"].last_seen == served.clock.now_ms()
