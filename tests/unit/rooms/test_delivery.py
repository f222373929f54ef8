"""Delivery of messages to a room's subscribers: in order, each once, and read from the store after a loss."""

from __future__ import annotations

import asyncio

import pytest

from greendot.engine.messages import Deliver, Part, Topic
from greendot.errors import StoreUnavailable
from greendot.node.stream import AGAIN_S, GAP_S
from greendot.node.subscriptions import UNHEARD_S
from greendot.rooms import delivery
from greendot.rooms.delivery import COMPARE_S
from greendot.store.rooms import Record
from greendot.store.wire import message_frame
from greendot.testing import hold
from unit.service_parts import TENANT, TICK_S, Parts, in_virtual_time

LOBBY = Topic("room", TENANT, "lobby")


def publish(parts: Parts, record: Record, *, hint: bool = False) -> None:
    """Deliver a stored message as the bus does."""
    frame = b"" if hint else message_frame(record)
    parts.receive(LOBBY, Deliver(frame, seq=record.seq))


@in_virtual_time
async def test_messages_reach_all_subscribers_in_order_and_once_whatever_way_they_come(parts: Parts) -> None:
    _, (ann, bob) = await parts.joined("lobby", "ann", "bob")
    records = await parts.write("lobby", 4)
    for number in (1, 0, 0, 3, 1, 2):
        publish(parts, records[number])
    await parts.settle()
    assert ann.seqs() == bob.seqs() == [1, 2, 3, 4]
    assert "messages" not in parts.store.calls


@in_virtual_time
async def test_a_missing_message_is_read_after_a_moment_once_for_all_subscribers(parts: Parts) -> None:
    _, (ann, bob) = await parts.joined("lobby", "ann", "bob")
    records = await parts.write("lobby", 4)
    publish(parts, records[2])
    publish(parts, records[3])
    await parts.pass_s(GAP_S - TICK_S)
    assert ann.seqs() == []
    await parts.pass_s(2 * TICK_S)
    assert ann.seqs() == bob.seqs() == [1, 2, 3, 4]
    await parts.pass_s(1)
    assert (parts.store.calls.count("messages"), parts.rooms.delivery.gaps) == (1, 1)


@in_virtual_time
async def test_a_hinted_message_is_read_at_once(parts: Parts) -> None:
    _, (ann,) = await parts.joined("lobby", "ann")
    (record,) = await parts.write("lobby", body=b'"secret"')
    publish(parts, record, hint=True)
    await parts.pass_s(TICK_S)
    assert [data["body"] for data in ann.data("room.message")] == ["secret"]


@in_virtual_time
async def test_a_hint_of_a_message_that_the_store_does_not_have_is_read_once(parts: Parts) -> None:
    _, (ann,) = await parts.joined("lobby", "ann")
    parts.receive(LOBBY, Deliver(b"", seq=7))
    await parts.pass_s(2)
    assert parts.store.take_calls() == ["messages"]
    publish(parts, (await parts.write("lobby"))[0])
    await parts.pass_s(2)
    assert ann.seqs() == [1]
    assert parts.store.take_calls() == ["append"]


@in_virtual_time
async def test_a_hint_that_comes_while_the_gap_is_read_is_read_after_it(parts: Parts) -> None:
    _, (ann,) = await parts.joined("lobby", "ann")
    publish(parts, (await parts.write("lobby"))[0], hint=True)
    async with parts.store.holding("messages", "after") as held:
        await held.reached()
        publish(parts, (await parts.write("lobby"))[0], hint=True)
    await parts.settle()
    assert ann.seqs() == [1, 2]


@in_virtual_time
async def test_a_gap_is_read_again_when_the_store_is_back(parts: Parts) -> None:
    _, (ann,) = await parts.joined("lobby", "ann")
    records = await parts.write("lobby", 2)
    parts.store.thread.is_away = True
    publish(parts, records[1])
    await parts.pass_s(GAP_S + 3 * AGAIN_S)
    failed = parts.store.take_calls().count("messages")
    assert 3 <= failed <= 7  # repeated, but with pauses
    assert ann.seqs() == []
    parts.store.thread.is_away = False
    await parts.pass_s(AGAIN_S + TICK_S)
    assert ann.seqs() == [1, 2]


@in_virtual_time
async def test_a_gap_that_is_too_large_is_left_to_clients(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "RECOVER", 3)
    local, (ann,) = await parts.joined("lobby", "ann")
    records = await parts.write("lobby", 5)
    publish(parts, records[4], hint=True)
    await parts.settle()
    frames = ann.take()
    assert [frame["data"].get("seq") or frame["data"]["scope"] for frame in frames] == [1, 2, 3, "room:lobby"]
    assert local.cursor == 5
    publish(parts, (await parts.write("lobby"))[0])
    await parts.settle()
    assert ann.seqs() == [6]


