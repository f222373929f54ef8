"""Signals of clients: recipients, keys that replace each other, and shedding that spares records."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from greendot.engine.messages import Deliver, Topic
from greendot.protocol.codec import encode_event
from greendot.protocol.commands import SignalSend
from greendot.protocol.events import Resync
from greendot.telemetry.traceparent import enter, read
from unit.service_parts import TENANT, Parts, RecordedConnection, in_virtual_time

ANN = Topic("user", TENANT, "ann")


def publish(parts: Parts, connection: RecordedConnection, topic: Topic, **command: Any) -> Deliver:
    """Publish a signal and return the message of the bus."""
    kind = command.pop("kind", "cursor")
    parts.signals.publish(connection, connection.session, SignalSend(kind=kind, **command), topic)
    message = parts.engine.published[-1][1]
    assert isinstance(message, Deliver)
    return message


@in_virtual_time
async def test_a_signal_reaches_all_devices_of_its_user_but_the_one_that_sent_it(parts: Parts) -> None:
    phone, laptop, bob = [await parts.connect(user, name=user.title()) for user in ("ann", "ann", "bob")]
    publish(parts, bob, ANN, user="ann", body=Raw(b"[1]"))
    publish(parts, phone, ANN, user="ann")
    await parts.settle()
    assert phone.data("signal") == [{"from": "bob", "name": "Bob", "kind": "cursor", "body": [1]}]
    assert laptop.data("signal")[1:] == [{"from": "ann", "name": "Ann", "kind": "cursor"}]
    assert bob.take() == []


@in_virtual_time
async def test_a_signal_to_a_room_names_it_and_skips_its_sender(parts: Parts) -> None:
    await parts.room("lobby", "ann", "bob")
    ann, bob = await parts.connect("ann"), await parts.connect("bob")
    for connection in (ann, bob):
        await parts.join(connection, "lobby")
    publish(parts, ann, Topic("room", TENANT, "lobby"), room="lobby", key="k")
    await parts.settle()
    assert bob.data("signal") == [{"from": "ann", "name": None, "kind": "cursor", "room": "lobby", "key": "k"}]
    assert ann.take() == []


@in_virtual_time
async def test_only_signals_of_one_sender_kind_and_key_replace_each_other(parts: Parts) -> None:
    ann, bob, cid = [await parts.connect(user) for user in ("ann", "bob", "cid")]
    ann.become_slow()
    for number, (sender, kind, key) in enumerate(
        [
            (bob, "cursor", "a"),
            (bob, "cursor", "b"),
            (bob, "colour", "a"),
            (cid, "cursor", "a"),
            (bob, "cursor", "a"),
            (bob, "cursor", None),
            (bob, "cursor", None),
        ]
    ):
        publish(parts, sender, ANN, user="ann", kind=kind, key=key, body=Raw(str(number).encode()))
    ann.keep_up()
    assert sorted(data["body"] for data in ann.data("signal")) == [1, 2, 3, 4, 5, 6]


@in_virtual_time
async def test_while_signals_are_shed_records_still_arrive(parts: Parts) -> None:
    ann = await parts.connect("ann")
    parts.hub.shedding = True
    publish(parts, ann, ANN, user="ann")
    parts.signals.deliver(ANN, Deliver(encode_event(Resync("inbox"), 0)))
    parts.signals.deliver(ANN, Deliver(encode_event(Resync("inbox"), 0), seq=1))
    await parts.settle()
    assert len(ann.take()) == 1
    parts.hub.shedding = False
    parts.signals.deliver(ANN, Deliver(encode_event(Resync("inbox"), 0)))
    await parts.settle()
    assert len(ann.take()) == 1


@in_virtual_time
async def test_a_record_for_a_slow_user_is_kept_and_not_replaced(parts: Parts) -> None:
    ann = await parts.connect("ann")
    ann.become_slow()
    for scope in ("a", "b"):
        for seq in (None, 1):
            parts.signals.deliver(ANN, Deliver(encode_event(Resync(f"{scope}{seq}"), 0), seq=seq, key="same"))
    ann.keep_up()
    assert [data["scope"] for data in ann.data("resync")] == ["a1", "b1", "bNone"]


@pytest.mark.parametrize("is_traced", [False, True])
@in_virtual_time
async def test_a_signal_goes_on_in_the_trace_of_a_command_that_has_one(parts: Parts, is_traced: bool) -> None:
    ann, bob = await parts.connect("ann"), await parts.connect("bob")
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    enter(read(traceparent))
    try:
        given = {"traceparent": traceparent} if is_traced else {}
        told = publish(parts, bob, ANN, user="ann", trace="t1", **given)
    finally:
        enter(None)
    await parts.settle()
    (frame,) = ann.take("signal")
    assert frame["trace"] == "t1"
    assert ((told.traceparent or "")[3:35] == traceparent[3:35]) is is_traced
    assert ("traceparent" in frame) is is_traced
