"""Restoring: sessions and their rooms together, at a limited pace; an entry that fails is tried again alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from greendot.connect import restorer
from greendot.connect.restorer import AGAIN_S, AHEAD, ATTEMPTS, OWED_S, PAUSE_S, STEP, Restorer
from greendot.engine.messages import Part
from greendot.engine.results import Known
from greendot.errors import EngineUnavailable
from greendot.presence.model import ManualStatus, SessionEpoch
from greendot.presence.status import ASK_AGAIN_S, STORE_S
from unit.node_parts import TENANT, Client, NodeParts, held, in_virtual_time, pass_time, settle, under_way


class Away(Part):
    """Part that may be away."""

    def __init__(self) -> None:
        self.is_away = False

    def away(self) -> Part | None:
        return self if self.is_away else None


class Named(Part):
    """Part with these users and rooms."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def covers(self, tenant: str, name: str) -> bool:
        return name in self.names


async def made(parts: NodeParts, batch: int = 1_000) -> Restorer:
    node = await parts.whole()
    return Restorer(node.sessions, node._session_rooms, parts.context, batch)


async def seated(parts: NodeParts, user: str, *rooms: str) -> Client:
    """Make a session in these rooms."""
    assert parts.node is not None
    client = await parts.online(user)
    for room in rooms:
        parts.node._session_rooms.enter(client.session, room)
    await settle()
    return client


def written(parts: NodeParts) -> list[str]:
    """Return the users and rooms written so far, in order."""
    return [args[1] for name, args in parts.engine.calls if name in ("restore", "enter")]


def refuse(parts: NodeParts, monkeypatch: pytest.MonkeyPatch, *users: str) -> list[str]:
    """Let the engine refuse to restore these users while they are in the returned list."""
    refused, restore = [*users], type(parts.engine).restore

    async def call(self: Any, tenant: str, user: str, ref: SessionEpoch, known: Known) -> None:
        await restore(self, tenant, user, ref, known)
        if user in refused:
            self._users.pop((tenant, user), None)
            raise EngineUnavailable("this record is broken")

    monkeypatch.setattr(type(parts.engine), "restore", call)
    return refused


@in_virtual_time
async def test_a_session_and_its_rooms_are_restored_together(parts: NodeParts) -> None:
    made_by = await made(parts)
    for number in range(3):
        await seated(parts, f"u{number}", f"r{number}")
    parts.engine.calls.clear()
    parts.engine.lose()
    assert await made_by.restore(Part()) == made_by.restored == 3
    assert written(parts) == ["u0", "r0", "u1", "r1", "u2", "r2"]
    assert await parts.states("u0", "u1", "u2") == ["online"] * 3
    assert await parts.engine.present(TENANT, "r1") == ["u1"]


@in_virtual_time
async def test_only_the_users_and_rooms_of_the_part_are_restored_and_recent_exits(parts: NodeParts) -> None:
    made_by = await made(parts)
    ann = await seated(parts, "ann", "attic", "lobby")
    bob = await seated(parts, "bob", "attic", "lobby")
    assert parts.node is not None
    parts.node._session_rooms.exit(bob.session, "lobby")
    await settle()
    parts.engine.calls.clear()
    assert await made_by.restore(Named("ann", "lobby")) == 1
    assert written(parts) == ["ann", "lobby"]
    assert [args[2:] for args in parts.engine.made("exit")] == [("bob", bob.session.ref)]
    assert ann.session.confirmed


@in_virtual_time
async def test_a_batch_takes_a_tenth_of_a_second_and_recoveries_take_turns(parts: NodeParts) -> None:
    made_by = await made(parts, batch=2)
    for number in range(4):
        await parts.online(f"u{number}")
    async with under_way(made_by.restore(Part())), under_way(made_by.restore(Part())):
        assert made_by.restored == 2
        await pass_time(0.9 * PAUSE_S)
        assert made_by.restored == 2
        await pass_time(0.2 * PAUSE_S)
        assert made_by.restored == 4
        await pass_time(2.1 * PAUSE_S)
        assert made_by.restored == 8


@in_virtual_time
async def test_sessions_and_their_rooms_share_the_batches(parts: NodeParts) -> None:
    made_by = await made(parts, batch=500)
    for number in range(1_000):
        client = parts.session(f"u{number}")
        client.session.rooms = {"lobby", "attic"} if number % 4 == 0 else {"lobby"}
    began = parts.clock.monotonic()
    assert await made_by.restore(Part()) == 1_000
    assert parts.clock.monotonic() - began == pytest.approx((1_000 + 1_250) / 500 * PAUSE_S, abs=0.02)


@in_virtual_time
async def test_no_turn_writes_more_than_a_step_and_few_steps_wait_for_answers(parts: NodeParts) -> None:
    made_by = await made(parts)
    for number in range(2 * AHEAD * STEP):
        parts.session(f"u{number}")
    async with held(parts.engine, "restore") as restoring, under_way(made_by.restore(Part())):
        assert restoring.calls == AHEAD * STEP
        restoring.release()
    before, work = parts.engine.count("restore"), asyncio.ensure_future(made_by.restore(Part()))
    turns = []
    for _ in range(10 * AHEAD):
        await asyncio.sleep(0)
        turns.append(parts.engine.count("restore") - before)
        before += turns[-1]
    assert (max(turns), sum(turns)) == (STEP, 2 * AHEAD * STEP)
    await work


