"""Recovery: sessions are restored, states are read again, and losses are repaired when the engine is back."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from greendot.app.node import Node
from greendot.connect.recovery import JITTER_S
from greendot.connect.restorer import AGAIN_S
from greendot.engine.memory import MemoryEngine
from greendot.engine.messages import Audit, Part, Topic
from greendot.engine.results import Known
from greendot.presence.model import ManualStatus, SessionEpoch
from greendot.presence.sessions import NOTICED_S
from greendot.telemetry import log_events
from greendot.telemetry.log import event_of
from greendot.testing.hold import hold
from unit.node_parts import Client, NodeParts, held, in_virtual_time, pass_time, settle

STALE_S = 30.0
KNOWN = Known("phone", False, None, 0, ManualStatus())
LONG_S = JITTER_S + 1.0  # a recovery of a few sessions is done by then


class Half(Part):
    """Part of the engine that covers these users and may be away."""

    def __init__(self, *users: str) -> None:
        self.users = users
        self.is_away = False

    def covers(self, tenant: str, name: str) -> bool:
        return name in self.users

    def within(self, other: Part) -> bool:
        return other is self or type(other) is Part

    def away(self) -> Part | None:
        return self if self.is_away else None


async def watched(parts: NodeParts, **sections: Any) -> tuple[Node, Client]:
    """Make a node with ann, who watches bob."""
    node = await parts.whole(engine={"stale_after_s": STALE_S} | sections)
    ann = await parts.greeted("ann")
    await ann.ask(type="watch", users=["bob"])
    return node, ann


async def states(client: Client) -> list[tuple[str, bool]]:
    """Return the states and staleness that a client received."""
    return [(event["state"], event.get("stale", False)) for event in await client.events("presence.changed")]


# --- an engine that was away ---


@in_virtual_time
async def test_watchers_receive_stale_states_if_the_engine_stays_away(parts: NodeParts) -> None:
    node, ann = await watched(parts)
    await parts.online("bob")
    await ann.frames()
    part = Half("bob")
    part.is_away = True
    node.recovery.went_away(part)
    await pass_time(STALE_S - 0.1)
    assert await states(ann) == []
    await pass_time(0.2)
    assert await states(ann) == [("online", True)]


@in_virtual_time
async def test_watchers_receive_no_stale_state_if_the_engine_is_back_in_time(parts: NodeParts) -> None:
    node, ann = await watched(parts)
    part = Half("bob")
    part.is_away = True
    node.recovery.went_away(part)
    await pass_time(STALE_S / 2)
    part.is_away = False
    await pass_time(STALE_S)
    assert await states(ann) == []


@in_virtual_time
async def test_after_a_reconnect_sessions_are_restored_and_missed_changes_are_published(parts: NodeParts) -> None:
    node, ann = await watched(parts)
    parts.engine._topics.clear()  # messages are lost
    await parts.online("bob")
    assert await states(ann) == []
    node.recovery.found(Part(), intact=True)
    await pass_time(LONG_S)
    assert await states(ann) == [("online", False)]
    assert {args[1] for args in parts.engine.made("restore")} == {"ann", "bob"}
    assert (node.recovery.restored, node.recovery.resyncs) == (2, 1)


@in_virtual_time
async def test_a_refresh_that_began_before_an_outage_does_not_end_the_outage(
    parts: NodeParts, caplog: pytest.LogCaptureFixture
) -> None:
    node, _ = await watched(parts)
    caplog.set_level(logging.INFO, "greendot")
    async with hold(parts.engine, "restore") as restoring:
        node.recovery.found(Part(), intact=True)  # hourly
        await restoring.reached()
        node.recovery.went_away(Half("bob"))
    await pass_time(LONG_S)
    assert log_events.NODE_RECOVERED not in map(event_of, caplog.records)
    node.recovery.found(Part(), intact=True)
    await pass_time(LONG_S)
    assert [*map(event_of, caplog.records)].count(log_events.NODE_RECOVERED) == 1


@in_virtual_time
async def test_a_user_whose_last_session_ends_during_a_recovery_is_read_again(parts: NodeParts) -> None:
    """Users with sessions here are read after the restore, also if their sessions have ended by then."""
    node, ann = await watched(parts)
    bob = await parts.greeted("bob")
    await ann.frames()
    parts.engine._topics.clear()  # messages are lost
    async with hold(parts.engine, "restore", when=lambda tenant, user, *_: user == "ann") as restoring:
        node.recovery.found(Part(), intact=True)
        await restoring.reached()
        bob.say(type="bye")
        await settle()
        assert (await parts.states("bob"), await states(ann)) == (["offline"], [])
    await pass_time(LONG_S)
    assert await states(ann) == [("offline", False)]


@in_virtual_time
async def test_only_the_part_that_returned_is_restored(parts: NodeParts) -> None:
    node, _ = await watched(parts)
    await parts.online("bob")
    node.recovery.found(Half("bob"), intact=True)
    await pass_time(LONG_S)
    assert [args[1] for args in parts.engine.made("restore")] == ["bob"]


@in_virtual_time
async def test_a_recovery_that_failed_is_tried_again_soon(parts: NodeParts) -> None:
    node, ann = await watched(parts)
    parts.engine._topics.clear()
    await parts.online("bob")
    parts.engine.away = {"restore"}
    node.recovery.found(Part(), intact=True)
    await pass_time(LONG_S)
    tries = parts.engine.count("restore")
    parts.engine.away = set()
    await pass_time(AGAIN_S + LONG_S)
    assert parts.engine.count("restore") > tries
    assert await states(ann) == [("online", False)]


@in_virtual_time
async def test_sessions_go_on_under_the_new_name_of_the_node(parts: NodeParts) -> None:
    node, ann = await watched(parts)
    parts.engine.end_node(parts.incarnation)
    parts.engine._incarnation = parts.engine.other_node("NEWN")
    node.recovery.reborn("NEWN")
    await pass_time(LONG_S)
    assert (node.incarnation, ann.session.ref.incarnation) == ("NEWN", "NEWN")
    assert [entry.node for entry in await parts.engine.sessions("default", "ann")] == ["NEWN"]


# --- an engine that has lost records ---


@in_virtual_time
async def test_users_whose_sessions_are_restored_never_look_offline(parts: NodeParts) -> None:
    node, ann = await watched(parts)
    bob = await parts.online("bob")
    assert await states(ann) == [("online", False)]
    parts.engine.lose()
    node.recovery.found(Part(), intact=False)
    await pass_time(LONG_S)
    assert await states(ann) == []
    assert await parts.states("bob") == ["online"]
    await MemoryEngine.touch(parts.engine, *bob.session.key, bob.session.ref, "phone", True, None)
    assert await states(ann) == [("idle", False)]


@in_virtual_time
async def test_a_user_who_is_restored_by_halves_is_shown_as_before(parts: NodeParts) -> None:
    node, ann = await watched(parts)
    await parts.online("bob")
    await ann.frames()
    parts.engine.lose()
    tablet = SessionEpoch("OTHR-1", parts.engine.other_node(), 1)
    async with held(parts.engine, "restore") as restoring:
        node.recovery.found(Part(), intact=False)
        await restoring.reached()
        await parts.engine.touch("default", "bob", tablet, "tablet", True, None)
        await parts.engine.set_status("default", "bob", ManualStatus())
        assert (await parts.states("bob"), await states(ann)) == (["idle"], [])
    await pass_time(LONG_S)
    assert (await parts.states("bob"), await states(ann)) == (["online"], [])


@in_virtual_time
async def test_a_user_that_no_node_restores_is_offline_when_all_nodes_have_finished(parts: NodeParts) -> None:
    node, ann = await watched(parts)
    other = parts.engine.other_node()
    ref = SessionEpoch("OTHR-1", other, 1)
    await parts.engine.restore("default", "bob", ref, KNOWN)
    await pass_time(10)  # a restored state is shown after the hold time
    assert await states(ann) == [("online", False)]
    parts.engine.lose()
    async with held(parts.engine, "restored") as waiting:
        node.recovery.found(Part(), intact=False)
        await pass_time(LONG_S)
        assert (waiting.calls, await states(ann)) == (1, [])
    await pass_time(LONG_S)
    assert await states(ann) == [("offline", False)]


@in_virtual_time
async def test_a_loss_that_was_not_repaired_is_repaired_after_the_next_return(parts: NodeParts) -> None:
    node, ann = await watched(parts)
    await parts.online("bob")
    await ann.frames()
    part = Half("bob")
    parts.engine.lose()
    parts.engine.away, part.is_away = {"restore"}, True
    node.recovery.found(part, intact=False)
    await pass_time(LONG_S + AGAIN_S)
    assert parts.engine.count("restored") == 0
    parts.engine.away, part.is_away = set(), False
    node.recovery.found(Part(), intact=True)
    await pass_time(2 * LONG_S)
    assert [args[0] for args in parts.engine.made("restored")] == [part]
    assert (await parts.states("bob"), await states(ann)) == (["online"], [])


@in_virtual_time
async def test_a_second_loss_meanwhile_keeps_its_users_as_shown(parts: NodeParts) -> None:
    node, ann = await watched(parts)
    other = parts.engine.other_node()
    await parts.engine.restore("default", "bob", SessionEpoch("OTHR-1", other, 1), KNOWN)
    await pass_time(10)
    await ann.frames()
    parts.engine.lose()
    async with held(parts.engine, "restored") as waiting:
        node.recovery.found(Part(), intact=False)
        await pass_time(LONG_S)
        second = Half("bob")
        node.recovery._begin(second, [second])
        waiting.release()
        async with held(parts.engine, "restored"):
            await pass_time(LONG_S)
            assert await states(ann) == []
    await pass_time(LONG_S)
    assert await states(ann) == [("offline", False)]


# --- other nodes, and sessions that no node holds ---


@in_virtual_time
async def test_an_unexpected_error_is_followed_by_another_attempt(parts: NodeParts) -> None:
    node, ann = await watched(parts)
    await parts.online("bob")
    audit, errors = parts.engine.audit, [ValueError("not a number")]

    async def failing(*args: Any) -> int:
        if errors:
            raise errors.pop()
        return await audit(*args)

    parts.engine.audit = failing  # type: ignore[method-assign]
    node.recovery.found(Part(), intact=False)
    await pass_time(JITTER_S + AGAIN_S / 8)  # the next attempt comes after AGAIN_S / 2 at the earliest
    assert (parts.failed(), node.recovery.resyncs) == (["ValueError('not a number')"], 0)
    await pass_time(AGAIN_S + LONG_S)
    assert node.recovery.resyncs == 1
    assert await states(ann) == [("online", False)]


@in_virtual_time
async def test_sessions_that_the_node_does_not_hold_are_ended(parts: NodeParts) -> None:
    node, _ = await watched(parts)
    ghost = SessionEpoch(f"{parts.incarnation}-ghost", parts.incarnation, 1)
    await parts.engine.restore("default", "bob", ghost, KNOWN)
    parts.engine.publish(Topic("node", "", parts.incarnation), Audit())
    await pass_time(1)
    assert (await parts.states("ann", "bob"), node.recovery.ended) == (["online", "offline"], 1)


@in_virtual_time
async def test_a_session_that_older_data_bring_back_ends_when_other_nodes_have_noticed_the_loss(
    parts: NodeParts,
) -> None:
    """Its user may have a newer session, which another node has not restored yet."""
    node, _ = await watched(parts)
    ghost = SessionEpoch(f"{parts.incarnation}-ghost", parts.incarnation, 1)
    await parts.engine.restore("default", "bob", ghost, KNOWN)
    node.recovery.found(Part(), intact=False)
    await pass_time(NOTICED_S - 0.1)
    assert (await parts.states("bob"), parts.engine.count("restored")) == (["online"], 0)
    await pass_time(LONG_S)
    assert (await parts.states("ann", "bob"), node.recovery.ended) == (["online", "offline"], 1)


@in_virtual_time
async def test_a_state_in_older_data_gets_a_newer_version_than_any_state_from_before_the_loss(parts: NodeParts) -> None:
    """A client may have been shown a newer state by another node, and ignores older ones."""
    node, ann = await watched(parts)
    await parts.online("bob")
    await ann.frames()
    before = await parts.shown("bob")
    await pass_time(60)
    node.recovery.found(Part(), intact=True)  # the hourly refresh
    await pass_time(LONG_S)
    assert await parts.shown("bob") == before
    lost_at = parts.engine.now_ms()
    node.recovery.found(Part(), intact=False)
    await pass_time(LONG_S)
    visible = (await parts.shown("bob")).visible
    assert visible.version >= lost_at
    assert visible.since == before.visible.since
    assert await states(ann) == []
    node.recovery.found(Part(), intact=True)
    await pass_time(LONG_S)
    assert (await parts.shown("bob")).visible == visible


@in_virtual_time
async def test_a_session_restored_late_in_a_loss_gets_a_newer_version_too(parts: NodeParts) -> None:
    node, _ = await watched(parts)
    bob = await parts.online("bob")
    await pass_time(60)
    lost_at = parts.engine.now_ms()
    async with held(parts.engine, "restore"):
        node.recovery.found(Part(), intact=False)
        await settle()
        parts.engine.restoring = True
    await node.sessions.restore(bob.session)
    assert (await parts.shown("bob")).visible.version >= lost_at


@in_virtual_time
async def test_a_session_that_older_data_bring_back_does_not_change_the_last_seen_time(parts: NodeParts) -> None:
    node, _ = await watched(parts)
    bob = await parts.greeted("bob", device="phone")
    ref = bob.session.ref
    bob.say(type="bye")
    await settle()
    last_seen = (await parts.shown("bob")).visible.last_seen
    assert last_seen is not None
    await pass_time(60)
    parts.engine._seen.clear()
    await parts.engine.restore("default", "bob", ref, KNOWN)
    node.recovery.found(Part(), intact=False)
    await pass_time(NOTICED_S + LONG_S)
    visible = (await parts.shown("bob")).visible
    assert (visible.state, node.recovery.ended) == ("offline", 1)
    assert visible.last_seen == pytest.approx(last_seen, abs=100)


@in_virtual_time
async def test_an_audit_that_fails_is_left_to_the_next(parts: NodeParts) -> None:
    node, _ = await watched(parts)
    parts.engine.away = {"audit"}
    node.recovery.audit()
    await pass_time(60)
    assert (parts.engine.count("audit"), node.recovery.ended) == (1, 0)


@in_virtual_time
async def test_rooms_are_looked_through_once_for_deaths_that_come_together(parts: NodeParts) -> None:
    node, ann = await watched(parts)
    await parts.store.put_room("default", "lobby", open=True)
    await ann.ask(type="room.join", room="lobby")
    other = parts.engine.other_node()
    await MemoryEngine.enter(parts.engine, "default", "lobby", "bob", SessionEpoch("OTHR-1", other, 1))
    assert [event["user"] for event in await ann.events("room.entered")] == ["bob"]
    parts.engine.end_node(other)
    before = parts.engine.count("present_page")
    parts.engine.away = {"present_page"}
    for _ in range(3):
        node.recovery.died()
    await pass_time(AGAIN_S / 2)
    assert parts.engine.count("present_page") == before + 1
    parts.engine.away = set()
    await pass_time(AGAIN_S)
    assert parts.engine.count("present_page") == before + 2
    assert [event["user"] for event in await ann.events("room.left")] == ["bob"]
    await pass_time(10 * AGAIN_S)
    assert parts.engine.count("present_page") == before + 2
