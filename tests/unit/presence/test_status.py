"""Manual status: stored, shown by the engine, ended on time, and known on nodes with the user's sessions."""

from __future__ import annotations

import asyncio

import pytest

from greendot.engine.messages import StatusChanged, Topic
from greendot.engine.results import Known
from greendot.errors import EngineUnavailable, Refused, StoreUnavailable
from greendot.ids import Key
from greendot.presence.model import NOBODY, ManualStatus, Snapshot
from greendot.presence.status import ASK_AGAIN_S, LONGEST_S, OLDER_S, RETRY_S, StatusService
from unit.node_parts import NodeParts, entries_of, held, in_virtual_time, pass_time, settle

ANN = ("default", "ann")


class Service(StatusService):
    """Status service on the parts of a node, with a list of users who became invisible or visible."""

    def __init__(self, parts: NodeParts, lapse_s: float = 0.0) -> None:
        super().__init__(parts.engine, parts.store, parts.context, lapse_s)
        self.turned: list[tuple[Key, bool]] = []
        self.listeners.append(lambda key: self.turned.append((key, self.is_invisible(key))))
        parts.bus.update(self.bus)


@in_virtual_time
async def test_a_status_is_stored_shown_and_published_to_the_nodes_of_the_user(parts: NodeParts) -> None:
    service = Service(parts)
    await parts.online("ann")
    snapshot = await service.set(ANN, ManualStatus("busy", text="in a call"))
    assert (snapshot.visible.state, snapshot.own.status) == ("busy", "busy")
    kept = (await parts.store.statuses([ANN]))[ANN]
    assert (kept.status, kept.text) == ("busy", "in a call")
    assert (await parts.shown("ann")).visible.text == "in a call"
    assert (Topic("user", *ANN), StatusChanged()) in parts.engine.published


@in_virtual_time
async def test_a_status_that_would_be_over_at_once_is_refused_and_not_kept(parts: NodeParts) -> None:
    service = Service(parts)
    with pytest.raises(Refused):
        await service.set(ANN, ManualStatus("busy", until=parts.engine.now_ms()))
    assert await parts.store.statuses([ANN]) == {}


@in_virtual_time
async def test_a_status_of_a_user_without_sessions_is_returned_to_its_caller(parts: NodeParts) -> None:
    service = Service(parts)
    snapshot = await service.set(ANN, ManualStatus("invisible"))
    assert (snapshot.own.status, snapshot.own.state) == ("invisible", "offline")
    assert (service.is_invisible(ANN), service.turned) == (False, [])


@in_virtual_time
async def test_a_status_that_is_not_kept_is_not_shown(parts: NodeParts) -> None:
    service = Service(parts)
    await parts.online("ann")
    parts.store.away = {"put_status"}
    with pytest.raises(StoreUnavailable):
        await service.set(ANN, ManualStatus("busy"))
    assert (await parts.states("ann"), parts.engine.count("set_status")) == (["online"], 0)


@in_virtual_time
async def test_reads_of_one_turn_share_one_query(parts: NodeParts) -> None:
    service = Service(parts)
    keys = [("default", f"u{number}") for number in range(50)]
    await asyncio.gather(*(service.copy(key) for key in keys), *(service.to_restore(key) for key in keys))
    assert [sorted(args[0]) for args in parts.store.made("statuses")] == [sorted(keys)]
    assert parts.engine.count("set_status") == 50


@in_virtual_time
async def test_listeners_are_notified_once_when_a_user_hides_and_once_when_the_user_is_visible_again(
    parts: NodeParts,
) -> None:
    service = Service(parts)
    await parts.online("ann")
    await service.set(ANN, ManualStatus("invisible"))
    await service.set(ANN, ManualStatus("invisible", text="still"))
    assert (service.turned, [*service.invisible("default")]) == ([(ANN, True)], ["ann"])
    assert [*service.invisible("other")] == []
    await service.set(ANN, ManualStatus("auto"))
    assert service.turned == [(ANN, True), (ANN, False)]


@in_virtual_time
async def test_a_status_set_elsewhere_is_learnt_from_the_engine(parts: NodeParts) -> None:
    service = Service(parts)
    await parts.online("ann")
    await parts.engine.set_status(*ANN, ManualStatus("invisible", rev=1))
    assert not service.is_invisible(ANN)
    parts.receive(Topic("user", *ANN), StatusChanged())
    await settle()
    assert service.is_invisible(ANN)


