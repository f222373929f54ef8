"""Removed members: they get no more frames of the room, including frames that already wait."""

from __future__ import annotations

import asyncio

import pytest

from greendot.engine.messages import Acknowledged, Deliver, MemberRemoved, Topic
from greendot.errors import Refused
from greendot.node.channel import ReplyKey, RoomKey
from greendot.protocol.codec import encode_event
from greendot.protocol.events import Resync
from greendot.rooms.members import STORE_S
from greendot.store.audit import AuditNote
from greendot.store.restrictions import FOREVER, Restriction
from greendot.store.rooms import Record
from greendot.store.wire import message_frame
from unit.service_parts import TENANT, Parts, in_virtual_time

LOBBY = Topic("room", TENANT, "lobby")


def publish(parts: Parts, record: Record, members_rev: int) -> None:
    parts.receive(LOBBY, Deliver(message_frame(record), seq=record.seq, members_rev=members_rev))


def removed(user: str, room: str = "lobby") -> MemberRemoved:
    return MemberRemoved(TENANT, room, user, "expelled", "asker", 7)


@in_virtual_time
async def test_a_removal_for_another_node_ends_all_sessions_in_the_room_and_is_acknowledged(parts: Parts) -> None:
    _, (ann, phone, laptop) = await parts.joined("lobby", "ann", "bob", "bob")
    parts.disconnect(laptop)  # the session lingers, and is still in the room
    await parts.store.remove_member(TENANT, "lobby", "bob")
    parts.receive(Topic("node", "", parts.incarnation), removed("bob"))
    (acknowledgement,) = [(to, sent) for to, sent in parts.engine.published if isinstance(sent, Acknowledged)]
    assert acknowledgement == (Topic("node", "", "asker"), Acknowledged(7, parts.incarnation))
    await parts.settle()
    assert [data["reason"] for data in phone.data("room.changed")] == ["expelled"]
    assert await parts.engine.present(TENANT, "lobby") == ["ann"]
    assert [frame["type"] for frame in ann.take()] == ["room.left"]
    with pytest.raises(Refused):
        await parts.rooms.membership.admit(phone.session, "lobby")


@in_virtual_time
async def test_a_removal_from_a_room_without_listeners_is_acknowledged_too(parts: Parts) -> None:
    ann = await parts.connect("ann")
    parts.receive(Topic("node", "", parts.incarnation), removed("ann", "attic"))
    await parts.settle()
    assert parts.engine.sent(Acknowledged) == [Acknowledged(7, parts.incarnation)]
    assert ann.take() == []


@in_virtual_time
async def test_frames_of_the_room_that_wait_for_a_slow_member_are_dropped(parts: Parts) -> None:
    local, (ann, bob) = await parts.joined("lobby", "ann", "bob")
    await parts.room("attic", "bob")
    await parts.join(bob, "attic")
    bob.become_slow()
    publish(parts, (await parts.write("lobby"))[0], local.members_rev)
    record = (await parts.write("attic"))[0]
    parts.receive(Topic("room", TENANT, "attic"), Deliver(message_frame(record), seq=1))
    await parts.settle()
    parts.rooms.removal.lose(bob, ["lobby"], "expelled")
    bob.keep_up()
    await parts.settle()
    assert [(frame["type"], frame["data"]["room"]) for frame in bob.take()] == [
        ("room.message", "attic"),
        ("room.changed", "lobby"),
    ]
    assert (ann.seqs(), bob.rooms) == ([1], {"attic"})


@in_virtual_time
async def test_a_reply_about_the_room_that_waits_is_replaced_by_an_error(parts: Parts) -> None:
    ann = await parts.connect("ann")  # ann has not joined, but requested the history
    ann.become_slow()
    frame = encode_event(Resync("inbox"), 0)
    for room, number in (("lobby", 1), ("attic", 2)):
        ann.send(frame, key=RoomKey(room, ReplyKey(number)))
    before = ann.session.removals
    parts.rooms.removal.lose(ann, ["lobby", "cellar"], "expelled")
    ann.keep_up()
    frames = ann.take()
    assert [(frame["type"], frame.get("id"), frame.get("code")) for frame in frames] == [
        ("resync", None, None),
        ("error", 1, "not_a_member"),
    ]
    assert ann.session.removals > before  # a running read for the session is not sent


