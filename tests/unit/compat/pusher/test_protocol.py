"""Pusher protocol on the wire, with time under control: life, close codes, rooms shared with native clients."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import msgspec
import pytest

from greendot.auth.model import Revocation
from greendot.config.pusher import Pusher
from greendot.limits.overload_model import Level
from greendot.testing.server import Served, serving
from greendot.testing.wire import BINARY, TEXT, Closed

from .wire import APP, QUERY, PusherClient, connected, member


async def closes(served: Served, path: str) -> int:
    client = await served.socket(path)
    return (await client.closed()).code


async def test_a_socket_gets_its_id_and_a_time_for_pings() -> None:
    async with serving(pusher=APP) as served:
        found = await PusherClient(await served.socket(f"/app/{APP['key']}?{QUERY}")).establish()
        assert 30 <= found["activity_timeout"] <= 42
        assert all(part.isdecimal() for part in found["socket_id"].split("."))


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/app/unknown?protocol=7", 4001),
        (f"/app/{APP['key']}", 4008),
        (f"/app/{APP['key']}?protocol=3", 4007),
        (f"/app/{APP['key']}?protocol=8", 4007),
        (f"/app/{APP['key']}?protocol=x", 4007),
        (f"/app/{APP['key']}?protocol=7&version=none", 4006),
    ],
)
async def test_a_wrong_request_is_closed_with_the_code_that_clients_read(path: str, code: int) -> None:
    async with serving(pusher=APP) as served:
        assert await closes(served, path) == code


async def test_a_server_without_apps_has_no_such_path() -> None:
    async with serving() as served:
        with pytest.raises(ConnectionError, match="404"):
            await served.socket(f"/app/{APP['key']}?{QUERY}")


async def test_a_silent_client_is_asked_and_then_closed_with_4201() -> None:
    async with serving(pusher=APP) as served:
        client = await connected(served)
        await served.advance(70)
        assert await client.quiet() == []  # the ping of the WebSocket was answered by nothing, but this is a frame
        await served.advance(76)
        assert (await client.socket.closed()).code == 4201


async def test_a_drain_sends_clients_away_with_4100() -> None:
    async with serving(pusher=APP) as served:
        one, two = await connected(served), await member(served, "ann")
        await served.node.drain(0.1)
        assert [(await client.socket.closed()).code for client in (one, two)] == [4100, 4100]


async def test_an_overloaded_node_refuses_subscriptions_and_keeps_the_socket() -> None:
    async with serving(pusher=APP) as served:
        client = await member(served, "ann")
        served.node.dispatcher.loaded(Level.REFUSING)
        client.ask("presence-other", "ann")
        assert (await client.receive("pusher:subscription_error"))["data"]["status"] == 503
        served.node.dispatcher.loaded(Level.NORMAL)
        await client.subscribe("presence-other", "ann")


async def test_an_overloaded_node_sends_new_users_away_with_4100() -> None:
    async with serving(pusher=APP) as served:
        client = await connected(served)
        served.node.hello.loaded(Level.REFUSING)
        client.ask("presence-lobby", "ann")
        assert (await client.socket.closed()).code == 4100
        await served.until_gone()
        assert len(served.node.tasks) == 0


async def test_a_client_that_leaves_while_its_user_waits_leaves_nothing_behind() -> None:
    async with serving(pusher=APP, admission={"hellos_per_s": 1}) as served:
        clients = [await connected(served) for _ in range(5)]
        for number, client in enumerate(clients):
            client.ask("presence-lobby", f"u{number}")
        while not served.node.hello.waiting:  # noqa: ASYNC110  (has no event)
            await asyncio.sleep(0.001)
        for client in clients:
            await client.socket.reset()
        await served.until_gone()
        await served.advance(60)
        assert (len(served.node.tasks), served.node.hello.waiting, served.node.registry.sessions) == (0, 0, {})


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(4000, 4100), (4001, 4100), (4003, 4100), (4005, 4200), (4501, 4009), (4503, 4009), (4242, 4100), (4999, 4009)],
)
async def test_a_code_of_ours_becomes_one_that_pusher_js_reads(ours: int, theirs: int) -> None:
    async with serving(pusher=APP) as served:
        client = await member(served, "ann")
        (session,) = served.node.registry.sessions
        assert await served.node.connections.disconnect(session, ours, "ended", "default")
        assert (await client.socket.closed()).code == theirs


async def test_a_revoked_user_stays_away() -> None:
    async with serving(pusher=APP) as served:
        client = await member(served, "ann")
        now = served.clock.now_ms()
        await served.node.revocation_service.revoke(
            Revocation("default", "user", "ann", now + 3_600_000, now + 1), "ann"
        )
        assert (await client.socket.closed()).code == 4009


# --- one truth ---


async def test_a_native_client_and_a_member_see_each_other_and_the_same_messages() -> None:
    async with serving(pusher=APP) as served:
        await served.node.store.put_room("default", "presence-lobby", open=True)
        nat = await served.joined("nat", "presence-lobby", comings=True)
        ann = await connected(served)
        here = await ann.subscribe("presence-lobby", "ann", name="Ann")
        assert here["presence"]["ids"] == ["ann", "nat"]
        assert here["presence"]["hash"]["nat"] == {"name": "Nat"}
        entered = (await nat.receive("room.entered"))["data"]
        assert (entered["user"], entered["info"]) == ("ann", {"name": "Ann"})
        for number in range(20):
            await nat.request(type="room.send", room="presence-lobby", body={"n": number})
        seen = [await ann.receive("message") for _ in range(20)]
        assert [frame["data"]["body"]["n"] for frame in seen] == [*range(20)]
        assert [frame["data"]["seq"] for frame in seen] == [*range(1, 21)]
        assert seen[0]["channel"] == "presence-lobby"
        watcher = await served.client("walt")
        assert (await watcher.request(type="presence.get", users=["ann"]))["presence"][0]["state"] == "online"


async def test_typing_goes_both_ways_and_arrives_once() -> None:
    async with serving(pusher=APP) as served:
        await served.node.store.put_room("default", "presence-lobby", open=True)
        nat = await served.joined("nat", "presence-lobby")
        ann, bob = await member(served, "ann"), await member(served, "bob")
        await served.settle()
        await ann.quiet()
        ann.send("client-typing", {"name": "Ann", "own": True}, channel="presence-lobby")
        heard = await bob.receive("client-typing")
        assert (heard["data"], heard["user_id"]) == ({"name": "Ann", "own": True}, "ann")
        kinds = [frame for frame in await nat.quiet() if frame["type"].startswith("typing")]
        assert [frame["data"]["user"] for frame in kinds] == ["ann"]
        assert await bob.quiet() == []
        assert await ann.quiet() == []
        await nat.request(type="typing.start", room="presence-lobby")
        for client in (ann, bob):
            typed = await client.receive("client-typing")
            assert (typed["data"], typed["user_id"]) == ({"user": "nat", "name": "Nat"}, "nat")
        ann.send("client-typing", {"typing": False}, channel="presence-lobby")
        await served.settle()
        assert [frame["type"] for frame in await nat.quiet()][-1] == "typing.stopped"


async def test_signals_of_native_clients_are_client_events_and_users_cannot_speak_as_the_server() -> None:
    async with serving(pusher=APP) as served:
        await served.node.store.put_room("default", "presence-lobby", open=True)
        nat = await served.joined("nat", "presence-lobby")
        ann = await member(served, "ann")
        await nat.request(type="signal.send", room="presence-lobby", kind="wave", body={"hand": 1})
        waved = await ann.receive("client-wave")
        assert (waved["data"], waved["user_id"]) == ({"hand": 1}, "nat")
        forged = {"event": "pusher_internal:member_added", "data": "{}"}
        await nat.request(type="room.send", room="presence-lobby", body=forged)
        await nat.request(type="room.send", room="presence-lobby", body={"event": "order-paid", "data": {}})
        assert [(await ann.receive())["event"] for _ in range(2)] == ["message", "message"]


async def test_a_channel_without_a_room_writes_nothing_to_the_store() -> None:
    async with serving(pusher=APP) as served:
        ann, bob = await member(served, "ann"), await member(served, "bob")
        assert (await ann.receive("pusher_internal:member_added"))["data"]["user_id"] == "bob"
        ann.send("client-x", [1, 2], channel="presence-lobby")
        assert (await bob.receive("client-x"))["data"] == [1, 2]
        assert await served.node.store.room("default", "presence-lobby") is None
        await served.advance(60, ())  # comparisons with the store find no room, and remove no member
        assert len(served.node.registry.sessions) == 2


async def test_a_member_is_gone_after_the_grace_and_once() -> None:
    async with serving(pusher=APP, presence={"clean_grace_s": 2.0, "grace_s": 8.0}) as served:
        ann, bob, again = await member(served, "ann"), await member(served, "bob"), await member(served, "bob")
        assert [frame["event"] for frame in await ann.quiet()] == ["pusher_internal:member_added"]
        await again.socket.close()
        await bob.socket.close()
        await served.until_gone(1)
        assert await ann.quiet() == []
        await served.advance(3)
        gone = await ann.quiet()
        assert [(frame["event"], frame["data"]) for frame in gone] == [
            ("pusher_internal:member_removed", {"user_id": "bob"})
        ]


async def test_a_room_that_is_created_under_a_channel_carries_messages_from_then_on() -> None:
    async with serving(pusher=APP) as served:
        ann = await member(served, "ann")
        await served.node.store.put_room("default", "presence-lobby", open=True)
        nat = await served.joined("nat", "presence-lobby")
        await ann.quiet()
        await nat.request(type="room.send", room="presence-lobby", body="first")
        await served.advance(20, [nat])
        assert [frame["data"]["body"] for frame in await ann.quiet() if frame["event"] == "message"] == ["first"]


async def test_a_closed_room_is_not_public_and_a_ban_holds() -> None:
    async with serving(pusher=APP) as served:
        await served.node.store.put_room("default", "secret", open=False)
        client = await connected(served)
        client.send("pusher:subscribe", {"channel": "secret", "auth": ""})
        assert (await client.receive("pusher:subscription_error"))["data"]["status"] == 403
        await served.node.store.put_room("default", "hall", open=True)
        await client.subscribe("hall")
        await served.node.room_messages.put_room("default", "hall", False, None)
        await served.settle()
        frames = await client.quiet()
        assert [frame["event"] for frame in frames] == ["pusher:subscription_error"]


# --- hostile input ---


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "[]",
        "{}",
        "null",
        '{"event":1}',
        '{"event":"pusher:subscribe"}',
        '{"event":"pusher:subscribe","data":"x"}',
        '{"event":"pusher:subscribe","data":{"channel":5}}',
        '{"event":"pusher:unsubscribe","data":{}}',
        '{"event":"no-such","data":{}}',
        '{"event":"client-x","data":{},"channel":"presence-lobby"}',
        '{"event":"client-x"}',
        '{"event":"hello","type":"hello","token":"x"}',
        '{"type":"bye"}',
        "[" * 30_000,
    ],
)
async def test_a_malformed_frame_is_answered_and_the_socket_stays(text: str) -> None:
    async with serving(pusher=APP) as served:
        client = await connected(served)
        client.socket.send_frame(TEXT, text.encode())
        assert [frame["event"] for frame in await client.quiet()] == ["pusher:error"]


@pytest.mark.parametrize(
    ("channel", "auth", "data"),
    [
        ("private-a", "", None),
        ("private-a", None, None),
        ("private-a", f"{APP['key']}:", None),
        ("private-a", "x" * 10_000, None),
        ("private-a", f"{APP['key']}:ünïcode", None),
        ("presence-a", f"{APP['key']}:00", '{"user_id":"ann"}'),
        ("private-encrypted-a", "", None),
        ("#server-to-user-ann", "", None),
        ("a b", "", None),
        ("x" * 5_000, "", None),
    ],
)
async def test_a_subscription_that_is_not_signed_is_refused(channel: str, auth: str | None, data: str | None) -> None:
    async with serving(pusher=APP) as served:
        client = await connected(served)
        asked = {"channel": channel, "auth": auth, "channel_data": data}
        client.send("pusher:subscribe", {name: value for name, value in asked.items() if value is not None})
        error = await client.receive("pusher:subscription_error")
        assert error["data"]["status"] in (400, 401)
        assert len(json.dumps(error)) < 1_000
        assert served.node.registry.sessions == {}


@pytest.mark.parametrize("data", ["{}", "[]", "x", '{"user_id":""}', '{"user_id":"a b"}', '{"user_id":null}'])
async def test_a_signed_but_wrong_identity_is_refused(data: str) -> None:
    async with serving(pusher=APP) as served:
        client = await connected(served)
        asked = {"channel": "presence-a", "auth": client.auth("presence-a", data), "channel_data": data}
        client.send("pusher:subscribe", asked)
        assert (await client.receive("pusher:subscription_error"))["data"]["status"] == 400


async def test_large_info_is_refused_and_a_signature_of_another_socket_too() -> None:
    async with serving(pusher=APP) as served:
        client, other = await connected(served), await connected(served)
        client.ask("presence-a", "ann", text="x" * 2_000)
        assert (await client.receive("pusher:subscription_error"))["data"]["type"] == "LimitReached"
        other.socket_id = client.socket_id  # a replay of what was signed for the first socket
        other.ask("presence-a", "ann")
        assert (await other.receive("pusher:subscription_error"))["data"]["status"] == 401


async def test_a_large_or_binary_frame_closes_the_socket() -> None:
    async with serving(pusher=APP) as served:
        client = await connected(served)
        client.socket.send_frame(TEXT, b'{"event":"' + b"x" * 70_000 + b'"}')
        assert (await client.socket.closed()).code == 1009
        client = await connected(served)
        client.socket.send_frame(BINARY, b"x")
        assert (await client.socket.closed()).code == 1003


async def test_a_flood_is_refused_and_ends_the_connection() -> None:
    async with serving(pusher=APP, limits={"commands_per_s": 5, "commands_burst": 10}) as served:
        client = await connected(served)
        for _ in range(12):
            for _ in range(60):
                client.send("pusher:subscribe", {"channel": "a b"})
            await client.socket.drain()
            served.clock.advance(1.0)
            served.node.timers.tick()
            await served.settle()
        assert (await client.socket.closed()).code == 4100


async def test_channels_of_a_connection_are_limited() -> None:
    async with serving(pusher=APP, limits={"rooms": 3}) as served:
        client = await connected(served)
        for number in range(3):
            await client.subscribe(f"c{number}")
        client.ask("c3")
        assert (await client.receive("pusher:subscription_error"))["data"]["type"] == "LimitReached"
        await client.subscribe("c1")  # again: nothing changes
        client.send("pusher:unsubscribe", {"channel": "c1"})
        await client.subscribe("c3")


async def test_connections_of_a_tenant_are_limited_with_and_without_a_user() -> None:
    async with serving(pusher=APP, limits={"tenant_connections": 2}) as served:
        one, two = await connected(served), await member(served, "ann")
        assert await closes(served, f"/app/{APP['key']}?{QUERY}") == 4100
        await one.subscribe("presence-lobby", "bob")  # is counted once
        assert served.node.connection_limits.counts == {"default": 2}
        await two.socket.close()
        await served.until_gone(1)
        await connected(served)
        assert served.node.registry.usage.of("default").connections == 2


async def test_random_frames_never_break_a_connection() -> None:
    chance = random.Random(7)
    words: list[Any] = [
        "pusher:subscribe",
        "pusher:signin",
        "client-x",
        "presence-a",
        "private-a",
        None,
        1,
        {},
        [],
        "",
        "é",
    ]
    async with serving(pusher=APP, limits={"commands_per_s": 10_000, "commands_burst": 10_000}) as served:
        client = await member(served, "ann", "presence-a")
        for _ in range(300):
            frame = {chance.choice(["event", "data", "channel", "x"]): chance.choice(words) for _ in range(3)}
            frame["data"] = {chance.choice(["channel", "auth", "user_data"]): chance.choice(words) for _ in range(2)}
            frame["event"] = chance.choice(
                [*(word for word in words if isinstance(word, str) and word != "pusher:signin")]
            )
            client.socket.send_frame(TEXT, json.dumps(frame).encode())
        await client.quiet()


# --- apps ---


async def test_each_app_is_a_tenant_and_secrets_rotate_without_a_restart() -> None:
    other = {"app_id": "4712", "key": "another-key", "secret": "the other secret, of b"}
    async with serving(pusher=APP, tenants={"b": {"pusher": other}}) as served:
        ann = await member(served, "ann")
        bob = await connected(served, key=other["key"], secret=other["secret"])
        here = await bob.subscribe("presence-lobby", "bob")
        assert here["presence"]["ids"] == ["bob"]
        assert await ann.quiet() == []
        app = msgspec.convert(APP | {"secret": "a newer secret of app", "secret_before": APP["secret"]}, Pusher)
        served.greendot.reload(msgspec.structs.replace(served.greendot.settings, pusher=app))
        await ann.subscribe("private-with-the-old")
        ann.secret = "a newer secret of app"
        await ann.subscribe("private-with-the-new")


@pytest.mark.parametrize("moved", [True, False])
async def test_a_key_that_is_gone_closes_its_sockets_and_others_stay(moved: bool) -> None:
    other = {"app_id": "4712", "key": "another-key", "secret": "the other secret, of b"}
    async with serving(pusher=APP, tenants={"b": {"pusher": other}}) as served:
        ann = await member(served, "ann")
        bob = await connected(served, key=other["key"], secret=other["secret"])
        app = msgspec.convert(APP | {"key": other["key"] if moved else "a-new-key"}, Pusher)
        settings = msgspec.structs.replace(served.greendot.settings, pusher=app, tenants={})
        served.greendot.reload(settings)
        with pytest.raises(Closed) as closed:
            await ann.quiet()
        assert closed.value.code == 4001
        with pytest.raises(Closed) as closed:
            await bob.receive()
        assert closed.value.code == 4001


async def test_sockets_with_an_unknown_key_are_charged_to_no_tenant() -> None:
    async with serving(pusher=APP) as served:
        assert await closes(served, f"/app/unknown?{QUERY}") == 4001
        await served.until_gone()
        assert served.node.registry.usage.of("default").closes == {}


async def test_an_identity_ends_in_time_and_the_client_returns() -> None:
    async with serving(pusher=APP) as served:
        ann = await member(served, "ann")
        session = next(iter(served.node.registry.sessions.values()))
        left_s = (session.grants.expires_at - served.clock.now_ms()) / 1000
        assert 0.8 * 86_400 <= left_s <= 86_400
        session.grants = msgspec.structs.replace(session.grants, expires_at=served.clock.now_ms() + 1_000)
        served.node.sessions.deadlines.rearm(session)
        await served.advance(20)
        assert (await ann.socket.closed()).code == 4200
