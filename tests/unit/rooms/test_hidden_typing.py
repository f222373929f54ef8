from __future__ import annotations

from greendot.engine.messages import Topic, Typing
from greendot.errors import EngineUnavailable
from greendot.presence.model import ManualStatus
from greendot.rooms.local_room import LocalRoom
from greendot.testing import hold
from unit.service_parts import TENANT, Parts, RecordedConnection, in_virtual_time

ANN = TENANT, "ann"
START = Typing("ann", None, 5_000)
HOLD_S = 5.0  # `hold_ms` of the default times


def heard(connection: RecordedConnection) -> list[str]:
    """Return the types of the events of typing since the last call."""
    return [frame["type"] for frame in connection.take() if frame["type"].startswith("typing.")]


async def hidden(parts: Parts) -> tuple[LocalRoom, RecordedConnection]:
    """Return a room in which bob listens, a moment after ann has become invisible."""
    local, (_, bob) = await parts.joined("lobby", "ann", "bob")
    await parts.rooms.withdraw(ANN)
    await parts.pass_s(0.5)
    return local, bob


@in_virtual_time
async def test_typing_that_an_earlier_connection_started_ends_when_the_user_becomes_invisible(parts: Parts) -> None:
    _, (ann, bob) = await parts.joined("lobby", "ann", "bob")
    parts.rooms.start_typing(ann.session, "lobby")
    session = ann.session
    parts.disconnect(ann)
    again = RecordedConnection(parts, "again")
    session.connection, again.session = again, session
    parts.registry.connections[again.id] = again
    parts.statuses.learnt(ANN, ManualStatus("invisible", rev=1))
    await parts.settle()
    assert heard(bob) == ["typing.started", "typing.stopped"]
    assert await parts.engine.typers(TENANT, "lobby") == []


@in_virtual_time
async def test_a_withdrawal_ends_typing_whose_stop_is_late_or_whose_session_is_unknown(parts: Parts) -> None:
    local, (_, bob) = await parts.joined("lobby", "ann", "bob")
    parts.engine.typing_start(TENANT, "lobby", "ann", None)
    await parts.settle()
    parts.engine.is_deaf = True
    await parts.rooms.withdraw(ANN)
    assert ([*local.typing.users], local.typing.typers("bob")) == ([], [])
    assert await parts.engine.typers(TENANT, "lobby") == []
    await parts.settle()
    assert heard(bob) == ["typing.started", "typing.stopped"]


@in_virtual_time
async def test_a_start_that_is_late_is_not_shown(parts: Parts) -> None:
    local, bob = await hidden(parts)
    local.typing.receive(START)
    await parts.settle()
    assert (heard(bob), [*local.typing.users]) == ([], [])


@in_virtual_time
async def test_a_start_from_before_the_withdrawal_is_not_shown_even_if_the_engine_has_no_stop(parts: Parts) -> None:
    local, (_, bob) = await parts.joined("lobby", "ann", "bob")
    parts.engine.is_deaf = True
    parts.engine.typing_start(TENANT, "lobby", "ann", None)  # its message is still on its way
    await parts.pass_s(0.1)
    await parts.rooms.withdraw(ANN)
    local.typing.receive(START)
    await parts.settle()
    assert [typist.user for typist in await parts.engine.typers(TENANT, "lobby")] == ["ann"]
    assert heard(bob) == []


@in_virtual_time
async def test_a_start_of_a_user_who_is_visible_again_is_shown(parts: Parts) -> None:
    _, bob = await hidden(parts)
    parts.engine.typing_start(TENANT, "lobby", "ann", None)
    await parts.settle()
    assert heard(bob) == ["typing.started"]


@in_virtual_time
async def test_a_start_is_not_shown_while_the_engine_cannot_tell_its_time(parts: Parts) -> None:
    async def away(tenant: str, room: str) -> None:
        raise EngineUnavailable("away")

    _, bob = await hidden(parts)
    parts.engine.typers = away  # type: ignore[assignment]
    parts.engine.typing_start(TENANT, "lobby", "ann", None)
    await parts.settle()
    assert heard(bob) == []


@in_virtual_time
async def test_a_start_that_is_looked_up_during_a_further_withdrawal_is_not_shown(parts: Parts) -> None:
    local, bob = await hidden(parts)
    async with hold(parts.engine, "typers", at="after") as typers:
        parts.engine.typing_start(TENANT, "lobby", "ann", None)
        await parts.settle()
        typers.release()  # the look-up continues after the withdrawal and the further start
        await parts.rooms.withdraw(ANN)
        local.typing.receive(START)
        await parts.settle()
    assert heard(bob) == []


@in_virtual_time
async def test_starts_are_no_longer_doubted_after_the_hold_time(parts: Parts) -> None:
    local, bob = await hidden(parts)
    await parts.rooms.withdraw(ANN)
    await parts.pass_s(HOLD_S - 0.5)
    local.typing.receive(START)
    await parts.settle()
    assert heard(bob) == []
    await parts.pass_s(0.5)
    local.typing.receive(START)
    await parts.settle()
    assert heard(bob) == ["typing.started"]


@in_virtual_time
async def test_a_room_that_opens_later_does_not_show_the_typing_from_before(parts: Parts) -> None:
    await parts.room("lobby", "ann", "bob")
    parts.engine.typing_start(TENANT, "lobby", "ann", None)
    await parts.pass_s(0.1)
    await parts.rooms.withdraw(ANN)
    bob = await parts.connect("bob")
    reply = await parts.rooms.join(bob, bob.session, "lobby", None)
    assert (reply.typing, reply.typing_count) == ([], 0)
    await parts.settle()
    assert heard(bob) == []
    local = parts.rooms.local(Topic("room", TENANT, "lobby"))
    assert local is not None
    assert [*local.typing.users] == []
