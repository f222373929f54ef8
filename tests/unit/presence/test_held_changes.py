"""Changes while users and rooms are held after a loss: what the nodes confirm is shown at once."""

from __future__ import annotations

from greendot.app.node import Node
from greendot.engine.messages import ClusterAnswer, Entered, Left, Part, SessionsQuestion, Topic
from greendot.engine.results import Known
from greendot.presence.grace_model import EndCause
from greendot.presence.held_changes import ATTEMPTS, HIDDEN_ATTEMPTS, HIDDEN_S, WITHIN_S
from greendot.presence.held_model import Seen
from greendot.presence.model import Change, ManualStatus, SessionEpoch, VisibleState
from greendot.protocol.events import State
from unit.node_parts import TENANT, Client, NodeParts, in_virtual_time, pass_time, settle
from unit.node_parts import held as stopped

OTHER = "OTHR"
LONG_S = 600.0


async def held(parts: NodeParts, *users: str) -> tuple[Node, Client]:
    """Make a node with ann, who watches users and is in the lobby with them. All of them are held."""
    node = await parts.whole()
    await parts.store.put_room(TENANT, "lobby", open=True)
    ann = await parts.greeted("ann")
    await ann.ask(type="watch", users=[*users])
    await ann.ask(type="room.join", room="lobby")
    for user in users:
        publish(parts, user, "online")
        await parts.engine.enter(TENANT, "lobby", user, parts.session(user).session.ref)
    await settle()
    for session in [*parts.registry.sessions.values()]:
        if session.user != "ann":
            parts.registry.remove(session)  # only Redis knew the sessions: their node is another
    await ann.frames()
    node.watching.hold(Part(), LONG_S)
    node.rooms.hold(Part(), LONG_S)
    return node, ann


def publish(parts: NodeParts, user: str, state: State, *, restored: bool = False, invisible: bool = False) -> None:
    version = parts.engine.now_ms()
    own = VisibleState(state, since=version, version=version, status="invisible" if invisible else "auto")
    visible = VisibleState("offline" if invisible else state, since=version, version=version)
    parts.engine.publish(Topic("watch", TENANT, user), Change(visible, own, None, ["phone"], True, True, restored))


def questions(parts: NodeParts) -> list[SessionsQuestion]:
    return [message for message in parts.engine.sent_to(OTHER) if isinstance(message, SessionsQuestion)]


def answer(parts: NodeParts, question: SessionsQuestion, *seen: Seen) -> None:
    parts.engine.publish(Topic("node", "", question.asker), ClusterAnswer(question.number, OTHER, bytes(seen)))


async def states(client: Client) -> list[tuple[str, str]]:
    return [(event["user"], event["state"]) for event in await client.events("presence.changed")]


@in_virtual_time
async def test_a_user_is_shown_as_offline_when_all_nodes_have_no_session(parts: NodeParts) -> None:
    _, ann = await held(parts, "bob")
    parts.engine.other_node(OTHER)
    await pass_time(0.1)
    publish(parts, "bob", "offline")
    await settle()
    (question,) = questions(parts)
    assert (question.places, await states(ann)) == ([(TENANT, "bob", "")], [])
    answer(parts, question, Seen.NOTHING)
    assert await states(ann) == [("bob", "offline")]


@in_virtual_time
async def test_one_change_that_fails_does_not_keep_back_the_others(parts: NodeParts) -> None:
    node, ann = await held(parts, "bob")
    parts.engine.other_node(OTHER)
    await pass_time(0.1)

    def fail() -> None:
        raise ValueError("no such watcher")

    node.held_changes.confirm((TENANT, "carol", ""), "offline", fail)
    publish(parts, "bob", "offline")
    await settle()
    (question,) = questions(parts)
    answer(parts, question, Seen.NOTHING, Seen.NOTHING)
    assert await states(ann) == [("bob", "offline")]
    assert parts.failed() == ["ValueError('no such watcher')"]


@in_virtual_time
async def test_activity_that_only_a_newer_version_knows_counts_as_activity(parts: NodeParts) -> None:
    _, ann = await held(parts, "bob")
    parts.engine.other_node(OTHER)
    await pass_time(0.1)
    publish(parts, "bob", "offline")
    await settle()
    (question,) = questions(parts)
    parts.engine.publish(Topic("node", "", question.asker), ClusterAnswer(question.number, OTHER, bytes([9])))
    assert await states(ann) == []


