"""Dispatch: order of commands, replies and errors, limits, overload, and frames that are not commands."""

from __future__ import annotations

from typing import Any

import msgspec

from greendot.app.node import Node
from greendot.connect.dispatch import BAD_FRAMES_S, LARGE_FRAME, MOST_WAITING
from greendot.errors import Unstorable
from greendot.limits.overload_model import Level
from greendot.protocol import commands as wire
from greendot.protocol.codes import Close, Err
from greendot.transport.flow_control import SHARE
from unit.node_parts import Client, Frame, NodeParts, held, in_virtual_time, pass_time, settle


async def welcomed(parts: NodeParts, user: str = "ann", **sections: Any) -> tuple[Node, Client]:
    """Make a node and a client that has its welcome."""
    node = await parts.whole(**sections)
    client = await parts.greeted(user)
    assert [frame["type"] for frame in await client.frames()] == ["welcome"]
    return node, client


def ids(frames: list[Frame]) -> list[Any]:
    return [frame["id"] for frame in frames if frame["type"] in ("reply", "error")]


def flood(client: Client, text: str, count: int) -> None:
    for _ in range(count):
        client.send(text)


# --- hello comes first, and once ---


@in_virtual_time
async def test_the_first_frame_is_a_hello_and_no_other_is(parts: NodeParts) -> None:
    await parts.whole()
    early, wrong = parts.client(), parts.client()
    early.say(type="heartbeat")
    wrong.say(type="hello", device="")
    assert [await client.closed() for client in (early, wrong)] == [Close.PROTOCOL_ERROR] * 2
    twice = await parts.greeted("ann")
    twice.say(type="hello", token=parts.token("ann"))
    assert [frame["type"] for frame in await twice.frames()] == ["welcome", "close"]


@in_virtual_time
async def test_commands_that_follow_a_hello_wait_for_the_welcome(parts: NodeParts) -> None:
    await parts.whole()
    client = parts.client()
    client.say(type="hello", token=parts.token("ann"))
    client.say(type="activity", id=1)
    assert [frame["type"] for frame in await client.frames()] == ["welcome", "reply"]


@in_virtual_time
async def test_a_token_of_the_request_counts_for_a_hello_without_one(parts: NodeParts) -> None:
    node = await parts.whole()
    for offered, said in ((parts.token("ann"), ""), ("", parts.token("ann"))):
        client = Client(node.connections.connect(None, offered))
        client.say(type="hello", token=said)
        assert len(await client.events("welcome")) == 1
        assert client.connection.token == ""


# --- order ---


@in_virtual_time
async def test_a_command_that_waits_for_the_store_holds_back_those_behind_it(parts: NodeParts) -> None:
    _, ann = await welcomed(parts)
    async with held(parts.store, "rooms_of"):
        ann.say(type="room.list", id=1)
        ann.say(type="activity", id=2)
        ann.say(type="room.list", id=3)
        ann.say(type="activity", id=4)
        assert await ann.frames() == []
        assert parts.store.count("rooms_of") == 1
    assert ids(await ann.frames()) == [1, 2, 3, 4]


@in_virtual_time
async def test_a_client_that_sends_on_and_on_behind_a_slow_command_is_not_read(parts: NodeParts) -> None:
    _, ann = await welcomed(parts, limits={"enabled": False})
    async with held(parts.store, "rooms_of"):
        ann.say(type="room.list", id=0)
        for number in range(1, MOST_WAITING):
            ann.say(type="activity", id=number)
        assert ann.socket.reading
        ann.say(type="activity", id=MOST_WAITING)
        assert not ann.socket.reading
    assert ids(await ann.frames()) == [*range(MOST_WAITING + 1)]
    assert ann.socket.reading


@in_virtual_time
async def test_frames_beyond_the_share_of_a_turn_are_handled_in_later_turns_in_order(parts: NodeParts) -> None:
    _, ann = await welcomed(parts, limits={"enabled": False})
    for number in range(3 * SHARE):
        ann.say(type="activity", id=number)
    assert parts.metrics.realtime_commands_total <= 1 + SHARE  # including the hello
    assert ids(await ann.frames()) == [*range(3 * SHARE)]


