from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greendot.client.codec import Truncated
from greendot.client.errors import ConnectionRefused, Overrun
from greendot.client.stream import Buffer, EventStream
from greendot.protocol.events import Event, RoomMessage

from .wire import a_message, a_notification, a_presence, run


def drain(buffer: Buffer) -> list[Event]:
    return list(iter(buffer.take, None))


def test_events_come_out_in_the_order_they_went_in() -> None:
    buffer = Buffer()
    events: list[Event] = [a_message(1), a_presence(version=1), a_message(2), a_presence(version=2)]
    for event in events:
        buffer.put(event)
    assert drain(buffer) == events


def test_the_oldest_signals_are_dropped_and_never_a_record() -> None:
    buffer = Buffer(max_signals=2, max_records=10)
    for n in range(5):
        buffer.put(a_message(n))
        buffer.put(a_presence(version=n))
    assert drain(buffer) == [
        a_message(0),
        a_message(1),
        a_message(2),
        a_message(3),
        a_presence(version=3),
        a_message(4),
        a_presence(version=4),
    ]


@given(st.lists(st.sampled_from(["record", "signal", "take"])))
def test_whatever_happens_records_are_complete_and_signals_bounded(steps: list[str]) -> None:
    buffer, sent, taken = Buffer(max_signals=3, max_records=1000), [], []
    for n, step in enumerate(steps):
        if step == "take":
            taken.append(buffer.take())
        else:
            event = a_message(n) if step == "record" else a_presence(version=n)
            sent.append(event)
            buffer.put(event)
    rest = drain(buffer)
    assert len([event for event in rest if not isinstance(event, RoomMessage)]) <= 3
    got = [event for event in [*taken, *rest] if event is not None]
    assert [e for e in got if isinstance(e, RoomMessage)] == [e for e in sent if isinstance(e, RoomMessage)]
    assert got == [event for event in sent if event in got]


def test_too_many_records_are_given_up_loudly_and_once() -> None:
    buffer = Buffer(max_records=2)
    for n in range(5):
        buffer.put(a_message(n))
    with pytest.raises(Overrun, match="history"):
        buffer.take()
    buffer.put(a_message(9))
    assert drain(buffer) == [a_message(9)]


def test_what_waits_is_known_by_the_number_before_it() -> None:
    buffer = Buffer()
    for event in (a_message(4), a_notification(9), a_message(5), a_presence(), Truncated("room:hall", 2, 900)):
        buffer.put(event)
    assert buffer.waiting == {"room:lobby": 3, "inbox": 8, "room:hall": 2}
    buffer.take()
    assert buffer.waiting == {"room:lobby": 4, "inbox": 8, "room:hall": 2}
    buffer.take(), buffer.take()
    assert buffer.waiting == {"room:hall": 2}
    assert len(drain(buffer)) == 2
    assert buffer.waiting == {}


def test_what_was_given_up_counts_as_waiting_until_the_consumer_goes_on() -> None:
    buffer = Buffer(max_records=2)
    for seq in range(4, 8):
        buffer.put(a_message(seq))
    with pytest.raises(Overrun):
        buffer.take()
    assert buffer.waiting == {"room:lobby": 3}
    buffer.put(a_message(8))
    assert buffer.waiting == {"room:lobby": 3}
    buffer.take()
    assert buffer.waiting == {}


@run
async def test_a_consumer_waits_for_the_next_event() -> None:
    stream = EventStream()
    waiting = asyncio.create_task(anext(stream))
    await asyncio.sleep(0)
    assert not waiting.done()
    stream.put(a_message(1))
    assert await waiting == a_message(1)


@run
async def test_an_ended_stream_gives_what_is_left_first() -> None:
    stream = EventStream()
    stream.put(a_message(1))
    stream.end()
    assert [event async for event in stream] == [a_message(1)]


@run
async def test_the_stream_of_a_refused_client_raises_the_refusal() -> None:
    stream = EventStream()
    stream.put(a_message(1))
    stream.end(ConnectionRefused(4501, "revoked"))
    assert await anext(stream) == a_message(1)
    with pytest.raises(ConnectionRefused, match="4501"):
        await anext(stream)