@in_virtual_time
async def test_a_user_with_sessions_elsewhere_or_on_a_silent_node_stays_as_shown(parts: NodeParts) -> None:
    _, ann = await held(parts, "bob", "carol")
    parts.engine.other_node(OTHER)
    await pass_time(0.1)
    publish(parts, "bob", "offline")
    await settle()
    answer(parts, questions(parts)[0], Seen.IDLE)
    publish(parts, "carol", "offline")
    await pass_time(2 * ATTEMPTS * WITHIN_S)
    assert [question.places[0][1] for question in questions(parts)] == ["bob", *["carol"] * ATTEMPTS]
    assert await states(ann) == []


@in_virtual_time
async def test_a_question_that_a_node_does_not_answer_in_time_is_repeated(parts: NodeParts) -> None:
    _, ann = await held(parts, "bob", "carol", "dan")
    parts.engine.other_node(OTHER)
    await pass_time(0.1)
    for user in ("bob", "carol"):
        publish(parts, user, "offline")
    await pass_time(WITHIN_S + 0.1)
    publish(parts, "carol", "busy")  # a newer change replaces the one that waits
    publish(parts, "dan", "offline")
    await pass_time(WITHIN_S)
    assert await states(ann) == []
    last = questions(parts)[-1]
    assert sorted(user for _, user, _ in last.places) == ["bob", "carol", "dan"]
    answer(parts, last, *(Seen.ACTIVE if user == "carol" else Seen.NOTHING for _, user, _ in last.places))
    await settle()
    assert sorted(await states(ann)) == [("bob", "offline"), ("carol", "busy"), ("dan", "offline")]


@in_virtual_time
async def test_a_node_that_has_died_no_longer_keeps_a_change_back(parts: NodeParts) -> None:
    _, ann = await held(parts, "bob")
    parts.engine.other_node(OTHER)
    await pass_time(0.1)
    publish(parts, "bob", "offline")
    await pass_time(3 * WITHIN_S)
    assert await states(ann) == []
    parts.engine.end_node(OTHER)
    await pass_time(2 * WITHIN_S)
    assert await states(ann) == [("bob", "offline")]


@in_virtual_time
async def test_a_silent_node_delays_a_state_that_another_session_confirms(parts: NodeParts) -> None:
    _, ann = await held(parts, "bob")
    parts.engine.other_node(OTHER)
    parts.session("bob")
    await pass_time(0.1)
    publish(parts, "bob", "busy", restored=True)
    await pass_time(WITHIN_S + 0.1)
    assert await states(ann) == [("bob", "busy")]


@in_virtual_time
async def test_an_invisible_user_is_hidden_without_a_question(parts: NodeParts) -> None:
    _, ann = await held(parts, "bob")
    parts.engine.other_node(OTHER)
    await pass_time(0.1)
    publish(parts, "bob", "online", restored=True, invisible=True)
    assert (await states(ann), questions(parts)) == ([("bob", "offline")], [])


@in_virtual_time
async def test_a_user_who_connects_while_another_node_restores_an_ended_session_is_shown_at_once(
    parts: NodeParts,
) -> None:
    """The node that restores it has ended it, but the loss came first. No user is held any longer."""
    await parts.whole()
    ann, bob = await parts.greeted("ann"), parts.session("bob")
    await ann.ask(type="watch", users=["bob"])
    parts.engine.other_node(OTHER)
    await pass_time(0.1)
    ended = SessionEpoch(f"{OTHER}-1", OTHER, 1)
    await parts.engine.touch(*bob.session.key, bob.session.ref, "phone", False, None)  # the status is not known yet
    await parts.engine.restore(*bob.session.key, ended, Known("phone", False, None, 1_000, ManualStatus()))
    await parts.engine.set_status(*bob.session.key, ManualStatus())
    await parts.engine.linger(*bob.session.key, ended, 0, 0)
    await settle()
    (question,) = questions(parts)
    answer(parts, question, Seen.NOTHING)
    assert await states(ann) == [("bob", "online")]


