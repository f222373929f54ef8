"""Occupancy: one event when a user enters or leaves, and none within the grace. Real sockets, virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from greendot.testing import Served, WireClient, serving


def told(frames: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(frame["type"], frame["data"]["user"]) for frame in frames]


async def come(served: Served, user: str, **hello: Any) -> WireClient:
    """Connect a client that joins the lobby and has read all events so far."""
    client = await served.joined(user, comings=True, **hello)
    await served.settle()
    await client.quiet()
    return client


async def lose(served: Served, client: WireClient) -> None:
    """Abort the client's socket."""
    await client.reset()
    await served.until_gone(len(served.node.registry.connections) - 1)


async def names(client: WireClient, room: str = "lobby") -> list[str]:
    reply = await client.request(type="room.present", room=room)
    assert reply["count"] == len(reply["users"])
    users: list[str] = reply["users"]
    return users


async def test_entering_and_leaving_is_published_to_other_users_and_not_to_own_devices() -> None:
    async with serving() as served:
        await served.lobby()
        alice = await come(served, "alice")
        bob, phone = await come(served, "bob"), await served.client("bob", device="phone")
        assert (await phone.request(type="room.join", room="lobby"))["present"] == 2
        (frame,) = await alice.quiet()
        assert (frame["type"], frame["data"]) == (
            "room.entered",
            {"room": "lobby", "user": "bob", "name": "Bob"},
        )
        await bob.request(type="room.leave", room="lobby")
        assert await names(alice) == await names(bob) == ["alice", "bob"]
        assert await alice.quiet() == []
        await phone.request(type="room.leave", room="lobby")
        (frame,) = await alice.quiet()
        assert (frame["type"], frame["data"]) == ("room.left", {"room": "lobby", "user": "bob"})
        assert await bob.quiet() == await phone.quiet() == []
        assert await names(alice) == ["alice"]


async def test_joining_again_is_no_news() -> None:
    async with serving() as served:
        await served.lobby()
        alice, bob = await come(served, "alice"), await come(served, "bob")
        await alice.quiet()
        for _ in range(3):
            assert (await bob.request(type="room.join", room="lobby"))["present"] == 2
        assert await alice.quiet() == []


