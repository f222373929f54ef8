"""Pusher clients beside native ones, on both engines and both stores."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from backends import on_each_pair, serving_on
from e2e.narrow import Peer
from e2e.processes import ask
from greendot.testing import Served, serving
from greendot.testing.server import API_KEY
from unit.compat.pusher.test_http import BASE, event, get, post
from unit.compat.pusher.wire import APP, QUERY, PusherClient, connected, member

ROOM = "presence-lobby"


async def names(client: PusherClient) -> list[str]:
    return [frame["event"] for frame in await client.quiet()]


@on_each_pair
async def test_a_mixed_room_has_one_truth(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres, pusher=APP) as served:
        await served.node.store.put_room("default", ROOM, open=True)
        nat = await served.joined("nat", ROOM, comings=True)
        ann = await connected(served)
        here = await ann.subscribe(ROOM, "ann", name="Ann", age=7)
        assert here["presence"]["hash"] == {"ann": {"name": "Ann", "age": 7}, "nat": {"name": "Nat"}}
        await served.settle()
        entered = (await nat.receive("room.entered"))["data"]
        assert (entered["user"], entered["info"]) == ("ann", {"name": "Ann", "age": 7})
        assert (await nat.request(type="room.present", room=ROOM))["users"] == ["ann", "nat"]
        for number in range(3):
            await nat.request(type="room.send", room=ROOM, body=number)
            assert (await post(served, f"{BASE}/events", event(data=str(number), channels=[ROOM]))).status == 200
        seen = [await ann.receive() for _ in range(6)]
        assert [frame["event"] for frame in seen] == ["message", "e"] * 3
        history = await nat.request(type="room.history", room=ROOM)
        assert [message["body"] for message in history["messages"]][1::2] == [
            {"event": "e", "data": number} for number in range(3)
        ]
        ann.send("client-typing", {"name": "Ann"}, channel=ROOM)
        while (frame := await nat.receive())["type"] != "typing.started":
            pass
        assert frame["data"]["user"] == "ann"
        await nat.request(type="typing.start", room=ROOM)
        assert (await ann.receive("client-typing"))["data"] == {"user": "nat", "name": "Nat"}


@on_each_pair
async def test_members_of_a_channel_without_a_room(pair: str, tmp_path: Path, postgres: str) -> None:
    graces = {"clean_grace_s": 2.0}
    async with serving_on(pair, tmp_path, postgres, pusher=APP, presence=graces) as served:
        ann, bob = await member(served, "ann"), await member(served, "bob")
        assert (await ann.receive("pusher_internal:member_added"))["data"]["user_id"] == "bob"
        bob.send("client-wave", {"n": 1}, channel=ROOM)
        assert (await ann.receive("client-wave"))["user_id"] == "bob"
        assert (await get(served, f"{BASE}/channels/{ROOM}/users")).json() == {"users": [{"id": "ann"}, {"id": "bob"}]}
        bob.send("pusher:unsubscribe", {"channel": ROOM})
        assert (await ann.receive("pusher_internal:member_removed"))["data"] == {"user_id": "bob"}
        await bob.subscribe(ROOM, "bob")
        assert (await ann.receive("pusher_internal:member_added"))["data"]["user_id"] == "bob"
        assert await served.node.store.room("default", ROOM) is None


@on_each_pair
async def test_a_cache_channel_keeps_its_last_event_for_half_an_hour(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres, pusher=APP) as served:
        for number in range(3):
            content = event(data=str(number), channels=["private-cache-score"])
            assert (await post(served, f"{BASE}/events", content)).status == 200
        client = await connected(served)
        await client.subscribe("private-cache-score")
        assert (await client.receive("e"))["data"] == 2
        served.clock.advance(1_801)
        late = await connected(served)
        await late.subscribe("private-cache-score")
        assert (await late.receive())["event"] == "pusher:cache_miss"


async def change(served: Served, method: str, path: str, content: object = None) -> None:
    answer = await ask(served.port, method, f"/v1/{path}", content, Authorization=f"Bearer {API_KEY}")
    assert answer.status in (200, 201, 202, 204), answer


async def sent(served: Served, channel: str) -> None:
    """Publish an event of the app, and wait until it has been delivered."""
    assert (await post(served, f"{BASE}/events", event(channels=[channel]))).status == 200
    await served.settle()


@on_each_pair
async def test_a_ban_ends_a_subscription_that_is_older_than_the_sign_in(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres, pusher=APP) as served:
        ann = await connected(served)
        await ann.subscribe("private-cache-plan")
        ann.sign_in("ann")
        await ann.receive("pusher:cache_miss")
        await ann.receive("pusher:signin_success")
        await sent(served, "private-cache-plan")
        await ann.receive("e")
        await change(served, "PUT", "rooms/private-cache-plan/bans/ann")
        await ann.receive("pusher:subscription_error")
        await sent(served, "private-cache-plan")
        assert await names(ann) == []
        ann.ask("private-cache-plan")
        assert await names(ann) == ["pusher:subscription_error"]
        await change(served, "DELETE", "rooms/private-cache-plan/bans/ann")
        await ann.subscribe("private-cache-plan")
        await sent(served, "private-cache-plan")
        await ann.receive("e")  # the cached event
        await ann.receive("e")


@on_each_pair
async def test_a_user_who_is_banned_already_loses_the_room_at_the_sign_in(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres, pusher=APP) as served:
        await served.node.store.put_room("default", "private-x", open=False)
        await change(served, "PUT", "rooms/private-x/bans/ann")
        ann = await connected(served)
        await ann.subscribe("private-x")
        ann.sign_in("ann")
        assert await names(ann) == ["pusher:signin_success", "pusher:subscription_error"]
        await sent(served, "private-x")
        assert await names(ann) == []


@on_each_pair
@pytest.mark.parametrize("first", ["room", "sign-in", "channel"])
async def test_a_room_that_is_closed_loses_listeners_who_are_no_members(
    pair: str, first: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres, pusher=APP) as served:
        if first == "room":
            await change(served, "PUT", "rooms/plan", {"open": True})
        ann = await connected(served)
        if first == "sign-in":
            ann.sign_in("ann")
            await ann.receive("pusher:signin_success")
        await ann.subscribe("plan")
        if first != "sign-in":
            ann.sign_in("ann")
            await ann.receive("pusher:signin_success")
        await change(served, "PUT", "rooms/plan", {"open": False})
        await ann.receive("pusher:subscription_error")
        await sent(served, "plan")
        assert await names(ann) == []


@on_each_pair
@pytest.mark.parametrize("news", ["announcement", "record", "comparison"])
async def test_a_room_for_members_that_is_created_under_a_public_channel_is_closed(
    pair: str, news: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres, pusher=APP) as served:
        client = await connected(served)
        await client.subscribe("plan")
        if news == "announcement":  # a user whose token grants the room creates it
            nat = await served.client("nat", claims={"rooms": ["plan"]})
            await nat.request(type="room.join", room="plan")
        else:
            await served.node.store.put_room("default", "plan", open=False)  # as a node would whose news are lost
        if news == "record":
            await sent(served, "plan")
        elif news == "comparison":
            await served.advance(16)
        await client.receive("pusher:subscription_error")
        await sent(served, "plan")
        assert await names(client) == []


async def test_a_slow_member_gets_whole_frames_in_order_or_is_sent_away() -> None:
    async with serving(pusher=APP) as served:
        await served.node.store.put_room("default", ROOM, open=True)
        nat = await served.joined("nat", ROOM)
        fast = await member(served, "fast")
        peer = await Peer.connect(served.port, f"/app/{APP['key']}?{QUERY}")
        slow = PusherClient(peer)
        await slow.establish()
        await slow.subscribe(ROOM, "slow")
        await served.settle()
        await fast.quiet()
        peer.stop_reading()
        for number in range(15):
            await nat.request(type="room.send", room=ROOM, body={"n": number, "text": "x" * 50_000})
            assert (await fast.receive("message"))["data"]["body"]["n"] == number
        assert served.node.hub.waiting  # frames wait in the send buffer
        peer.go_on_reading()
        assert [(await slow.receive("message"))["data"]["body"]["n"] for _ in range(15)] == [*range(15)]
        peer.stop_reading()
        for _ in range(40):
            await nat.request(type="room.send", room=ROOM, body="x" * 50_000)
        peer.go_on_reading()
        assert (await peer.closed()).code == 4100
        await peer.end()


async def test_a_list_of_members_that_waits_is_withdrawn_from_a_client_that_is_banned() -> None:
    async with serving(pusher=APP) as served:
        await served.node.store.put_room("default", ROOM, open=True)
        await served.node.store.put_room("default", "presence-den", open=True)
        nat = await served.joined("nat", ROOM)
        peer = await Peer.connect(served.port, f"/app/{APP['key']}?{QUERY}")
        slow = PusherClient(peer)
        await slow.establish()
        await slow.subscribe(ROOM, "slow")
        peer.stop_reading()
        for _ in range(15):
            await nat.request(type="room.send", room=ROOM, body="x" * 50_000)
        slow.ask("presence-den")
        (connection,) = served.node.registry.connections_of("default", "slow")
        async with asyncio.timeout(5):
            while "presence-den" not in (connection.rooms or ()):  # noqa: ASYNC110  (has no event)
                await asyncio.sleep(0.01)
        await served.settle()
        await change(served, "PUT", "rooms/presence-den/bans/slow")
        await served.settle()
        peer.go_on_reading()
        seen = await slow.quiet()
        assert [f["event"] for f in seen if f.get("channel") == "presence-den"] == ["pusher:subscription_error"]
        await peer.end()


@on_each_pair
async def test_a_user_can_subscribe_again_after_the_room_was_deleted_and_listeners_stay(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres, pusher=APP) as served:
        await change(served, "PUT", "rooms/plan", {"open": True})
        ann, guest = await connected(served), await connected(served)
        ann.sign_in("ann")
        await ann.receive("pusher:signin_success")
        for client in (ann, guest):
            await client.subscribe("plan")
        await change(served, "DELETE", "rooms/plan")
        await ann.receive("pusher:subscription_error")
        await ann.subscribe("plan")
        await sent(served, "plan")
        for client in (ann, guest):
            await client.receive("e")
