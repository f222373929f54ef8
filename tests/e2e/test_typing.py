"""Typing always ends: real sockets, virtual time, exact to the millisecond."""

from __future__ import annotations

from typing import Any

import pytest

from greendot.client.state import TYPING_SLACK_S, Throttle
from greendot.protocol.events import TypingTimes
from greendot.testing import Served, WireClient, serving


def told(frames: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(frame["type"], frame["data"].get("user", "")) for frame in frames]


STARTED, STOPPED = ("typing.started", "alice"), ("typing.stopped", "alice")


async def test_a_start_reaches_everyone_but_all_devices_of_the_typer() -> None:
    async with serving() as served:
        await served.lobby()
        alice = await served.joined("alice", device="laptop")
        phone = await served.joined("alice", device="phone")
        bob = await served.joined("bob")
        alice.send(type="typing.start", room="lobby")
        await alice.quiet()
        (frame,) = await bob.quiet()
        assert frame["data"] == {"room": "lobby", "user": "alice", "name": "Alice", "expires_in_ms": 5000}
        assert await alice.quiet() == await phone.quiet() == []


async def test_it_ends_by_itself_after_exactly_five_seconds() -> None:
    async with serving() as served:
        await served.lobby()
        alice, bob = await served.joined("alice"), await served.joined("bob")
        alice.send(type="typing.start", room="lobby")
        await alice.quiet()
        assert told(await bob.quiet()) == [STARTED]
        (frames,) = await served.advance(4.999, alive=[bob])
        assert frames == []
        (frames,) = await served.advance(0.001, alive=[bob])
        assert told(frames) == [STOPPED]
        (frames,) = await served.advance(60, alive=[bob])
        assert frames == []


async def test_repetitions_hold_it_and_it_ends_five_seconds_after_the_last() -> None:
    async with serving() as served:
        await served.lobby()
        alice, bob = await served.joined("alice"), await served.joined("bob")
        seen = []
        for _ in range(4):
            alice.send(type="typing.start", room="lobby")
            await alice.quiet()
            (frames, _) = await served.advance(3, alive=[bob, alice])
            seen += told(frames)
        assert seen == [STARTED] * 4
        (frames,) = await served.advance(1.999, alive=[bob])
        assert frames == []
        (frames,) = await served.advance(0.001, alive=[bob])
        assert told(frames) == [STOPPED]


async def test_it_ends_when_the_client_vanishes_without_a_word() -> None:
    async with serving() as served:
        await served.lobby()
        alice, bob = await served.joined("alice"), await served.joined("bob")
        alice.send(type="typing.start", room="lobby")
        await alice.quiet()
        (frames,) = await served.advance(1, alive=[bob])
        await alice.reset()
        await served.until_gone(1)
        (more,) = await served.advance(3.999, alive=[bob])
        assert told(frames + more) == [STARTED]
        (frames,) = await served.advance(0.001, alive=[bob])
        assert told(frames) == [STOPPED]


@pytest.mark.parametrize("farewell", ["typing.stop", "room.leave", "bye"])
async def test_a_farewell_ends_it_at_once(farewell: str) -> None:
    async with serving() as served:
        await served.lobby()
        alice, bob = await served.joined("alice"), await served.joined("bob")
        alice.send(type="typing.start", room="lobby")
        alice.send(type=farewell, room="lobby")
        await (alice.closed() if farewell == "bye" else alice.quiet())
        assert told(await bob.quiet()) == [STARTED, STOPPED]


async def test_any_device_stops_the_user() -> None:
    async with serving() as served:
        await served.lobby()
        alice, bob = await served.joined("alice"), await served.joined("bob")
        phone = await served.joined("alice", device="phone")
        alice.send(type="typing.start", room="lobby")
        await alice.quiet()
        phone.send(type="typing.stop", room="lobby")
        await phone.quiet()
        assert told(await bob.quiet()) == [STARTED, STOPPED]


async def test_a_message_ends_the_senders_typing_before_it_arrives() -> None:
    async with serving() as served:
        await served.lobby()
        alice, bob = await served.joined("alice"), await served.joined("bob")
        alice.send(type="typing.start", room="lobby")
        await alice.request(type="room.send", room="lobby", body={"text": "hi"})
        assert [frame["type"] for frame in await bob.quiet()] == ["typing.started", "typing.stopped", "room.message"]
        # Later frames of the same burst do not restart typing.
        alice.send(type="typing.start", room="lobby")
        await alice.quiet()
        (frames,) = await served.advance(1.999, alive=[bob])
        assert frames == []


async def test_more_than_one_start_in_two_seconds_is_dropped_quietly() -> None:
    async with serving() as served:
        await served.lobby()
        alice, bob = await served.joined("alice"), await served.joined("bob")
        for _ in range(100):
            alice.send(type="typing.start", room="lobby")
        assert await alice.quiet() == []
        assert told(await bob.quiet()) == [STARTED]
        (frames, _) = await served.advance(1.999, alive=[bob, alice])
        alice.send(type="typing.start", room="lobby")
        assert frames + await alice.quiet() + await bob.quiet() == []
        await served.advance(0.001)
        alice.send(type="typing.start", room="lobby")
        await alice.quiet()
        assert told(await bob.quiet()) == [STARTED]