@in_virtual_time
async def test_a_status_ends_at_its_time_without_a_request(parts: NodeParts) -> None:
    service = Service(parts)
    await parts.online("ann")
    await service.set(ANN, ManualStatus("invisible", until=parts.engine.now_ms() + 5_000))
    await settle()
    reads = parts.engine.count("read")
    await pass_time(4.9)
    assert (service.turned, parts.engine.count("read")) == ([(ANN, True)], reads)
    await pass_time(0.2)
    assert service.turned == [(ANN, True), (ANN, False)]
    await pass_time(2 * LONGEST_S)
    assert parts.engine.count("read") == reads + 1


@in_virtual_time
async def test_a_distant_end_is_looked_at_now_and_then(parts: NodeParts) -> None:
    service = Service(parts)
    await parts.online("ann")
    await service.set(ANN, ManualStatus("busy", until=parts.engine.now_ms() + round(2.5 * LONGEST_S * 1000)))
    await settle()
    before = parts.engine.count("read")
    await pass_time(2 * LONGEST_S + 1)
    assert (parts.engine.count("read") - before, await parts.states("ann")) == (2, ["busy"])


@in_virtual_time
async def test_the_end_of_a_status_is_tried_again_while_the_engine_is_away(parts: NodeParts) -> None:
    service = Service(parts)
    await parts.online("ann")
    await service.set(ANN, ManualStatus("invisible", until=parts.engine.now_ms() + 5_000))
    parts.engine.away = {"read"}
    await pass_time(5 + 3 * RETRY_S)
    assert service.is_invisible(ANN)
    parts.engine.away = set()
    await pass_time(1.5 * RETRY_S)
    assert not service.is_invisible(ANN)


@in_virtual_time
async def test_a_user_who_left_is_neither_looked_at_nor_remembered(parts: NodeParts) -> None:
    service = Service(parts)
    client = await parts.online("ann")
    await service.set(ANN, ManualStatus("invisible", until=parts.engine.now_ms() + 5_000))
    await settle()
    parts.registry.remove(client.session)
    service.forget(ANN)
    reads = parts.engine.count("read")
    await pass_time(10)
    assert (parts.engine.count("read"), service.is_invisible(ANN)) == (reads, False)


@in_virtual_time
async def test_an_engine_that_may_have_lost_a_status_is_not_believed(parts: NodeParts) -> None:
    service = Service(parts)
    await parts.online("ann")
    await parts.store.put_status(*ANN, ManualStatus("invisible"))
    parts.engine.restoring = True
    await service.learn(ANN)
    assert (service.is_invisible(ANN), parts.store.count("statuses")) == (True, 1)


@in_virtual_time
async def test_a_first_session_asks_the_engine_and_not_the_store(parts: NodeParts) -> None:
    service = Service(parts)
    await parts.online("ann")
    await service.learn(ANN)
    assert (parts.engine.count("read"), parts.store.count("statuses")) == (1, 0)
    parts.engine.away = {"read"}
    with pytest.raises(EngineUnavailable):
        await service.learn(ANN)


@in_virtual_time
async def test_after_a_start_and_after_a_loss_an_older_status_in_the_engine_is_replaced_by_the_stored_one(
    parts: NodeParts,
) -> None:
    """The engine may have failed over to data from before the status."""
    service = Service(parts, 45.0)
    await parts.online("ann")
    await parts.store.put_status(*ANN, ManualStatus("invisible"))
    await service.learn(ANN)
    assert (await parts.states("ann"), service.is_invisible(ANN)) == (["offline"], True)
    await pass_time(45.0 + OLDER_S)
    reads = parts.store.count("statuses")
    await service.learn(ANN)
    assert parts.store.count("statuses") == reads
    await parts.online("bob")
    await parts.store.put_status("default", "bob", ManualStatus("busy"))
    service.expect_older()
    await service.learn(("default", "bob"))
    assert await parts.states("bob") == ["busy"]


@in_virtual_time
async def test_a_learnt_status_is_compared_later_if_the_store_does_not_answer(parts: NodeParts) -> None:
    service = Service(parts, 45.0)
    await parts.online("ann")
    await parts.store.put_status(*ANN, ManualStatus("busy"))
    parts.store.away = {"statuses"}
    await service.learn(ANN)
    assert await parts.states("ann") == ["online"]
    parts.store.away = set()
    await pass_time(ASK_AGAIN_S)
    assert await parts.states("ann") == ["busy"]


