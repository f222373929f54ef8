"""Refresh to a token with fewer grants: effective at once for rooms, watches, sending and pending frames."""

from __future__ import annotations

from typing import Any

import pytest

from greendot.errors import StoreUnavailable
from greendot.testing.server import COMINGS, Served, serving
from greendot.testing.wire import WireClient


async def refresh(served: Served, client: WireClient, user: str, **claims: Any) -> None:
    await client.request(type="token.refresh", token=served.token(user, **claims))


async def rooms_lost(client: WireClient) -> list[str]:
    """Return the rooms whose removal the client received. Fail on any other frame."""
    frames = await client.quiet()
    assert all(frame["type"] == "room.changed" and frame["data"]["removed"] for frame in frames), frames
    return [frame["data"]["room"] for frame in frames]


async def in_rooms(served: Served, user: str, rooms: list[str], granted: list[str]) -> WireClient:
    client = await served.client(user, claims={"rooms": granted})
    client.deaf_to = COMINGS
    for room in rooms:
        await client.request(type="room.join", room=room)
    return client


async def test_rooms_only_the_old_token_opened_are_left_and_others_are_not() -> None:
    async with serving() as served:
        await served.lobby()
        await served.node.room_messages.put_room("default", "club", open=False, bus=None)
        await served.node.room_messages.put_member("default", "club", "alice", "member")
        alice = await in_rooms(served, "alice", ["lobby", "club", "team-a", "team-b"], ["club", "team-*"])
        speaker = await in_rooms(served, "bob", ["lobby", "team-a", "team-b"], ["*"])
        await refresh(served, alice, "alice", rooms=["team-b"])
        assert await rooms_lost(alice) == ["team-a"]
        for room in ("lobby", "team-a", "team-b"):
            await speaker.request(type="room.send", room=room, body=room)
        heard = [frame["data"]["body"] for frame in await alice.quiet() if frame["type"] == "room.message"]
        assert heard == ["lobby", "team-b"]
        for command in ("room.send", "room.history", "room.join", "typing.start", "signal.send", "room.present"):
            alice.send(type=command, room="team-a", body="x", kind="x", id=1)
            assert (await alice.receive("error"))["code"] == "not_a_member", command


async def test_another_device_with_another_token_keeps_what_that_one_grants() -> None:
    async with serving() as served:
        phone = await in_rooms(served, "alice", ["team"], ["team"])
        laptop = await in_rooms(served, "alice", ["team"], ["team"])
        await refresh(served, phone, "alice", rooms=[])
        assert await rooms_lost(phone) == ["team"]
        bob = await in_rooms(served, "bob", ["team"], ["team"])
        await bob.request(type="room.send", room="team", body="hi")
        assert [frame["type"] for frame in await laptop.quiet()] == ["room.message"]
        assert await phone.quiet() == []


async def test_other_users_see_the_exit_from_a_room_caused_by_a_narrower_token() -> None:
    async with serving() as served:
        bob = await in_rooms(served, "bob", ["team"], ["team"])
        bob.deaf_to = frozenset()
        alice = await in_rooms(served, "alice", ["team"], ["team"])
        await bob.receive("room.entered")
        alice.send(type="typing.start", room="team")
        await bob.receive("typing.started")
        await refresh(served, alice, "alice", rooms=[])
        await served.settle()
        assert sorted(frame["type"] for frame in await bob.quiet()) == ["room.left", "typing.stopped"]


async def test_users_the_new_token_does_not_let_watch_are_not_watched_any_more() -> None:
    async with serving() as served:
        alice = await served.client("alice")
        bob, carol = await served.client("bob"), await served.client("carol")
        await alice.request(type="watch", users=["alice", "bob", "carol"])
        await refresh(served, alice, "alice", watch=["c*"])
        for client in (bob, carol):
            await client.request(type="status.set", status="busy")
        await served.settle()
        seen = [frame["data"]["user"] for frame in await alice.quiet()]
        assert seen == ["carol"]
        (state,) = (await alice.request(type="presence.get", users=["bob"]))["presence"]
        assert state["state"] == "offline"
        await alice.request(type="status.set", status="busy")  # users always see their own state
        await served.settle()
        assert [frame["data"]["user"] for frame in await alice.quiet()] == ["alice"]
        await refresh(served, alice, "alice")  # more grants again, but ended watches stay ended
        await bob.request(type="status.set", status="auto")
        await served.settle()
        assert await alice.quiet() == []