async def test_far_over_the_rate_limit_typing_is_still_neither_an_error_nor_a_disconnect() -> None:
    async with serving() as served:
        await served.lobby()
        alice, bob = await served.joined("alice"), await served.joined("bob")
        for _ in range(5):
            for _ in range(300):
                alice.send(type="typing.start", room="lobby")
            (frames, _) = await served.advance(10, alive=[alice, bob])
            assert frames == []


async def test_start_stop_start_loops_do_not_bypass_the_throttle() -> None:
    async with serving() as served:
        await served.lobby()
        alice, bob = await served.joined("alice"), await served.joined("bob")
        for _ in range(30):
            alice.send(type="typing.start", room="lobby")
            alice.send(type="typing.stop", room="lobby")
        await alice.quiet()
        assert told(await bob.quiet()) == [STARTED, STOPPED]


async def test_leaving_and_joining_again_does_not_bypass_the_throttle() -> None:
    async with serving() as served:
        await served.lobby()
        alice, bob = await served.joined("alice"), await served.joined("bob")
        for _ in range(5):
            alice.send(type="typing.start", room="lobby")
            alice.send(type="room.leave", room="lobby")
            await alice.request(type="room.join", room="lobby")
        assert told(await bob.quiet()) == [STARTED, STOPPED]


async def test_a_client_that_joins_or_returns_receives_the_typing_users() -> None:
    async with serving() as served:
        await served.lobby()
        alice, bob = await served.joined("alice"), await served.joined("bob")
        alice.send(type="typing.start", room="lobby")
        await alice.quiet()
        await served.advance(1.5)
        carol = await served.client("carol")
        reply = await carol.request(type="room.join", room="lobby")
        assert reply["typing"] == [{"user": "alice", "name": "Alice", "expires_in_ms": 3500}]
        own = await alice.request(type="room.join", room="lobby")
        assert own["typing"] == []
        await bob.reset()
        resume = {"session": bob.welcome["session"], "rooms": {"lobby": 0}}
        back = await served.client("bob", resume=resume)
        (frame,) = await back.quiet()
        assert (frame["type"], frame["data"]["expires_in_ms"]) == ("typing.started", 3500)
        (frames, mine) = await served.advance(3.5, alive=[carol, back])
        assert told(frames) == told(mine) == [STOPPED]


async def test_the_first_listener_of_a_room_learns_of_typers_the_engine_knows() -> None:
    async with serving() as served:
        await served.lobby()
        alice = await served.joined("alice")
        alice.send(type="typing.start", room="lobby")
        await alice.quiet()
        await alice.reset()
        await served.until_gone()
        bob = await served.client("bob")
        reply = await bob.request(type="room.join", room="lobby")
        assert [typer["user"] for typer in reply["typing"]] == ["alice"]
        (frames,) = await served.advance(5, alive=[bob])
        assert told(frames) == [STOPPED]


async def test_only_members_send_and_receive() -> None:
    async with serving() as served:
        await served.node.store.put_room("default", "team", open=False)
        for user in ("alice", "bob"):
            await served.node.store.put_member("default", "team", user)
        alice = await served.joined("alice", room="team")
        mallory = await served.client("mallory")
        for command in ("typing.start", "room.join", "room.send", "signal.send", "room.history", "room.present"):
            mallory.send(type=command, room="team", kind="k", body=1)
            assert (await mallory.receive("error"))["code"] == "not_a_member"
        assert await alice.quiet() == []
        bob = await served.client("bob")  # a member who has not joined on this connection may type
        bob.send(type="typing.start", room="team")
        assert await bob.quiet() == []
        await served.settle()
        assert told(await alice.quiet()) == [("typing.started", "bob")]


async def test_in_an_open_room_those_who_joined_count_as_members() -> None:
    async with serving() as served:
        await served.lobby()
        bob = await served.joined("bob")
        alice = await served.client("alice")
        alice.send(type="typing.start", room="lobby")
        assert (await alice.receive("error"))["code"] == "not_a_member"
        assert await bob.quiet() == []


async def test_a_token_that_may_only_listen_does_not_type() -> None:
    async with serving() as served:
        await served.lobby()
        alice = await served.joined("alice", claims={"send": False})
        for command in ("typing.start", "room.send", "signal.send"):
            alice.send(type=command, room="lobby", kind="k", body=1)
            assert (await alice.receive("error"))["code"] == "forbidden"


async def test_rooms_and_tenants_are_apart() -> None:
    async with serving() as served:
        await served.lobby()
        await served.node.store.put_room("default", "other", open=True)
        await served.node.store.put_room("t2", "lobby", open=True)
        alice = await served.joined("alice")
        elsewhere = [await served.joined("bob", room="other"), await served.joined("bob", claims={"tenant": "t2"})]
        alice.send(type="typing.start", room="lobby")
        await alice.quiet()
        for client in elsewhere:
            assert await client.quiet() == []