@in_virtual_time
async def test_an_entry_that_fails_is_tried_again_alone_and_does_not_stop_the_others(
    parts: NodeParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_by = await made(parts)
    for number in range(5):
        await parts.online(f"u{number}")
    refused = refuse(parts, monkeypatch, "u3")
    parts.engine.calls.clear()
    async with under_way(made_by.restore(Part())) as work:
        await pass_time(PAUSE_S)
        assert sorted(written(parts)) == [f"u{number}" for number in range(5)]
        await pass_time((ATTEMPTS - 1) * AGAIN_S + 1)
        assert work.done(), "one broken session must not delay the report to other nodes"
    assert {*written(parts)[5:]} == {"u3"}
    refused.clear()
    await pass_time(AGAIN_S + 1)
    assert await parts.states("u3") == ["online"]
    tries = parts.engine.count("restore")
    await pass_time(10 * AGAIN_S)
    assert parts.engine.count("restore") == tries


@in_virtual_time
async def test_many_entries_that_fail_delay_the_recovery(parts: NodeParts, monkeypatch: pytest.MonkeyPatch) -> None:
    made_by = await made(parts)
    for number in range(5):
        await parts.online(f"u{number}")
    refused = refuse(parts, monkeypatch, "u0", "u1")
    async with under_way(made_by.restore(Part())) as work:
        await pass_time(10 * AGAIN_S)
        assert not work.done(), "users who are not restored would appear offline"
        refused.pop()
        await pass_time(AGAIN_S + 1)
        assert work.done()


@in_virtual_time
async def test_a_part_that_goes_away_ends_the_restore_after_its_batch(parts: NodeParts) -> None:
    made_by, part = await made(parts, batch=2), Away()
    for number in range(6):
        await parts.online(f"u{number}")
    parts.engine.away, part.is_away = {"restore"}, True
    parts.engine.calls.clear()
    with pytest.raises(EngineUnavailable):
        await made_by.restore(part)
    assert parts.engine.count("restore") == 2


# --- the status ---


@in_virtual_time
async def test_a_status_set_after_the_statuses_were_read_replaces_the_older_one(parts: NodeParts) -> None:
    """The engine has lost the user, so it does not take the new status. The restore must not write the older one."""
    made_by = await made(parts)
    ann = await parts.greeted("ann")
    parts.engine.lose()
    async with (
        held(parts.store, "statuses", "after") as reading,
        held(parts.engine, "set_status", "after") as setting,
        under_way(made_by.restore(Part())),
    ):
        await reading.reached()
        ann.say(type="status.set", status="invisible")
        await setting.reached()  # this node does not know the answer of the engine yet
        reading.release()
    await settle()
    assert {known.manual.status for *_, known in parts.engine.made("restore")} == {"invisible"}
    assert await parts.states("ann") == ["offline"]


# --- without the store ---


@in_virtual_time
async def test_without_the_store_the_known_status_is_restored_and_compared_later(parts: NodeParts) -> None:
    made_by = await made(parts)
    ann, bob = await parts.greeted("ann"), await parts.greeted("bob")
    await bob.ask(type="status.set", status="busy")
    await parts.store.put_status(TENANT, "ann", ManualStatus("invisible"))  # as another node does; its message is lost
    parts.store.away = {"statuses"}
    parts.store.calls.clear()
    parts.engine.lose()
    assert await made_by.restore(Part()) == 2
    assert await parts.states("ann", "bob") == ["online", "busy"]
    assert parts.store.count("statuses") == 1, "a store that does not answer is asked once"
    parts.store.away = set()
    await pass_time(ASK_AGAIN_S + 1)
    assert await parts.states("ann", "bob") == ["offline", "busy"]
    assert (await ann.ask(type="presence.get", users=["ann"]))["data"]["presence"][0]["status"] == "invisible"


@in_virtual_time
async def test_a_store_that_hangs_delays_the_restore_for_a_second_at_most(parts: NodeParts) -> None:
    made_by = await made(parts)
    for number in range(3):
        await parts.greeted(f"u{number}")
    parts.engine.lose()
    began = parts.clock.monotonic()
    async with held(parts.store, "statuses"):
        assert await made_by.restore(Part()) == 3
        assert parts.clock.monotonic() - began < STORE_S + PAUSE_S
        assert await parts.states("u0", "u1", "u2") == ["online"] * 3


@in_virtual_time
async def test_a_user_of_unknown_status_is_restored_when_the_store_is_back(parts: NodeParts) -> None:
    made_by = await made(parts)
    await parts.greeted("ann")
    parts.session("bob")  # connected while the engine was away
    parts.store.away = {"statuses"}
    parts.engine.lose()
    began = parts.clock.monotonic()
    await made_by.restore(Part())
    assert parts.clock.monotonic() - began < STORE_S, "the others must not wait for this user"
    assert await parts.states("ann", "bob") == ["online", "offline"]
    parts.store.away = set()
    await pass_time(ASK_AGAIN_S + AGAIN_S + 1)
    assert await parts.states("bob") == ["online"]


# --- other work ---


@in_virtual_time
async def test_short_waits_of_other_work_are_added_up(parts: NodeParts) -> None:
    made_by = await made(parts, batch=1_000)
    began, waits = parts.clock.monotonic(), 0
    while parts.clock.monotonic() == began:
        await made_by.wait(50)
        waits += 1
    assert waits == round(OWED_S / (PAUSE_S * 50 / 1_000))


@in_virtual_time
async def test_an_unexpected_error_is_logged_and_the_entry_is_tried_again(
    parts: NodeParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restorer, "ATTEMPTS", 1)
    made_by = await made(parts)
    ann = await parts.online("ann")
    grants, ann.session.grants = ann.session.grants, None  # type: ignore[assignment]
    await made_by.restore(Part())
    assert len(parts.failed()) == 1
    ann.session.grants = grants
    parts.engine.lose()
    await pass_time(AGAIN_S + 1)
    assert await parts.states("ann") == ["online"]