async def test_who_may_only_listen_from_now_on_is_silent_at_once() -> None:
    async with serving() as served:
        await served.lobby()
        alice, bob = await served.joined("alice"), await served.joined("bob")
        alice.send(type="typing.start", room="lobby")
        await bob.receive("typing.started")
        await refresh(served, alice, "alice", send=False)
        await served.settle()
        assert [frame["type"] for frame in await bob.quiet()] == ["typing.stopped"]
        for command in ("room.send", "typing.start", "signal.send"):
            alice.send(type=command, room="lobby", body="x", kind="x", id=1)
            assert (await alice.receive("error"))["code"] == "forbidden", command
        await bob.request(type="room.send", room="lobby", body="hi")
        await alice.receive("room.message")


async def test_frames_that_wait_for_a_slow_reader_are_not_sent_any_more() -> None:
    async with serving() as served:
        alice = await in_rooms(served, "alice", ["team", "other"], ["*"])
        bob = await in_rooms(served, "bob", ["team", "other"], ["*"])
        carol = await served.client("carol")
        await alice.request(type="watch", users=["carol"])
        (connection,) = served.node.registry.connections_of("default", "alice")
        connection.hold()  # as if the kernel buffered nothing
        for number in range(100):
            await bob.request(type="room.send", room="team", body=f"secret {number}")
        bob.send(type="signal.send", room="team", kind="x", body="secret")
        await bob.request(type="room.send", room="other", body="for everybody")
        await carol.request(type="status.set", status="busy")
        await served.settle()
        alice.send(type="token.refresh", token=served.token("alice", rooms=["other"], watch=[]), id=1)
        await bob.quiet()
        await served.settle()
        connection.release([])
        frames = []
        while not frames or frames[-1].get("id") != 1:
            frames.append(await alice.receive())
        frames += await alice.quiet()
        kinds = [frame["type"] for frame in frames]
        assert sorted(kinds) == ["reply", "room.changed", "room.message"]
        assert "secret" not in str(frames)


@pytest.mark.parametrize("claims", [{"user": "bob"}, {"tenant": "acme"}, {"ttl_s": -1}, {"rooms": "team"}], ids=str)
async def test_a_refresh_that_is_refused_changes_nothing(claims: dict[str, Any]) -> None:
    async with serving() as served:
        alice = await in_rooms(served, "alice", ["team"], ["team"])
        await served.client("bob")
        await alice.request(type="watch", users=["bob"])
        token = served.token(claims.pop("user", "alice"), **claims)
        alice.send(type="token.refresh", token=token, id=1)
        error = await alice.receive("error")
        assert error["code"] == "bad_field"
        assert token not in str(error)
        assert await alice.quiet() == []
        await alice.request(type="room.send", room="team", body="still here")


async def test_a_refresh_while_the_store_is_away_changes_nothing_and_may_be_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving() as served:
        alice = await in_rooms(served, "alice", ["team"], ["team"])
        membership = served.node.rooms.membership

        async def away(*_: object) -> bool:
            raise StoreUnavailable("away")

        with monkeypatch.context() as patched:
            patched.setattr(type(membership), "admits", away)
            alice.send(type="token.refresh", token=served.token("alice", rooms=[]), id=1)
            error = await alice.receive("error")
            assert (error["code"], error["retry"]) == ("unavailable", True)
        await alice.request(type="room.send", room="team", body="still here")
        await alice.receive("room.message")
        await refresh(served, alice, "alice", rooms=[])
        assert await rooms_lost(alice) == ["team"]


async def test_the_end_moves_with_each_refresh_earlier_too() -> None:
    async with serving() as served:
        alice = await served.client("alice", claims={"ttl_s": 1_000})
        await refresh(served, alice, "alice", ttl_s=10)
        await served.advance(9.999, alive=[alice])
        await served.advance(0.001)
        assert (await alice.closed()).code == 4005
