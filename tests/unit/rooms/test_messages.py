"""Messages of rooms: stored first, then published, with checks of who may write, change and read them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import Raw

from greendot.engine.messages import Deliver, MemberRemoved, MembersChanged, Topic
from greendot.engine.results import NodeInfo
from greendot.errors import EngineUnavailable, Refused, StaleMembers, StoreUnavailable
from greendot.node.cluster_rpc import WITHIN_S
from greendot.protocol.codes import Err
from greendot.protocol.commands import RoomDelete, RoomEdit, RoomHistory, RoomSend
from greendot.rooms.messages import ATTEMPTS
from greendot.store.rooms import Record, Role
from unit.service_parts import LIMITED, TENANT, Parts, RecordedConnection, in_virtual_time


async def said(parts: Parts, room: str = "lobby") -> list[Record]:
    return await parts.store.messages(TENANT, room, limit=100)


async def send(parts: Parts, connection: RecordedConnection, room: str = "lobby", **given: Any) -> int:
    command = RoomSend(room=room, body=Raw(b'"hello"'), **given)
    return (await parts.messages.send(connection, connection.session, command)).seq


async def refused(work: Any) -> Refused:
    with pytest.raises(Refused) as raised:
        await work
    return raised.value


@in_virtual_time
async def test_a_message_is_published_only_when_it_is_written(parts: Parts) -> None:
    await parts.room("lobby", "ann")
    ann = await parts.connect("ann", name="Ann")
    parts.store.thread.failing["append"] = StoreUnavailable("away")
    with pytest.raises(StoreUnavailable):
        await send(parts, ann)
    assert parts.engine.sent(Deliver) == []
    del parts.store.thread.failing["append"]
    assert await send(parts, ann) == 1
    ((topic, told),) = [(to, sent) for to, sent in parts.engine.published if isinstance(sent, Deliver)]
    assert (topic, told.seq, b'"hello"' in told.frame) == (Topic("room", TENANT, "lobby"), 1, True)
    assert [(record.user, record.name, record.body) for record in await said(parts)] == [("ann", "Ann", b'"hello"')]


@in_virtual_time
async def test_a_message_with_a_known_key_is_answered_as_before_and_not_published_again(parts: Parts) -> None:
    await parts.room("lobby", "ann")
    ann = await parts.connect("ann")
    assert [await send(parts, ann, key="k1") for _ in range(2)] == [1, 1]
    assert [told.seq for told in parts.engine.sent(Deliver)] == [1]
    assert [await send(parts, ann) for _ in range(2)] == [2, 3]  # without a key each is another message


@in_virtual_time
async def test_the_content_of_a_hinting_room_stays_off_the_bus(parts: Parts) -> None:
    await parts.room("lobby", "ann", bus="hint")
    await send(parts, await parts.connect("ann"))
    (told,) = parts.engine.sent(Deliver)
    assert (told.seq, told.frame) == (1, b"")


@in_virtual_time
async def test_readers_may_not_write_and_an_open_room_must_be_joined_first(parts: Parts) -> None:
    await parts.room("lobby", "ann", role="reader")
    await parts.room("open", open=True)
    ann = await parts.connect("ann")
    assert (await refused(send(parts, ann))).code == Err.FORBIDDEN
    assert (await refused(send(parts, ann, "open"))).code == Err.NOT_A_MEMBER
    await parts.join(ann, "open")
    assert await send(parts, ann, "open") == 1
    bob = await parts.connect("bob", rooms=("open",))
    assert await send(parts, bob, "open") == 2  # a grant in the token suffices without a join


@pytest.mark.parametrize(
    ("user", "role", "may"), [("ann", "member", True), ("bob", "member", False), ("bob", "admin", True)]
)
@in_virtual_time
async def test_a_message_is_changed_by_its_author_or_an_admin(parts: Parts, user: str, role: Role, may: bool) -> None:
    await parts.room("lobby", "ann")
    await parts.store.put_member(TENANT, "lobby", user, role)
    await send(parts, await parts.connect("ann"))
    other = await parts.connect(user)
    edit = parts.messages.change(other, other.session, RoomEdit(room="lobby", ref=1, body=Raw(b"2")))
    delete = parts.messages.change(other, other.session, RoomDelete(room="lobby", ref=1))
    if may:
        assert ((await edit).seq, (await delete).seq) == (2, 3)
        assert [(r.op, r.ref, r.body) for r in (await said(parts))[1:]] == [("edit", 1, b"2"), ("delete", 1, b"null")]
    else:
        assert {(await refused(edit)).code, (await refused(delete)).code} == {Err.FORBIDDEN}
        assert len(await said(parts)) == 1


@in_virtual_time
async def test_only_a_message_can_be_changed_and_not_the_change_of_one(parts: Parts) -> None:
    await parts.room("lobby", "ann")
    ann = await parts.connect("ann")
    await send(parts, ann)
    await parts.messages.change(ann, ann.session, RoomDelete(room="lobby", ref=1))
    for ref in (2, 3):
        change = parts.messages.change(ann, ann.session, RoomEdit(room="lobby", ref=ref, body=Raw(b"1")))
        assert (await refused(change)).code == Err.BAD_FIELD


@pytest.mark.parametrize("is_removed", [False, True])
@in_virtual_time
async def test_an_author_is_admitted_again_where_members_change_before_the_commit(
    parts: Parts, is_removed: bool
) -> None:
    await parts.room("lobby", "ann")
    ann = await parts.connect("ann")
    async with parts.store.holding("append") as held:
        sending = asyncio.ensure_future(send(parts, ann))
        await held.reached()
        await parts.store.put_member(TENANT, "lobby", "bob")
        if is_removed:
            await parts.store.remove_member(TENANT, "lobby", "ann")
    if is_removed:
        assert (await refused(sending)).code == Err.NOT_A_MEMBER
        assert await said(parts) == []
    else:
        assert await sending == 1


@in_virtual_time
async def test_a_message_is_given_up_where_the_members_never_stay_the_same(parts: Parts) -> None:
    await parts.room("lobby", "ann")
    ann = await parts.connect("ann")
    parts.store.thread.failing["append"] = StaleMembers("lobby")
    refusal = await refused(send(parts, ann))
    assert (refusal.code, refusal.retry_in_ms) == (Err.UNAVAILABLE, 1_000)
    assert parts.store.calls.count("append") == ATTEMPTS


@in_virtual_time
async def test_a_session_revoked_while_it_is_admitted_writes_nothing(parts: Parts) -> None:
    await parts.room("lobby", "ann")
    ann = await parts.connect("ann")
    async with parts.store.holding("user_rooms", "after") as held:
        sending = asyncio.ensure_future(send(parts, ann))
        await held.reached()
        ann.session.revoked = True
    assert (await refused(sending)).code == Err.FORBIDDEN
    assert "append" not in parts.store.calls


@in_virtual_time
async def test_a_refused_author_does_not_use_up_the_limit_of_messages(parts: Parts) -> None:
    await parts.room("lobby", "ann", tenant=LIMITED)
    ann = await parts.connect("ann", tenant=LIMITED)
    assert (await refused(send(parts, ann, "nowhere"))).code == Err.NOT_A_MEMBER
    assert await send(parts, ann) == 1
    assert (await refused(send(parts, ann))).code == Err.RATE_LIMITED
    change = parts.messages.change(ann, ann.session, RoomEdit(room="lobby", ref=1, body=Raw(b"1")))
    assert (await refused(change)).code == Err.RATE_LIMITED  # a change counts as a message
    await parts.pass_s(1)
    assert await send(parts, ann) == 2


@in_virtual_time
async def test_a_message_ends_the_typing_of_its_author(parts: Parts) -> None:
    await parts.room("lobby", "ann", "bob")
    ann, bob = await parts.connect("ann"), await parts.connect("bob")
    await parts.join(ann, "lobby")
    await parts.join(bob, "lobby")
    parts.rooms.start_typing(ann.session, "lobby")
    await send(parts, ann)
    await parts.settle()
    assert [frame["type"] for frame in bob.take()] == ["typing.started", "typing.stopped", "room.message"]


@in_virtual_time
async def test_history_is_refused_with_two_bounds_and_to_those_who_lose_the_room_meanwhile(parts: Parts) -> None:
    await parts.room("lobby", "ann")
    await parts.write("lobby", 3)
    ann = await parts.connect("ann")
    page = await parts.messages.history(ann.session, RoomHistory(room="lobby", before=3, limit=1))
    assert [message.seq for message in page.messages] == [2]
    both = parts.messages.history(ann.session, RoomHistory(room="lobby", before=3, after=1))
    assert (await refused(both)).code == Err.BAD_FIELD
    async with parts.store.holding("room_page", "after") as held:
        reading = asyncio.ensure_future(parts.messages.history(ann.session, RoomHistory(room="lobby")))
        await held.reached()
        await parts.store.remove_member(TENANT, "lobby", "ann")
    assert (await refused(reading)).code == Err.NOT_A_MEMBER


@in_virtual_time
async def test_nodes_are_notified_of_changed_members_and_of_nothing_else(parts: Parts) -> None:
    await parts.messages.put_room(TENANT, "lobby", None, "hint")
    assert [message for _, message in parts.engine.published] == [MembersChanged()]  # a new room
    await parts.write("lobby", 1)
    parts.engine.published.clear()
    await parts.messages.put_room(TENANT, "lobby", None, "full")
    assert not await parts.messages.put_member(TENANT, "nowhere", "ann", "member")
    assert parts.engine.published == []
    await parts.messages.put_room(TENANT, "lobby", True, None)
    assert await parts.messages.put_member(TENANT, "lobby", "ann", "reader")
    assert await parts.messages.put_member(TENANT, "lobby", "ann", "reader")
    room = await parts.store.room(TENANT, "lobby")
    assert room is not None
    now = room.members_rev
    changes = [MembersChanged(), MembersChanged(now, "ann"), MembersChanged(now)]
    assert parts.engine.published == [(Topic("room", TENANT, "lobby"), change) for change in changes]


@in_virtual_time
async def test_a_removal_returns_when_the_nodes_of_the_member_have_acted_on_it(parts: Parts) -> None:
    await parts.room("lobby", "ann", "bob")
    room = await parts.store.room(TENANT, "lobby")
    assert room is not None
    await parts.messages.remove_member(TENANT, room, "ann")  # no session, so there is nothing to wait for
    assert parts.engine.sent(MemberRemoved) == []
    bob = await parts.connect("bob")
    await parts.join(bob, "lobby")
    await parts.messages.remove_member(TENANT, room, "bob")
    await parts.settle()
    assert [(data["removed"], data["reason"]) for data in bob.data("room.changed")] == [(True, "removed by the app")]
    await parts.store.put_member(TENANT, "lobby", "bob")
    parts.engine.is_deaf = True
    began = parts.now()
    with pytest.raises(EngineUnavailable):
        await parts.messages.remove_member(TENANT, room, "bob")
    assert parts.now() - began == pytest.approx(WITHIN_S, abs=0.01)


@in_virtual_time
async def test_a_member_who_is_added_again_and_joins_before_a_removal_has_ended_stays(parts: Parts) -> None:
    await parts.room("lobby", "ann")
    room = await parts.store.room(TENANT, "lobby")
    assert room is not None
    bob = await parts.connect("bob")
    async with parts.store.holding("room", "after") as held:
        removing = asyncio.ensure_future(parts.messages.remove_member(TENANT, room, "bob"))
        await held.reached()
        await parts.messages.put_member(TENANT, "lobby", "bob", "member")
        await parts.join(bob, "lobby")
    await removing
    await parts.settle()
    assert (bob.data("room.changed"), bob.rooms) == ([], {"lobby"})
    assert len(parts.engine.sent(MemberRemoved)) == 1


@in_virtual_time
async def test_after_a_loss_in_the_engine_a_removal_waits_for_nodes_whose_sessions_may_be_missing(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    await parts.room("lobby", "bob")
    room = await parts.store.room(TENANT, "lobby")
    assert room is not None
    parts.engine.others.append(NodeInfo("other", "live", None, None))
    monkeypatch.setattr(parts.engine, "is_restoring", lambda tenant, name: True)
    with pytest.raises(EngineUnavailable, match="other"):
        await parts.messages.remove_member(TENANT, room, "bob")


@in_virtual_time
async def test_a_removed_member_of_an_open_room_may_stay_in_the_room(parts: Parts) -> None:
    await parts.room("lobby", "ann", open=False)
    before = await parts.store.room(TENANT, "lobby")
    assert before is not None
    ann = await parts.connect("ann")
    await parts.join(ann, "lobby")
    await parts.store.put_room(TENANT, "lobby", open=True)  # after the caller's check
    await parts.messages.remove_member(TENANT, before, "ann")
    await parts.settle()
    assert parts.engine.sent(MemberRemoved) == []
    assert ann.rooms == {"lobby"}