async def test_joining_and_leaving_in_quick_succession_leaves_no_user_behind() -> None:
    async with serving() as served:
        await served.lobby()
        alice, bob = await come(served, "alice"), await served.client("bob")
        for _ in range(5):
            bob.send(type="room.join", room="lobby")
            bob.send(type="room.leave", room="lobby")
        await bob.quiet()
        await served.settle()
        news = told(await alice.quiet())
        assert news[::2] == [("room.entered", "bob")] * (len(news) // 2)
        assert news[1::2] == [("room.left", "bob")] * (len(news) // 2)
        assert await names(alice) == ["alice"]


async def test_a_lost_connection_leaves_when_its_session_does_exactly_once() -> None:
    async with serving() as served:
        await served.lobby()
        alice, bob = await come(served, "alice"), await come(served, "bob")
        await alice.quiet()
        await lose(served, bob)
        (frames,) = await served.advance(29.999, alive=[alice])
        assert frames == []
        assert await names(alice) == ["alice", "bob"]
        (frames,) = await served.advance(0.001, alive=[alice])
        assert told(frames) == [("room.left", "bob")]
        assert await names(alice) == ["alice"]
        (frames,) = await served.advance(300, alive=[alice])
        assert frames == []


async def test_a_bye_is_published_to_the_room_at_once() -> None:
    async with serving() as served:
        await served.lobby()
        alice, bob = await come(served, "alice"), await come(served, "bob")
        bob.send(type="bye")
        await bob.closed()
        await served.until_gone(1)
        assert told(await alice.quiet()) == [("room.entered", "bob"), ("room.left", "bob")]


async def test_a_return_into_the_room_within_the_grace_is_not_published() -> None:
    async with serving() as served:
        await served.lobby()
        alice, bob = await come(served, "alice"), await come(served, "bob")
        await alice.quiet()
        for _ in range(3):
            session = bob.welcome["session"]
            await lose(served, bob)
            await served.advance(20, alive=[alice])
            bob = await served.client("bob", resume={"session": session, "rooms": {"lobby": 0}})
            assert bob.welcome["resumed"]
        (frames, _) = await served.advance(60, alive=[alice, bob])
        assert frames == []
        assert await names(alice) == ["alice", "bob"]


async def test_a_resume_leaves_the_rooms_it_does_not_name() -> None:
    async with serving() as served:
        await served.lobby()
        await served.node.store.put_room("default", "den", open=True)
        alice, bob = await come(served, "alice"), await come(served, "bob")
        for client in (alice, bob):
            await client.request(type="room.join", room="den")
        await alice.quiet()
        await lose(served, bob)
        bob = await served.client("bob", resume={"session": bob.welcome["session"], "rooms": {"den": 0}})
        (frame,) = await alice.quiet()
        assert (frame["type"], frame["data"]) == ("room.left", {"room": "lobby", "user": "bob"})
        assert await names(alice, "den") == ["alice", "bob"]
        assert await names(alice) == ["alice"]


async def test_a_new_session_of_a_lost_device_takes_its_place_in_the_room() -> None:
    async with serving() as served:
        await served.lobby()
        alice, bob = await come(served, "alice"), await come(served, "bob")
        await alice.quiet()
        await lose(served, bob)
        bob = await come(served, "bob")
        (frames, _) = await served.advance(60, alive=[alice, bob])
        assert frames == []
        assert await names(alice) == ["alice", "bob"]


async def test_a_user_with_another_device_in_the_room_stays() -> None:
    async with serving() as served:
        await served.lobby()
        alice, phone = await come(served, "alice"), await come(served, "bob", device="phone")
        laptop = await come(served, "bob", device="laptop")
        await alice.quiet()
        await lose(served, phone)
        (frames, _) = await served.advance(60, alive=[alice, laptop])
        assert frames == []
        assert await names(alice) == ["alice", "bob"]


async def test_a_user_who_becomes_invisible_leaves_the_room_for_others_and_enters_it_afterwards() -> None:
    async with serving() as served:
        await served.lobby()
        alice, ghost = await come(served, "alice"), await come(served, "ghost")
        await alice.quiet()
        until = served.clock.now_ms() + 60_000
        await ghost.request(type="status.set", status="invisible", until=until)
        assert told(await alice.quiet()) == [("room.left", "ghost")]
        assert await names(alice) == ["alice"]
        assert await names(ghost) == ["alice", "ghost"]
        assert await ghost.quiet() == []
        (frames, _) = await served.advance(59.999, alive=[alice, ghost])
        assert frames == []
        (frames, _) = await served.advance(0.001, alive=[alice, ghost])
        assert told(frames) == [("room.entered", "ghost")]


async def test_an_invisible_user_enters_and_leaves_unseen() -> None:
    async with serving() as served:
        await served.lobby()
        alice, ghost = await come(served, "alice"), await served.client("ghost")
        await ghost.request(type="status.set", status="invisible")
        assert (await ghost.request(type="room.join", room="lobby"))["present"] == 2
        phone = await served.client("ghost", device="phone")
        await phone.request(type="room.join", room="lobby")
        assert await names(phone) == ["alice", "ghost"]
        assert await names(alice) == ["alice"]
        await phone.request(type="room.leave", room="lobby")
        await lose(served, ghost)
        (frames, _) = await served.advance(60, alive=[alice, phone])
        assert frames == []


async def test_a_member_who_is_removed_has_left_also_one_who_lingers() -> None:
    async with serving() as served:
        store = served.node.store
        await store.put_room("default", "club")
        for user in ("alice", "bob", "carol"):
            await store.put_member("default", "club", user, "member")
        alice, bob, carol = [await served.joined(user, "club", comings=True) for user in ("alice", "bob", "carol")]
        await served.settle()
        await alice.quiet()
        await lose(served, carol)
        for user in ("bob", "carol"):
            room = await store.room("default", "club")
            assert room is not None
            await served.node.room_messages.remove_member("default", room, user)
        await served.settle()
        assert sorted(told(await alice.quiet())) == [("room.left", "bob"), ("room.left", "carol")]
        assert await names(alice, "club") == ["alice"]
        assert [frame["type"] for frame in await bob.quiet()] == ["room.entered", "room.changed"]


@pytest.mark.parametrize("listener", [True, False])
async def test_pages_and_the_count_are_the_same_with_and_without_a_listener_here(listener: bool) -> None:
    async with serving() as served:
        await served.lobby()
        clients = [await come(served, f"u{number}") for number in range(5)]
        if not listener:
            for client in clients:
                await client.request(type="room.leave", room="lobby")
        reader = await served.client("reader")
        first = await reader.request(type="room.present", room="lobby", limit=2)
        rest = await reader.request(type="room.present", room="lobby", after="u1")
        for page in (first, rest):
            assert page.pop("profiles") == {user: {"name": user.capitalize()} for user in page["users"]}
        assert first == {"users": ["u0", "u1"] if listener else [], "count": 5 if listener else 0}
        assert rest == {"users": ["u2", "u3", "u4"] if listener else [], "count": first["count"]}


async def test_a_room_without_listeners_is_read_from_the_engine() -> None:
    async with serving() as served:
        await served.lobby()
        bob = await come(served, "bob")
        await lose(served, bob)
        reader = await served.client("reader")
        await served.advance(6, alive=[reader])  # no subscriber is left, so the node drops the room
        assert served.node.hub.topics == 0
        assert await names(reader) == ["bob"]
        assert (await reader.request(type="room.join", room="lobby"))["present"] == 2
        (frames,) = await served.advance(24, alive=[reader])
        assert told(frames) == [("room.left", "bob")]


async def test_a_large_room_receives_a_count_at_most_once_a_second() -> None:
    async with serving(typing={"large_room": 3}) as served:
        await served.lobby()
        alice, ghost, *_ = [await come(served, user) for user in ("alice", "ghost", "u1", "u2")]
        await served.advance(1, alive=[alice, ghost])
        await ghost.request(type="status.set", status="invisible")
        frames, own = await served.advance(1, alive=[alice, ghost])
        assert [(f["type"], f["data"]) for f in frames] == [("room.count", {"room": "lobby", "count": 3})]
        assert [(f["type"], f["data"]["count"]) for f in own] == [("room.count", 4)]
        many = [await come(served, f"v{number}") for number in range(20)]
        counts = [frame["data"]["count"] for frame in await alice.quiet()]
        (frames,) = await served.advance(1, alive=[alice])
        counts += [frame["data"]["count"] for frame in frames]
        assert counts == [4, 23]
        for client in many[:10]:
            client.send(type="bye")
            await client.closed()
        await served.settle()
        (frames,) = await served.advance(5, alive=[alice])
        assert [frame["data"]["count"] for frame in frames][-1] == 13
        assert len(frames) <= 2
        assert (await alice.request(type="room.present", room="lobby"))["count"] == 13