@in_virtual_time
async def test_a_large_frame_keeps_its_place(parts: NodeParts) -> None:
    _, ann = await welcomed(parts)
    ann.say(type="activity", id=1, pad="x" * LARGE_FRAME)
    ann.say(type="activity", id=2)
    ann.say(type="activity", id=3, pad="x" * LARGE_FRAME)
    ann.say(type="activity", id=4)
    assert parts.metrics.realtime_commands_total == 1
    assert ids(await ann.frames()) == [1, 2, 3, 4]


@in_virtual_time
async def test_a_violation_closes_after_the_commands_before_it(parts: NodeParts) -> None:
    node, ann = await welcomed(parts)
    async with held(parts.store, "rooms_of"):
        ann.say(type="room.list", id=1)
        node.dispatcher.violated(ann.connection, Close.BAD_UTF8, "text frames must be UTF-8")
        ann.say(type="activity", id=2)
        assert await ann.frames() == []
    frames = await ann.frames()
    assert (ids(frames), frames[-1]["code"]) == ([1], Close.BAD_UTF8)


@in_virtual_time
async def test_a_connection_that_ended_is_cleaned_up_after_its_command(parts: NodeParts) -> None:
    _, ann = await welcomed(parts)
    async with held(parts.engine, "subscribe"):
        ann.say(type="watch", id=1, users=["bob"])
        ann.cut()
        await settle()
        assert ann.session.connection is ann.connection
    await settle()
    assert (ann.session.connection, ann.connection.watches) == (None, None)


@in_virtual_time
async def test_a_bye_that_waits_behind_a_command_is_found(parts: NodeParts) -> None:
    node, ann = await welcomed(parts)
    async with held(parts.store, "rooms_of"):
        ann.say(type="room.list")
        ann.say(type="room.send", room="bye", body="bye")
        assert not node.dispatcher.bye_waits(ann.connection)
        ann.say(type="bye")
        assert node.dispatcher.bye_waits(ann.connection)


# --- errors ---


@in_virtual_time
async def test_a_command_that_cannot_be_done_now_is_refused_with_a_time(parts: NodeParts) -> None:
    _, ann = await welcomed(parts)
    parts.store.away, parts.engine.away = {"rooms_of"}, {"read"}
    for command in ({"type": "room.list"}, {"type": "presence.get", "users": ["bob"]}):
        error = await ann.ask(**command)
        assert (error["type"], error["code"], error["retry"], error["id"]) == ("error", Err.UNAVAILABLE, True, 1)
        assert error["retry_in_ms"] > 0
    assert parts.registry.usage.of("default").refused == 2


@in_virtual_time
async def test_a_fault_of_a_handler_is_answered_and_logged_and_the_connection_goes_on(parts: NodeParts) -> None:
    node, ann = await welcomed(parts)

    async def fault(*_: Any) -> None:
        raise RuntimeError("a fault")

    async def unstorable(*_: Any) -> None:
        raise Unstorable("half a pair")

    node.dispatcher._table[wire.RoomList] = fault  # type: ignore[index]
    node.dispatcher._table[wire.InboxList] = unstorable  # type: ignore[index]
    assert (await ann.ask(type="room.list"))["code"] == Err.INTERNAL
    assert parts.failed() == ["RuntimeError('a fault')"]
    assert (await ann.ask(type="inbox.list"))["code"] == Err.BAD_FIELD
    assert (await ann.ask(type="activity"))["type"] == "reply"


@in_virtual_time
async def test_bad_frames_are_answered_and_three_within_ten_seconds_close(parts: NodeParts) -> None:
    _, ann = await welcomed(parts)
    for _ in range(4):
        flood(ann, "no json", 2)
        assert [frame["code"] for frame in await ann.frames()] == [Err.BAD_FRAME] * 2
        await pass_time(BAD_FRAMES_S)
    flood(ann, "no json", 3)
    assert [frame["code"] for frame in await ann.frames()] == [Err.BAD_FRAME] * 3 + [Close.PROTOCOL_ERROR]


@in_virtual_time
async def test_unknown_commands_and_bad_fields_are_answered_and_do_not_close(parts: NodeParts) -> None:
    _, ann = await welcomed(parts)
    for _ in range(5):
        assert (await ann.ask(type="fly"))["code"] == Err.UNKNOWN_TYPE
        assert (await ann.ask(type="watch", users=[]))["code"] == Err.BAD_FIELD
    assert not ann.connection.closing


# --- limits ---


