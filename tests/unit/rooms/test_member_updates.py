"""Changed members of rooms with listeners: what is read, and which records wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from greendot.engine.messages import Deliver, MembersChanged, Topic
from greendot.errors import Refused
from greendot.node.session import Connection
from greendot.node.stream import GAP_S
from greendot.protocol.codes import Err
from greendot.rooms.delivery import COMPARE_S
from greendot.store.rooms import MemberState, Record, Role
from greendot.store.wire import message_frame
from unit.service_parts import TENANT, TICK_S, Parts, in_virtual_time

LOBBY = Topic("room", TENANT, "lobby")


def publish(parts: Parts, record: Record, members_rev: int) -> None:
    parts.receive(LOBBY, Deliver(message_frame(record), seq=record.seq, members_rev=members_rev))


async def put(parts: Parts, user: str, role: Role = "member") -> MembersChanged:
    """Add a member in the store, and return the announcement, which the node has not received."""
    written = await parts.store.put_member(TENANT, "lobby", user, role)
    assert written is not None
    assert written.changed
    return MembersChanged(written.members_rev, user)


async def remove(parts: Parts, user: str) -> MembersChanged:
    written = await parts.store.remove_member(TENANT, "lobby", user)
    assert written is not None
    assert written.changed
    return MembersChanged(written.members_rev, user)


def is_reader(parts: Parts, connection: Connection) -> bool:
    """Return whether the node refuses messages of a listener, as those of a reader."""
    assert connection.session is not None
    try:
        parts.rooms.check_may_speak(connection.session, "lobby")
    except Refused as refusal:
        return refusal.code == Err.FORBIDDEN
    return False


# --- one change ---


@in_virtual_time
async def test_a_change_of_a_user_who_does_not_listen_costs_no_read(parts: Parts) -> None:
    local, (ann,) = await parts.joined("lobby", "ann")
    for change in (await put(parts, "cid"), await put(parts, "cid", "reader"), await remove(parts, "cid")):
        parts.store.take_calls()
        parts.receive(LOBBY, change)
        publish(parts, (await parts.write("lobby"))[0], change.revision)
        await parts.settle()
        assert parts.store.take_calls() == ["append"]
        assert local.members_rev == change.revision
        assert local.room is not None
        assert local.room.members_rev == change.revision
    assert ann.seqs() == [1, 2, 3]


@in_virtual_time
async def test_a_change_of_a_listener_reads_this_listener_only(parts: Parts) -> None:
    local, (ann, bob, cid) = await parts.joined("lobby", "ann", "bob", "cid")
    changes = [await put(parts, "bob", "reader"), await remove(parts, "cid")]
    asked: list[list[str]] = []
    original = parts.store.member_states

    async def states(members: Sequence[tuple[str, str, str]]) -> dict[tuple[str, str, str], MemberState]:
        asked.append([user for _, _, user in members])
        return await original(members)

    parts.store.member_states = states  # type: ignore[method-assign]
    for change in changes:
        parts.receive(LOBBY, change)
        await parts.settle()
    assert asked == [["bob"], ["cid"]]
    assert (ann.rooms, bob.rooms, cid.rooms) == ({"lobby"}, {"lobby"}, set())
    assert is_reader(parts, bob)
    assert not is_reader(parts, ann)
    assert local.members_rev == changes[-1].revision


@in_virtual_time
async def test_a_removed_listener_gets_no_record_that_came_during_the_read(parts: Parts) -> None:
    _, (ann, bob) = await parts.joined("lobby", "ann", "bob")
    change = await remove(parts, "bob")
    async with parts.store.holding("member_states") as held:
        parts.receive(LOBBY, change)
        await held.reached()
        publish(parts, (await parts.write("lobby"))[0], change.revision)
        await parts.settle()
        assert ann.seqs() == []
    await parts.settle()
    assert ann.seqs() == [1]
    assert [frame["type"] for frame in bob.take("room.message", "room.changed")] == ["room.changed"]


@in_virtual_time
async def test_the_role_of_a_former_member_is_forgotten_even_if_it_is_being_read(parts: Parts) -> None:
    await parts.joined("lobby", "ann", "bob")
    await parts.store.put_member(TENANT, "lobby", "cid")
    changes = [MembersChanged(revision_of(parts) + 1, "cid")]
    cid = await parts.connect("cid")
    async with parts.store.holding("user_rooms", "after") as reading:
        admitted = asyncio.ensure_future(parts.rooms.membership.admit(cid.session, "lobby"))
        await reading.reached()
        changes += [await remove(parts, "cid"), await put(parts, "bob", "reader")]
        async with parts.store.holding("member_states") as held:
            for change in changes:
                parts.receive(LOBBY, change)
            await held.reached()  # the change of the listener is being read
            reading.release()
            await admitted
    await parts.settle()
    with pytest.raises(Refused):
        await parts.rooms.membership.admit(cid.session, "lobby")


def revision_of(parts: Parts) -> int:
    local = parts.rooms.local(LOBBY)
    assert local is not None
    return local.members_rev


# --- order ---


@in_virtual_time
async def test_changes_in_another_order_are_applied_in_theirs_without_reading_all(parts: Parts) -> None:
    local, (ann, bob) = await parts.joined("lobby", "ann", "bob")
    first, second = await put(parts, "cid"), await put(parts, "dan")
    parts.store.take_calls()
    parts.receive(LOBBY, second)
    publish(parts, (await parts.write("lobby"))[0], second.revision)
    await parts.settle()
    assert ann.seqs() == []
    assert local.members_rev == first.revision - 1
    parts.receive(LOBBY, first)
    await parts.settle()
    assert (ann.seqs(), bob.seqs()) == ([1], [1])
    assert local.members_rev == second.revision
    await parts.pass_s(1)
    assert parts.store.take_calls() == ["append"]


@in_virtual_time
async def test_a_missing_announcement_of_a_removal_is_found_by_the_next_one(parts: Parts) -> None:
    _, (ann, bob) = await parts.joined("lobby", "ann", "bob")
    await remove(parts, "bob")
    change = await put(parts, "cid")
    parts.receive(LOBBY, change)
    publish(parts, (await parts.write("lobby"))[0], change.revision)
    await parts.pass_s(GAP_S / 2)
    assert parts.store.calls.count("heads") == 0
    await parts.pass_s(GAP_S / 2 + TICK_S)
    assert (ann.seqs(), bob.seqs()) == ([1], [])
    assert bob.rooms == set()


@in_virtual_time
async def test_a_member_who_was_removed_and_added_again_is_not_removed_by_a_late_announcement(parts: Parts) -> None:
    await parts.joined("lobby", "ann")
    away, back = await remove(parts, "ann"), await put(parts, "ann")
    parts.receive(LOBBY, away)
    await parts.settle()
    ann = parts.registry.connections_of(TENANT, "ann")
    assert [connection.rooms for connection in ann] == [{"lobby"}]
    parts.receive(LOBBY, back)
    await parts.settle()
    assert revision_of(parts) == back.revision


@in_virtual_time
async def test_a_repeated_request_announces_the_revision_and_so_repairs_a_lost_announcement(parts: Parts) -> None:
    _, (ann, bob) = await parts.joined("lobby", "ann", "bob")
    parts.engine.is_deaf = True
    room = await parts.store.room(TENANT, "lobby")
    assert room is not None
    await parts.store.remove_member(TENANT, "lobby", "bob")
    parts.engine.is_deaf = False
    parts.store.take_calls()
    await parts.messages.put_member(TENANT, "lobby", "ann", "member")
    assert parts.engine.sent(MembersChanged) == [MembersChanged(room.members_rev + 1, "")]
    await parts.pass_s(GAP_S + TICK_S)
    assert (ann.rooms, bob.rooms) == ({"lobby"}, set())


@in_virtual_time
async def test_an_announcement_of_a_node_of_the_version_before_reads_all(parts: Parts) -> None:
    _, (ann, bob) = await parts.joined("lobby", "ann", "bob")
    await remove(parts, "bob")
    parts.receive(LOBBY, MembersChanged())
    await parts.settle()
    assert (ann.rooms, bob.rooms) == ({"lobby"}, set())


@in_virtual_time
async def test_an_older_revision_is_checked_because_the_store_may_have_been_restored(parts: Parts) -> None:
    local, (ann, bob) = await parts.joined("lobby", "ann", "bob")
    now = local.members_rev
    parts.store.take_calls()
    parts.receive(LOBBY, MembersChanged(now - 1, "ann"))
    await parts.settle()
    assert parts.store.take_calls() == ["heads"]
    # The store is restored to an older revision, and then removes a member.
    parts.store.thread.db.execute("UPDATE rooms SET members_rev = 0")
    parts.receive(LOBBY, await remove(parts, "bob"))
    await parts.settle()
    assert (ann.rooms, bob.rooms, local.members_rev) == ({"lobby"}, set(), 1)


# --- joining ---


@in_virtual_time
async def test_joins_during_changes_are_admitted_again_and_read_no_listener(parts: Parts) -> None:
    local, _ = await parts.joined("lobby", "ann")
    change = await put(parts, "bob", "reader")
    bob = await parts.connect("bob")
    parts.receive(LOBBY, change)
    async with parts.store.holding("user_rooms", "after") as held:
        joining = asyncio.ensure_future(parts.rooms.join(bob, bob.session, "lobby", None))
        await held.reached()
        parts.receive(LOBBY, await put(parts, "cid"))
        parts.store.take_calls()
    await joining
    assert parts.store.take_calls() == ["user_rooms"]
    assert local.roles["bob"].role == "reader"
    assert is_reader(parts, bob)


@in_virtual_time
async def test_a_room_that_opens_applies_the_changes_that_were_announced_meanwhile(parts: Parts) -> None:
    await parts.room("lobby", "ann", "bob")
    ann = await parts.connect("ann")
    async with parts.store.holding("heads", "after") as held:
        joining = asyncio.ensure_future(parts.rooms.join(ann, ann.session, "lobby", None))
        await held.reached()
        change = await put(parts, "cid")
        parts.receive(LOBBY, change)
    await joining
    assert revision_of(parts) == change.revision
    assert parts.store.calls.count("member_states") == 0


# --- reading all ---


@in_virtual_time
async def test_messages_wait_while_the_members_are_read_once_for_all_of_them(parts: Parts) -> None:
    local, (ann, bob) = await parts.joined("lobby", "ann", "bob")
    await parts.store.remove_member(TENANT, "lobby", "bob")
    records = await parts.write("lobby", 3)
    rev = local.members_rev + 1
    parts.store.take_calls()
    async with parts.store.holding("member_states") as held:
        for record in records:
            publish(parts, record, rev)
        await held.reached()
        await parts.settle()
        assert (ann.take(), bob.take()) == ([], [])
    await parts.settle()
    assert ann.seqs() == [1, 2, 3]
    assert [(data["removed"], data["reason"]) for data in bob.data()] == [(True, "removed by the app")]
    assert parts.store.take_calls() == ["heads", "member_states"]
    assert bob.rooms == set()


@in_virtual_time
async def test_a_change_that_is_announced_during_the_read_is_read_after_it(parts: Parts) -> None:
    _, (ann, bob) = await parts.joined("lobby", "ann", "bob")
    parts.receive(LOBBY, MembersChanged())
    async with parts.store.holding("member_states", "after") as held:
        await held.reached()
        await parts.store.remove_member(TENANT, "lobby", "bob")
        parts.receive(LOBBY, MembersChanged())
    await parts.settle()
    assert (ann.rooms, bob.rooms) == ({"lobby"}, set())
    assert parts.store.calls.count("member_states") == 2


@in_virtual_time
async def test_a_message_of_a_newer_revision_than_the_read_waits_for_the_next_read(parts: Parts) -> None:
    local, (ann, bob) = await parts.joined("lobby", "ann", "bob")
    parts.receive(LOBBY, MembersChanged())
    async with parts.store.holding("member_states", "after") as held:
        await held.reached()
        await parts.store.remove_member(TENANT, "lobby", "bob")
        publish(parts, (await parts.write("lobby"))[0], local.members_rev + 1)
    await parts.pass_s(GAP_S + TICK_S)
    assert (ann.seqs(), bob.seqs()) == ([1], [])


@in_virtual_time
async def test_a_revision_that_the_store_does_not_know_is_read_once(parts: Parts) -> None:
    _, (ann,) = await parts.joined("lobby", "ann")
    publish(parts, (await parts.write("lobby"))[0], 1_000)  # a message of a store that was restored meanwhile
    await parts.pass_s(2)
    assert ann.seqs() == [1]
    assert parts.store.calls.count("member_states") == 1


@in_virtual_time
async def test_messages_reach_no_client_while_the_members_cannot_be_read_and_are_read_later(parts: Parts) -> None:
    local, (ann, bob) = await parts.joined("lobby", "ann", "bob")
    await parts.store.remove_member(TENANT, "lobby", "bob")
    records = await parts.write("lobby", 2)
    parts.store.thread.is_away = True
    for record in records:
        publish(parts, record, local.members_rev + 1)
    await parts.pass_s(GAP_S + TICK_S)
    parts.store.thread.is_away = False
    await parts.pass_s(1)
    assert (ann.take(), bob.take()) == ([], [])
    await parts.pass_s(COMPARE_S)
    assert ann.seqs() == [1, 2]
    assert [frame["type"] for frame in bob.take()] == ["room.changed"]


@in_virtual_time
async def test_a_message_whose_announcement_was_lost_is_read_with_the_members(parts: Parts) -> None:
    _, (ann,) = await parts.joined("lobby", "ann")
    await parts.write("lobby", 2)
    parts.receive(LOBBY, MembersChanged())
    await parts.settle()
    assert ann.seqs() == [1, 2]
