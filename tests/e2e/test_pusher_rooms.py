"""Pusher clients beside native ones, on both engines and both stores."""

from __future__ import annotations

from pathlib import Path

from backends import on_each_pair, serving_on
from e2e.narrow import Peer
from greendot.testing import serving
from unit.compat.pusher.test_http import BASE, event, get, post
from unit.compat.pusher.wire import APP, QUERY, PusherClient, connected, member

ROOM = "presence-lobby"


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
        await ann.quiet()
        await served.settle()
        typed = [frame["data"]["user"] for frame in await nat.quiet() if frame["type"] == "typing.started"]
        assert typed == ["ann"]
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