@in_virtual_time
async def test_a_restored_status_without_its_revision_replaces_an_older_one_when_the_store_answers(
    parts: NodeParts,
) -> None:
    """The engine has failed over to data in which the user is invisible."""
    service = Service(parts)
    session = (await parts.online("ann")).session
    await parts.engine.set_status(*ANN, await parts.store.put_status(*ANN, ManualStatus("invisible")))
    await parts.store.put_status(*ANN, ManualStatus())
    session.manual = ManualStatus()  # as read from the engine before
    parts.store.away = {"statuses"}
    assert (await service.to_restore(ANN)).rev == 0
    parts.store.away = set()
    assert await parts.states("ann") == ["offline"]
    await pass_time(ASK_AGAIN_S)
    assert await parts.states("ann") == ["online"]


@in_virtual_time
async def test_a_status_set_after_an_unnoticed_loss_is_kept_for_the_restore(parts: NodeParts) -> None:
    """The engine has no session of the user, so it does not take the status. The store fails before the restore."""
    service = Service(parts)
    await parts.online("ann")
    parts.engine.lose()
    await service.set(ANN, ManualStatus("invisible"))
    parts.store.away = {"statuses"}
    restored = await service.to_restore(ANN)
    assert (restored.status, restored.rev > 0, service.turned) == ("invisible", True, [(ANN, True)])


@in_virtual_time
async def test_a_status_set_while_the_stored_one_is_read_for_a_restore_is_read_again(parts: NodeParts) -> None:
    service = Service(parts)
    await parts.online("ann")
    parts.engine.lose()
    ahead = await service.read_ahead([ANN])
    assert ahead(ANN) == ManualStatus()
    async with held(parts.store, "statuses", "after") as reading:
        restored = asyncio.ensure_future(service.to_restore(ANN))
        await reading.reached()
        await service.set(ANN, ManualStatus("invisible"))
    assert ((await restored).status, ahead(ANN)) == ("invisible", None)


@in_virtual_time
async def test_a_user_restored_with_an_older_status_is_hidden_when_the_node_applies_the_new_one(
    parts: NodeParts,
) -> None:
    """Another node set the status. The engine had lost the user then, so it did not take the status."""
    node = await parts.whole()
    await parts.greeted("ann")
    await parts.store.put_status(*ANN, ManualStatus("invisible"))
    assert await parts.states("ann") == ["online"]
    await node.statuses.apply(ANN)
    assert node.statuses.is_invisible(ANN)
    await settle()  # the restore is not awaited
    assert await parts.states("ann") == ["offline"]


@in_virtual_time
async def test_a_user_who_is_missing_in_the_engine_stays_invisible(parts: NodeParts) -> None:
    service = Service(parts)
    await parts.online("ann")
    await service.set(ANN, ManualStatus("invisible", until=parts.engine.now_ms() + 300_000))
    parts.engine.lose()
    await pass_time(LONGEST_S + 1)  # the end of the status is looked at
    parts.receive(Topic("user", *ANN), StatusChanged())
    await settle()
    await service.set(ANN, ManualStatus("invisible", text="still"))
    await service.learn(ANN)
    known = service.known(ANN)
    assert known is not None
    assert (known.status, known.text, service.turned) == ("invisible", "still", [(ANN, True)])


@in_virtual_time
async def test_a_status_set_after_an_unnoticed_loss_ends_at_its_time(parts: NodeParts) -> None:
    service = Service(parts)
    session = (await parts.online("ann")).session
    parts.engine.lose()
    await service.set(ANN, ManualStatus("busy", until=parts.engine.now_ms() + 10_000))
    known = Known(session.device, idle=False, name=None, age_ms=0, manual=await service.to_restore(ANN))
    await parts.engine.restore(*ANN, session.ref, known)
    await pass_time(9)
    assert (await parts.shown("ann")).visible.state == "busy"
    changes = len(parts.engine.published)
    await pass_time(1.5)
    assert len(parts.engine.published) > changes


@in_virtual_time
async def test_a_stale_absence_is_replaced_by_the_sessions_of_this_node(parts: NodeParts) -> None:
    service = Service(parts)
    phone, laptop = parts.session("ann", name="Ann"), parts.session("ann", "laptop")
    absent = Snapshot(NOBODY, NOBODY, None, [], stale=True)
    phone.session.idle = True
    service.learnt(ANN, ManualStatus())
    shown = service.with_sessions(ANN, absent)
    assert (shown.visible.state, shown.name, shown.devices, shown.stale) == ("online", "Ann", ["laptop", "phone"], True)
    laptop.session.idle = True
    assert service.with_sessions(ANN, absent).visible.state == "idle"
    service.learnt(ANN, ManualStatus("invisible"))
    hidden = service.with_sessions(ANN, absent)
    assert (hidden.visible.state, hidden.own.state) == ("offline", "idle")
    assert service.with_sessions(("default", "bob"), absent) is absent


