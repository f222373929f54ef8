"""Sessions from hello to their end: resume, idle, grace, and an engine that is away or has lost them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from greendot.auth.model import Grants
from greendot.engine.memory import MemoryEngine
from greendot.engine.messages import Disconnect, Topic
from greendot.errors import EngineUnavailable
from greendot.ids import Key, incarnation_of
from greendot.node.session import Session
from greendot.presence.grace_model import EndCause, Graces, SessionPeriods
from greendot.presence.model import Change, ManualStatus, SessionEpoch
from greendot.presence.profiles import ProfileService
from greendot.presence.sessions import NOTICED_S, RETRY_S, RETURN_MS, Opened, SessionService
from greendot.presence.status import StatusService
from greendot.protocol.codes import Close
from greendot.protocol.commands import Hello, Resume
from greendot.telemetry.metrics import Metrics
from unit.node_parts import Client, NodeParts, held, in_virtual_time, pass_time, settle, under_way

DEAD_S, IDLE_S, LOST_S, CLEAN_S, LEEWAY_S = 60.0, 300.0, 20.0, 5.0, 3.0
PERIODS = SessionPeriods(DEAD_S, IDLE_S, Graces(LOST_S, CLEAN_S, 2.0), LEEWAY_S)
SHORTLY_S = 0.05


class Service(SessionService):
    """Session service on the parts of a node, with a list of ended sessions."""

    def __init__(self, parts: NodeParts, *, accept_when_away: bool = False) -> None:
        periods = SessionPeriods(DEAD_S, IDLE_S, PERIODS.graces, LEEWAY_S, accept_when_away)
        self.parts = parts
        self.statuses = StatusService(parts.engine, parts.store, parts.context)
        self.ended: list[Session] = []
        self.left: list[Key] = []
        super().__init__(
            parts.engine,
            self.statuses,
            ProfileService(parts.engine, parts.store, parts.context, self.statuses, Metrics()),
            parts.context,
            periods,
            on_end=self.ended.append,
            on_left=self.left.append,
        )
        self.incarnation = parts.incarnation

    async def enter(self, user: str = "ann", resume: str | None = None, device: str = "phone", **claims: Any) -> Client:
        """Open a connection with a session that others see."""
        client = self.parts.client()
        opened = await self.opened(client, self.parts.grants(user, **claims), resume, device)
        await self.show(opened, client.connection)
        return client

    async def opened(self, client: Client, grants: Grants, resume: str | None = None, device: str = "phone") -> Opened:
        hello = Hello(device=device, resume=None if resume is None else Resume(session=resume))
        return await self.open(client.connection, grants, hello)

    def lose(self, client: Client, cause: EndCause = EndCause.LOST, code: int = 0) -> Session:
        """End a connection, as the cleanup after it does."""
        session = client.session
        client.connection.abort()
        self.lost(client.connection, cause, code)
        return session


# --- opening ---


@in_virtual_time
async def test_a_session_is_seen_by_others_only_after_it_is_shown(parts: NodeParts) -> None:
    service, client = Service(parts), parts.client()
    opened = await service.opened(client, parts.grants("ann"))
    assert (opened.resumed, opened.status_known, opened.is_unread) == (False, False, True)
    assert await parts.states("ann") == ["offline"]
    await service.show(opened, client.connection)
    assert await parts.states("ann") == ["online"]
    assert (parts.store.count("statuses"), client.session.confirmed) == (1, True)


@in_virtual_time
async def test_an_invisible_user_who_comes_is_not_shown_to_others(parts: NodeParts) -> None:
    service = Service(parts)
    await parts.store.put_status("default", "ann", ManualStatus("invisible"))
    await service.enter()
    shown = await parts.shown("ann")
    assert (shown.visible.state, shown.own.state) == ("offline", "online")
    assert service.statuses.is_invisible(("default", "ann"))


@in_virtual_time
async def test_a_new_session_is_forgotten_if_the_engine_is_away(parts: NodeParts) -> None:
    service, client = Service(parts), parts.client()
    parts.engine.away = {"touch"}
    with pytest.raises(EngineUnavailable):
        await service.opened(client, parts.grants("ann"))
    assert (parts.registry.sessions, client.connection.session, service.left) == ({}, None, [("default", "ann")])


@in_virtual_time
async def test_a_session_may_start_while_the_engine_is_unavailable_if_the_settings_allow_it(parts: NodeParts) -> None:
    service = Service(parts, accept_when_away=True)
    parts.engine.away = {"touch", "adopt", "read"}
    client = await service.enter(resume="gone-session")
    assert [session.id for session in service.here()] == [client.session.id]
    assert not client.session.confirmed


@in_virtual_time
async def test_a_session_that_lingers_is_resumed_with_the_next_epoch(parts: NodeParts) -> None:
    service = Service(parts)
    session = service.lose(await service.enter())
    await pass_time(LOST_S / 2)
    back = await service.enter(resume=session.id)
    assert back.session is session
    assert session.ref == SessionEpoch(session.id, parts.incarnation, 2)
    await pass_time(2 * LOST_S)
    assert await parts.states("ann") == ["online"]
    assert service.ended == []


@in_virtual_time
async def test_a_resume_replaces_the_open_connection_whose_end_then_means_nothing(parts: NodeParts) -> None:
    service = Service(parts)
    old = await service.enter()
    new = await service.enter(resume=old.session.id)
    assert await old.closed() == Close.REPLACED
    service.lost(old.connection, EndCause.SERVER_CLOSE, Close.REPLACED)
    await pass_time(2 * LOST_S)
    assert (new.session.connection, parts.engine.count("linger")) == (new.connection, 0)


@in_virtual_time
async def test_a_session_of_another_user_or_a_revoked_one_is_not_resumed(parts: NodeParts) -> None:
    service = Service(parts)
    ann = await service.enter("ann")
    mallory = await service.enter("mallory", resume=ann.session.id)
    assert mallory.session is not ann.session
    assert await ann.frames() == []
    ann.session.revoked = True
    again = await service.enter("ann", resume=ann.session.id)
    assert again.session is not ann.session


@in_virtual_time
async def test_a_session_of_another_node_continues_here_and_that_node_is_notified(parts: NodeParts) -> None:
    service, other = Service(parts), parts.engine.other_node()
    there = SessionEpoch(f"{other}-1", other, 4)
    await MemoryEngine.touch(parts.engine, "default", "ann", there, "phone", True, None)
    await MemoryEngine.set_status(parts.engine, "default", "ann", ManualStatus())
    client = await service.enter(resume=there.session)
    assert incarnation_of(client.session.id) == parts.incarnation
    assert client.session.idle
    assert [entry.session for entry in await parts.engine.sessions("default", "ann")] == [client.session.id]
    replaced = Disconnect(there.session, Close.REPLACED, "session resumed elsewhere", "default")
    assert (Topic("node", "", other), replaced) in parts.engine.published
    assert msgspec.convert(msgspec.to_builtins(replaced), Disconnect) == replaced  # as the other node reads it


@in_virtual_time
async def test_no_new_session_takes_the_place_of_one_that_could_not_be_looked_up(parts: NodeParts) -> None:
    service, client = Service(parts), parts.client()
    parts.engine.away = {"adopt"}
    with pytest.raises(EngineUnavailable):
        await service.opened(client, parts.grants("ann"), "OTHR-1")
    assert client.connection.session is None
    assert parts.engine.count("touch") == 0


@in_virtual_time
async def test_a_session_that_the_engine_may_still_adopt_is_held_until_the_engine_denies_it(parts: NodeParts) -> None:
    service = Service(parts)
    parts.engine.away = {"adopt", "linger"}
    with pytest.raises(EngineUnavailable):
        await service.opened(parts.client(), parts.grants("ann"), "OTHR-1")
    ref = parts.engine.made("adopt")[0][-1]
    await pass_time(3 * RETRY_S)
    assert service.holds(ref)
    assert service.here() == []  # a restore would write a session that the engine may not have adopted
    parts.engine.away = set()
    await pass_time(3 * RETRY_S)
    assert not service.holds(ref)
    assert service.here() == []


@in_virtual_time
async def test_a_session_that_the_engine_adopted_after_the_refusal_lingers_for_the_grace(parts: NodeParts) -> None:
    service, other = Service(parts), parts.engine.other_node()
    there = SessionEpoch(f"{other}-1", other, 4)
    await MemoryEngine.touch(parts.engine, "default", "ann", there, "phone", False, None)
    await MemoryEngine.set_status(parts.engine, "default", "ann", ManualStatus())
    parts.engine.away = {"adopt"}
    with pytest.raises(EngineUnavailable):
        await service.opened(parts.client(), parts.grants("ann"), there.session)
    ref = parts.engine.made("adopt")[0][-1]
    await MemoryEngine.adopt(parts.engine, "default", "ann", there.session, ref)
    await pass_time(LOST_S / 2)
    assert [entry.session for entry in await parts.engine.sessions("default", "ann")] == [ref.session]
    await pass_time(LOST_S)
    assert await parts.engine.sessions("default", "ann") == []
    assert not service.holds(ref)


@in_virtual_time
async def test_an_invisible_user_who_returns_after_a_resume_without_an_answer_is_in_no_room(parts: NodeParts) -> None:
    """The session that was adopted late lingers on the node, which has never read the status of its user."""
    await parts.whole()
    await parts.store.put_room("default", "lobby", open=True)
    bob, other = await parts.greeted("bob"), parts.engine.other_node()
    await bob.ask(type="room.join", room="lobby")
    there = SessionEpoch(f"{other}-1", other, 4)
    await MemoryEngine.touch(parts.engine, "default", "ann", there, "phone", False, None)
    await MemoryEngine.set_status(parts.engine, "default", "ann", ManualStatus("invisible", rev=1))
    parts.engine.unanswered = {"adopt"}
    await parts.greeted("ann", resume={"session": there.session})
    parts.engine.unanswered = set()
    await pass_time(3 * RETRY_S)
    assert len(parts.registry.sessions_of("default", "ann")) == 1
    ann = await parts.greeted("ann", resume={"session": there.session})
    await ann.ask(type="room.join", room="lobby")
    await settle()
    assert await bob.events("room.entered") == []


@in_virtual_time
async def test_a_session_on_its_way_from_another_node_is_one_that_this_node_holds(parts: NodeParts) -> None:
    service, other = Service(parts), parts.engine.other_node()
    await MemoryEngine.touch(parts.engine, "default", "ann", SessionEpoch("OTHR-1", other, 1), "phone", False, None)
    async with held(parts.engine, "adopt", "after") as adopted, under_way(service.enter(resume="OTHR-1")):
        await adopted.reached()
        (entry,) = await parts.engine.sessions("default", "ann")
        assert service.holds(SessionEpoch(entry.session, entry.node, 1))
        assert not service.holds(SessionEpoch("OTHR-1", other, 1))
        adopted.release()


# --- activity ---


@in_virtual_time
async def test_a_session_is_idle_without_activity_and_active_with_the_next(parts: NodeParts) -> None:
    service = Service(parts)
    client = await service.enter()
    for _ in range(12):  # heartbeats are no activity
        await pass_time(IDLE_S / 12)
        client.connection.on_received()
    await pass_time(SHORTLY_S)
    assert (client.session.idle, await parts.states("ann")) == (True, ["idle"])
    service.active(client.session, parts.clock.monotonic())
    await settle()
    assert (client.session.idle, await parts.states("ann")) == (False, ["online"])


@in_virtual_time
async def test_an_idle_state_that_could_not_be_sent_is_sent_later_with_its_current_value(parts: NodeParts) -> None:
    service = Service(parts)
    client = await service.enter()
    parts.engine.away = {"touch"}
    service._set_idle(client.session, True)
    await settle()
    service.active(client.session, parts.clock.monotonic())
    await settle()
    parts.engine.away = set()
    before = parts.engine.count("touch")
    await pass_time(3 * RETRY_S)
    assert await parts.states("ann") == ["online"]
    assert [args[4] for args in parts.engine.made("touch")[before:]] == [False]


@in_virtual_time
async def test_an_idle_state_that_fails_after_the_connection_ended_does_not_delay_the_end(parts: NodeParts) -> None:
    service = Service(parts)
    client = await service.enter()
    parts.engine.away = {"touch", "linger"}
    async with held(parts.engine, "touch") as touching:
        service._set_idle(client.session, True)
        await touching.reached()
        session = service.lose(client)
        await settle()  # the write of the end has failed, and is due again
    await settle()
    parts.engine.away = set()
    await pass_time(LOST_S + RETURN_MS / 1000)
    assert (await parts.states("ann"), service.ended) == (["offline"], [session])


# --- leaving ---


@in_virtual_time
async def test_a_session_counts_for_the_grace_of_its_end_and_then_no_more(parts: NodeParts) -> None:
    service = Service(parts)
    client = await service.enter()
    session = service.lose(client, EndCause.CLIENT_CLOSE, Close.NORMAL)
    await pass_time(CLEAN_S - SHORTLY_S)
    assert (await parts.states("ann"), service.ended) == (["online"], [])
    await pass_time(2 * SHORTLY_S)
    assert (await parts.states("ann"), service.ended, service.left) == (["offline"], [session], [session.key])
    assert parts.registry.sessions == {}


@in_virtual_time
async def test_last_seen_is_the_time_of_the_last_frame_of_the_client(parts: NodeParts) -> None:
    service = Service(parts)
    client = await service.enter()
    heard_at = parts.clock.now_ms()
    await pass_time(30)
    session = service.lose(client, EndCause.BYE)
    await settle()
    shown = await parts.shown("ann")
    assert (shown.visible.state, shown.visible.last_seen) == ("offline", heard_at)
    assert session.last_heard == heard_at


@in_virtual_time
async def test_the_user_has_left_only_with_the_last_session(parts: NodeParts) -> None:
    service = Service(parts)
    phone, laptop = await service.enter(), await service.enter(device="laptop")
    service.lose(phone, EndCause.BYE)
    await settle()
    assert (len(service.ended), service.left, await parts.states("ann")) == (1, [], ["online"])
    service.lose(laptop, EndCause.BYE)
    await settle()
    assert (len(service.ended), service.left) == (2, [("default", "ann")])


@in_virtual_time
async def test_a_grace_that_ended_while_the_engine_was_away_leaves_time_to_return(parts: NodeParts) -> None:
    service = Service(parts)
    session = service.lose(await service.enter())
    parts.engine.away = {"linger"}
    await settle()
    await pass_time(LOST_S + 5)
    assert session.id in parts.registry.sessions
    parts.engine.away = set()
    await pass_time(2 * RETRY_S + SHORTLY_S)
    assert await parts.states("ann") == ["online"]
    await pass_time(RETURN_MS / 1000)
    assert (await parts.states("ann"), service.ended) == (["offline"], [session])


@in_virtual_time
async def test_a_return_while_the_engine_records_the_end_wins(parts: NodeParts) -> None:
    service = Service(parts)
    client = await service.enter()
    async with held(parts.engine, "linger") as lingering:
        session = service.lose(client)
        await lingering.reached()
        back = await service.enter(resume=session.id)
    await pass_time(2 * LOST_S)
    assert (back.session, service.ended, await parts.states("ann")) == (session, [], ["online"])


@in_virtual_time
async def test_a_leave_that_failed_is_retried(parts: NodeParts) -> None:
    service = Service(parts)
    session = service.lose(await service.enter())
    parts.engine.away = {"leave"}
    await pass_time(LOST_S + SHORTLY_S)
    assert service.ended == []
    parts.engine.away = set()
    await pass_time(2 * RETRY_S + SHORTLY_S)
    assert (service.ended, await parts.states("ann")) == ([session], ["offline"])


@in_virtual_time
async def test_a_session_end_whose_answer_was_lost_is_repeated_without_harm(parts: NodeParts) -> None:
    service = Service(parts)
    client = await service.enter()
    parts.engine.unanswered = {"linger", "leave"}
    session = service.lose(client, EndCause.CLIENT_CLOSE, Close.NORMAL)
    await pass_time(3 * RETRY_S)
    assert (parts.engine.count("linger") > 1, await parts.states("ann")) == (True, ["online"])
    parts.engine.unanswered = set()
    await pass_time(2 * RETRY_S + CLEAN_S + SHORTLY_S)
    assert (service.ended, await parts.states("ann")) == ([session], ["offline"])


@in_virtual_time
async def test_a_stopping_node_writes_the_end_of_a_session_that_it_could_not_write(parts: NodeParts) -> None:
    """Otherwise the user would be last seen at the end of the node."""
    service = Service(parts)
    client = await service.enter()
    heard_at = parts.clock.now_ms()
    parts.engine.away = {"linger"}
    session = service.lose(client, EndCause.BYE)
    await pass_time(RETRY_S / 2)
    parts.engine.away = set()
    service.write_ends()
    await settle()
    shown = await parts.shown("ann")
    assert (shown.visible.state, shown.visible.last_seen) == ("offline", heard_at)
    await pass_time(2 * RETRY_S + SHORTLY_S)
    assert service.ended == [session]


@in_virtual_time
async def test_a_node_that_closes_writes_ends_before_it_leaves_the_engine(parts: NodeParts) -> None:
    node = await parts.whole()
    client = await parts.greeted("ann", device="phone")
    heard_at = parts.clock.now_ms()
    parts.engine.away = {"linger"}
    client.say(type="bye")
    await pass_time(RETRY_S / 2)
    parts.engine.away = set()
    await node.close()
    shown = await parts.shown("ann")
    assert shown.visible.state == "offline"
    assert shown.visible.last_seen == pytest.approx(heard_at, abs=1000 * SHORTLY_S)


@in_virtual_time
async def test_a_stopping_node_writes_only_the_ends_that_are_not_written(parts: NodeParts) -> None:
    service = Service(parts)
    await service.enter()
    service.lose(await service.enter("bob"))
    await settle()
    service.write_ends()
    await settle()
    assert (parts.engine.count("linger"), await parts.states("ann", "bob")) == (1, ["online", "online"])


@in_virtual_time
async def test_a_stopping_node_writes_an_end_that_waits_for_nodes_to_notice_a_loss(parts: NodeParts) -> None:
    """Another session of the user may be missing, so the engine ends this one when the wait is over."""
    service = Service(parts)
    client = await service.enter()
    heard_at = parts.clock.now_ms()
    parts.engine.restoring = True
    service.lose(client, EndCause.BYE)
    await pass_time(SHORTLY_S)
    service.write_ends()
    parts.context.timers.close()
    await pass_time(NOTICED_S - SHORTLY_S)
    assert await parts.states("ann") == ["online"]
    await pass_time(2 * SHORTLY_S)
    shown = await parts.shown("ann")
    assert (shown.visible.state, shown.visible.last_seen) == ("offline", heard_at)


@in_virtual_time
async def test_a_session_that_moved_to_another_node_is_over_here_at_once(parts: NodeParts) -> None:
    service = Service(parts)
    session = service.lose(await service.enter())
    await settle()
    other = parts.engine.other_node()
    await parts.engine.adopt(*session.key, session.id, SessionEpoch("OTHR-1", other, 1))
    service.moved(session)
    await settle()
    assert (service.ended, await parts.states("ann")) == ([session], ["online"])


@in_virtual_time
async def test_a_session_is_kept_longer_if_its_client_was_asked_to_wait(parts: NodeParts) -> None:
    service = Service(parts)
    session = service.lose(await service.enter())
    await pass_time(LOST_S - 1)
    assert (service.may_end_within(session, 0.5), service.may_end_within(session, 2)) == (False, True)
    service.prolong(session, 8)
    await pass_time(8 + LOST_S - 1)
    assert await parts.states("ann") == ["online"]
    await pass_time(1 + SHORTLY_S)
    assert service.ended == [session]


@in_virtual_time
async def test_a_session_is_kept_if_its_client_was_asked_to_wait_before_the_loss_was_noticed(parts: NodeParts) -> None:
    service = Service(parts)
    client = await service.enter()
    assert service.may_end_within(client.session, 0)
    service.prolong(client.session, LOST_S + 8)
    await pass_time(2)
    session = service.lose(client)
    await pass_time(LOST_S + 6 + LOST_S - 1)
    assert await parts.states("ann") == ["online"]
    await pass_time(1 + SHORTLY_S)
    assert service.ended == [session]


@in_virtual_time
async def test_a_wait_asked_of_a_client_changes_no_later_loss_and_no_bye(parts: NodeParts) -> None:
    service = Service(parts)
    client = await service.enter()
    service.prolong(client.session, 90)
    again = await service.enter(resume=client.session.id)
    session = service.lose(again)
    await pass_time(LOST_S + SHORTLY_S)
    assert service.ended == [session]
    other = await service.enter("bob")
    service.prolong(other.session, 90)
    gone = service.lose(other, EndCause.BYE)
    await pass_time(SHORTLY_S)
    assert service.ended == [session, gone]


@in_virtual_time
async def test_ending_a_session_ends_one_that_lingers_and_no_open_one(parts: NodeParts) -> None:
    service = Service(parts)
    gone, there = service.lose(await service.enter("ann")), (await service.enter("bob")).session
    await settle()
    service.end(gone)
    service.end(there)
    await settle()
    assert (service.ended, await parts.states("ann", "bob")) == ([gone], ["offline", "online"])


# --- an engine that may have lost sessions ---


@in_virtual_time
async def test_a_lost_session_is_restored_as_it_is_now(parts: NodeParts) -> None:
    service = Service(parts)
    client = await service.enter(name="Ann")
    await parts.store.put_status("default", "ann", ManualStatus("busy", text="in a call"))
    parts.engine.lose()
    await service.restore(client.session)
    shown = await parts.shown("ann")
    assert (shown.visible.state, shown.visible.text, shown.name) == ("busy", "in a call", "Ann")


@in_virtual_time
async def test_a_session_goes_on_under_the_new_name_of_its_node(parts: NodeParts) -> None:
    service = Service(parts)
    client = await service.enter()
    parts.engine.end_node(parts.incarnation)
    service.incarnation = parts.engine.other_node("NEWN")
    await service.restore(client.session)
    assert client.session.ref == SessionEpoch(client.session.id, "NEWN", 2)
    assert await parts.states("ann") == ["online"]


@in_virtual_time
async def test_a_session_that_ended_while_its_status_was_read_is_not_restored(parts: NodeParts) -> None:
    service = Service(parts)
    client = await service.enter()
    async with held(parts.store, "statuses", "after") as read, under_way(service.restore(client.session)):
        await read.reached()
        service.lose(client, EndCause.BYE)
        await settle()
        read.release()
    assert (parts.engine.count("restore"), await parts.states("ann")) == (0, ["offline"])


@in_virtual_time
async def test_a_session_that_lingers_is_restored_with_the_rest_of_its_grace(parts: NodeParts) -> None:
    service = Service(parts)
    session = service.lose(await service.enter())
    await pass_time(LOST_S - 5)
    parts.engine.lose()
    await service.restore(session)
    await pass_time(4)
    assert await parts.states("ann") == ["online"]
    await pass_time(1 + SHORTLY_S)
    assert service.ended == [session]


async def bring_back(parts: NodeParts, session: Session) -> None:
    """Lose the records of the engine, except an older one of this session, in which it is connected."""
    parts.engine.lose()
    await MemoryEngine.touch(parts.engine, *session.key, session.ref, session.device, False, None)
    await MemoryEngine.set_status(parts.engine, *session.key, ManualStatus())


@in_virtual_time
async def test_a_session_whose_grace_is_over_is_not_restored(parts: NodeParts) -> None:
    service = Service(parts)
    session = service.lose(await service.enter())
    parts.engine.away = {"leave"}
    await pass_time(LOST_S + SHORTLY_S)
    parts.engine.lose()
    await service.restore(session)
    assert parts.engine.count("restore") == 0


@in_virtual_time
async def test_an_ended_session_that_older_data_bring_back_does_not_show_an_invisible_user(parts: NodeParts) -> None:
    service = Service(parts)
    client = await service.enter()
    session = service.lose(client)
    parts.engine.away = {"leave"}
    await pass_time(LOST_S + SHORTLY_S)
    await bring_back(parts, session)  # the data are from before the user became invisible
    await parts.store.put_status("default", "ann", ManualStatus("invisible"))
    assert await parts.states("ann") == ["online"]
    await service.restore(session)
    assert await parts.states("ann") == ["offline"]


@in_virtual_time
async def test_an_invisible_user_who_becomes_idle_is_not_shown_by_older_data(parts: NodeParts) -> None:
    service = Service(parts)
    client = await service.enter()
    await parts.store.put_status("default", "ann", ManualStatus("invisible"))
    await bring_back(parts, client.session)  # the data are from before the user became invisible
    parts.engine.restoring = True
    topic = Topic("watch", "default", "ann")
    before = len([message for to, message in parts.engine.published if to == topic])
    service._set_idle(client.session, True)
    await settle()
    (change,) = [message for to, message in parts.engine.published if to == topic][before:]
    assert isinstance(change, Change)
    assert (change.visible.state, change.own.state) == ("offline", "idle")


@in_virtual_time
async def test_a_session_whose_grace_ends_during_a_loss_ends_although_older_data_bring_it_back(
    parts: NodeParts,
) -> None:
    """The older record has no deadline, so a leave would not end the session."""
    service = Service(parts)
    client = await service.enter()
    session = service.lose(client)
    await pass_time(LOST_S - SHORTLY_S)
    await bring_back(parts, session)
    parts.engine.restoring = True
    await pass_time(2 * SHORTLY_S)
    parts.engine.restoring = False  # before all nodes have noticed the loss
    await pass_time(NOTICED_S)
    assert (service.ended, await parts.states("ann")) == ([session], ["offline"])


@in_virtual_time
async def test_a_session_whose_grace_was_over_during_a_loss_ends_although_its_timer_is_late(parts: NodeParts) -> None:
    service = Service(parts)
    client = await service.enter()
    async with held(parts.engine, "linger", "after") as lingering:
        session = service.lose(client)
        await lingering.reached()
        await pass_time(LOST_S / 2)  # the timer starts only with the answer
    await pass_time(LOST_S / 2 + SHORTLY_S)
    await bring_back(parts, session)
    await service.restore(session)
    assert (service.ended, await parts.states("ann")) == ([], ["online"])
    await pass_time(LOST_S / 2)
    assert (service.ended, await parts.states("ann")) == ([session], ["offline"])


@in_virtual_time
async def test_the_end_of_an_unconfirmed_session_is_sent_to_the_engine_after_the_session(parts: NodeParts) -> None:
    service = Service(parts, accept_when_away=True)
    parts.engine.away = {"touch"}
    client = await service.enter()
    parts.engine.away = set()
    service.lose(client)
    await settle()
    assert [name for name, _ in parts.engine.calls if name in ("restore", "linger")] == ["restore", "linger"]
    (entry,) = await parts.engine.sessions("default", "ann")
    assert entry.ends_in_ms is not None


@in_virtual_time
async def test_a_session_whose_resume_was_refused_in_an_outage_ends_in_the_engine_too(parts: NodeParts) -> None:
    """The engine has an earlier connection of the session. An audit may have run before the end could be written."""
    service = Service(parts)
    client = await service.enter()
    parts.engine.away = {"touch", "linger"}
    session = service.lose(client)
    client = parts.client()
    with pytest.raises(EngineUnavailable):
        await service.opened(client, parts.grants("ann"), resume=session.id)
    service.lose(client)
    service.end(session)  # a revocation, for example
    await settle()
    parts.engine.away = set()
    await parts.engine.audit(service.holds)
    await pass_time(RETURN_MS / 1000 + 2 * RETRY_S + SHORTLY_S)
    assert (service.ended, await parts.engine.sessions("default", "ann")) == ([session], [])


@in_virtual_time
async def test_a_session_that_the_engine_lost_while_it_lingered_is_restored(parts: NodeParts) -> None:
    service = Service(parts)
    client = await service.enter()
    parts.engine.lose()
    parts.engine.restoring = True
    session = service.lose(client)
    await settle()
    assert (service.ended, parts.engine.count("restore")) == ([], 1)
    parts.engine.restoring = False
    assert await parts.states("ann") == ["online"]
    await pass_time(LOST_S + SHORTLY_S)
    assert service.ended == [session]


@in_virtual_time
async def test_a_client_that_returns_while_its_lost_session_is_restored_stays_online(parts: NodeParts) -> None:
    service = Service(parts)
    client = await service.enter()
    parts.engine.lose()
    parts.engine.restoring = True
    async with held(parts.engine, "restore") as restoring:
        session = service.lose(client)
        await restoring.reached()
        async with under_way(service.enter(resume=session.id)):
            await settle()
            restoring.release()
    parts.engine.restoring = False
    await pass_time(2 * RETRY_S + LOST_S + SHORTLY_S)
    assert (service.ended, await parts.states("ann")) == ([], ["online"])


@in_virtual_time
async def test_after_a_loss_a_session_ends_when_other_nodes_have_noticed_the_loss(parts: NodeParts) -> None:
    """Another session of the user may be missing, and a node that has noticed nothing would show the user offline."""
    service = Service(parts)
    client = await service.enter()
    parts.engine.restoring = True
    session = service.lose(client, EndCause.BYE)
    await pass_time(NOTICED_S - SHORTLY_S)
    assert (service.ended, parts.engine.count("linger")) == ([], 0)
    await pass_time(2 * SHORTLY_S)
    assert (service.ended, await parts.states("ann")) == ([session], ["offline"])


@in_virtual_time
async def test_ending_a_session_that_waits_for_nodes_to_notice_a_loss_does_not_shorten_the_wait(
    parts: NodeParts,
) -> None:
    service = Service(parts)
    client = await service.enter()
    parts.engine.restoring = True
    session = service.lose(client, EndCause.BYE)
    await pass_time(NOTICED_S / 2)
    service.end(session)
    await pass_time(NOTICED_S / 2 - SHORTLY_S)
    assert (service.ended, parts.engine.count("linger")) == ([], 0)
    await pass_time(2 * SHORTLY_S)
    assert (service.ended, parts.engine.count("linger")) == ([session], 1)


@in_virtual_time
async def test_a_session_that_returns_and_ends_again_while_its_end_waits_is_ended(parts: NodeParts) -> None:
    service = Service(parts)
    client = await service.enter()
    parts.engine.restoring = True
    session = service.lose(client, EndCause.BYE)
    await pass_time(NOTICED_S / 2)
    service.lose(await service.enter(resume=session.id), EndCause.BYE)
    await pass_time(NOTICED_S / 2 + SHORTLY_S)
    assert service.ended == []
    await pass_time(NOTICED_S / 2)
    assert service.ended == [session]


@in_virtual_time
async def test_a_session_whose_end_waits_for_the_nodes_ends_once_and_no_earlier(parts: NodeParts) -> None:
    """A revocation, or the message of another node, ends the session again."""
    service = Service(parts)
    client = await service.enter()
    parts.engine.restoring = True
    session = service.lose(client, EndCause.BYE)
    await pass_time(SHORTLY_S)
    service.end(session)
    service.moved(session)
    await pass_time(NOTICED_S - 2 * SHORTLY_S)
    assert (service.ended, parts.engine.count("linger"), parts.engine.count("leave")) == ([], 0, 0)
    await pass_time(2 * SHORTLY_S)
    assert service.ended == [session]
    await pass_time(NOTICED_S)
    assert service.ended == [session]


@pytest.mark.parametrize("is_resume", [True, False])
@in_virtual_time
async def test_an_invisible_user_who_comes_after_a_failover_is_not_published_with_an_older_status(
    parts: NodeParts, is_resume: bool
) -> None:
    """The older data have an idle session. With a second device the user would be online."""
    node = await parts.whole()
    bob = await parts.greeted("bob")
    (welcome,) = await bob.frames("welcome")
    node.sessions._set_idle(bob.session, True)
    await settle()
    parts.engine.save()
    node.sessions._set_idle(bob.session, False)
    await bob.ask(type="status.set", status="invisible")
    parts.engine.fail_over()
    parts.engine.restoring = True
    parts.engine.published.clear()
    if is_resume:
        bob.cut()
        again = await parts.greeted("bob", resume={"session": welcome["data"]["session"]})
        assert [frame["data"]["resumed"] for frame in await again.frames("welcome")] == [True]
    else:
        await parts.greeted("bob", device="laptop")
    changes = [message for _, message in parts.engine.published if isinstance(message, Change)]
    assert {(change.visible.state, change.own.status) for change in changes} == {("offline", "invisible")}
