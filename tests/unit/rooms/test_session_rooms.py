"""Sessions in rooms: the engine gets the newest state, at once or when it is back."""

from __future__ import annotations

import pytest

from greendot.errors import EngineUnavailable
from greendot.node.session import Disconnection
from greendot.presence.model import ManualStatus
from greendot.rooms import session_rooms
from greendot.rooms.session_rooms import DOUBT_S, LONGEST_S, MOVED_S, RECENT_S, RETRY_S
from greendot.testing import hold
from unit.service_parts import TENANT, Parts, in_virtual_time

LATER_S = 2 * RETRY_S + 0.1  # a failed call was repeated by then


async def inside(parts: Parts, room: str = "lobby") -> list[str]:
    return await parts.engine.present(TENANT, room)


@in_virtual_time
async def test_repeated_enters_and_exits_are_sent_to_the_engine_once(parts: Parts) -> None:
    session = (await parts.connect("ann")).session
    for _ in range(2):
        parts.session_rooms.enter(session, "lobby")
        await parts.settle()
    assert (parts.engine.verbs, await inside(parts)) == ([("enter", "lobby", "ann")], ["ann"])
    for _ in range(2):
        parts.session_rooms.exit(session, "lobby")
        await parts.settle()
    parts.session_rooms.exit(session, "elsewhere")
    assert (parts.engine.verbs[1:], await inside(parts)) == ([("exit", "lobby", "ann")], [])


@in_virtual_time
async def test_a_change_during_a_call_is_sent_after_it(parts: Parts) -> None:
    session = (await parts.connect("ann")).session
    async with hold(parts.engine, "enter") as held:
        parts.session_rooms.enter(session, "lobby")
        await held.reached()
        parts.session_rooms.exit(session, "lobby")
        parts.session_rooms.enter(session, "lobby")
        parts.session_rooms.exit(session, "lobby")
        await parts.settle()
        assert parts.engine.verbs == []  # one call at a time
    await parts.settle()
    assert parts.engine.verbs == [("enter", "lobby", "ann"), ("exit", "lobby", "ann")]
    assert await inside(parts) == []


@in_virtual_time
async def test_an_engine_that_was_unreachable_gets_the_current_state_on_return_and_once_more(parts: Parts) -> None:
    session = (await parts.connect("ann")).session
    parts.engine.is_away = True
    parts.session_rooms.enter(session, "lobby")
    await parts.pass_s(LATER_S)
    attempts = len(parts.engine.verbs)
    assert attempts in (2, 3)
    parts.session_rooms.exit(session, "lobby")
    parts.session_rooms.enter(session, "lobby")
    parts.engine.is_away = False
    await parts.pass_s(LATER_S)
    assert parts.engine.verbs[attempts:] == [("enter", "lobby", "ann")]
    assert await inside(parts) == ["ann"]
    # The engine may carry out the failed call after the successful one.
    await parts.pass_s(DOUBT_S)
    assert parts.engine.verbs[attempts:] == [("enter", "lobby", "ann")] * 2
    await parts.pass_s(3 * DOUBT_S)
    assert len(parts.engine.verbs) == attempts + 2


@in_virtual_time
async def test_an_invisible_user_is_in_no_room_and_returns_into_all(parts: Parts) -> None:
    session = (await parts.connect("ann")).session
    for room in ("lobby", "attic"):
        parts.session_rooms.enter(session, room)
    await parts.settle()
    for manual, users in ((ManualStatus("invisible"), []), (ManualStatus(), ["ann"])):
        await parts.statuses.set(session.key, manual)
        await parts.settle()
        assert (await inside(parts), await inside(parts, "attic")) == (users, users)
        assert parts.session_rooms.is_inside(TENANT, "ann", "lobby") is bool(users)
    assert session.rooms == {"lobby", "attic"}