@in_virtual_time
async def test_a_user_of_whom_only_an_ended_session_is_restored_is_not_shown(parts: NodeParts) -> None:
    await parts.whole()
    ann = await parts.greeted("ann")
    await ann.ask(type="watch", users=["bob"])
    parts.engine.other_node(OTHER)
    await pass_time(0.1)
    publish(parts, "bob", "online", restored=True)
    await settle()
    answer(parts, questions(parts)[0], Seen.NOTHING)
    await pass_time(LONG_S)
    assert await states(ann) == []


@in_virtual_time
async def test_the_mark_of_a_stale_state_ends_also_if_the_restored_state_is_not_newer(parts: NodeParts) -> None:
    """Others see the same as before the outage, because the user is invisible. Only the user's own state differs."""
    node = await parts.whole()
    ann = await parts.greeted("ann")
    await ann.ask(type="watch", users=["bob"])
    publish(parts, "bob", "online", invisible=True)
    await settle()
    watched = node.watching._watched.get(Topic("watch", TENANT, "bob"))
    assert watched is not None
    await node.watching.mark_stale(Part())
    events = await ann.events("presence.changed")
    assert events[-1]["stale"] is True
    own = VisibleState("idle", since=watched.own.since, version=watched.own.version, status="invisible")
    restored = Change(watched.visible, own, None, ["phone"], True, True, restored=True)
    parts.engine.publish(Topic("watch", TENANT, "bob"), restored)
    (event,) = await ann.events("presence.changed")
    assert (event["state"], "stale" in event) == ("offline", False)


@in_virtual_time
async def test_an_answer_that_comes_after_the_hold_changes_nothing(parts: NodeParts) -> None:
    node, ann = await held(parts, "bob")
    parts.engine.other_node(OTHER)
    await pass_time(0.1)
    publish(parts, "bob", "offline")
    await settle()
    node.watching._watched.get(Topic("watch", TENANT, "bob")).held = False  # type: ignore[union-attr]
    answer(parts, questions(parts)[0], Seen.NOTHING)
    assert await states(ann) == []


@in_virtual_time
async def test_changes_during_a_question_share_the_next_one(parts: NodeParts) -> None:
    users = [f"u{number}" for number in range(5)]
    _, ann = await held(parts, *users)
    parts.engine.other_node(OTHER)
    await pass_time(0.1)
    for user in users:
        publish(parts, user, "offline")
        await settle()
    assert [len(question.places) for question in questions(parts)] == [1]
    answer(parts, questions(parts)[0], Seen.NOTHING)
    await settle()
    assert [len(question.places) for question in questions(parts)] == [1, 4]
    answer(parts, questions(parts)[1], *[Seen.NOTHING] * 4)
    assert await states(ann) == [(user, "offline") for user in users]


@in_virtual_time
async def test_a_user_leaves_a_held_room_when_no_node_has_a_session_there(parts: NodeParts) -> None:
    _, ann = await held(parts, "bob", "carol")
    parts.engine.other_node(OTHER)
    for user, seen in (("bob", Seen.NOTHING), ("carol", Seen.ACTIVE)):
        parts.engine.publish(Topic("room", TENANT, "lobby"), Left(user))
        await settle()
        question = questions(parts)[-1]
        assert question.places == [(TENANT, user, "lobby")]
        answer(parts, question, seen)
        await settle()
    assert [event["user"] for event in await ann.events("room.left")] == ["bob"]


@in_virtual_time
async def test_a_user_who_enters_again_meanwhile_does_not_leave(parts: NodeParts) -> None:
    _, ann = await held(parts, "bob")
    parts.engine.other_node(OTHER)
    for message in (Left("bob"), Entered("bob")):
        parts.engine.publish(Topic("room", TENANT, "lobby"), message)
        await settle()
    answer(parts, questions(parts)[0], Seen.NOTHING)
    assert [event["user"] for event in await ann.events("room.left")] == []