@in_virtual_time
async def test_a_user_whose_status_is_unknown_is_not_shown_in_place_of_a_stale_absence(parts: NodeParts) -> None:
    """The user connected while the engine was away, and may be invisible."""
    node = await parts.whole(engine={"when_away": "accept"})
    await parts.store.put_status(*ANN, ManualStatus("invisible"))
    parts.engine.away = {"touch", "read", "set_status", "restore"}
    ann, bob = await parts.greeted("ann"), await parts.greeted("bob")
    parts.engine.away, parts.engine.restoring = set(), True
    for shown in (
        await node.watching.read(bob.session, ["ann"]),
        await node.watching.watch(bob.connection, bob.session, ["ann"]),
    ):
        assert [entry["state"] for entry in entries_of(shown)] == ["offline"]
    own = await node.watching.read(ann.session, ["ann"])
    assert [entry["state"] for entry in entries_of(own)] == ["online"]


@in_virtual_time
async def test_an_invisible_user_who_connects_while_the_engine_is_away_enters_no_room(parts: NodeParts) -> None:
    await parts.whole(engine={"when_away": "accept"})
    await parts.store.put_status(*ANN, ManualStatus("invisible"))
    await parts.store.put_room(ANN[0], "lobby", open=True)
    bob = await parts.greeted("bob")
    await bob.ask(type="room.join", room="lobby")
    parts.engine.away = {"touch", "read", "set_status", "restore", "enter", "exit"}
    ann = await parts.greeted("ann")
    await ann.ask(type="room.join", room="lobby")
    parts.engine.away = set()
    await pass_time(3 * RETRY_S)
    assert await bob.events("room.entered") == []


@in_virtual_time
async def test_busy_lasts_since_it_was_set_and_other_states_since_the_later_of_both(parts: NodeParts) -> None:
    service = Service(parts)
    await parts.online("ann")
    began = parts.clock.monotonic()
    await pass_time(10)
    busy = ManualStatus("busy")
    await service.set(ANN, busy)
    set_at = parts.clock.monotonic()
    await pass_time(10)
    idle_since = parts.clock.monotonic()
    assert abs(service.since(ANN, busy, idle_since) - set_at) < 0.01
    assert service.since(ANN, ManualStatus(), idle_since) == idle_since
    assert abs(service.since(ANN, ManualStatus(), began) - set_at) < 0.01
    assert service.since(("default", "bob"), busy, began) == began


@in_virtual_time
async def test_busy_in_the_millisecond_of_the_sign_in_lasts_since_it_was_set(parts: NodeParts) -> None:
    """Two changes in one millisecond have versions that differ, so the version of the second is after its time."""
    service = Service(parts)
    await parts.online("ann")
    snapshot = await service.set(ANN, ManualStatus("busy"))
    assert snapshot.own.since is not None
    assert snapshot.own.version > snapshot.own.since
    set_at = parts.context.timers.now()
    await pass_time(2)
    assert abs(service.since(ANN, ManualStatus("busy"), parts.context.timers.now()) - set_at) < 0.01


@in_virtual_time
async def test_an_expired_status_of_the_store_hides_no_user(parts: NodeParts) -> None:
    service = Service(parts)
    await parts.online("ann")
    service.learnt(ANN, ManualStatus("invisible", until=parts.engine.now_ms()))
    assert not service.is_invisible(ANN)
    service.learnt(ANN, ManualStatus("invisible", until=parts.engine.now_ms() + 1))
    assert service.is_invisible(ANN)


@in_virtual_time
async def test_a_status_learnt_from_the_engine_is_compared_with_the_store_a_little_later(parts: NodeParts) -> None:
    """A node that could not read the store may have restored an outdated status before it died."""
    service = Service(parts)
    await parts.online("ann")
    await parts.store.put_status(*ANN, ManualStatus("invisible"))
    await service.learn(ANN)
    assert (service.is_invisible(ANN), parts.store.count("statuses")) == (False, 0)
    await pass_time(ASK_AGAIN_S + 0.1)
    assert (service.is_invisible(ANN), await parts.states("ann")) == (True, ["offline"])