@in_virtual_time
async def test_a_joiner_who_is_removed_while_the_admission_is_read_does_not_join(parts: Parts) -> None:
    await parts.joined("lobby", "ann")
    await parts.store.put_member(TENANT, "lobby", "bob")
    bob = await parts.connect("bob")
    async with parts.store.holding("user_rooms", "after") as held:
        joining = asyncio.ensure_future(parts.rooms.join(bob, bob.session, "lobby", None))
        await held.reached()
        await parts.store.remove_member(TENANT, "lobby", "bob")
        parts.receive(Topic("node", "", parts.incarnation), removed("bob"))
    with pytest.raises(Refused):
        await joining
    assert bob.rooms is None


def removal(user: str) -> MemberRemoved:
    """Return the message of a removal by the app, after which the user may have been added again."""
    return MemberRemoved(TENANT, "lobby", user, "expelled", "asker", 7, unless_member=True)


@in_virtual_time
async def test_a_member_who_was_added_again_and_has_joined_before_the_removal_arrives_stays(parts: Parts) -> None:
    _, (_, bob) = await parts.joined("lobby", "ann", "bob")
    await parts.store.remove_member(TENANT, "lobby", "bob")
    await parts.store.put_member(TENANT, "lobby", "bob")
    parts.receive(Topic("node", "", parts.incarnation), removal("bob"))
    await parts.settle()
    assert parts.engine.sent(Acknowledged) == [Acknowledged(7, parts.incarnation)]
    assert (bob.data("room.changed"), bob.rooms) == ([], {"lobby"})
    (record,) = await parts.write("lobby")
    publish(parts, record, 0)
    await parts.settle()
    assert bob.seqs() == [1]


@in_virtual_time
async def test_a_removed_member_leaves_before_the_acknowledgement(parts: Parts) -> None:
    _, (_, bob) = await parts.joined("lobby", "ann", "bob")
    await parts.store.remove_member(TENANT, "lobby", "bob")
    async with parts.store.holding("member_states") as held:
        parts.receive(Topic("node", "", parts.incarnation), removal("bob"))
        await held.reached()
        assert parts.engine.sent(Acknowledged) == []
    await parts.settle()
    assert ([data["reason"] for data in bob.data("room.changed")], bob.rooms) == (["expelled"], set())
    assert parts.engine.sent(Acknowledged) == [Acknowledged(7, parts.incarnation)]


@in_virtual_time
async def test_a_member_who_is_added_again_and_joins_while_a_removal_is_carried_out_stays(parts: Parts) -> None:
    await parts.joined("lobby", "ann")
    bob = await parts.connect("bob")
    async with parts.store.holding("member_states", "after") as held:
        parts.receive(Topic("node", "", parts.incarnation), removal("bob"))
        await held.reached()
        await parts.store.put_member(TENANT, "lobby", "bob")
        await parts.join(bob, "lobby")
    await parts.settle()
    assert parts.engine.sent(Acknowledged) == [Acknowledged(7, parts.incarnation)]
    assert (bob.data("room.changed"), bob.rooms) == ([], {"lobby"})


@in_virtual_time
async def test_a_banned_member_and_one_of_whom_the_store_says_nothing_in_time_leave(parts: Parts) -> None:
    _, (ann, bob) = await parts.joined("lobby", "ann", "bob")
    note = AuditNote(TENANT, 0, "desk", "user.banned", "lobby", "bob")
    await parts.store.restrict(Restriction(TENANT, "lobby", "bob", "ban", FOREVER, 0, "desk"), note)
    parts.receive(Topic("node", "", parts.incarnation), removal("bob"))
    await parts.settle()
    assert bob.rooms == set()
    async with parts.store.holding("member_states"):
        parts.receive(Topic("node", "", parts.incarnation), removal("ann"))
        await parts.pass_s(STORE_S + 0.1)
        assert ann.rooms == set()
    assert len(parts.engine.sent(Acknowledged)) == 2
