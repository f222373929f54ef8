"""Commands of rooms: permissions, limits, and calls of the store."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest
from msgspec import Raw

from greendot.engine.messages import Deliver, Typing
from greendot.errors import Refused
from greendot.protocol import commands as wire
from greendot.protocol.codes import Err
from greendot.testing import hold
from unit.service_parts import LIMITED, TENANT, Parts, RecordedConnection, in_virtual_time

BODY = Raw(b"1")
ROOM_COMMANDS: list[wire.Command] = [
    wire.TypingStart(room="lobby"),
    wire.SignalSend(kind="cursor", room="lobby"),
    wire.RoomSend(room="lobby", body=BODY),
]


def handle(parts: Parts, connection: RecordedConnection, command: wire.Command) -> Any:
    """Return the outcome of a handler, or an awaitable of the outcome."""
    return parts.room_commands.commands[type(command)](connection, connection.session, command)


async def carry_out(parts: Parts, connection: RecordedConnection, command: wire.Command) -> Any:
    result = handle(parts, connection, command)
    return await result if inspect.isawaitable(result) else result


async def refusal(parts: Parts, connection: RecordedConnection, command: wire.Command) -> Refused:
    with pytest.raises(Refused) as refused:
        await carry_out(parts, connection, command)
    return refused.value


def told(parts: Parts) -> list[object]:
    """Return everything that was published about the room."""
    return [message for topic, message in parts.engine.published if topic.kind == "room"]


@pytest.mark.parametrize(
    "command",
    [
        *ROOM_COMMANDS,
        wire.RoomEdit(room="lobby", ref=1, body=BODY),
        wire.RoomDelete(room="lobby", ref=1),
        wire.SignalSend(kind="cursor", user="bob"),
    ],
    ids=lambda command: command.__struct_config__.tag,
)
@in_virtual_time
async def test_a_token_that_only_listens_sends_nothing(parts: Parts, command: wire.Command) -> None:
    await parts.room("lobby", "ann")
    ann = await parts.connect("ann", send=False)
    await parts.join(ann, "lobby")
    parts.engine.published.clear()
    assert (await refusal(parts, ann, command)).code == Err.FORBIDDEN
    assert (parts.engine.published, await parts.store.messages(TENANT, "lobby", limit=1)) == ([], [])


@in_virtual_time
async def test_signals_in_a_joined_room_are_sent_at_once_and_without_a_read(parts: Parts) -> None:
    await parts.room("lobby", "ann", "bob")
    ann, bob = await parts.connect("ann"), await parts.connect("bob")
    for connection in (ann, bob):
        await parts.join(connection, "lobby")
    parts.store.take_calls()
    for command in (wire.TypingStart(room="lobby"), wire.TypingStop(room="lobby"), ROOM_COMMANDS[1]):
        assert handle(parts, ann, command) is None
    await parts.settle()
    assert [frame["type"] for frame in bob.take()] == ["typing.started", "typing.stopped", "signal"]
    assert parts.store.take_calls() == []


@pytest.mark.parametrize("is_joined", [False, True])
@pytest.mark.parametrize("command", ROOM_COMMANDS, ids=lambda command: command.__struct_config__.tag)
@in_virtual_time
async def test_a_reader_is_refused_in_a_room_that_was_joined_or_not(
    parts: Parts, command: wire.Command, is_joined: bool
) -> None:
    await parts.room("lobby", "ann", role="reader")
    ann = await parts.connect("ann")
    if is_joined:
        await parts.join(ann, "lobby")
    parts.engine.published.clear()
    assert (await refusal(parts, ann, command)).code == Err.FORBIDDEN
    assert parts.engine.published == []


@pytest.mark.parametrize("command", ROOM_COMMANDS[:2], ids=["typing", "signal"])
@in_virtual_time
async def test_a_member_who_has_not_joined_acts_after_the_membership_is_read(
    parts: Parts, command: wire.Command
) -> None:
    await parts.room("lobby", "ann")
    ann, bob = await parts.connect("ann"), await parts.connect("bob")
    parts.store.take_calls()
    assert await carry_out(parts, ann, command) is None
    assert (len(told(parts)), parts.store.take_calls()) == (1, ["user_rooms"])
    assert (await refusal(parts, bob, command)).code == Err.NOT_A_MEMBER
    assert len(told(parts)) == 1


@in_virtual_time
async def test_a_session_revoked_while_the_membership_is_read_sends_no_signal(parts: Parts) -> None:
    await parts.room("lobby", "ann")
    ann = await parts.connect("ann")
    async with parts.store.holding("user_rooms", "after") as held:
        acting = asyncio.ensure_future(carry_out(parts, ann, ROOM_COMMANDS[1]))
        await held.reached()
        ann.session.revoked = True
    await acting
    assert told(parts) == []


@pytest.mark.parametrize("is_joined", [False, True])
@pytest.mark.parametrize("command", ROOM_COMMANDS[:2], ids=["typing", "signal"])
@in_virtual_time
async def test_a_command_beyond_its_limit_is_refused_with_the_time_to_wait(
    parts: Parts, command: wire.Command, is_joined: bool
) -> None:
    await parts.room("lobby", "ann", tenant=LIMITED)
    ann = await parts.connect("ann", tenant=LIMITED)
    if is_joined:
        await parts.join(ann, "lobby")
    await carry_out(parts, ann, command)
    excess = await refusal(parts, ann, command)
    assert excess.code == Err.RATE_LIMITED
    assert 0 < (excess.retry_in_ms or 0) <= 1_000
    assert len([message for message in told(parts) if isinstance(message, Typing | Deliver)]) == 1


@in_virtual_time
async def test_a_signal_is_for_a_room_or_a_user_and_not_for_both(parts: Parts) -> None:
    await parts.room("lobby", "ann")
    ann = await parts.connect("ann")
    for command in (wire.SignalSend(kind="cursor"), wire.SignalSend(kind="cursor", room="lobby", user="bob")):
        assert (await refusal(parts, ann, command)).code == Err.BAD_FIELD


@in_virtual_time
async def test_a_signal_reaches_only_users_whom_the_token_may_watch(parts: Parts) -> None:
    ann = await parts.connect("ann", tenant=LIMITED, watch=("team-*",))
    bob, team = await parts.connect("bob", tenant=LIMITED), await parts.connect("team-1", tenant=LIMITED)
    assert (await refusal(parts, ann, wire.SignalSend(kind="cursor", user="bob"))).code == Err.FORBIDDEN
    assert await carry_out(parts, ann, wire.SignalSend(kind="cursor", user="team-1")) is None
    assert (await refusal(parts, ann, wire.SignalSend(kind="cursor", user="team-1"))).code == Err.RATE_LIMITED
    await parts.settle()
    assert (len(bob.take("signal")), len(team.take("signal"))) == (0, 1)


@in_virtual_time
async def test_occupants_are_not_shown_to_a_user_who_loses_the_room_meanwhile(parts: Parts) -> None:
    await parts.room("lobby", "ann", "bob")
    ann, bob = await parts.connect("ann"), await parts.connect("bob")
    await parts.engine.enter(TENANT, "lobby", "bob", bob.session.ref)
    present = await carry_out(parts, ann, wire.RoomPresent(room="lobby"))
    assert (present.users, present.count) == (["bob"], 1)
    async with hold(parts.engine, "present_page", at="after") as held:
        asking = asyncio.ensure_future(carry_out(parts, ann, wire.RoomPresent(room="lobby")))
        await held.reached()
        await parts.store.remove_member(TENANT, "lobby", "ann")
    with pytest.raises(Refused):
        await asking
