"""Rooms and signals: recipients, order, and the frames of a resumed client."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Raw

from greendot.engine.messages import MemberRemoved, Topic
from greendot.node.channel import RoomKey
from greendot.protocol.codec import encode_event
from greendot.protocol.commands import RoomSend
from greendot.protocol.events import RoomMessage
from greendot.store.rooms import Draft
from greendot.testing import Served, serving


async def test_a_signal_reaches_every_listener_but_the_connection_that_sent_it() -> None:
    async with serving() as served:
        await served.lobby()
        alice, phone = await served.joined("alice"), await served.joined("alice", device="phone")
        bob = await served.joined("bob")
        alice.send(type="signal.send", room="lobby", kind="cursor", body={"x": 1, "y": [2.50, "é"]}, key="me")
        await alice.quiet()
        for client in (phone, bob):
            (frame,) = await client.quiet()
            assert frame["type"] == "signal"
            assert frame["data"] == {
                "room": "lobby",
                "from": "alice",
                "name": "Alice",
                "kind": "cursor",
                "body": {"x": 1, "y": [2.5, "é"]},
                "key": "me",
            }
        assert await alice.quiet() == []


async def test_a_signal_to_a_user_reaches_all_devices_of_that_user_only() -> None:
    async with serving() as served:
        alice = await served.client("alice")
        bobs = [await served.client("bob", device=device) for device in ("phone", "laptop")]
        carol, stranger = await served.client("carol"), await served.client("bob", claims={"tenant": "t2"})
        await alice.request(type="signal.send", user="bob", kind="wave")
        for bob in bobs:
            assert [frame["data"]["kind"] for frame in await bob.quiet()] == ["wave"]
        assert await carol.quiet() == await stranger.quiet() == []


async def test_events_carry_the_trace_of_the_command_that_caused_them() -> None:
    async with serving() as served:
        await served.lobby()
        alice, bob = await served.joined("alice"), await served.joined("bob")
        await alice.request(type="signal.send", room="lobby", kind="k", trace="00-abc")
        await alice.request(type="room.send", room="lobby", body=1, trace="00-def")
        await alice.request(type="room.send", room="lobby", body=1)
        assert [frame.get("trace") for frame in await bob.quiet()] == ["00-abc", "00-def", None]


async def test_a_signal_needs_exactly_one_target() -> None:
    async with serving() as served:
        alice = await served.client("alice")
        for target in ({}, {"room": "lobby", "user": "bob"}):
            alice.send(type="signal.send", kind="wave", **target)
            assert (await alice.receive("error"))["code"] == "bad_field"


async def test_under_pressure_the_latest_value_per_key_wins() -> None:
    async with serving(limits={"enabled": False}) as served:
        await served.lobby()
        alice, bob = await served.joined("alice"), await served.joined("bob")
        (slow,) = served.node.registry.connections_of("default", "bob")
        padding = "x" * 8_000
        for number in range(3_000):  # far more than the kernel buffers for a slow reader
            alice.send(type="signal.send", room="lobby", kind="cursor", key=f"k{number % 5}", body=[number, padding])
            if number % 20 == 0:
                await alice.quiet()
        await alice.quiet()
        assert slow.behind
        values: dict[str, list[int]] = {}
        for frame in await bob.quiet():
            values.setdefault(frame["data"]["key"], []).append(frame["data"]["body"][0])
        for key, numbers in values.items():
            assert numbers == sorted(numbers)
            assert numbers[-1] == 2_995 + int(key[1:])
        assert sum(map(len, values.values())) < 2_500
        assert not slow.behind


async def test_messages_are_numbered_and_reach_everyone_also_the_sender() -> None:
    async with serving() as served:
        await served.lobby()
        alice, bob = await served.joined("alice"), await served.joined("bob")
        sent = [await alice.request(type="room.send", room="lobby", body={"n": n}) for n in range(3)]
        assert [reply["seq"] for reply in sent] == [1, 2, 3]
        for client in (alice, bob):
            frames = await client.quiet()
            assert [(f["type"], f["data"]["seq"], f["data"]["body"]) for f in frames] == [
                ("room.message", n + 1, {"n": n}) for n in range(3)
            ]
            assert [f["data"]["id"] for f in frames] == [reply["id"] for reply in sent]


async def test_a_repeated_key_returns_the_same_message_which_is_published_once() -> None:
    async with serving() as served:
        await served.lobby()
        alice, bob = await served.joined("alice"), await served.joined("bob")
        replies = [await alice.request(type="room.send", room="lobby", body=1, key="once") for _ in range(3)]
        assert replies[0] == replies[1] == replies[2]
        assert len(await bob.quiet()) == 1


async def test_a_returning_client_gets_each_missed_message_once_and_before_live_ones() -> None:
    async with serving() as served:
        await served.lobby()
        alice, bob = await served.joined("alice"), await served.joined("bob")
        for number in range(3):
            await alice.request(type="room.send", room="lobby", body=number)
        assert len(await bob.quiet()) == 3
        await bob.reset()
        await served.until_gone(1)
        for number in range(3, 8):
            await alice.request(type="room.send", room="lobby", body=number)
        resume = {"session": bob.welcome["session"], "rooms": {"lobby": 3}}
        sending = asyncio.gather(
            *(served.node.room_messages.send(*_message(served, number)) for number in range(8, 40))
        )
        back = await served.client("bob", resume=resume)
        await sending
        assert back.welcome["rooms"]["lobby"]["recovered"] is True
        frames = await back.quiet()
        assert [frame["data"]["seq"] for frame in frames] == [*range(4, 41)]


def _message(served: Served, number: int) -> tuple[Any, Any, Any]:
    (session,) = served.node.registry.sessions_of("default", "alice")
    return session.connection, session, RoomSend(room="lobby", body=Raw(b"%d" % number))


async def test_joining_with_a_number_returns_the_gap_and_too_large_a_gap_is_truncated() -> None:
    async with serving(limits={"enabled": False}) as served:
        await served.lobby()
        alice = await served.joined("alice")
        await asyncio.gather(*(served.node.room_messages.send(*_message(served, number)) for number in range(310)))
        await alice.quiet()
        near = await alice.request(type="room.join", room="lobby", after=10)
        assert [message["seq"] for message in near["messages"]] == [*range(11, 311)]
        assert (near["recovered"], near["truncated"], near["head"]) == (True, False, 310)
        for after in (9, 311):
            far = await alice.request(type="room.join", room="lobby", after=after)
            assert (far["messages"], far["recovered"], far["truncated"], far["head"]) == ([], False, True, 310)


async def test_a_client_that_returns_with_a_message_that_its_new_node_has_missed_continues_behind_it() -> None:
    """The message came to another node, and the bus lost it on the way to this one."""
    async with serving() as served:
        await served.lobby()
        alice = await served.joined("alice")
        await alice.request(type="room.send", room="lobby", body=1)
        await alice.quiet()
        for number in (2, 3):
            await served.node.store.append("default", "lobby", Draft("bob", None, b"%d" % number, f"k{number}", 1))
        bob = await served.client("bob", resume={"session": "gone", "rooms": {"lobby": 2}})
        assert bob.welcome["rooms"]["lobby"] == {"head": 3, "recovered": True, "truncated": False}
        assert [frame["data"]["seq"] for frame in await bob.quiet()] == [3]
        assert [frame["data"]["seq"] for frame in await alice.quiet()] == [2, 3]


async def test_history_is_paged_both_ways() -> None:
    async with serving() as served:
        await served.lobby()
        alice = await served.joined("alice")
        for number in range(1, 8):
            await alice.request(type="room.send", room="lobby", body=number)

        async def page(**bounds: int) -> list[int]:
            reply = await alice.request(type="room.history", room="lobby", **bounds)
            return [message["body"] for message in reply["messages"]]

        assert await page(limit=3) == [5, 6, 7]
        assert await page(before=5, limit=2) == [3, 4]
        assert await page(after=5) == [6, 7]


async def test_a_token_opens_rooms_by_pattern() -> None:
    async with serving() as served:
        alice = await served.client("alice", claims={"rooms": ["doc-*"]})
        reply = await alice.request(type="room.join", room="doc-1")
        assert (reply["head"], reply["present"]) == (0, 1)
        alice.send(type="room.join", room="secret")
        assert (await alice.receive("error"))["code"] == "not_a_member"


async def test_the_rooms_a_user_may_enter_are_listed() -> None:
    async with serving() as served:
        await served.lobby()
        await served.node.store.put_room("default", "team", open=False)
        await served.node.store.put_room("default", "secret", open=False)
        await served.node.store.put_member("default", "team", "alice")
        alice = await served.client("alice")
        rooms = (await alice.request(type="room.list"))["rooms"]
        assert [(room["room"], room["open"]) for room in rooms] == [("lobby", True), ("team", False)]


async def test_who_is_present_is_listed_and_counted_once_per_user() -> None:
    async with serving() as served:
        await served.lobby()
        for user, device in (("alice", "phone"), ("alice", "laptop"), ("bob", "phone"), ("carol", "phone")):
            last = await served.joined(user, device=device)
        reply = await last.request(type="room.present", room="lobby", limit=2)
        profiles = {"alice": {"name": "Alice"}, "bob": {"name": "Bob"}}
        assert reply == {"users": ["alice", "bob"], "count": 3, "profiles": profiles}
        assert await last.request(type="room.present", room="lobby", after="bob") == {
            "users": ["carol"],
            "count": 3,
            "profiles": {"carol": {"name": "Carol"}},
        }


async def test_an_invisible_user_is_neither_present_nor_typing_for_others() -> None:
    async with serving() as served:
        await served.lobby()
        ghost, seer = await served.joined("ghost"), await served.joined("seer")
        until = served.clock.now_ms() + 60_000
        await ghost.request(type="status.set", status="invisible", until=until)
        ghost.send(type="typing.start", room="lobby")
        await ghost.quiet()
        assert await seer.quiet() == []
        assert await seer.request(type="room.present", room="lobby") == {
            "users": ["seer"],
            "count": 1,
            "profiles": {"seer": {"name": "Seer"}},
        }
        assert (await seer.request(type="room.join", room="lobby"))["present"] == 1
        assert (await ghost.request(type="room.present", room="lobby"))["count"] == 2
        await ghost.request(type="status.set", status="auto")
        ghost.send(type="typing.start", room="lobby")
        await ghost.request(type="status.set", status="invisible", until=until)
        assert [frame["type"] for frame in await seer.quiet()] == ["typing.started", "typing.stopped"]
        await served.advance(60, alive=[ghost, seer])
        assert (await seer.request(type="room.present", room="lobby"))["count"] == 2
        ghost.send(type="typing.start", room="lobby")
        await ghost.quiet()
        assert [frame["data"]["user"] for frame in await seer.quiet()] == ["ghost"]


async def test_the_number_of_rooms_of_a_connection_is_limited() -> None:
    async with serving(limits={"rooms": 2}) as served:
        alice = await served.client("alice", claims={"rooms": ["*"]})
        for room in ("a", "b", "a"):
            await alice.request(type="room.join", room=room)
        alice.send(type="room.join", room="c")
        assert (await alice.receive("error"))["code"] == "too_many"
        await alice.request(type="room.leave", room="a")
        await alice.request(type="room.join", room="c")


async def test_after_leaving_a_room_a_client_receives_nothing_from_it() -> None:
    async with serving() as served:
        await served.lobby()
        alice, bob = await served.joined("alice"), await served.joined("bob")
        await bob.request(type="room.leave", room="lobby")
        await alice.request(type="room.send", room="lobby", body=1)
        await alice.request(type="signal.send", room="lobby", kind="k")
        assert await bob.quiet() == []


async def test_no_session_topic_timer_or_task_remains_after_connections_have_ended() -> None:
    async with serving() as served:
        await served.lobby()
        node = served.node
        for _ in range(3):
            clients = [await served.joined(f"user{number}") for number in range(10)]
            for client in clients:
                await client.request(type="watch", users=["user0", "user1", "nobody"])
                client.send(type="typing.start", room="lobby")
                await client.quiet()
            for client in clients:
                await client.reset()
            await served.until_gone()
            await served.advance(60)
            assert (len(node.registry.connections), len(node.registry.sessions), node.registry.users) == (0, 0, 0)
            assert (node.hub.topics, served.timers, len(node.tasks)) == (0, 0, 0)


async def test_frames_held_during_the_hello_are_discarded_when_the_member_is_removed() -> None:
    async with serving() as served:
        for room in ("den", "lobby"):
            await served.node.store.put_room("default", room, open=True)
        client = await served.client("ann")
        for room in ("den", "lobby"):
            await client.request(type="room.join", room=room)
        await client.quiet()
        (connection,) = served.node.registry.connections.values()
        connection.hold()  # as during hello
        for room in ("den", "lobby"):  # in one turn: frames of several topics are joined
            channel = served.node.hub.channel(Topic("room", "default", room))
            frame = encode_event(RoomMessage(room, 1, "id", "bob", None, Raw(b"1"), 1), 1)
            served.node.hub.offer(channel, frame, record=True, key=RoomKey(room, 1))
        await served.settle()
        here = Topic("node", "", "here")
        served.node.rooms.removal.receive(here, MemberRemoved("default", "den", "ann", "removed", "nobody", 1))
        connection.release([])
        heard = [(frame["type"], frame["data"]["room"]) for frame in await client.quiet()]
        assert heard == [("room.message", "lobby"), ("room.changed", "den")]
