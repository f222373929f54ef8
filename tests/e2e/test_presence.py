"""Presence as watchers see it, over real sockets, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from greendot.testing import Served, WireClient, serving

Frames = list[dict[str, Any]]


def states(frames: Frames) -> list[str]:
    """Return the states of the frames, which must all be presence changes."""
    assert all(frame["type"] == "presence.changed" for frame in frames), frames
    return [frame["data"]["state"] for frame in frames]


async def watcher(served: Served, *users: str) -> WireClient:
    client = await served.client("watcher", device="watching")
    await client.request(type="watch", users=list(users))
    return client


async def test_a_newcomer_is_online_with_name_and_device() -> None:
    async with serving() as served:
        bob = await watcher(served, "alice")
        await served.client("alice", device="laptop")
        (frame,) = await bob.quiet()
        assert frame["type"] == "presence.changed"
        assert (frame["v"], frame["ts"]) == (1, served.clock.now_ms())
        data = frame["data"]
        assert (data["user"], data["name"], data["state"], data["last_seen"]) == ("alice", "Alice", "online", None)
        assert data["since"] == served.clock.now_ms()
        assert "devices" not in data
        (entry,) = (await bob.request(type="presence.get", users=["alice"]))["presence"]
        assert entry["devices"] == ["laptop"]
        assert entry["version"] == data["version"]


async def test_closing_one_of_two_devices_shows_nothing() -> None:
    async with serving() as served:
        bob = await watcher(served, "alice")
        phone = await served.client("alice", device="phone")
        laptop = await served.client("alice", device="laptop")
        assert states(await bob.quiet()) == ["online"]
        await phone.close()
        (frames, _) = await served.advance(60, alive=[bob, laptop])
        assert frames == []
        (entry,) = (await bob.request(type="presence.get", users=["alice"]))["presence"]
        assert (entry["state"], entry["devices"]) == ("online", ["laptop"])


async def test_two_devices_fighting_over_idle_and_active_change_nothing() -> None:
    async with serving(presence={"idle_s": 60.0}) as served:
        bob = await watcher(served, "alice")
        phone = await served.client("alice", device="phone")
        laptop = await served.client("alice", device="laptop")
        assert states(await bob.quiet()) == ["online"]
        for _ in range(10):
            laptop.send(type="activity")
            phone.send(type="activity")
            assert await laptop.quiet() == await phone.quiet() == []  # processed before the clock advances
            (frames, *_) = await served.advance(45, alive=[bob, phone, laptop])
            laptop.send(type="activity")
            assert await laptop.quiet() == []
            (more, *_) = await served.advance(45, alive=[bob, phone, laptop])  # the phone becomes idle in this half
            assert frames + more == []


async def test_idle_comes_at_its_moment_whatever_the_moment_of_the_last_activity() -> None:
    async with serving(presence={"idle_s": 60.0}) as served:
        bob, alice = await watcher(served, "alice"), await served.client("alice")
        await bob.quiet()
        for step in range(1, 60):
            await served.advance(step * 0.037, alive=[bob, alice])  # sums of these are not exact
            alice.send(type="activity")
            await alice.quiet()
            await bob.quiet()
            frames, _ = await served.advance(60, alive=[bob, alice])
            assert states(frames) == ["idle"]


async def test_idle_comes_exactly_after_the_period_and_activity_ends_it_at_once() -> None:
    async with serving() as served:
        bob = await watcher(served, "alice")
        alice = await served.client("alice")
        await bob.quiet()
        start = served.clock.now_ms()
        frames, _ = await served.advance(299.999, alive=[bob, alice])  # heartbeats are not activity
        assert frames == []
        (told, _) = await served.advance(0.001, alive=[bob, alice])
        assert states(told) == ["idle"]
        assert told[0]["data"]["since"] == start + 300_000
        await alice.request(type="watch", users=["bob"])  # commands without user input are not activity either
        assert await bob.quiet() == []
        alice.send(type="activity")
        await alice.quiet()
        await served.settle()
        assert states(await bob.quiet()) == ["online"]


async def test_idle_comes_at_its_moment_also_where_the_sum_of_seconds_lies_a_hair_beyond() -> None:
    moment_ms = next(ms for ms in range(1, 10_000) if ms / 1000 + 60.0 > (ms + 60_000) / 1000)
    async with serving(presence={"idle_s": 60.0}) as served:
        bob = await watcher(served, "alice")
        alice = await served.client("alice")
        assert states(await bob.quiet()) == ["online"]
        await served.advance(moment_ms / 1000, alive=[bob, alice])
        alice.send(type="activity")
        assert await alice.quiet() == []
        frames, _ = await served.advance(59.999, alive=[bob, alice])
        assert frames == []
        frames, _ = await served.advance(0.001, alive=[bob, alice])
        assert states(frames) == ["idle"]


@pytest.mark.parametrize(
    "command",
    [
        {"type": "activity"},
        {"type": "typing.start", "room": "lobby"},
        {"type": "signal.send", "room": "lobby", "kind": "cursor", "body": 1},
        {"type": "room.send", "room": "lobby", "body": "hi"},
        {"type": "status.set", "status": "auto"},
    ],
    ids=lambda command: command["type"],
)
async def test_what_a_person_does_is_activity(command: dict[str, Any]) -> None:
    async with serving() as served:
        await served.lobby()
        bob = await watcher(served, "alice")
        alice = await served.client("alice")
        await alice.request(type="room.join", room="lobby")
        (frames, _) = await served.advance(300, alive=[bob, alice])
        assert states(frames) == ["online", "idle"]
        await alice.request(**command)
        await served.settle()
        assert states(await bob.quiet()) == ["online"]


async def test_a_drop_and_a_return_within_the_grace_show_nothing() -> None:
    async with serving() as served:
        bob = await watcher(served, "alice")
        alice = await served.client("alice", device="phone")
        await bob.quiet()
        await alice.reset()
        await served.until_gone(1)
        (frames,) = await served.advance(29.999, alive=[bob])
        back = await served.client("alice", device="phone", resume={"session": alice.welcome["session"]})
        assert back.welcome["resumed"] is True
        assert back.welcome["session"] == alice.welcome["session"]
        (later, _) = await served.advance(200, alive=[bob, back])
        assert frames + later == []


async def test_a_new_session_of_the_same_device_within_the_grace_shows_nothing() -> None:
    async with serving() as served:
        bob = await watcher(served, "alice")
        alice = await served.client("alice", device="phone")
        await bob.quiet()
        await alice.reset()
        await served.until_gone(1)
        (frames,) = await served.advance(20, alive=[bob])
        back = await served.client("alice", device="phone")
        assert back.welcome["resumed"] is False
        (later, _) = await served.advance(200, alive=[bob, back])
        assert frames + later == []


GRACES = {
    "the socket is lost": (30.0, lambda client: client.reset()),
    "the client closes cleanly": (5.0, lambda client: client.close(1000)),
    "the page is left": (5.0, lambda client: client.close(1001)),
    "the client closes with an error": (30.0, lambda client: client.close(1011)),
    "the client says bye": (0.0, lambda client: say_bye(client)),
}


async def say_bye(client: WireClient) -> None:
    client.send(type="bye")
    assert (await client.closed()).code == 1000


@pytest.mark.parametrize("case", GRACES)
async def test_offline_is_published_once_after_the_grace_of_its_cause_with_the_right_last_seen(case: str) -> None:
    grace_s, leave = GRACES[case]
    async with serving() as served:
        bob = await watcher(served, "alice")
        alice = await served.client("alice")
        await served.advance(10, alive=[bob, alice])
        heard = served.clock.now_ms()
        await leave(alice)
        await served.until_gone(1)
        if grace_s:
            (frames,) = await served.advance(grace_s - 0.001, alive=[bob])
            assert frames == []
            (frames,) = await served.advance(0.001, alive=[bob])
        else:
            frames = await bob.quiet()
        assert states(frames) == ["offline"]
        assert frames[0]["data"]["last_seen"] == heard
        assert frames[0]["data"]["since"] == heard + round(grace_s * 1000)
        (frames,) = await served.advance(300, alive=[bob])
        assert states(frames) == []


async def test_a_silent_client_is_offline_within_92_seconds_and_last_seen_is_its_last_frame() -> None:
    async with serving() as served:
        bob = await watcher(served, "alice")
        alice = await served.client("alice")
        await served.advance(40, alive=[bob, alice])
        heard = served.clock.now_ms()
        (frames,) = await served.advance(92, alive=[bob])
        assert states(frames) == ["offline"]
        assert frames[0]["data"]["last_seen"] == heard
        assert frames[0]["ts"] - heard == 90_000
        closed = await alice.closed()
        assert closed.code == 4002


async def test_a_server_close_that_invites_a_return_gives_the_full_grace_and_one_that_does_not_gives_none() -> None:
    async with serving() as served:
        bob = await watcher(served, "alice", "carol")
        alice, carol = await served.client("alice"), await served.client("carol")
        await bob.quiet()
        assert await served.node.connections.disconnect(alice.welcome["session"], 4004, "resync", "default")
        assert await served.node.connections.disconnect(carol.welcome["session"], 4503, "operator", "default")
        assert ((await alice.closed()).code, (await carol.closed()).code) == (4004, 4503)
        await served.until_gone(1)
        (frame,) = await bob.quiet()
        assert (frame["data"]["user"], frame["data"]["state"]) == ("carol", "offline")
        (frames,) = await served.advance(29.999, alive=[bob])
        assert frames == []
        (frames,) = await served.advance(0.001, alive=[bob])
        assert [frame["data"]["user"] for frame in frames] == ["alice"]


async def test_a_change_with_no_watchers_sends_nothing_to_any_socket() -> None:
    async with serving() as served:
        bystanders = [await served.client(f"user{number}") for number in range(5)]
        for client in bystanders:
            await client.quiet()
        before = served.node.metrics.realtime_socket_send_total
        received = served.node.metrics.realtime_pubsub_received_total
        ref = await served.client("alice")  # its welcome is one send
        await ref.reset()
        await served.until_gone(5)
        await served.advance(31)
        assert served.node.metrics.realtime_socket_send_total == before + 1
        assert served.node.metrics.realtime_pubsub_received_total == received
        for client in bystanders:
            assert await client.quiet() == []


async def test_resuming_a_live_session_replaces_its_socket_unseen() -> None:
    async with serving() as served:
        bob = await watcher(served, "alice")
        old = await served.client("alice")
        await bob.quiet()
        new = await served.client("alice", resume={"session": old.welcome["session"]})
        assert new.welcome["resumed"] is True
        assert (await old.closed()).code == 4505
        (frames, _) = await served.advance(200, alive=[bob, new])
        assert frames == []
        assert len(served.node.registry.sessions_of("default", "alice")) == 1


async def test_the_same_device_opened_twice_is_two_sessions() -> None:
    async with serving() as served:
        one = await served.client("alice", device="laptop")
        two = await served.client("alice", device="laptop")
        assert one.welcome["session"] != two.welcome["session"]
        assert len(served.node.registry.sessions_of("default", "alice")) == 2


@pytest.mark.parametrize("claims", [{"tenant": "other"}, {}], ids=["another tenant", "another user"])
async def test_no_user_resumes_the_session_of_another_user(claims: dict[str, Any]) -> None:
    async with serving() as served:
        alice = await served.client("alice")
        user = "alice" if claims else "mallory"
        thief = await served.client(user, claims=claims, resume={"session": alice.welcome["session"]})
        assert thief.welcome["resumed"] is False
        assert thief.welcome["session"] != alice.welcome["session"]
        assert await alice.quiet() == []


async def test_an_idle_session_that_resumes_stays_idle() -> None:
    async with serving() as served:
        bob = await watcher(served, "alice")
        alice = await served.client("alice")
        (frames, _) = await served.advance(301, alive=[bob, alice])
        assert states(frames) == ["online", "idle"]
        await alice.reset()
        await served.until_gone(1)
        back = await served.client("alice", resume={"session": alice.welcome["session"]})
        (frames, _) = await served.advance(100, alive=[bob, back])
        assert frames == []


async def test_busy_lasts_until_its_end_and_survives_reconnects() -> None:
    async with serving() as served:
        bob = await watcher(served, "alice")
        alice = await served.client("alice")
        await bob.quiet()
        until = served.clock.now_ms() + 600_000
        reply = await alice.request(type="status.set", status="busy", until=until, text="in a meeting")
        assert (reply["presence"]["state"], reply["presence"]["status"], reply["presence"]["until"]) == (
            "busy",
            "busy",
            until,
        )
        (frame,) = await bob.quiet()
        assert (frame["data"]["state"], frame["data"]["status_text"]) == ("busy", "in a meeting")
        assert "status" not in frame["data"]
        await alice.reset()
        await served.until_gone(1)
        (frames,) = await served.advance(60, alive=[bob])
        assert states(frames) == ["offline"]
        back = await served.client("alice")
        assert states(await bob.quiet()) == ["busy"]
        (frames, _) = await served.advance(539.999, alive=[bob, back])
        assert frames == []
        (frames, _) = await served.advance(0.001, alive=[bob, back])
        assert states(frames) == ["idle"]  # no device was active for minutes


async def test_invisible_leaks_nothing_to_others_and_hides_nothing_from_oneself() -> None:
    async with serving() as served:
        bob = await watcher(served, "alice")
        alice = await served.client("alice")
        tablet = await served.client("alice", device="tablet")
        await tablet.request(type="watch", users=["alice"])
        await bob.quiet()
        await alice.request(type="status.set", status="invisible")
        hidden_at = served.clock.now_ms()
        (frame,) = await bob.quiet()
        frozen = frame["data"]
        assert (frozen["state"], frozen["last_seen"]) == ("offline", hidden_at)
        (own,) = await tablet.quiet()
        assert (own["data"]["state"], own["data"]["status"]) == ("online", "invisible")
        (frames, seen, _) = await served.advance(400, alive=[bob, tablet, alice])
        assert frames == []
        assert states(seen) == ["idle"]
        for client in (alice, tablet):
            await client.reset()
        await served.until_gone(1)
        (frames,) = await served.advance(400, alive=[bob])
        assert frames == []
        back = await served.client("alice")
        (entry,) = (await bob.request(type="presence.get", users=["alice"]))["presence"]
        keys = ("state", "since", "last_seen", "version")
        assert [entry[key] for key in keys] == [frozen[key] for key in keys]
        assert entry["devices"] == []
        assert await bob.quiet() == []
        await back.request(type="status.set", status="auto")
        assert states(await bob.quiet()) == ["online"]


async def test_a_cold_start_shows_everyone_offline_until_they_return() -> None:
    async with serving() as served:
        bob = await served.client("bob")
        (entry,) = (await bob.request(type="watch", users=["alice"]))["presence"]
        assert (entry["state"], entry["last_seen"], entry["version"]) == ("offline", None, 0)


async def test_versions_grow_with_every_change_also_when_the_wall_clock_goes_back() -> None:
    async with serving(presence={"idle_s": 10.0}) as served:
        bob = await watcher(served, "alice")
        alice = await served.client("alice")
        told: Frames = await bob.quiet()
        for _ in range(3):
            served.clock.jump_wall(-3600)
            (frames, _) = await served.advance(11, alive=[bob, alice])
            alice.send(type="activity")
            await alice.quiet()
            await served.settle()
            told += frames + await bob.quiet()
        versions = [frame["data"]["version"] for frame in told]
        assert states(told) == ["online"] + ["idle", "online"] * 3
        assert versions == sorted(set(versions))


async def test_no_durable_write_for_coming_and_going() -> None:
    async with serving() as served:
        writes: list[str] = []
        store = served.node.store
        for name in ("put_status", "put_room", "append", "notify", "put_member", "remove_member", "put_marker"):
            setattr(store, name, lambda *args, name=name, **kwargs: writes.append(name))
        alice = await served.client("alice")
        alice.send(type="activity")
        await served.advance(400, alive=[alice])
        await alice.reset()
        await served.until_gone()
        await served.advance(60)
        assert writes == []


async def test_a_token_that_ends_closes_the_socket_and_a_refresh_moves_the_end() -> None:
    async with serving() as served:
        alice = await served.client("alice", claims={"ttl_s": 100})
        bob = await served.client("bob", claims={"ttl_s": 100})
        reply = await bob.request(type="token.refresh", token=served.token("bob", ttl_s=500))
        assert reply["expires_at"] == served.clock.now_ms() + 500_000
        await served.advance(99.999, alive=[alice, bob])
        await served.advance(0.001, alive=[bob])
        assert (await alice.closed()).code == 4005
        await served.advance(300, alive=[bob])


async def test_a_connection_that_ends_during_hello_leaves_no_session_behind() -> None:
    async with serving() as served:
        bob = await watcher(served, "alice")
        for _ in range(20):
            client = await served.socket()
            client.send(type="hello", token=served.token("alice"), device="phone")
            await client.drain()
            await client.reset()
        await served.until_gone(1)
        await asyncio.sleep(0)
        (frames,) = await served.advance(60, alive=[bob])
        assert states(frames) in ([], ["online", "offline"])
        assert served.node.registry.sessions_of("default", "alice") == ()


@pytest.mark.parametrize("jump_s", [3600, -3600])
async def test_setting_the_wall_clock_neither_ends_nor_prolongs_anything(jump_s: int) -> None:
    async with serving() as served:
        await served.lobby()
        bob = await watcher(served, "alice", "carol")
        alice, carol = await served.client("alice"), await served.client("carol")
        for client in (bob, carol):
            await client.request(type="room.join", room="lobby")
        await alice.reset()
        await served.until_gone(2)
        await served.advance(10, alive=[bob, carol])
        carol.send(type="typing.start", room="lobby")
        await carol.quiet()
        await bob.quiet()
        served.clock.jump_wall(jump_s)
        (frames, _) = await served.advance(4.999, alive=[bob, carol])
        assert frames == []
        (frames, _) = await served.advance(0.001, alive=[bob, carol])
        assert [frame["type"] for frame in frames] == ["typing.stopped"]
        (frames, _) = await served.advance(14.999, alive=[bob, carol])
        assert frames == []
        (frames, _) = await served.advance(0.001, alive=[bob, carol])
        assert states(frames) == ["offline"]
        assert frames[0]["data"]["since"] == served.clock.now_ms()
        until = served.clock.now_ms() + 60_000
        await carol.request(type="status.set", status="busy", until=until)
        (frames, _) = await served.advance(60, alive=[bob, carol])
        assert states(frames) == ["busy", "online"]