@in_virtual_time
async def test_commands_over_the_limit_are_refused_and_heartbeats_pass(parts: NodeParts) -> None:
    _, ann = await welcomed(parts, limits={"commands_per_s": 2, "commands_burst": 3})
    for number in range(3):
        ann.say(type="activity", id=number)
    ann.say(type="typing.start", room="lobby", id=3)
    ann.say(type="heartbeat")
    frames = await ann.frames()
    assert [(frame["type"], frame.get("code")) for frame in frames] == [
        ("reply", None),
        ("reply", None),
        ("error", Err.RATE_LIMITED),
        ("heartbeat.ack", None),
    ]
    assert 490 <= frames[2]["retry_in_ms"] <= 500


@in_virtual_time
async def test_the_limit_of_a_tenant_is_not_charged_for_what_keeps_a_client_alive(parts: NodeParts) -> None:
    _, ann = await welcomed(parts, limits={"tenant_commands_per_s": 1, "burst_s": 1})
    assert (await ann.ask(type="activity"))["type"] == "reply"
    assert (await ann.ask(type="activity"))["code"] == Err.RATE_LIMITED
    ann.say(type="heartbeat")
    assert [frame["type"] for frame in await ann.frames()] == ["heartbeat.ack"]
    assert (await ann.ask(type="token.refresh", token=parts.token("ann")))["type"] == "reply"


@in_virtual_time
async def test_a_client_that_floods_for_ten_seconds_is_closed(parts: NodeParts) -> None:
    _, ann = await welcomed(parts, limits={"commands_per_s": 1, "commands_burst": 1})
    text = msgspec.json.encode({"type": "heartbeat"}).decode()
    for _ in range(15):
        flood(ann, text, SHARE)
        await pass_time(1)
    frames = await ann.frames()
    assert [frame["type"] for frame in frames[-2:]] == ["overloaded", "close"]
    assert (frames[-1]["code"], parts.metrics.realtime_flood_closed_total) == (Close.OVERLOADED, 1)


@in_virtual_time
async def test_control_frames_count_and_too_many_before_hello_close(parts: NodeParts) -> None:
    node = await parts.whole(limits={"commands_per_s": 1, "commands_burst": 3})
    stranger = parts.client()
    assert [node.dispatcher.counted(stranger.connection) for _ in range(4)] == [True] * 3 + [False]
    assert await stranger.closed() == Close.PROTOCOL_ERROR
    ann = await parts.greeted("ann")
    assert [node.dispatcher.counted(ann.connection) for _ in range(3)] == [True, True, False]
    assert not ann.connection.closing


@in_virtual_time
async def test_only_what_a_person_does_keeps_a_session_active(parts: NodeParts) -> None:
    _, ann = await welcomed(parts, presence={"idle_s": 10})
    came = ann.session.active_at
    await pass_time(5)
    for command in ({"type": "heartbeat"}, {"type": "presence.get", "users": ["bob"]}, {"type": "room.list"}):
        ann.say(**command)
    await settle()
    assert ann.session.active_at == came
    ann.say(type="activity")
    assert ann.session.active_at == parts.clock.monotonic()


# --- overload ---


@in_virtual_time
async def test_a_node_that_sheds_drops_signals_as_if_they_were_sent(parts: NodeParts) -> None:
    node, ann = await welcomed(parts)
    node.dispatcher.loaded(Level.SHEDDING)
    assert (await ann.ask(type="typing.start", room="unknown"))["type"] == "reply"
    ann.say(type="typing.stop", room="unknown")
    assert (await ann.ask(type="room.list"))["type"] == "reply"
    assert parts.metrics.realtime_shed_total == 2
    node.dispatcher.loaded(Level.NORMAL)
    assert (await ann.ask(type="typing.start", room="unknown"))["type"] == "error"


@in_virtual_time
async def test_a_node_that_refuses_work_does_what_is_cheap_or_ends_work(parts: NodeParts) -> None:
    node, ann = await welcomed(parts)
    await ann.ask(type="watch", users=["bob"])
    node.dispatcher.loaded(Level.REFUSING)
    error = await ann.ask(type="watch", users=["cid"])
    assert (error["code"], 1_000 <= error["retry_in_ms"] <= 3_000) == (Err.UNAVAILABLE, True)
    assert (await ann.ask(type="unwatch", users=["bob"]))["type"] == "reply"
    ann.say(type="heartbeat")
    assert [frame["type"] for frame in await ann.frames()] == ["heartbeat.ack"]
    assert ann.connection.watches == set()
    assert parts.metrics.realtime_overload_refused_total == 1