async def test_a_large_room_receives_only_the_typing_count_and_typers_are_not_counted_for_themselves() -> None:
    async with serving(typing={"large_room": 3}) as served:
        await served.lobby()
        alice, bob, *others = [await served.joined(user) for user in ("alice", "bob", "carol", "dave")]
        alice.send(type="typing.start", room="lobby")
        own = await alice.quiet()
        bob.send(type="typing.start", room="lobby")
        await bob.quiet()
        (first, second, mine) = await served.advance(1, alive=[*others, alice])  # at most one count per second
        for frames in (first, second):
            assert [(f["type"], f["data"]["count"]) for f in frames] == [("typing.count", 1), ("typing.count", 2)]
        assert [f["data"]["count"] for f in own + mine] == [0, 1]
        late = await served.client("erin")
        reply = await late.request(type="room.join", room="lobby")
        assert (reply["typing"], reply["typing_count"]) == ([], 2)
        (frames,) = await served.advance(5, alive=[others[0]])
        assert [f["data"]["count"] for f in frames][-1] == 0


async def test_in_a_large_room_refreshes_do_not_multiply_but_keep_the_count_alive() -> None:
    async with serving(typing={"large_room": 1}) as served:
        await served.lobby()
        typers = [await served.joined(f"user{number}") for number in range(10)]
        bob = await served.joined("bob")
        for _ in range(4):
            for client in typers:
                client.send(type="typing.start", room="lobby")
                await client.quiet()
            await served.advance(3, alive=[*typers])
        counts = [frame["data"]["count"] for frame in await bob.quiet()]
        assert counts == [1, 10, 10, 10, 10]


async def test_typing_is_never_written_down() -> None:
    async with serving() as served:
        await served.lobby()
        alice = await served.joined("alice")
        before = await served.node.store.rooms("default", None, 10)
        alice.send(type="typing.start", room="lobby")
        await alice.quiet()
        assert await served.node.store.rooms("default", None, 10) == before
        assert await served.node.store.messages("default", "lobby", limit=10) == []


# --- throttle of clients ---

PACES: list[dict[str, float]] = [
    {},
    {"ttl_s": 3},
    {"ttl_s": 1, "throttle_s": 0.4},
    {"ttl_s": 30},
    {"ttl_s": 4, "throttle_s": 1, "repeat_s": 3.5},
]


async def type_on(served: Served, typist: WireClient, listener: WireClient, seconds: float) -> list[dict[str, Any]]:
    """Type ten keys per second, throttled as clients do. Return all frames of the listener."""
    throttle, times = Throttle(), TypingTimes(**typist.welcome["typing"])
    frames: list[dict[str, Any]] = []
    for step in range(round(seconds * 10)):
        if throttle.start("lobby", step / 10, times):
            typist.send(type="typing.start", room="lobby")
            await typist.quiet()
        told, _ = await served.advance(0.1, alive=[listener, typist])
        frames += told
    return frames


async def test_the_welcome_has_the_repeat_interval_and_the_hold_time_of_typing() -> None:
    async with serving() as served:
        alice = await served.client("alice")
        assert alice.welcome["typing"] == {"repeat_ms": 3_000, "hold_ms": 5_000, "throttle_ms": 2_000}
    async with serving(typing={"ttl_s": 3}) as served:
        alice = await served.client("alice")
        assert alice.welcome["typing"] == {"repeat_ms": 2_333, "hold_ms": 3_000, "throttle_ms": 2_000}


@pytest.mark.parametrize("typing", PACES, ids=str)
async def test_it_does_not_blink_while_the_person_goes_on(typing: dict[str, float]) -> None:
    async with serving(typing=typing) as served:
        await served.lobby()
        alice, bob = await served.joined("alice"), await served.joined("bob")
        hold_s = alice.welcome["typing"]["hold_ms"] / 1000
        seen = told(await type_on(served, alice, bob, 3 * hold_s))
        assert set(seen) == {STARTED}
        assert len(seen) >= 3


@pytest.mark.parametrize("typing", PACES, ids=str)
async def test_in_a_large_room_the_count_is_repeated_before_clients_let_it_expire(typing: dict[str, float]) -> None:
    async with serving(typing=typing | {"large_room": 1}) as served:
        await served.lobby()
        alice, bob = await served.joined("alice"), await served.joined("bob")
        hold_s = alice.welcome["typing"]["hold_ms"] / 1000
        frames = await type_on(served, alice, bob, 3 * hold_s)
        assert {(frame["type"], frame["data"]["count"]) for frame in frames} == {("typing.count", 1)}
        ends = [frame["ts"] + frame["data"]["expires_in_ms"] + TYPING_SLACK_S * 1000 for frame in frames]
        assert all(later["ts"] < end for end, later in zip(ends, frames[1:], strict=False))
        assert ends[-1] > served.clock.now_ms()
