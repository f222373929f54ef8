"""Signals show their sender: those of invisible users are refused or anonymous, and hidden users send none."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from e2e.narrow import connection_of, peer
from e2e.processes import ask, until
from greendot.engine.messages import Topic
from greendot.testing import Served, WireClient, serving
from greendot.testing.hold import hold
from greendot.testing.server import API_KEY

KINDS: dict[str, Any] = {
    "cursor": {"invisible": "anonymous"},
    "wave": {"invisible": "show"},
    "ping": {"invisible": "refuse"},
}


async def signals(client: WireClient) -> list[dict[str, Any]]:
    """Return the data of the signals that the client has received."""
    return [frame["data"] for frame in await client.quiet() if frame["type"] == "signal"]


async def refusal(client: WireClient, **command: Any) -> dict[str, Any]:
    """Send a command and return its error."""
    client.send(**command, id="refused")
    (frame,) = [frame for frame in await client.quiet() if frame.get("id") == "refused"]
    assert frame["type"] == "error", frame
    return frame


async def room_of(served: Served, *users: str) -> list[WireClient]:
    await served.lobby()
    return [await served.joined(user) for user in users]


@pytest.mark.parametrize("kind", ["ping", "other"])
@pytest.mark.parametrize("to", [{"room": "lobby"}, {"user": "bob"}], ids=["room", "user"])
async def test_a_signal_of_an_invisible_user_is_refused_unless_its_kind_allows_it(
    kind: str, to: dict[str, Any]
) -> None:
    async with serving(kinds=KINDS) as served:
        ann, bob = await room_of(served, "ann", "bob")
        await ann.request(type="status.set", status="invisible")
        error = await refusal(ann, type="signal.send", kind=kind, **to)
        assert error["code"] == "forbidden"
        assert f"the user is invisible, and signals of kind '{kind}' would show the user" in error["message"]
        ann.send(type="signal.send", kind=kind, **to)
        assert [frame["code"] for frame in await ann.quiet()] == ["forbidden"]
        assert await signals(bob) == []
        await ann.request(type="status.set", status="auto")
        await ann.request(type="signal.send", kind=kind, **to)
        assert [signal["from"] for signal in await signals(bob)] == ["ann"]


@pytest.mark.parametrize("to", [{"room": "lobby"}, {"user": "bob"}], ids=["room", "user"])
async def test_an_anonymous_signal_names_nobody_and_its_key_cannot_be_traced(to: dict[str, Any]) -> None:
    async with serving(kinds=KINDS) as served:
        ann, bob = await room_of(served, "ann", "bob")
        keys = []
        for _ in range(2):
            await ann.request(type="status.set", status="invisible")
            for number in range(2):
                await ann.request(type="signal.send", kind="cursor", key="ann", body=number, trace="of ann", **to)
            await ann.request(type="signal.send", kind="cursor", **to)
            frames = [frame for frame in await bob.quiet() if frame["type"] == "signal"]
            assert "ann" not in str(frames).casefold()
            first, second, third = (frame["data"] for frame in frames)
            assert (first["from"], first["name"], first["body"]) == (None, None, 0)
            assert first["key"] == second["key"], "a newer value replaces an older one"
            assert "key" not in third
            keys.append(first["key"])
            await ann.request(type="status.set", status="auto")
        assert keys[0] != keys[1], "two times of invisibility cannot be linked"
        await ann.request(type="signal.send", kind="cursor", key="ann", **to)
        assert [(signal["from"], signal["key"]) for signal in await signals(bob)] == [("ann", "ann")]


async def test_a_kind_can_show_invisible_users() -> None:
    async with serving(kinds=KINDS) as served:
        ann, bob = await room_of(served, "ann", "bob")
        await ann.request(type="status.set", status="invisible")
        await ann.request(type="signal.send", kind="wave", room="lobby", key="k")
        assert [(signal["from"], signal["key"]) for signal in await signals(bob)] == [("ann", "k")]


async def test_an_invisible_user_signals_the_own_devices() -> None:
    async with serving() as served:
        ann, laptop = await served.client("ann"), await served.client("ann", device="laptop")
        await ann.request(type="status.set", status="invisible")
        await ann.request(type="signal.send", kind="sync", user="ann")
        assert [signal["from"] for signal in await signals(laptop)] == ["ann"]


async def test_a_signal_of_the_app_is_its_own_whatever_the_status() -> None:
    async with serving() as served:
        ann, bob = await room_of(served, "ann", "bob")
        await ann.request(type="status.set", status="invisible")
        await ann.request(type="privacy.set", hide_from=["bob"])
        for to in ({"room": "lobby"}, {"user": "bob"}):
            body = {"kind": "ping", "from": "ann", **to}
            answer = await ask(served.port, "POST", "/v1/signals", body, Authorization=f"Bearer {API_KEY}")
            assert answer.status == 202
        assert [signal["from"] for signal in await signals(bob)] == ["ann", "ann"]


async def test_a_user_from_whom_the_sender_hides_gets_no_signal() -> None:
    async with serving() as served:
        ann, bob, eve = await room_of(served, "ann", "bob", "eve")
        laptop = await served.joined("ann", device="laptop")
        await ann.request(type="privacy.set", hide_from=["bob"])
        await ann.request(type="signal.send", kind="cursor", room="lobby")
        assert [len(await signals(client)) for client in (bob, eve, laptop, ann)] == [0, 1, 1, 0]
        error = await refusal(ann, type="signal.send", kind="ping", user="bob")
        assert (error["code"], "hides from 'bob'" in error["message"]) == ("forbidden", True)
        await ann.request(type="signal.send", kind="ping", user="eve")
        await bob.request(type="signal.send", kind="ping", user="ann")
        assert [len(await signals(client)) for client in (bob, eve, ann)] == [0, 1, 1]
        await ann.request(type="privacy.set", hide_from=[])
        await ann.request(type="signal.send", kind="cursor", room="lobby")
        await ann.request(type="signal.send", kind="ping", user="bob")
        assert len(await signals(bob)) == 2


@pytest.mark.parametrize(
    ("policy", "gets"),
    [("contacts", [False, True]), ("recent_contacts", [False, True]), ("shared_rooms", [True, True])],
)
async def test_signals_in_a_room_reach_those_who_may_see_the_sender_type(policy: str, gets: list[bool]) -> None:
    async with serving(visibility={"policy": policy}) as served:
        ann, bob, eve = await room_of(served, "ann", "bob", "eve")
        for user, other in (("ann", "eve"), ("eve", "ann")):
            path = f"/v1/users/{user}/contacts/{other}"
            await ask(served.port, "PUT", path, {}, Authorization=f"Bearer {API_KEY}")
        ann.send(type="typing.start", room="lobby")
        for number in range(3):
            ann.send(type="signal.send", kind="cursor", room="lobby", body=number)
        await ann.quiet()
        await served.settle()
        for client, sees in zip((bob, eve), gets, strict=True):
            frames = await client.quiet()
            assert [frame["type"] for frame in frames if frame["type"] == "typing.started"] == ["typing.started"] * sees
            bodies = [frame["data"]["body"] for frame in frames if frame["type"] == "signal"]
            assert bodies == [0, 1, 2] * sees


async def test_signals_that_wait_for_a_look_up_arrive_in_order_or_not_at_all() -> None:
    async with serving(visibility={"policy": "contacts"}) as served:
        ann, bob = await room_of(served, "ann", "bob")
        for user, other in (("ann", "bob"), ("bob", "ann")):
            path = f"/v1/users/{user}/contacts/{other}"
            await ask(served.port, "PUT", path, {}, Authorization=f"Bearer {API_KEY}")
        served.node._visibility._facts.remove("default", "ann")  # as if the facts had been dropped
        async with hold(served.node.store, "privacies") as held:
            for number in range(3):
                ann.send(type="signal.send", kind="cursor", room="lobby", body=number)
            await held.reached()
            await ann.quiet()
            assert await signals(bob) == []
        await served.settle()
        assert [signal["body"] for signal in await signals(bob)] == [0, 1, 2]


async def test_the_typing_of_all_devices_ends_when_the_user_becomes_invisible() -> None:
    async with serving() as served:
        ann, bob = await room_of(served, "ann", "bob")
        laptop = await served.joined("ann", device="laptop")
        laptop.send(type="typing.start", room="lobby")
        await laptop.quiet()
        await bob.quiet()
        await ann.request(type="status.set", status="invisible")
        assert [frame["type"] for frame in await bob.quiet()] == ["typing.stopped"]


async def test_a_signal_that_waits_for_the_membership_is_refused_if_the_user_becomes_invisible_meanwhile() -> None:
    async with serving() as served:
        ann, bob = await room_of(served, "ann", "bob")
        # This device has not joined the room: its membership is read.
        laptop = await served.client("ann", device="laptop", claims={"rooms": ["lobby"]})
        async with hold(served.node.rooms.membership, "admit", at="after") as held:
            sent = asyncio.create_task(refusal(laptop, type="signal.send", kind="ping", room="lobby"))
            await held.reached()
            await ann.request(type="status.set", status="invisible")
        assert (await sent)["code"] == "forbidden"
        assert await signals(bob) == []


# --- signals that wait to be written ---

HIDING: dict[str, dict[str, Any]] = {
    "invisible": {"type": "status.set", "status": "invisible"},
    "hidden": {"type": "privacy.set", "hide_from": ["bob"]},
}


@pytest.mark.parametrize("hiding", HIDING)
@pytest.mark.parametrize("key", [None, "k"])
async def test_a_signal_that_waits_for_a_slow_reader_is_withdrawn_when_its_sender_hides(hiding: str, key: Any) -> None:
    async with serving() as served:
        await served.lobby()
        bob, (ann, carl) = await peer(served, "bob", "lobby"), [await served.joined(user) for user in ("ann", "carl")]
        laptop = await served.joined("ann", device="laptop")
        bob.stop_reading()
        while not connection_of(served, "bob").behind:
            carl.send(type="signal.send", user="bob", kind="fill", body="x" * 30_000)
            await carl.quiet()
        named = {} if key is None else {"key": key}
        for sender in (ann, carl):
            for to in ({"room": "lobby"}, {"user": "bob"}):
                sender.send(type="signal.send", kind="cursor", body="where", **to, **named)
                await sender.quiet()
        await served.settle()
        await ann.request(**HIDING[hiding])
        bob.go_on_reading()
        waited = [(signal["from"], "room" in signal) for signal in await signals(bob) if signal["kind"] == "cursor"]
        assert waited == [("carl", True), ("carl", False)]
        assert ("ann", "where") in [(signal["from"], signal["body"]) for signal in await signals(laptop)]


@pytest.mark.parametrize("hiding", HIDING)
async def test_a_signal_that_waits_in_the_hub_is_withdrawn_when_its_sender_hides(hiding: str) -> None:
    """Frames of a room wait together for the end of a turn. Messages, and signals of others, stay."""
    async with serving() as served:
        bob, ann, carl = await room_of(served, "bob", "ann", "carl")
        hub = served.node.hub
        flush = hub.flush
        hub.flush = lambda: None  # type: ignore[method-assign]
        try:
            for sender in (ann, carl):
                sender.send(type="signal.send", kind="cursor", room="lobby", body="where")
            carl.send(type="room.send", room="lobby", body="stays")
            channel = hub.channel(Topic("room", "default", "lobby"))
            await until(lambda: len(channel.pending) == 3)
            if hiding == "invisible":
                await served.node.rooms.signals.withdraw(("default", "ann"))
            else:
                await served.node.rooms.signals.review("default", ["ann"])
            assert len(channel.pending) == 2
        finally:
            del hub.flush
            flush()
        frames = await bob.quiet()
        assert [frame["data"].get("from") for frame in frames if frame["type"] == "signal"] == ["carl"]
        assert [frame["data"]["body"] for frame in frames if frame["type"] == "room.message"] == ["stays"]


async def test_a_signal_that_waits_for_a_look_up_is_withdrawn_when_its_sender_becomes_invisible() -> None:
    async with serving(visibility={"policy": "contacts"}) as served:
        ann, bob = await room_of(served, "ann", "bob")
        for user, other in (("ann", "bob"), ("bob", "ann")):
            path = f"/v1/users/{user}/contacts/{other}"
            await ask(served.port, "PUT", path, {}, Authorization=f"Bearer {API_KEY}")
        served.node._visibility._facts.remove("default", "ann")  # as if the facts had been dropped
        async with hold(served.node.store, "privacies") as held:
            ann.send(type="signal.send", kind="cursor", room="lobby", body="where")
            await held.reached()
            await served.node.rooms.signals.withdraw(("default", "ann"))
        await served.settle()
        assert await signals(bob) == []
