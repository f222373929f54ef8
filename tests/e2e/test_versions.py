"""Clients of different versions: each receives a version it can read, or a request to fetch."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import UNSET

from e2e.test_client import client, next_of
from e2e.test_hostile import Peer
from e2e.test_inbox import Bus, notify, of, post
from greendot.connect.connections import LONGEST_S
from greendot.protocol.events import NotificationUpdated
from greendot.testing import Closed, Served, WireClient, serving

UPDATED = "notification.updated"
NEWER: dict[str, Any] = {"supports": {UPDATED: [1, 2]}}
BLIND: dict[str, Any] = {"supports": {"room.message": [2], "signal": [], "typing.started": [3]}}


def connection_of(served: Served, user: str) -> Any:
    (found,) = served.node.registry.connections_of("default", user)
    return found


def kinds(frames: list[dict[str, Any]]) -> list[str]:
    return [frame["type"] for frame in frames]


# --- one event, two versions ---


async def test_each_device_receives_marks_of_another_device_in_the_version_it_supports() -> None:
    async with serving() as served:
        phone = await served.client("ann", device="phone")
        old, newer = await served.client("ann", device="old"), await served.client("ann", device="new", **NEWER)
        ids = [(await notify(served, body=number))["id"] for number in range(3)]
        for device in (old, newer):
            await device.quiet()
        await phone.request(type="inbox.read", through=2)
        await phone.request(type="inbox.archive", ids=[ids[2]])
        was, now = await old.quiet(), await newer.quiet()
        assert [(frame["v"], frame["data"]) for frame in was] == [
            (1, {"state": "read", "ids": ids[:2], "through": 2}),
            (1, {"state": "archived", "ids": [ids[2]]}),
        ]
        assert [(frame["v"], frame["data"]) for frame in now] == [
            (2, {"state": "read", "through": 2}),
            (2, {"state": "archived", "ids": [ids[2]]}),
        ]
        assert [(frame["type"], frame["ts"]) for frame in was] == [(frame["type"], frame["ts"]) for frame in now]
        # Its own marks are answered in a reply, which has no versions.
        assert await newer.request(type="inbox.seen", through=3) == {"unread": 0, "unseen": 0}


async def test_very_many_marked_notifications_are_one_event_in_the_newer_version() -> None:
    async with serving() as served:
        phone = await served.client("ann", device="phone")
        newer = await served.client("ann", device="new", **NEWER)
        bus = Bus(served)  # holds the frames of the new notifications
        await post(served, {"notifications": [{"user": "ann", "kind": "news", "body": 0} for _ in range(1_200)]})
        await phone.request(type="inbox.read", through=1_200)
        await bus.deliver(len(bus.waiting) - 1)
        frames = await newer.quiet()
        assert [(frame["type"], frame["data"]) for frame in frames] == [(UPDATED, {"state": "read", "through": 1_200})]


async def test_what_a_returning_device_missed_comes_in_its_version() -> None:
    async with serving() as served:
        phone = await served.client("ann", device="phone")
        made = await notify(served)
        await phone.request(type="inbox.read", ids=[made["id"]])
        back = await served.client("ann", device="new", resume={"inbox": 0}, **NEWER)
        frames = await back.quiet()
        assert [(frame["type"], frame["v"]) for frame in frames] == [("notification.created", 1), (UPDATED, 2)]
        # The version belongs to the connection: a session may resume with another program.
        session = back.welcome["session"]
        again = await served.client("ann", device="new", resume={"session": session, "inbox": 0})
        assert [frame["v"] for frame in await again.quiet()] == [1, 1]


async def test_the_python_client_reads_the_newer_version_and_rooms_are_written_straight_to_it() -> None:
    async with serving() as served:
        await served.lobby()
        ann = await served.client("ann", device="wire")
        async with client(served, "ann") as me:
            await me.join("lobby")
            await notify(served)
            await notify(served)
            events = me.events()
            await ann.request(type="inbox.read", through=2)
            told = await next_of(events, NotificationUpdated)
            assert (told.state, told.ids, told.through) == ("read", UNSET, 2)
            (connection,) = [c for c in served.node.registry.connections_of("default", "ann") if c.dialect]
            await served.settle()
            assert connection.direct == connection.fd >= 0


# --- no readable version ---


async def rooms_of_three(served: Served) -> tuple[WireClient, WireClient, WireClient]:
    """Return a sender, a normal listener, and a client that can read none of the events."""
    await served.lobby()
    ann, bob, zoe = [await served.joined(user, **hello) for user, hello in (("ann", {}), ("bob", {}), ("zoe", BLIND))]
    return ann, bob, zoe


async def test_a_client_that_cannot_read_an_event_receives_one_refresh_for_all_of_them() -> None:
    async with serving() as served:
        ann, bob, zoe = await rooms_of_three(served)
        for number in range(5):
            await ann.request(type="room.send", room="lobby", body=number)
        ann.send(type="signal.send", room="lobby", kind="wave")
        ann.send(type="typing.start", room="lobby")
        await ann.quiet()
        assert kinds(await bob.quiet()) == ["room.message"] * 5 + ["signal", "typing.started"]
        assert await zoe.quiet() == []
        (told,) = await served.advance(LONGEST_S, [zoe])
        assert kinds(told) == ["refresh"] * 3
        assert [data["of"] for data in of(told, "refresh")] == ["room.message", "signal", "typing.started"]
        page = await zoe.request(type="room.history", room="lobby")
        assert [message["body"] for message in page["messages"]] == [0, 1, 2, 3, 4]


async def test_refresh_events_are_limited_in_rate_and_always_follow_the_last_unreadable_message() -> None:
    async with serving() as served:
        ann, _, zoe = await rooms_of_three(served)
        told = []
        for number in range(40):
            await ann.request(type="room.send", room="lobby", body=number)
            (frames,) = await served.advance(0.25, [zoe])
            told += of(frames, "refresh")
        assert 10 / LONGEST_S - 1 <= len(told) <= 2 * 10 / LONGEST_S
        await ann.request(type="room.send", room="lobby", body="the last word")
        (frames,) = await served.advance(LONGEST_S, [zoe])
        assert of(frames, "refresh") == [{"of": "room.message"}]
        (frames,) = await served.advance(10 * LONGEST_S, [zoe])
        assert of(frames, "refresh") == []


async def test_in_busy_rooms_each_is_written_what_it_reads() -> None:
    async with serving() as served:
        for room in ("one", "two"):
            await served.node.store.put_room("default", room, open=True)
        ann = await served.joined("ann", "one")
        bob, zoe = await served.joined("bob", "one"), await served.joined("zoe", "one", **BLIND)
        for member in (ann, bob, zoe):
            await member.request(type="room.join", room="two")
        # In one tick, in both rooms: the frames are joined for clients that read the current version.
        for number in range(3):
            for room in ("one", "two"):
                ann.send(type="signal.send", room=room, kind="wave", body=number)
                ann.send(type="typing.stop", room=room)
        await ann.quiet()
        assert kinds(await bob.quiet()) == ["signal"] * 6
        assert await zoe.quiet() == []
        await ann.request(type="room.leave", room="two")
        await served.settle()
        zoe.deaf_to = frozenset()
        assert [frame["data"] for frame in await zoe.quiet()] == [{"room": "two", "user": "ann"}]


async def test_a_client_that_missed_unreadable_messages_receives_a_refresh_on_return() -> None:
    async with serving() as served:
        ann, _, zoe = await rooms_of_three(served)
        session = zoe.welcome["session"]
        await zoe.end()
        await served.until_gone(2)
        for number in range(3):
            await ann.request(type="room.send", room="lobby", body=number)
        back = await served.client("zoe", resume={"session": session, "rooms": {"lobby": 0}}, **BLIND)
        assert back.welcome["rooms"]["lobby"]["head"] == 3
        assert await back.quiet() == []
        (frames,) = await served.advance(LONGEST_S, [back])
        assert of(frames, "refresh") == [{"of": "room.message"}]


async def test_a_slow_reader_that_keeps_up_again_still_gets_what_it_reads_and_nothing_else() -> None:
    async with serving(limits={"enabled": False}) as served:
        await served.lobby()
        ann, slow = await served.joined("ann"), await Peer.connect(served.port)
        served._clients.append(slow)
        await slow.hello(served.token("zoe"), supports={"room.message": [2], UPDATED: [2]})
        phone = await served.client("zoe", device="phone")
        await slow.request(type="room.join", room="lobby")
        slow.deaf_to = frozenset({"signal", "inbox.badge"})
        slow.stop_reading()
        connection = next(c for c in served.node.registry.connections_of("default", "zoe") if c.dialect)
        for _ in range(200):
            if connection.behind:
                break
            await ann.request(type="signal.send", room="lobby", kind="fill", body="x" * 50_000)
        assert connection.behind, "the kernel buffered all frames"
        for number in range(3):
            await ann.request(type="room.send", room="lobby", body=number)
            await notify(served, user="zoe")
        await phone.request(type="inbox.read", through=3)
        slow.go_on_reading()
        frames = await slow.quiet()
        assert kinds(frames) == ["notification.created"] * 3 + [UPDATED]
        assert frames[-1]["data"] == {"state": "read", "through": 3}
        await served.settle()
        assert (connection.behind, connection.direct) == (False, -1)
        await ann.request(type="room.send", room="lobby", body=3)
        assert await slow.quiet() == []
        (frames,) = await served.advance(LONGEST_S, [slow])
        assert of(frames, "refresh") == [{"of": "room.message"}]


async def test_nothing_is_kept_for_a_client_that_left_before_its_refresh_event() -> None:
    async with serving() as served:
        ann, _, zoe = await rooms_of_three(served)
        await ann.request(type="room.send", room="lobby", body=1)
        assert len(served.node.connections._unread) == 1
        await zoe.end()
        await served.until_gone(2)
        await served.advance(LONGEST_S, [ann])
        assert served.node.connections._unread == {}


# --- hello ---


@pytest.mark.parametrize("kind", ["welcome", "resync", "refresh", "drain"])
async def test_one_with_whom_there_is_no_talking_is_closed_with_a_sentence(kind: str) -> None:
    async with serving() as served:
        zoe = await served.socket()
        with pytest.raises(Closed) as closed:
            await zoe.hello(served.token("zoe"), supports={kind: [2, 3]})
        assert closed.value.code == 4504
        assert (
            closed.value.reason
            == f"this client does not support version 1 of {kind}, which this server sends; update the client"
        )
        await served.until_gone()
        assert (len(served.node.registry.sessions), served.timers) == (0, 0)


async def test_a_token_is_looked_at_before_versions_are() -> None:
    async with serving() as served:
        zoe = await served.socket()
        with pytest.raises(Closed) as closed:
            await zoe.hello("not a token", supports={"welcome": [2]})
        assert closed.value.code == 4500


@pytest.mark.parametrize("supports", [{}, {UPDATED: [1]}, {"something.new": [9], "signal": [1, 2, 3]}])
async def test_one_who_reads_what_most_read_is_written_to_like_most(supports: dict[str, list[int]]) -> None:
    async with serving() as served:
        await served.lobby()
        zoe = await served.joined("zoe", supports=supports)
        await zoe.quiet()
        connection = connection_of(served, "zoe")
        assert connection.dialect is None
        assert connection.direct == connection.fd >= 0


async def test_two_of_a_make_share_what_is_made_for_them() -> None:
    async with serving() as served:
        await served.lobby()
        for user in ("ann", "bob"):
            await served.joined(user, **BLIND)
        assert connection_of(served, "ann").dialect is connection_of(served, "bob").dialect
        assert connection_of(served, "ann").direct == -1


async def test_clients_that_cannot_read_a_message_receive_refresh_events_spread_over_time() -> None:
    async with serving() as served:
        await served.lobby()
        crowd = await asyncio.gather(*(served.joined(f"user{number}", **BLIND) for number in range(20)))
        ann = await served.joined("ann")
        await ann.request(type="room.send", room="lobby", body=1)
        told: list[float] = []
        for _ in range(16):
            received = await served.advance(LONGEST_S / 16, crowd)
            told += [served.clock.monotonic() for frames in received for _ in of(frames, "refresh")]
        assert len(told) == 20
        assert len(set(told)) > 3
