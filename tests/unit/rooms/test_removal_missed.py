"""A node that was stopped or cut off for long reads the members of its rooms before it delivers anything of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from greendot.engine.messages import Deliver, Entered, MembersChanged, Topic, Typing
from greendot.errors import Refused, StoreUnavailable
from greendot.node.stream import AGAIN_S, GAP_S
from greendot.rooms.local_room import LocalRoom
from greendot.rooms.members_model import NONE
from greendot.store.wire import message_frame
from greendot.visibility.freshness import FRESH_S
from unit.service_parts import TENANT, Parts, RecordedConnection, in_virtual_time

LOBBY = Topic("room", TENANT, "lobby")
LONG_S = 8.0  # more than half a lease, and less than the time between two comparisons of rooms


async def in_lobby(parts: Parts, *users: str) -> tuple[LocalRoom, list[RecordedConnection]]:
    """Make a room on a node whose last beat is new."""
    parts.heard_at = parts.now()
    assert parts.visibility_updates  # sets what the freshness needs
    parts.freshness.deliver = parts.receive
    return await parts.joined("lobby", *users)


async def stop(parts: Parts, seconds: float = LONG_S) -> None:
    """Let time pass as if the process were stopped: no beat returns."""
    parts.heard_at = parts.now()
    assert parts.freshness.is_fresh()
    await parts.pass_s(seconds)


async def remove(parts: Parts, user: str) -> MembersChanged:
    """Remove a member by another node, which does not wait for this one."""
    written = await parts.store.remove_member(TENANT, "lobby", user)
    assert written is not None
    return MembersChanged(written.members_rev, user)


@asynccontextmanager
async def reading_gap(parts: Parts, local: LocalRoom) -> AsyncIterator[None]:
    """Interrupt the read of the first of two messages, of which only the second came over the bus."""
    records = await parts.write("lobby", 2)
    async with parts.store.holding("messages", "after") as held:
        parts.receive(LOBBY, Deliver(message_frame(records[1]), seq=2, members_rev=local.members_rev))
        await held.reached()
        yield


def taken(connection: RecordedConnection) -> list[str]:
    return [frame["type"] for frame in connection.take()]


@in_virtual_time
async def test_events_from_before_a_removal_do_not_reach_the_removed_member_after_a_pause(parts: Parts) -> None:
    local, (ann, bob) = await in_lobby(parts, "ann", "bob")
    await stop(parts)
    (record,) = await parts.write("lobby")
    message = Deliver(message_frame(record), seq=1, members_rev=local.members_rev)
    change = await remove(parts, "bob")
    for missed in (Entered("cid", None), message, Typing("ann", None, 5_000), change):
        parts.freshness.receive(LOBBY, missed)
    await parts.pass_s(2 * GAP_S)
    assert taken(bob) == ["room.changed"]
    assert sorted(taken(ann)) == ["room.entered", "room.left", "room.message"]
    assert local.members_rev == change.revision


@in_virtual_time
async def test_the_members_are_read_without_a_wait_for_announcements(parts: Parts) -> None:
    await in_lobby(parts, "ann", "bob")
    await remove(parts, "bob")  # its announcement was lost
    began = parts.now()
    async with asyncio.timeout(GAP_S / 2):
        await parts.rooms.delivery.compare_members()
    assert parts.now() - began < GAP_S / 2


@in_virtual_time
async def test_after_a_short_pause_members_are_not_read(parts: Parts) -> None:
    local, (ann,) = await in_lobby(parts, "ann")
    await stop(parts, FRESH_S + 1.0)
    (record,) = await parts.write("lobby")
    parts.store.take_calls()
    parts.freshness.receive(LOBBY, Deliver(message_frame(record), seq=1, members_rev=local.members_rev))
    await parts.settle()
    assert "heads" not in parts.store.take_calls()
    assert ann.seqs() == [1]


@in_virtual_time
async def test_during_an_outage_members_are_read_less_often_than_changes_and_again_at_its_end(parts: Parts) -> None:
    await in_lobby(parts, "ann")
    await stop(parts)
    parts.store.take_calls()
    reads = []
    for wait_s in (0.0, FRESH_S):
        await parts.pass_s(wait_s)
        assert not parts.freshness.is_fresh()
        await parts.settle()
        assert parts.freshness.is_fresh()
        assert not parts.freshness.is_awaited()
        reads.append(parts.store.take_calls().count("heads"))
    parts.visibility_updates.lost()
    await parts.settle()
    assert [*reads, parts.store.take_calls().count("heads")] == [1, 0, 1]
    parts.heard_at = parts.now()
    assert parts.freshness.is_awaited()


@in_virtual_time
async def test_a_node_that_was_declared_dead_reads_the_members_although_its_beats_return(parts: Parts) -> None:
    _, (ann, bob) = await in_lobby(parts, "ann", "bob")
    await remove(parts, "bob")
    parts.visibility_updates.reborn()
    parts.freshness.receive(LOBBY, Entered("cid", None))
    await parts.pass_s(2 * GAP_S)
    assert taken(bob) == ["room.changed"]
    assert taken(ann) == ["room.left", "room.entered"]


@in_virtual_time
async def test_messages_whose_read_was_interrupted_do_not_reach_a_removed_member(parts: Parts) -> None:
    local, (ann, bob) = await in_lobby(parts, "ann", "bob")
    async with reading_gap(parts, local):
        await stop(parts)
        await remove(parts, "bob")
    await parts.pass_s(2 * GAP_S)
    assert taken(bob) == ["room.changed"]
    assert ann.seqs() == [1, 2]


@in_virtual_time
async def test_messages_whose_read_was_interrupted_wait_until_the_members_are_read(parts: Parts) -> None:
    local, (ann, bob) = await in_lobby(parts, "ann", "bob")
    async with reading_gap(parts, local):
        await stop(parts)
        await remove(parts, "bob")
        parts.store.thread.failing["heads"] = StoreUnavailable("the read of the members fails")
    await parts.pass_s(2 * GAP_S)
    assert (local.members_rev, taken(ann), taken(bob)) == (NONE, [], [])
    parts.heard_at = parts.now()
    parts.store.thread.failing.clear()
    await parts.pass_s(AGAIN_S + 2 * GAP_S)
    assert taken(bob) == ["room.changed"]
    assert ann.seqs() == [1, 2]


@in_virtual_time
async def test_typing_that_ends_after_a_pause_is_announced_to_those_who_may_stay(parts: Parts) -> None:
    local, (ann, bob) = await in_lobby(parts, "ann", "bob")
    local.typing.receive(Typing("cid", None, round(LONG_S * 1000)))
    await parts.settle()
    await stop(parts, LONG_S - 1.0)
    await remove(parts, "bob")
    await parts.pass_s(2.0)
    assert taken(bob) == ["typing.started", "room.changed"]
    assert taken(ann) == ["typing.started", "room.left", "typing.stopped"]
    assert [*local.typing.users] == []


@in_virtual_time
async def test_a_removed_member_is_refused_before_the_node_has_read_the_members(parts: Parts) -> None:
    _, (bob,) = await in_lobby(parts, "bob")
    await parts.rooms.membership.admit(bob.session, "lobby")
    assert parts.store.take_calls() == []
    await stop(parts)
    await remove(parts, "bob")
    with pytest.raises(Refused):
        await parts.rooms.membership.admit(bob.session, "lobby")


@in_virtual_time
async def test_a_join_that_a_pause_interrupts_admits_again(parts: Parts) -> None:
    await in_lobby(parts, "ann", "bob")
    again = await parts.connect("bob", device="laptop")
    async with parts.store.holding("room_page", "after") as held:
        joining = asyncio.ensure_future(parts.rooms.join(again, again.session, "lobby", None, 10))
        await held.reached()
        await stop(parts)
        await remove(parts, "bob")
    with pytest.raises(Refused):
        await joining
    assert again.rooms is None


@in_virtual_time
async def test_if_the_store_does_not_answer_records_wait_until_the_members_are_read(parts: Parts) -> None:
    local, (ann, bob) = await in_lobby(parts, "ann", "bob")
    (record,) = await parts.write("lobby")
    message = Deliver(message_frame(record), seq=1, members_rev=local.members_rev)
    await stop(parts)
    await remove(parts, "bob")
    parts.store.thread.is_away = True
    parts.freshness.receive(LOBBY, message)
    await parts.settle()
    assert local.members_rev == NONE
    assert (taken(ann), taken(bob)) == ([], [])
    parts.store.thread.is_away = False
    parts.heard_at = parts.now()
    parts.freshness.receive(LOBBY, message)
    await parts.pass_s(2 * GAP_S)
    assert taken(bob) == ["room.changed"]
    assert ann.seqs() == [1]


# --- a client that returns with a message that this node has not received ---


async def returns(parts: Parts, user: str, after: int) -> asyncio.Future[object]:
    """Let a second device of the user join the lobby. It has received the message `after` on another node."""
    device = await parts.connect(user, device="laptop")
    assert device.session is not None
    return asyncio.ensure_future(parts.rooms.join(device, device.session, "lobby", after))


@in_virtual_time
async def test_a_returning_client_delivers_no_record_that_waits_for_a_removal(parts: Parts) -> None:
    local, (_, bob) = await in_lobby(parts, "ann", "bob")
    taken(bob)
    removed = await remove(parts, "bob")
    (record,) = await parts.write("lobby")
    parts.receive(LOBBY, Deliver(message_frame(record), seq=1, members_rev=removed.revision))
    assert local.unchecked
    joining = await returns(parts, "ann", 1)
    await parts.pass_s(5 * GAP_S)
    assert (taken(bob), joining.done()) == (["room.changed"], True)


@in_virtual_time
async def test_a_returning_client_delivers_nothing_of_a_closed_room_to_those_outside(parts: Parts) -> None:
    await parts.store.put_room(TENANT, "lobby", open=True)
    await parts.store.put_member(TENANT, "lobby", "ann", "member")
    guest = await parts.connect("bob")
    assert guest.session is not None
    await parts.rooms.join(guest, guest.session, "lobby", None)
    taken(guest)
    await parts.store.put_room(TENANT, "lobby", open=False)  # on another node; the announcement is late
    await parts.write("lobby")
    joining = await returns(parts, "ann", 1)
    await parts.settle()
    assert (taken(guest), joining.done()) == (["room.changed"], True)


@in_virtual_time
async def test_while_the_members_are_unknown_a_returning_client_delivers_nothing(parts: Parts) -> None:
    local, (_, bob) = await in_lobby(parts, "ann", "bob")
    taken(bob)
    await remove(parts, "bob")
    await parts.write("lobby")
    room = (await parts.store.heads([(TENANT, "lobby")]))[(TENANT, "lobby")]
    parts.store.thread.failing["member_states"] = StoreUnavailable("away")
    await parts.rooms.delivery.catch_up(local, 1, room)
    assert (local.cursor, taken(bob)) == (0, [])
    parts.store.thread.failing.clear()


@pytest.mark.parametrize("seconds", [2.5, 6.0])
@in_virtual_time
async def test_if_the_store_is_slow_records_wait_until_the_members_are_known(parts: Parts, seconds: float) -> None:
    local, (ann, bob) = await in_lobby(parts, "ann", "bob")
    (record,) = await parts.write("lobby")
    message = Deliver(message_frame(record), seq=1, members_rev=local.members_rev)
    await stop(parts)
    await remove(parts, "bob")
    taken(bob)
    async with parts.store.holding("heads"):
        parts.freshness.receive(LOBBY, message)
        await parts.pass_s(seconds)
        assert (taken(ann), taken(bob)) == ([], [])
    await parts.pass_s(5 * AGAIN_S)
    assert (taken(ann)[0], taken(bob)) == ("room.message", ["room.changed"])
