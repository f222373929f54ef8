"""Admission to rooms: reads of the store, cached roles, and changes during a read."""

from __future__ import annotations

import asyncio

import pytest

from greendot.engine.messages import Topic
from greendot.errors import Refused
from greendot.protocol.codes import Err
from greendot.store.audit import AuditNote
from greendot.store.restrictions import FOREVER, Restriction
from greendot.store.rooms import MemberState
from unit.service_parts import TENANT, Parts, in_virtual_time


@in_virtual_time
async def test_members_who_come_at_once_are_read_together(parts: Parts) -> None:
    users = [f"u{number}" for number in range(5)]
    await parts.room("lobby", *users)
    connections = [await parts.connect(user) for user in users]
    members = parts.rooms.membership
    parts.store.take_calls()
    admitted = await asyncio.gather(*(members.admit(c.session, "lobby") for c in connections))
    assert {access.role for access in admitted} == {"member"}
    assert parts.store.take_calls() == ["user_rooms"]


@in_virtual_time
async def test_a_member_of_a_local_room_is_admitted_without_a_read_unless_it_must_be_fresh(parts: Parts) -> None:
    await parts.room("lobby", "ann")
    ann = await parts.connect("ann")
    await parts.join(ann, "lobby")
    await parts.write("lobby")
    await parts.store.put_marker(TENANT, "lobby", "ann", 1)
    parts.store.take_calls()
    remembered = await parts.rooms.membership.admit(ann.session, "lobby")
    assert (remembered.marker, parts.store.take_calls()) == (0, [])
    fresh = await parts.rooms.membership.admit(ann.session, "lobby", fresh=True)
    assert (fresh.marker, parts.store.take_calls()) == (1, ["user_rooms"])


@in_virtual_time
async def test_no_user_is_refused_because_of_a_cached_role(parts: Parts) -> None:
    await parts.room("lobby", "ann")
    ann, bob = await parts.connect("ann"), await parts.connect("bob")
    local = await parts.join(ann, "lobby")
    local.roles["bob"] = MemberState(None, 0)
    await parts.store.put_member(TENANT, "lobby", "bob")  # no node received this change
    assert (await parts.rooms.membership.admit(bob.session, "lobby")).role == "member"


@in_virtual_time
async def test_a_closed_room_is_refused_as_one_that_does_not_exist(parts: Parts) -> None:
    await parts.room("closed", "ann")
    bob = await parts.connect("bob")
    parts.store.take_calls()
    refusals = []
    for room in ("closed", "nowhere"):
        with pytest.raises(Refused) as refused:
            await parts.rooms.membership.admit(bob.session, room, make=True)
        refusals.append((refused.value.code, refused.value.message.replace(room, "?"), parts.store.take_calls()))
    assert refusals[0] == refusals[1]
    assert refusals[0][0] == Err.NOT_A_MEMBER


@in_virtual_time
async def test_a_room_that_a_token_opens_is_made_only_on_demand(parts: Parts) -> None:
    ann = await parts.connect("ann", rooms=("team-*",))
    with pytest.raises(Refused):
        await parts.rooms.membership.admit(ann.session, "team-1")
    assert await parts.store.room(TENANT, "team-1") is None
    access = await parts.rooms.membership.admit(ann.session, "team-1", make=True)
    assert (access.role, access.room.open) == (None, False)
    assert await parts.store.room(TENANT, "team-1") is not None


@pytest.mark.parametrize("rooms", [(), ("lob*",)], ids=["by membership", "by token"])
@in_virtual_time
async def test_a_role_that_was_read_while_the_members_changed_is_not_remembered(
    parts: Parts, rooms: tuple[str, ...]
) -> None:
    await parts.room("lobby", "ann", "bob")
    ann, bob = await parts.connect("ann"), await parts.connect("bob", rooms=rooms)
    local = await parts.join(ann, "lobby")
    async with parts.store.holding("member_states" if rooms else "user_rooms", "after") as held:
        admission = asyncio.ensure_future(parts.rooms.membership.admit(bob.session, "lobby"))
        await held.reached()
        local.members_rev += 1
    await admission
    assert "bob" not in local.roles
    await parts.rooms.membership.admit(bob.session, "lobby")
    assert local.roles["bob"].role == "member"


@in_virtual_time
async def test_nothing_remembered_counts_while_the_members_are_read_again(parts: Parts) -> None:
    await parts.room("lobby", "ann")
    ann = await parts.connect("ann")
    local = await parts.join(ann, "lobby")
    await parts.store.remove_member(TENANT, "lobby", "ann")
    assert parts.rooms.membership.remembers(TENANT, "lobby")
    local.unchecked = []
    assert not parts.rooms.membership.remembers(TENANT, "lobby")
    with pytest.raises(Refused):
        await parts.rooms.membership.admit(ann.session, "lobby")


@in_virtual_time
async def test_a_read_for_a_member_is_repeated_after_a_removal_and_refused_after_the_last_one(parts: Parts) -> None:
    await parts.room("lobby", "ann")
    ann = await parts.connect("ann")
    reads = 0

    async def read() -> int:
        nonlocal reads
        reads += 1
        if reads == 1:
            ann.session.removals += 1  # removed, and added again
        return reads

    assert await parts.rooms.membership.throughout(ann.session, "lobby", read) == 2

    async def close() -> None:
        await parts.store.remove_member(TENANT, "lobby", "ann")

    with pytest.raises(Refused):
        await parts.rooms.membership.throughout(ann.session, "lobby", close)


@in_virtual_time
async def test_a_refresh_names_listeners_who_lost_the_room_and_keeps_those_whom_a_token_admits(parts: Parts) -> None:
    await parts.room("lobby", "ann", "bob")
    ann, bob = await parts.connect("ann"), await parts.connect("bob")
    cid = await parts.connect("cid", rooms=("lobby",))
    for connection in (ann, bob, cid):
        local = await parts.join(connection, "lobby")
    before = local.members_rev
    await parts.store.remove_member(TENANT, "lobby", "bob")
    assert await parts.rooms.membership.refresh(local) == {"bob": "removed by the app"}
    assert local.members_rev == before + 1
    assert {user: state.role for user, state in local.roles.items()} == {"ann": "member", "bob": None, "cid": None}
    await parts.store.put_room(TENANT, "lobby", open=True)
    assert await parts.rooms.membership.refresh(local) == {}
    note = AuditNote(TENANT, 0, "desk", "user.banned", "lobby", "cid")
    await parts.store.restrict(Restriction(TENANT, "lobby", "cid", "ban", FOREVER, 0, "desk"), note)
    assert await parts.rooms.membership.refresh(local) == {"cid": "banned by the app"}


@in_virtual_time
async def test_grants_are_admitted_to_rooms_that_exist_by_membership_or_pattern(parts: Parts) -> None:
    await parts.room("lobby", "ann")
    ann, bob = await parts.connect("ann", rooms=("no*",)), await parts.connect("bob")
    admits = parts.rooms.membership.admits
    assert await admits(ann.session.grants, "lobby")
    assert not await admits(bob.session.grants, "lobby")
    assert not await admits(ann.session.grants, "nowhere")
    await parts.room("nowhere")
    assert await admits(ann.session.grants, "nowhere")
    await parts.join(ann, "lobby")
    parts.store.take_calls()
    assert await admits(ann.session.grants, "lobby")
    assert parts.store.take_calls() == []
    assert parts.rooms.local(Topic("room", TENANT, "nowhere")) is None
