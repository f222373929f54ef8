"""Backpressure for apps that publish: refusals while a recipient node takes no new work."""

from __future__ import annotations

import pytest

from greendot.engine.memory import MemoryEngine
from greendot.errors import Refused
from greendot.limits import publisher_backpressure as module
from greendot.limits.overload import OverloadMonitor
from greendot.limits.overload_model import Load, OverloadBounds, OverloadLevels
from greendot.limits.publisher_backpressure import REMEMBER_S, Backpressure
from greendot.presence.model import SessionEpoch
from greendot.protocol.codes import Err
from unit.node_parts import NodeParts, held, in_virtual_time, pass_time, under_way

OTHER = "OTHR"


def monitor(parts: NodeParts, *, refusing: bool = False) -> OverloadMonitor:
    levels = OverloadLevels(OverloadBounds(Load(0.1, 1_000, 1.0), 1.0), 1.0)
    made = OverloadMonitor(levels, parts.engine, parts.context.hub, parts.metrics)
    for second in range(20 if refusing else 0):
        made.measure(Load(backlog=1_000_000), float(second))
    return made


def backpressure(parts: NodeParts) -> Backpressure:
    return Backpressure(parts.engine, monitor(parts), parts.clock.monotonic)


async def elsewhere(parts: NodeParts, user: str, room: str) -> None:
    """Let a user be in a room with a session on another node."""
    parts.engine.other_node(OTHER)
    ref = SessionEpoch(f"{OTHER}-{user}", OTHER, 1)
    await MemoryEngine.touch(parts.engine, "default", user, ref, "phone", False, None)
    await MemoryEngine.enter(parts.engine, "default", room, user, ref)


@in_virtual_time
async def test_nothing_is_looked_up_while_no_node_refuses_work(parts: NodeParts) -> None:
    check = backpressure(parts)
    await elsewhere(parts, "ann", "lobby")
    await check.check_room("default", "lobby")
    await check.check_users("default", ["ann", "bob"])
    assert parts.engine.calls == []


@in_virtual_time
async def test_a_node_that_refuses_work_itself_refuses_before_any_look(parts: NodeParts) -> None:
    check = Backpressure(parts.engine, monitor(parts, refusing=True), parts.clock.monotonic)
    for work in (check.check_room("default", "lobby"), check.check_users("default", ["ann"])):
        with pytest.raises(Refused) as refused:
            await work
        assert refused.value.code == Err.UNAVAILABLE
        assert refused.value.retry_in_ms is not None
    assert parts.engine.calls == []


@in_virtual_time
async def test_a_room_or_user_with_sessions_on_a_refusing_node_is_refused_and_others_are_not(parts: NodeParts) -> None:
    check = backpressure(parts)
    await elsewhere(parts, "ann", "lobby")
    await parts.online("bob")
    parts.engine.refused_by = frozenset({OTHER})
    with pytest.raises(Refused):
        await check.check_room("default", "lobby")
    with pytest.raises(Refused):
        await check.check_users("default", ["bob", "ann"])
    await check.check_room("default", "hall")
    await check.check_room("acme", "lobby")
    await check.check_users("default", ["bob"])
    await check.check_users("acme", ["ann"])


@in_virtual_time
async def test_an_answer_is_remembered_for_a_second(parts: NodeParts) -> None:
    check = backpressure(parts)
    parts.engine.refused_by = frozenset({OTHER})
    await check.check_room("default", "lobby")
    await elsewhere(parts, "ann", "lobby")
    await pass_time(REMEMBER_S - 0.01)
    await check.check_room("default", "lobby")
    assert parts.engine.count("room_nodes") == 1
    await pass_time(0.02)
    with pytest.raises(Refused):
        await check.check_room("default", "lobby")
    assert parts.engine.count("room_nodes") == 2


@in_virtual_time
async def test_a_remembered_place_is_free_as_soon_as_its_node_takes_work_again(parts: NodeParts) -> None:
    check = backpressure(parts)
    await elsewhere(parts, "ann", "lobby")
    parts.engine.other_node("THRD")
    parts.engine.refused_by = frozenset({OTHER, "THRD"})
    with pytest.raises(Refused):
        await check.check_room("default", "lobby")
    parts.engine.refused_by = frozenset({"THRD"})
    await check.check_room("default", "lobby")
    assert parts.engine.count("room_nodes") == 1


@in_virtual_time
async def test_while_the_engine_is_away_nothing_is_refused_and_nothing_remembered(parts: NodeParts) -> None:
    check = backpressure(parts)
    await elsewhere(parts, "ann", "lobby")
    parts.engine.refused_by, parts.engine.away = frozenset({OTHER}), {"room_nodes", "sessions"}
    await check.check_room("default", "lobby")
    await check.check_users("default", ["ann"])
    parts.engine.away = set()
    with pytest.raises(Refused):
        await check.check_room("default", "lobby")


@in_virtual_time
async def test_each_user_is_looked_up_once_and_a_bounded_number_at_a_time(
    parts: NodeParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AT_ONCE", 3)
    check = backpressure(parts)
    parts.engine.refused_by = frozenset({OTHER})
    users = [f"u{number % 5}" for number in range(20)]
    async with held(parts.engine, "sessions") as looking, under_way(check.check_users("default", users)):
        assert looking.calls == 3
        looking.release()
    assert [user for _, user in parts.engine.made("sessions")] == ["u0", "u1", "u2", "u3", "u4"]


@in_virtual_time
async def test_the_number_of_places_that_are_remembered_is_bounded(
    parts: NodeParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST", 2)
    check = backpressure(parts)
    parts.engine.refused_by = frozenset({OTHER})
    for room in ("a", "b", "a", "b", "c", "c", "a"):
        await check.check_room("default", room)
    assert [room for _, room in parts.engine.made("room_nodes")] == ["a", "b", "c", "a"]
