"""Messages of a room arrive in order, once and without gaps, although bus messages are lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from e2e.processes import ask
from greendot.engine.messages import Deliver, Message, Topic
from greendot.ids import Key
from greendot.node.stream import GAP_S
from greendot.rooms.delivery import COMPARE_S
from greendot.store.rooms import BusMode, Draft, Room
from greendot.testing import Served, WireClient, serving
from greendot.testing.server import API_KEY

LOBBY = Topic("room", "default", "lobby")


def numbers(frames: list[dict[str, Any]]) -> list[int]:
    return [frame["data"]["seq"] for frame in frames if frame["type"] == "room.message"]


class Bus:
    """Bus that holds published messages until the test delivers them, in an order of its choice."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._deliver = served.node.engine.publish
        self.waiting: list[tuple[Topic, Message]] = []
        served.node.engine.publish = self.hold  # type: ignore[method-assign]

    def hold(self, topic: Topic, message: Message) -> None:
        if isinstance(message, Deliver) and message.seq is not None:
            self.waiting.append((topic, message))
        else:
            self._deliver(topic, message)

    async def deliver(self, *order: int) -> None:
        for index in order:
            self._deliver(*self.waiting[index])
        await self._served.settle()


async def send(client: WireClient, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        await client.request(type="room.send", room="lobby", body=number)


async def test_messages_published_in_another_order_are_seen_in_order_and_once() -> None:
    async with serving() as served:
        await served.lobby()
        alice, bob = await served.joined("alice"), await served.joined("bob")
        bus = Bus(served)
        await send(alice, 4)
        await bus.deliver(1, 3, 0, 0, 2, 3, 1)
        assert numbers(await bob.quiet()) == [1, 2, 3, 4]
        await served.advance(1)
        assert await bob.quiet() == []
        assert served.node.rooms.delivery.gaps == 0  # no message was missing


async def test_a_message_whose_signal_was_lost_is_read_when_the_next_one_comes() -> None:
    async with serving() as served:
        await served.lobby()
        alice, bob, carl = [await served.joined(user) for user in ("alice", "bob", "carl")]
        bus = Bus(served)
        await send(alice, 3)
        await bus.deliver(0, 2)
        assert numbers(await bob.quiet()) == [1]
        await served.advance(GAP_S + 0.01)
        assert numbers(await bob.quiet()) == [2, 3]
        assert numbers(await carl.quiet()) == [1, 2, 3]
        assert served.node.rooms.delivery.gaps == 1  # one read for all listeners


@pytest.mark.parametrize("read", ["before", "after"])
@pytest.mark.parametrize("bus", ["full", "hint"])
async def test_messages_sent_between_the_subscription_and_the_snapshot_arrive_once(read: str, bus: BusMode) -> None:
    async with serving() as served:
        await served.node.room_messages.put_room("default", "lobby", True, bus)
        store, room_messages = served.node.store, served.node.room_messages
        heads = store.heads

        async def meanwhile(keys: Sequence[Key]) -> dict[Key, Room]:
            found = await heads(keys) if read == "before" else {}
            for number in range(2):
                await room_messages.append("default", "lobby", Draft("app", None, b"1", f"k{number}", 1))
            return found or await heads(keys)

        store.heads = meanwhile  # type: ignore[method-assign]
        bob = await served.client("bob")
        reply = await bob.request(type="room.join", room="lobby", after=0)
        store.heads = heads  # type: ignore[method-assign]
        await served.advance(GAP_S + 0.01)
        seen = [message["seq"] for message in reply["messages"]] + numbers(await bob.quiet())
        assert seen == [1, 2]
        assert seen[: reply["head"]] == [message["seq"] for message in reply["messages"]]


async def test_a_lost_last_signal_is_found_by_comparing_heads() -> None:
    async with serving() as served:
        await served.lobby()
        alice, bob = await served.joined("alice"), await served.joined("bob")
        Bus(served)
        await send(alice, 2)
        ((frames),) = await served.advance(COMPARE_S + 0.1, [bob])
        assert numbers(frames) == [1, 2]


async def test_content_that_must_stay_off_the_bus_is_read_from_the_store() -> None:
    async with serving() as served:
        await served.node.room_messages.put_room("default", "lobby", True, "hint")
        alice, bob = await served.joined("alice"), await served.joined("bob")
        bus = Bus(served)
        await alice.request(type="room.send", room="lobby", body={"secret": 1})
        (told,) = [message for _, message in bus.waiting]
        assert isinstance(told, Deliver)
        assert told.frame == b""
        await bus.deliver(0)
        await served.advance(0.02)
        assert (await bob.receive("room.message"))["data"]["body"] == {"secret": 1}


async def test_too_large_a_gap_is_left_to_the_client() -> None:
    async with serving(limits={"enabled": False}) as served:
        await served.lobby()
        alice, bob = await served.joined("alice"), await served.joined("bob")
        bus = Bus(served)
        await send(alice, 605)
        await bus.deliver(604)
        await served.advance(GAP_S + 0.01)
        frames = await bob.quiet()
        assert numbers(frames) == [*range(1, 301)]
        assert [f["data"]["scope"] for f in frames if f["type"] == "resync"] == ["room:lobby"]
        await send(alice, 1, 605)
        await bus.deliver(605)
        assert numbers(await bob.quiet()) == [606]


async def test_edits_and_deletions_are_records_that_refer_to_the_message() -> None:
    async with serving() as served:
        await served.lobby()
        alice, bob = await served.joined("alice"), await served.joined("bob")
        await send(alice, 1)
        assert (await alice.request(type="room.edit", room="lobby", ref=1, body="better", key="e1"))["seq"] == 2
        assert (await alice.request(type="room.edit", room="lobby", ref=1, body="better", key="e1"))["seq"] == 2
        assert (await alice.request(type="room.delete", room="lobby", ref=1))["seq"] == 3
        seen = [frame["data"] for frame in await bob.quiet() if frame["type"] == "room.message"]
        assert [(m["seq"], m["ref"], m["op"], m["body"]) for m in seen] == [
            (1, None, None, 0),
            (2, 1, "edit", "better"),
            (3, 1, "delete", None),
        ]


@pytest.mark.parametrize(("ref", "code"), [(2, "forbidden"), (9, "bad_field"), (0, "bad_field"), (3, "bad_field")])
async def test_only_authors_change_a_message_and_only_messages_are_changed(ref: int, code: str) -> None:
    async with serving() as served:
        await served.lobby()
        alice, bob = await served.joined("alice"), await served.joined("bob")
        await send(alice, 1)
        await send(bob, 1)
        await alice.request(type="room.edit", room="lobby", ref=1, body="x")
        await alice.quiet()
        alice.send(type="room.edit", room="lobby", ref=ref, body="y", id=1)
        error = await alice.receive("error")
        assert error["code"] == code
        room = await served.node.store.room("default", "lobby")
        assert room is not None
        assert room.head == 3


async def test_read_markers_only_move_forward_and_other_devices_are_notified() -> None:
    async with serving() as served:
        await served.lobby()
        alice = await served.joined("alice")
        phone, laptop = await served.joined("bob", device="phone"), await served.joined("bob", device="laptop")
        await send(alice, 5)
        await laptop.quiet()
        assert (await phone.request(type="room.read", room="lobby", seq=3))["unread"] == 2
        changed = (await laptop.receive("room.changed"))["data"]
        assert (changed["read"], changed["unread"]) == (3, 2)
        assert (await laptop.request(type="room.read", room="lobby", seq=1))["unread"] == 2
        assert (await laptop.request(type="room.read", room="lobby", seq=99))["unread"] == 0
        assert [r["unread"] for r in (await phone.request(type="room.list"))["rooms"]] == [0]
        await send(alice, 1)
        assert (await (await served.client("bob")).request(type="room.join", room="lobby"))["unread"] == 1


async def test_a_reader_receives_only_and_an_admin_may_change_messages_of_others() -> None:
    async with serving() as served:
        room_messages = served.node.room_messages
        await room_messages.put_room("default", "lobby", False, None)
        for user, role in (("ann", "member"), ("rob", "reader"), ("eve", "admin")):
            await room_messages.put_member("default", "lobby", user, role)  # type: ignore[arg-type]
        ann, rob, eve = [await served.joined(user) for user in ("ann", "rob", "eve")]
        await send(ann, 1)
        assert numbers(await rob.quiet()) == [1]
        for command in ({"type": "room.send", "body": 1}, {"type": "typing.start"}):
            rob.send(room="lobby", id=1, **command)
            assert (await rob.receive("error"))["code"] == "forbidden"
        await eve.request(type="room.delete", room="lobby", ref=1)
        await room_messages.put_member("default", "lobby", "rob", "member")
        await served.settle()
        await send(rob, 1)


async def test_a_removed_member_receives_no_later_messages() -> None:
    async with serving() as served:
        room_messages = served.node.room_messages
        await room_messages.put_room("default", "lobby", False, None)
        for user in ("ann", "bob"):
            await room_messages.put_member("default", "lobby", user, "member")
        ann, bob = await served.joined("ann"), await served.joined("bob")
        headers = {"Authorization": f"Bearer {API_KEY}"}
        removed = await ask(served.port, "DELETE", "/v1/rooms/lobby/members/bob", **headers)
        assert removed.status == 204
        await send(ann, 1)
        frames = await bob.quiet()
        assert [f["type"] for f in frames] == ["room.changed"]
        assert frames[0]["data"]["removed"] is True


async def test_a_record_that_knows_of_newer_members_is_delivered_to_those_only() -> None:
    async with serving() as served:
        room_messages = served.node.room_messages
        await room_messages.put_room("default", "lobby", False, None)
        for user in ("ann", "bob"):
            await room_messages.put_member("default", "lobby", user, "member")
        ann, bob = await served.joined("ann"), await served.joined("bob")
        # As another node would, with a lost bus message.
        await served.node.store.remove_member("default", "lobby", "bob")
        await send(ann, 1)
        assert numbers(await ann.quiet()) == []
        await served.advance(GAP_S)  # the announcement may only be late
        assert numbers(await ann.quiet()) == [1]
        assert [f["type"] for f in await bob.quiet()] == ["room.changed"]


async def test_a_record_that_knows_of_members_the_store_has_forgotten_is_decided_by_the_store_and_once() -> None:
    """A store restored from a backup may lack changes that a running node knows."""
    async with serving() as served:
        await served.lobby()
        ann, bus, store = await served.joined("ann"), Bus(served), served.node.store
        await send(ann, 2)
        read, asked = store.member_states, Counter[str]()

        async def counted(keys: Sequence[tuple[str, str, str]]) -> Any:
            asked["member_states"] += 1
            return await read(keys)

        store.member_states = counted  # type: ignore[method-assign]
        for _, message in bus.waiting:
            assert isinstance(message, Deliver)
            served.node.receive(LOBBY, msgspec.structs.replace(message, members_rev=1_000_000))
            async with asyncio.timeout(5):
                await served.advance(GAP_S)
        assert numbers(await ann.quiet()) == [1, 2]
        assert asked["member_states"] == 2


async def test_members_who_change_while_they_are_looked_up_are_looked_up_again() -> None:
    async with serving() as served:
        room_messages, store = served.node.room_messages, served.node.store
        await room_messages.put_room("default", "lobby", False, None)
        await room_messages.put_member("default", "lobby", "ann", "member")
        ann = await served.joined("ann")
        read, was_read, go_on = store.member_states, asyncio.Event(), asyncio.Event()

        async def slowly(keys: Sequence[tuple[str, str, str]]) -> Any:
            found = await read(keys)
            was_read.set()
            await go_on.wait()
            return found

        store.member_states = slowly  # type: ignore[method-assign]
        await room_messages.put_member("default", "lobby", "ann", "admin")
        await was_read.wait()
        store.member_states = read  # type: ignore[method-assign]
        await room_messages.put_member("default", "lobby", "ann", "reader")
        await asyncio.sleep(0)
        go_on.set()
        await served.settle()
        ann.send(type="room.send", room="lobby", body=1, id="x")
        assert (await ann.receive("error"))["code"] == "forbidden"


async def test_closing_an_open_room_lets_go_of_those_who_are_no_members() -> None:
    async with serving() as served:
        room_messages = served.node.room_messages
        await room_messages.put_room("default", "lobby", True, None)
        await room_messages.put_member("default", "lobby", "ann", "member")
        ann, bob = await served.joined("ann"), await served.joined("bob")
        await room_messages.put_room("default", "lobby", False, None)
        await served.settle()
        assert [f["type"] for f in await bob.quiet()] == ["room.changed"]
        await send(ann, 1)
        assert numbers(await ann.quiet()) == [1]
        assert await bob.quiet() == []


async def test_a_new_member_may_join_although_the_bus_message_was_lost() -> None:
    async with serving() as served:
        room_messages, store = served.node.room_messages, served.node.store
        await room_messages.put_room("default", "lobby", False, None)
        await room_messages.put_member("default", "lobby", "ann", "member")
        await served.joined("ann")
        bob = await served.client("bob")
        bob.send(type="room.join", room="lobby", id=1)
        assert (await bob.receive("error"))["code"] == "not_a_member"
        await store.put_member("default", "lobby", "bob")  # as another node would, with a lost bus message
        await bob.request(type="room.join", room="lobby")
        await store.put_room("default", "lobby", open=True)
        await served.joined("carl")


async def test_hundreds_who_return_at_once_are_a_few_reads() -> None:
    async with serving(limits={"enabled": False}) as served:
        await served.lobby()
        await send(await served.joined("ann"), 50)
        store, asked = served.node.store, Counter[str]()
        do = store._thread.do  # type: ignore[attr-defined]

        async def counted(work: Callable[[Any], Any]) -> Any:
            asked[getattr(work, "__qualname__", "?")] += 1
            return await do(work)

        store._thread.do = counted  # type: ignore[attr-defined]
        sockets = [await served.socket() for _ in range(300)]
        resume = {"rooms": {"lobby": 0}}
        await asyncio.gather(*(s.hello(served.token(f"u{n}"), resume=resume) for n, s in enumerate(sockets)))
        for client in sockets:
            assert numbers(await client.quiet()) == [*range(1, 51)]
        assert asked.total() <= 20, asked