@in_virtual_time
async def test_a_gap_that_is_just_not_too_large_is_sent_whole(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "RECOVER", 3)
    _, (ann,) = await parts.joined("lobby", "ann")
    records = await parts.write("lobby", 3)
    publish(parts, records[2], hint=True)
    await parts.settle()
    assert [frame["type"] for frame in ann.take()] == ["room.message"] * 3


@in_virtual_time
async def test_a_lost_message_is_found_by_comparing_heads(parts: Parts) -> None:
    _, (ann,) = await parts.joined("lobby", "ann")
    await parts.write("lobby")
    await parts.pass_s(COMPARE_S)
    assert ann.seqs() == [1]
    assert parts.store.take_calls() == ["append", "heads", "messages"]
    await parts.pass_s(COMPARE_S)
    assert parts.store.take_calls() == ["heads"]
    parts.rooms.leave(ann, "lobby")
    await parts.pass_s(UNHEARD_S + TICK_S)
    parts.store.take_calls()
    await parts.pass_s(3 * COMPARE_S)
    assert parts.store.take_calls() == []  # the room has no listener


@in_virtual_time
async def test_a_comparison_that_finds_other_members_reads_them_before_the_messages(parts: Parts) -> None:
    _, (ann, bob) = await parts.joined("lobby", "ann", "bob")
    await parts.store.remove_member(TENANT, "lobby", "bob")
    await parts.write("lobby")
    parts.store.take_calls()
    await parts.rooms.delivery.compare(Part())
    await parts.settle()
    assert ann.seqs() == [1]
    assert [frame["type"] for frame in bob.take()] == ["room.changed"]
    calls = parts.store.take_calls()
    assert calls.index("member_states") < calls.index("messages")


@in_virtual_time
async def test_missed_messages_are_read_once_for_all_who_return(parts: Parts) -> None:
    local, _ = await parts.joined("lobby", "ann")
    for record in await parts.write("lobby", 5):
        publish(parts, record)
    parts.store.take_calls()
    returned = await asyncio.gather(*(parts.rooms.delivery.missed(local, after) for after in (0, 2, 5)))
    assert [[record.seq for record in records or ()] for records in returned] == [[1, 2, 3, 4, 5], [3, 4, 5], []]
    assert parts.store.take_calls() == ["messages"]
    publish(parts, (await parts.write("lobby"))[0])
    async with hold(parts.store, "messages") as held:
        returning = asyncio.ensure_future(parts.rooms.delivery.missed(local, 3))
        await held.reached()
        parts.store.thread.db.execute("DELETE FROM messages WHERE seq < 6")  # the node keeps its own copy
    assert [record.seq for record in await returning or ()] == [4, 5, 6]
    assert parts.rooms.delivery.recoveries == 4


@in_virtual_time
async def test_a_client_that_missed_too_many_messages_costs_no_read(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "RECOVER", 3)
    local, _ = await parts.joined("lobby", "ann")
    for record in await parts.write("lobby", 4):
        publish(parts, record)
    parts.store.take_calls()
    assert await parts.rooms.delivery.missed(local, 0) is None
    assert parts.store.take_calls() == []
    assert [record.seq for record in await parts.rooms.delivery.missed(local, 1) or ()] == [2, 3, 4]


@in_virtual_time
async def test_missed_messages_end_at_the_cursor_and_not_at_the_head_of_the_store(parts: Parts) -> None:
    local, _ = await parts.joined("lobby", "ann")
    records = await parts.write("lobby", 3)
    publish(parts, records[0])
    assert [record.seq for record in await parts.rooms.delivery.missed(local, 0) or ()] == [1]
    publish(parts, records[1])  # the bus delivers it after the read
    parts.store.take_calls()
    assert [record.seq for record in await parts.rooms.delivery.missed(local, 0) or ()] == [1, 2]
    assert parts.store.take_calls() == []


@in_virtual_time
async def test_a_returning_client_is_put_off_where_messages_come_faster_than_they_are_read(parts: Parts) -> None:
    local, _ = await parts.joined("lobby", "ann")
    publish(parts, (await parts.write("lobby"))[0])
    reads = 0

    async def read(*args: object, **kwargs: object) -> list[Record]:
        nonlocal reads
        reads += 1
        publish(parts, (await parts.write("lobby"))[0])
        return []

    parts.store.messages = read  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        await parts.rooms.delivery.missed(local, 0)
    assert reads == delivery.ATTEMPTS
