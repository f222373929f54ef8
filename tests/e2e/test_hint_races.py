"""Hints that arrive while a gap is read: the node reads their record at once, on each engine and store."""

from __future__ import annotations

from pathlib import Path

from backends import on_each_pair, serving_on
from e2e.processes import until
from greendot.engine.messages import Message, Notified, Topic
from greendot.store.inbox import Notice
from greendot.testing import Served, WireClient, hold

CLUB = Topic("room", "default", "club")
SECRET = {"secret": {"bus": "hint"}}


async def next_body(served: Served, client: WireClient, event: str) -> object:
    await served.advance(0.01)  # a timer reads gaps
    return (await client.receive(event))["data"]["body"]


@on_each_pair
async def test_a_hint_that_comes_while_a_gap_of_a_room_is_read_is_not_forgotten(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        await served.node.room_messages.put_room("default", "club", open=True, bus="hint")
        alice, bob = await served.joined("alice", "club"), await served.joined("bob", "club")
        local = served.node.rooms.local(CLUB)
        assert local is not None
        async with hold(served.node.store, "messages", at="after") as held:
            await alice.request(type="room.send", room="club", body="one")
            await until(lambda: local.stream.hinted == 1)
            served.node.timers.tick()
            await held.reached()
            await alice.request(type="room.send", room="club", body="two")
            await until(lambda: local.stream.hinted == 2)
        assert [await next_body(served, bob, "room.message") for _ in range(2)] == ["one", "two"]


@on_each_pair
async def test_a_hint_that_comes_while_a_room_is_opened_is_not_forgotten(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        await served.node.room_messages.put_room("default", "club", open=True, bus="hint")
        alice, bob = await served.client("alice"), await served.client("bob")
        await served.node.room_messages.put_member("default", "club", "alice", "member")
        first = iter([True])
        async with hold(served.node.store, "heads", at="after", when=lambda keys: next(first, False)) as held:
            bob.send(type="room.join", room="club", id="j")
            await held.reached()  # the room is subscribed and its head was read
            await alice.request(type="room.send", room="club", body="one")
            local = served.node.rooms.local(CLUB)
            assert local is not None
            # Hinted, already read, or waiting until the members of the room are known.
            await until(lambda: 1 in (local.stream.hinted, local.cursor) or bool(local.unchecked))
        head = (await bob.receive("reply"))["data"]["head"]
        assert head == 1 or await next_body(served, bob, "room.message") == "one"


@on_each_pair
async def test_a_hint_that_comes_while_a_second_device_catches_up_is_not_forgotten(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres, kinds=SECRET) as served:
        phone = await served.client("ann", device="phone")
        publish, lost = served.node.engine.publish, list[Message]()

        def lose(topic: Topic, message: Message) -> None:
            (lost.append if isinstance(message, Notified) and not lost else lambda m: publish(topic, m))(message)

        served.node.engine.publish = lose  # type: ignore[method-assign]
        await notify(served, "one")
        laptop = await served.socket()
        async with hold(served.node.store, "notifications", at="after") as held:
            laptop.send(type="hello", token=served.token("ann"), device="laptop")
            await held.reached()  # the node is behind the store and reads the missing notifications for all devices
            await notify(served, "two")
            await until(lambda: served.node.inbox_delivery._local["default", "ann"].stream.hinted == 2)
        assert [await next_body(served, phone, "notification.created") for _ in range(2)] == ["one", "two"]


async def notify(served: Served, body: str) -> None:
    now = served.clock.now_ms()
    await served.node.inbox_service.notify(
        [Notice("default", "ann", "secret", f'"{body}"'.encode(), body, now, None, False)]
    )