@in_virtual_time
async def test_a_node_answers_for_sessions_that_have_not_ended(parts: NodeParts) -> None:
    node = await parts.whole()
    asked = [("active", ""), ("idle", ""), ("gone", ""), ("nobody", ""), ("active", "lobby"), ("idle", "lobby")]
    await parts.store.put_room(TENANT, "lobby", open=True)
    active, idle, gone = [await parts.greeted(user) for user in ("active", "idle", "gone")]
    await active.ask(type="room.join", room="lobby")
    idle.session.idle = True
    question = SessionsQuestion([(TENANT, user, room) for user, room in asked], parts.engine.other_node(OTHER), 7)
    async with stopped(parts.engine, "linger") as ending:
        node.sessions.lost(gone.connection, EndCause.BYE, 1000)
        await ending.reached()
        parts.engine.publish(Topic("node", "", parts.incarnation), question)
        await settle()
    (said,) = [message for message in parts.engine.sent_to(OTHER) if isinstance(message, ClusterAnswer)]
    assert (said.number, said.node) == (7, parts.incarnation)
    assert [*said.answer] == [Seen.ACTIVE, Seen.IDLE, Seen.NOTHING, Seen.NOTHING, Seen.ACTIVE, Seen.NOTHING]


@in_virtual_time
async def test_a_lost_user_who_becomes_invisible_is_hidden_when_the_announcement_is_confirmed(parts: NodeParts) -> None:
    """The status was set on another node. The engine lost the user, so no message about the change came."""
    node = await parts.whole()
    ann, _ = await parts.greeted("ann"), await parts.greeted("bob")
    await ann.ask(type="watch", users=["bob"])
    parts.engine.lose()
    parts.engine.restoring = True
    node.watching.hold(Part(), LONG_S)
    await parts.store.put_status(TENANT, "bob", ManualStatus("invisible"))
    assert await states(ann) == []
    await node._apply_invisible((TENANT, "bob"))
    assert await states(ann) == [("bob", "offline")]


@in_virtual_time
async def test_sessions_of_an_invisible_user_confirm_no_older_state(parts: NodeParts) -> None:
    """After a failover to older data, the engine publishes states from before the user became invisible."""
    await parts.whole()
    bob = await parts.greeted("bob")
    place = (TENANT, "bob", "")

    async def seen() -> list[int]:
        parts.receive(Topic("node", "", parts.incarnation), SessionsQuestion([place], OTHER, 7))
        await settle()
        return [*next(m for m in reversed(parts.engine.sent_to(OTHER)) if isinstance(m, ClusterAnswer)).answer]

    assert await seen() == [Seen.ACTIVE]
    await bob.ask(type="status.set", status="invisible")
    assert await seen() == [Seen.HIDDEN]


@in_virtual_time
async def test_an_older_end_of_an_invisible_user_is_not_shown_to_the_own_devices(parts: NodeParts) -> None:
    node = await parts.whole()
    phone, tablet = await parts.greeted("bob"), await parts.greeted("bob", device="tablet")
    await phone.ask(type="status.set", status="invisible")
    await tablet.ask(type="watch", users=["bob"])
    await tablet.frames()
    node.watching.hold(Part(), LONG_S)
    await pass_time(1)
    publish(parts, "bob", "offline")
    await pass_time(5)
    assert await states(tablet) == []


@in_virtual_time
async def test_a_user_who_becomes_visible_is_shown_when_the_node_of_the_sessions_knows(parts: NodeParts) -> None:
    """The announcement of the status arrives there after the first question."""
    _, ann = await held(parts, "bob")
    parts.engine.other_node(OTHER)
    await pass_time(0.1)
    publish(parts, "bob", "idle")
    await settle()
    (question,) = questions(parts)
    answer(parts, question, Seen.HIDDEN)
    await pass_time(HIDDEN_S + 0.1)
    assert await states(ann) == []
    answer(parts, questions(parts)[-1], Seen.IDLE)
    assert await states(ann) == [("bob", "idle")]


@in_virtual_time
async def test_a_user_who_stays_invisible_is_asked_about_some_times(parts: NodeParts) -> None:
    _, ann = await held(parts, "bob")
    parts.engine.other_node(OTHER)
    await pass_time(0.1)
    publish(parts, "bob", "idle")
    for _ in range(2 * HIDDEN_ATTEMPTS):
        await settle()
        answer(parts, questions(parts)[-1], Seen.HIDDEN)
        await pass_time(HIDDEN_S + 0.1)
    assert (len(questions(parts)), await states(ann)) == (HIDDEN_ATTEMPTS, [])