@in_virtual_time
async def test_after_a_loss_an_invisible_user_who_leaves_is_not_announced(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An occupant whom the engine has lost is entered before the exit. By then, the node has forgotten the status."""
    monkeypatch.setattr(parts.engine, "is_restoring", lambda tenant, name: True)
    for user, status in (("ann", ManualStatus("invisible")), ("bob", ManualStatus())):
        session = (await parts.connect(user)).session
        await parts.statuses.set(session.key, status)
        parts.session_rooms.enter(session, "lobby")
        await parts.settle()
        parts.engine.verbs.clear()
        parts.session_rooms.forget(session)
        parts.statuses.forget(session.key)
        await parts.settle()
        assert ("restore", "lobby", user) in parts.engine.verbs or user == "ann"
        assert ("restore", "lobby", "ann") not in parts.engine.verbs


@in_virtual_time
async def test_a_user_is_inside_as_long_as_one_session_is(parts: Parts) -> None:
    phone, laptop = [(await parts.connect("ann")).session for _ in range(2)]
    for session in (phone, laptop):
        parts.session_rooms.enter(session, "lobby")
    parts.session_rooms.exit(phone, "lobby")
    assert parts.session_rooms.is_inside(TENANT, "ann", "lobby")
    parts.session_rooms.exit(laptop, "lobby")
    assert not parts.session_rooms.is_inside(TENANT, "ann", "lobby")
    assert not parts.session_rooms.is_inside(TENANT, "bob", "lobby")


@in_virtual_time
async def test_a_user_whose_grace_is_over_is_not_inside_while_the_end_cannot_be_written(parts: Parts) -> None:
    """A read of the occupants then removes the user. The exit is not published: the engine has no such occupant."""
    session = (await parts.connect("ann")).session
    parts.session_rooms.enter(session, "lobby")
    session.connection, session.leaving = None, Disconnection(parts.context.timers.now(), 1_000, 0)
    assert parts.session_rooms.is_inside(TENANT, "ann", "lobby")
    await parts.pass_s(1.1)
    assert not parts.session_rooms.is_inside(TENANT, "ann", "lobby")


@in_virtual_time
async def test_a_session_that_returns_leaves_the_rooms_it_did_not_return_into(parts: Parts) -> None:
    session = (await parts.connect("ann")).session
    for room in ("lobby", "attic", "cellar"):
        parts.session_rooms.enter(session, room)
    await parts.settle()
    parts.session_rooms.keep(session, ["attic", "elsewhere"])
    await parts.settle()
    assert session.rooms == {"attic"}
    assert {verb for verb in parts.engine.verbs if verb[0] == "exit"} == {
        ("exit", "lobby", "ann"),
        ("exit", "cellar", "ann"),
    }


@pytest.mark.parametrize("is_moved", [False, True])
@in_virtual_time
async def test_a_session_that_ends_leaves_its_rooms_later_if_it_went_on_elsewhere(parts: Parts, is_moved: bool) -> None:
    session = (await parts.connect("ann")).session
    parts.session_rooms.enter(session, "lobby")
    await parts.settle()
    session.moved = is_moved
    parts.session_rooms.forget(session)
    await parts.settle()
    assert await inside(parts) == (["ann"] if is_moved else [])
    await parts.pass_s(MOVED_S)
    assert await inside(parts) == []


@in_virtual_time
async def test_an_exit_of_an_invisible_user_who_went_on_elsewhere_is_kept_at_once(parts: Parts) -> None:
    """After a failover to older data the engine has the user in the room again, and only a kept exit is repeated."""
    session = (await parts.connect("ann")).session
    parts.session_rooms.enter(session, "lobby")
    await parts.statuses.set(session.key, ManualStatus("invisible"))
    await parts.settle()
    session.moved = True
    parts.registry.remove(session)
    parts.session_rooms.forget(session)
    assert parts.session_rooms.exited() == [(session, "lobby")]


@in_virtual_time
async def test_a_session_that_is_not_registered_any_more_does_not_enter(parts: Parts) -> None:
    session = (await parts.connect("ann")).session
    parts.engine.is_away = True
    parts.session_rooms.enter(session, "lobby")
    await parts.settle()
    parts.registry.remove(session)
    parts.engine.is_away = False
    await parts.pass_s(LATER_S)
    assert [verb for verb, *_ in parts.engine.verbs] == ["enter"]
    assert await inside(parts) == []


@in_virtual_time
async def test_rooms_and_recent_exits_are_sent_again_after_a_loss(parts: Parts) -> None:
    rooms = parts.session_rooms
    ann, bob = [(await parts.connect(user)).session for user in ("ann", "bob")]
    for session in (ann, bob):
        rooms.enter(session, "lobby")
    rooms.enter(ann, "attic")
    rooms.exit(bob, "lobby")
    await parts.settle()
    assert rooms.exited() == [(bob, "lobby")]
    parts.engine.verbs.clear()
    for entry in ((ann, "lobby"), *rooms.exited()):
        await rooms.restore(entry)
    assert parts.engine.verbs == [("restore", "lobby", "ann"), ("exit", "lobby", "bob")]


@in_virtual_time
async def test_exits_are_kept_while_they_are_recent_or_few_and_never_for_long(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_rooms, "MOST_EXITS", 2)
    session = (await parts.connect("ann")).session

    def kept_after_exit(room: str) -> list[str]:
        parts.session_rooms.enter(session, room)
        parts.session_rooms.exit(session, room)
        return [room for _, room in parts.session_rooms.exited()]

    assert [kept_after_exit(room) for room in ("a", "b", "c")][-1] == ["a", "b", "c"]  # many, but all recent
    await parts.pass_s(RECENT_S / 2)
    assert kept_after_exit("a") == ["b", "c", "a"]
    await parts.pass_s(RECENT_S / 2 + 1)
    assert kept_after_exit("d") == ["a", "d"]
    await parts.pass_s(RECENT_S + 1)
    assert kept_after_exit("d") == ["a", "d"]  # old, and few
    await parts.pass_s(LONGEST_S - RECENT_S)
    assert kept_after_exit("d") == ["d"]


@in_virtual_time
async def test_a_failed_restore_raises_and_one_during_a_call_is_done_by_that_call(parts: Parts) -> None:
    session = (await parts.connect("ann")).session
    async with hold(parts.engine, "enter", at="after") as held:
        parts.session_rooms.enter(session, "lobby")
        await held.reached()
        await parts.session_rooms.restore((session, "lobby"))
    await parts.settle()
    assert parts.engine.verbs == [("enter", "lobby", "ann")] * 2
    parts.engine.is_away = True
    with pytest.raises(EngineUnavailable):
        await parts.session_rooms.restore((session, "lobby"))
    parts.engine.is_away = False
    parts.session_rooms.exit(session, "lobby")  # the failure is over: calls are made again
    await parts.settle()
    assert await inside(parts) == []
