"""Watches: snapshots and changes without a gap, grants, privacy, and states that may have been missed."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from greendot.app.node import Node
from greendot.engine.memory import MemoryEngine
from greendot.engine.messages import Part, Topic
from greendot.engine.results import Known
from greendot.errors import EngineUnavailable, Refused
from greendot.node.subscriptions import UNHEARD_S
from greendot.presence.model import Change, ManualStatus, SessionEpoch, VisibleState
from greendot.presence.shown_model import CLOCKS_MS
from greendot.presence.watch import WatchService
from greendot.protocol.codes import Err
from greendot.protocol.events import Status
from unit.node_parts import (
    Client,
    Frame,
    NodeParts,
    entries_of,
    held,
    in_virtual_time,
    pass_time,
    settle,
    under_way,
    users_of,
)

BOB = Topic("watch", "default", "bob")
HOLD_S = 7.0  # the default time until a restored user must be complete


async def watching(parts: NodeParts, **sections: Any) -> WatchService:
    return (await node(parts, **sections)).watching


async def node(parts: NodeParts, **sections: Any) -> Node:
    made = await parts.whole(**sections)
    made.watching._hold_s = HOLD_S
    return made


async def watch(service: WatchService, client: Client, *users: str) -> list[Frame]:
    """Watch users and return the entries of the reply."""
    return [*entries_of(await service.watch(client.connection, client.session, [*users]))]


async def be(parts: NodeParts, client: Client, *, idle: bool) -> None:
    """Make a user idle or active in the engine."""
    session = client.session
    await MemoryEngine.touch(parts.engine, *session.key, session.ref, session.device, idle, None)


async def leave(parts: NodeParts, client: Client) -> None:
    await MemoryEngine.linger(parts.engine, *client.session.key, client.session.ref, 0, 0)


async def states(client: Client) -> list[str]:
    return [event["state"] for event in await client.events("presence.changed")]


def publish(parts: NodeParts, state: str, version: int, *, restored: bool = False) -> None:
    """Publish a change of bob, as another node does."""
    visible = VisibleState(state, since=version, version=version)  # type: ignore[arg-type]
    parts.engine.publish(BOB, Change(visible, visible, None, ["phone"], True, True, restored))


# --- watching ---


@in_virtual_time
async def test_states_come_in_the_order_asked_for_and_then_every_change_once(parts: NodeParts) -> None:
    service, ann, bob = await watching(parts), parts.session("ann"), await parts.online("bob")
    found = await watch(service, ann, "zoe", "bob", "zoe")
    assert [(entry["user"], entry["state"]) for entry in found] == [
        ("zoe", "offline"),
        ("bob", "online"),
        ("zoe", "offline"),
    ]
    await be(parts, bob, idle=True)
    await be(parts, bob, idle=True)
    assert await states(ann) == ["idle"]
    await leave(parts, bob)
    assert await states(ann) == ["offline"]


@in_virtual_time
async def test_an_invisible_user_is_online_for_own_devices_only(parts: NodeParts) -> None:
    service, ann = await watching(parts), parts.session("ann")
    bob, tablet = await parts.online("bob"), await parts.online("bob", "tablet")
    await watch(service, ann, "bob")
    await watch(service, tablet, "bob")
    await parts.engine.set_status("default", "bob", ManualStatus("invisible", rev=1))
    assert await states(ann) == ["offline"]
    (own,) = await tablet.events()
    assert (own["state"], own["status"]) == ("online", "invisible")
    await be(parts, bob, idle=True)
    await be(parts, tablet, idle=True)
    assert (await states(ann), await states(tablet)) == ([], ["idle"])


@in_virtual_time
async def test_an_invisible_user_is_hidden_on_the_announcement_also_if_the_change_comes_later(parts: NodeParts) -> None:
    """A node acknowledges the announcement, and the user gets the reply: from then on the user is hidden."""
    node = await parts.whole()
    ann = await parts.greeted("ann")
    await parts.online("bob")
    await ann.ask(type="watch", users=["bob"])
    parts.engine._topics.clear()  # the change is still on its way
    await parts.engine.set_status("default", "bob", ManualStatus("invisible", rev=1))
    assert await states(ann) == []
    await node._apply_invisible(("default", "bob"))
    assert await states(ann) == ["offline"]


@in_virtual_time
async def test_an_invisible_user_is_hidden_on_the_announcement_also_from_a_watcher_who_just_comes(
    parts: NodeParts,
) -> None:
    """The node has read the user before the change, and gets the answer after the announcement."""
    node = await parts.whole()
    ann = await parts.greeted("ann")
    await parts.engine.touch("default", "bob", SessionEpoch("s", parts.incarnation, 1), "phone", False, None)
    await parts.engine.set_status("default", "bob", ManualStatus())
    async with held(parts.engine, "read", "after") as read, under_way(watch(node.watching, ann, "bob")) as reply:
        parts.engine._topics.clear()  # the change is still on its way
        await parts.engine.set_status("default", "bob", ManualStatus("invisible", rev=1))
        async with under_way(node._apply_invisible(("default", "bob"))):
            read.release()
    ((entry,), changes) = reply.result(), await states(ann)
    assert [entry["state"], *changes][-1] == "offline"


@in_virtual_time
async def test_a_watch_beyond_the_limit_is_refused_as_a_whole(parts: NodeParts) -> None:
    service, ann = await watching(parts, limits={"watches": 2}), parts.session("ann")
    await watch(service, ann, "bob", "cid", "bob")
    await watch(service, ann, "cid")
    with pytest.raises(Refused) as refused:
        await watch(service, ann, "bob", "dan")
    assert (refused.value.code, ann.connection.watches) == (Err.TOO_MANY, {"bob", "cid"})
    await service.unwatch(ann.connection, ann.session, ["bob"])
    assert users_of(await service.watch(ann.connection, ann.session, ["dan"])) == ["dan"]


@in_virtual_time
async def test_a_change_while_the_state_is_read_is_in_the_reply(parts: NodeParts) -> None:
    service, ann, bob = await watching(parts), parts.session("ann"), await parts.online("bob")
    async with held(parts.engine, "read", "after") as read, under_way(watch(service, ann, "bob")) as reply:
        await read.reached()
        await be(parts, bob, idle=True)
        read.release()
    assert [entry["state"] for entry in await reply] == ["idle"]
    assert await states(ann) == []


@in_virtual_time
async def test_an_entry_that_changed_before_the_reply_was_complete_is_made_again(parts: NodeParts) -> None:
    service, ann, bob = await watching(parts), parts.session("ann"), await parts.online("bob")
    first_group = ["bob", *(f"u{number}" for number in range(199))]
    await watch(service, parts.session("eve"), *first_group)  # so that only the second group is read below
    async with held(parts.engine, "read") as read, under_way(watch(service, ann, *first_group, "zoe")) as reply:
        await read.reached()
        await be(parts, bob, idle=True)
        assert await states(ann) == ["idle"]
        read.release()
    found = await reply
    assert (len(found), found[0]["user"], found[0]["state"]) == (201, "bob", "idle")


@in_virtual_time
async def test_a_connection_that_ends_while_the_state_is_read_watches_no_user(parts: NodeParts) -> None:
    service, ann = await watching(parts), parts.session("ann")
    await parts.online("bob")
    async with held(parts.engine, "read") as read, under_way(watch(service, ann, "bob")) as reply:
        ann.connection.close(4000)
        read.release()
    assert (await reply, ann.connection.watches) == ([], None)
    await pass_time(UNHEARD_S + 0.1)
    assert service.watched(BOB) is None


@in_virtual_time
async def test_a_watch_that_fails_leaves_only_the_watches_from_before(parts: NodeParts) -> None:
    service, ann, bob = await watching(parts), parts.session("ann"), await parts.online("bob")
    await watch(service, ann, "bob")
    parts.engine.away = {"read"}
    with pytest.raises(EngineUnavailable):
        await watch(service, ann, "bob", "cid")
    assert ann.connection.watches == {"bob"}
    await be(parts, bob, idle=True)
    assert await states(ann) == ["idle"]


@in_virtual_time
async def test_an_unwatched_user_is_not_reported_and_is_removed(parts: NodeParts) -> None:
    service, ann, bob = await watching(parts), parts.session("ann"), await parts.online("bob")
    await watch(service, ann, "bob")
    await service.unwatch(ann.connection, ann.session, ["bob", "zoe"])
    await be(parts, bob, idle=True)
    assert await states(ann) == []
    await pass_time(UNHEARD_S + 0.1)
    assert (service.watched(BOB), BOB in parts.engine._topics) == (None, False)


@in_virtual_time
async def test_a_closed_connection_watches_no_user_however_many_it_watched(parts: NodeParts) -> None:
    service, ann = await watching(parts), parts.session("ann")
    users = [f"u{number}" for number in range(201)]
    await watch(service, ann, *users)
    service.forget(ann.connection)
    await settle()
    assert not any(service._watched.get(Topic("watch", "default", user)).channel.listeners for user in users)  # type: ignore[union-attr]
    assert ann.connection.watches is None


# --- grants and privacy ---


@in_virtual_time
async def test_a_user_whom_the_token_does_not_let_watch_is_unknown_and_not_followed(parts: NodeParts) -> None:
    service, ann, bob = await watching(parts), parts.session("ann", watch=("team-*",)), await parts.online("bob")
    found = await watch(service, ann, "bob", "team-1", "ann")
    assert [entry["version"] for entry in found] == [0, 0, 0]
    assert (service.watched(BOB), ann.connection.watches) == (None, {"team-1", "ann"})
    await be(parts, bob, idle=True)
    assert await states(ann) == []


@in_virtual_time
async def test_watches_that_a_new_token_does_not_allow_end_with_what_waits(parts: NodeParts) -> None:
    service, ann = await watching(parts), parts.session("ann")
    bob, cid = await parts.online("bob"), await parts.online("cid")
    await watch(service, ann, "bob", "cid")
    ann.connection.hold()
    await be(parts, bob, idle=True)
    await be(parts, cid, idle=True)
    await settle()
    await service.keep_granted(ann.connection, ann.session, parts.grants("ann", watch=("c*",)))
    ann.connection.release([])
    assert [event["user"] for event in await ann.events()] == ["cid"]
    await be(parts, bob, idle=False)
    assert (await states(ann), ann.connection.watches) == ([], {"cid"})


@in_virtual_time
async def test_a_hidden_user_is_offline_only_for_the_users_hidden_from(parts: NodeParts) -> None:
    all_parts = await node(parts)
    service, ann, eve = all_parts.watching, parts.session("ann"), parts.session("eve")
    bob = await parts.online("bob")
    await watch(service, ann, "bob")
    await watch(service, eve, "bob")
    await all_parts.visibility_updates.set_privacy(("default", "bob"), None, ["eve"])
    assert (await states(ann), await states(eve)) == ([], ["offline"])
    await be(parts, bob, idle=True)
    assert (await states(ann), await states(eve)) == (["idle"], [])
    await all_parts.visibility_updates.set_privacy(("default", "bob"), None, [])
    assert (await states(ann), await states(eve)) == ([], ["idle"])


@in_virtual_time
async def test_last_seen_that_is_hidden_later_is_taken_back(parts: NodeParts) -> None:
    all_parts = await node(parts)
    service, ann, bob = all_parts.watching, parts.session("ann"), await parts.online("bob")
    await leave(parts, bob)
    (entry,) = await watch(service, ann, "bob")
    assert entry["last_seen"] is not None
    await all_parts.visibility_updates.set_privacy(("default", "bob"), "hidden", None)
    assert [(event["state"], event["last_seen"]) for event in await ann.events()] == [("offline", None)]


# --- changes ---


@in_virtual_time
async def test_an_older_change_and_an_equal_state_are_not_published(parts: NodeParts) -> None:
    service, ann = await watching(parts), parts.session("ann")
    await watch(service, ann, "bob")
    publish(parts, "online", 10)
    publish(parts, "idle", 9)
    publish(parts, "online", 11)
    publish(parts, "online", 11)
    assert await states(ann) == ["online"]
    (entry,) = await watch(service, parts.session("eve"), "bob")
    assert entry["version"] == 11


@in_virtual_time
async def test_a_restored_user_who_looks_different_is_shown_when_all_had_time_to_be_restored(parts: NodeParts) -> None:
    service, ann, bob = await watching(parts), parts.session("ann"), await parts.online("bob")
    await watch(service, ann, "bob")
    publish(parts, "idle", parts.engine.now_ms() + 1, restored=True)
    await pass_time(HOLD_S - 0.1)
    assert await states(ann) == []
    await be(parts, bob, idle=True)
    await pass_time(0.2)
    assert await states(ann) == ["idle"]


@in_virtual_time
async def test_a_restored_user_who_looks_the_same_is_followed_without_a_pause(parts: NodeParts) -> None:
    service, ann, bob = await watching(parts), parts.session("ann"), await parts.online("bob")
    await watch(service, ann, "bob")
    shown = (await parts.shown("bob")).visible
    visible = structs.replace(shown, version=shown.version + 1)
    parts.engine.publish(BOB, Change(visible, visible, None, ["phone"], True, True, restored=True))
    await pass_time(0.01)  # for another version
    await be(parts, bob, idle=True)
    assert await states(ann) == ["idle"]


@in_virtual_time
async def test_a_restored_user_is_read_again_until_the_engine_answers(parts: NodeParts) -> None:
    service, ann, bob = await watching(parts), parts.session("ann"), await parts.online("bob")
    await watch(service, ann, "bob")
    publish(parts, "idle", parts.engine.now_ms() + 1, restored=True)
    parts.engine.away = {"read"}
    await be(parts, bob, idle=True)
    await pass_time(HOLD_S + 0.1)
    assert await states(ann) == []
    parts.engine.away = set()
    await pass_time(HOLD_S + 0.1)
    assert await states(ann) == ["idle"]


# --- missed messages ---


@in_virtual_time
async def test_a_missed_change_is_sent_after_a_resync(parts: NodeParts) -> None:
    service, ann, bob = await watching(parts), parts.session("ann"), await parts.online("bob")
    await watch(service, ann, "bob")
    parts.engine._topics.clear()  # messages are lost
    await be(parts, bob, idle=True)
    assert await states(ann) == []
    await service.resync(Part(), intact=True)
    await service.resync(Part(), intact=True)
    assert await states(ann) == ["idle"]


@in_virtual_time
async def test_an_older_version_is_the_truth_only_after_a_loss_and_gets_a_version_of_its_own(parts: NodeParts) -> None:
    service, ann = await watching(parts), parts.session("ann")
    await parts.online("bob")
    await watch(service, ann, "bob")
    ahead = parts.engine.now_ms() + 60_000
    publish(parts, "busy", ahead)
    await service.resync(Part(), intact=True)
    assert await states(ann) == ["busy"]
    await service.resync(Part(), intact=False)
    (told,) = await ann.events()
    assert (told["state"], told["version"]) == ("online", ahead + 1)


@in_virtual_time
async def test_the_truth_after_a_loss_has_a_newer_version_than_any_state_from_before(parts: NodeParts) -> None:
    """After an earlier failover to older data, a client may know a newer state than this node has ever shown."""
    service, ann = await watching(parts), parts.session("ann")
    bob = await parts.online("bob")
    await watch(service, ann, "bob")
    await pass_time(60)
    asked_ms = parts.engine.now_ms()
    parts.engine.lose()
    await service.resync(Part(), intact=False)
    (told,) = await ann.events()
    assert (told["state"], told["version"]) == ("offline", asked_ms - CLOCKS_MS)
    known = Known("phone", False, None, 0, ManualStatus())
    await parts.engine.restore("default", "bob", bob.session.ref, known)
    await pass_time(HOLD_S + 0.1)
    (told,) = await ann.events()
    assert told["state"] == "online"
    assert told["version"] > asked_ms - CLOCKS_MS


@in_virtual_time
async def test_after_a_loss_an_invisible_user_looks_like_an_offline_one_still(parts: NodeParts) -> None:
    service, ann = await watching(parts), parts.session("ann")
    bob, eve = await parts.online("bob"), await parts.online("eve")
    await watch(service, ann, "bob", "eve")
    invisible = ManualStatus("invisible", rev=1)
    await parts.engine.set_status("default", "bob", invisible)
    await leave(parts, eve)
    before = await watch(service, ann, "bob", "eve")
    parts.engine.lose()
    known = Known("phone", False, None, 0, invisible)
    await parts.engine.restore("default", "bob", bob.session.ref, known)
    await service.resync(Part(), intact=False)
    assert await watch(service, ann, "bob", "eve") == before
    assert {(entry["state"], entry["last_seen"] is None) for entry in before} == {("offline", False)}


@pytest.mark.parametrize(("status", "shown"), [("invisible", []), ("auto", ["online"])])
@in_virtual_time
async def test_older_data_show_no_user_who_is_invisible_by_the_store(
    parts: NodeParts, status: Status, shown: list[str]
) -> None:
    """The engine has failed over to data from before the user became invisible, and the user's node is paused."""
    service, ann = await watching(parts), parts.session("ann")
    await parts.online("bob")
    await watch(service, ann, "bob")
    publish(parts, "offline", parts.engine.now_ms() + 60_000)
    await parts.store.put_status("default", "bob", ManualStatus(status))
    assert await states(ann) == ["offline"]
    await service.resync(Part(), intact=False)
    assert await states(ann) == shown
    assert parts.store.count("statuses") == 1


@in_virtual_time
async def test_users_who_are_held_are_shown_as_before_until_they_are_read(parts: NodeParts) -> None:
    service, ann, bob = await watching(parts), parts.session("ann"), await parts.online("bob")
    await watch(service, ann, "bob")
    service.hold(Part(), 600)
    await be(parts, bob, idle=True)
    await service.resync(Part(), intact=True)
    assert await states(ann) == []
    service.hold(Part(), 0)
    await service.resync(Part(), intact=False)
    assert await states(ann) == ["idle"]


@in_virtual_time
async def test_a_watch_during_a_hold_is_stale_and_completed_at_its_end(parts: NodeParts) -> None:
    """The client may know a newer state from another node. So it gets the state at the end also if it is the same."""
    service, ann, bob = await watching(parts), parts.session("ann"), await parts.online("bob")
    await watch(service, ann, "bob")
    service.hold(Part(), 600)
    eve, zoe, tablet = parts.session("eve"), parts.session("zoe"), parts.session("bob", "tablet")
    for client in (eve, zoe, tablet):
        (entry,) = await watch(service, client, "bob")
        assert (entry["state"], entry.get("stale")) == ("online", True)
    await service.unwatch(zoe.connection, zoe.session, ["bob"])
    known = Known("phone", False, None, 0, ManualStatus(), lost_ms=0)
    await pass_time(1.0)
    restored_ms = parts.engine.now_ms()
    await parts.engine.restore("default", "bob", bob.session.ref, known)
    await service.resync(Part(), intact=False, release=True)
    for client in (eve, tablet):
        (told,) = await client.events("presence.changed")
        assert (told["state"], told.get("stale"), told["version"]) == ("online", None, restored_ms)
    assert await states(ann) == await states(zoe) == []
    (entry,) = await watch(service, parts.session("kim"), "bob")
    assert "stale" not in entry
    await be(parts, bob, idle=True)
    await service.resync(Part(), intact=True)
    for client in (ann, eve, tablet):
        assert await states(client) == ["idle"]


@in_virtual_time
async def test_a_watch_during_a_hold_is_completed_once_if_the_state_changes(parts: NodeParts) -> None:
    service, ann, bob = await watching(parts), parts.session("ann"), await parts.online("bob")
    await watch(service, ann, "bob")
    service.hold(Part(), 600)
    eve, tablet = parts.session("eve"), parts.session("bob", "tablet")
    for client in (eve, tablet):
        await watch(service, client, "bob")
    await be(parts, bob, idle=True)
    await service.resync(Part(), intact=False, release=True)
    for client in (ann, eve, tablet):
        assert [(event["state"], event.get("stale")) for event in await client.events()] == [("idle", None)]


@in_virtual_time
async def test_watches_during_a_hold_are_not_marked_as_stale_a_second_time(parts: NodeParts) -> None:
    made, ann, bob = await node(parts), parts.session("ann"), await parts.online("bob")
    service = made.watching
    await made.visibility_updates.set_privacy(("default", "bob"), None, ["kim"])
    await watch(service, ann, "bob")
    service.hold(Part(), 600)
    others = [parts.session("eve"), parts.session("kim"), parts.session("bob", "tablet")]
    for client in others:
        (entry,) = await watch(service, client, "bob")
        assert entry["stale"] is True
    await service.mark_stale(Part())
    for client, marks in zip((ann, *others), ([True], [], [], []), strict=True):
        assert [event.get("stale") for event in await client.events()] == marks
    await service.resync(Part(), intact=True, release=True)
    for client in (ann, *others):
        assert [event.get("stale") for event in await client.events()] == [None]
    await be(parts, bob, idle=True)
    assert await states(others[0]) == ["idle"]


@in_virtual_time
async def test_a_hidden_watcher_during_a_hold_gets_the_same_entries_as_of_an_unknown_user(parts: NodeParts) -> None:
    made, ann = await node(parts), parts.session("ann")
    service = made.watching
    await parts.online("bob")
    await made.visibility_updates.set_privacy(("default", "bob"), None, ["ann"])
    await watch(service, parts.session("eve"), "bob", "zoe")
    service.hold(Part(), 600)
    hidden, unknown = await watch(service, ann, "bob", "zoe")
    assert hidden["stale"] is True
    assert {**hidden, "user": "zoe"} == unknown
    await service.resync(Part(), intact=False, release=True)
    hidden, unknown = sorted(await ann.events(), key=lambda event: str(event["user"]))
    assert "stale" not in hidden
    assert {**hidden, "user": "zoe"} == unknown


@in_virtual_time
async def test_a_user_who_is_held_again_while_it_is_read_stays_as_shown(parts: NodeParts) -> None:
    service, ann, bob = await watching(parts), parts.session("ann"), await parts.online("bob")
    await watch(service, ann, "bob")
    service.hold(Part(), 0)
    await be(parts, bob, idle=True)
    async with held(parts.engine, "read", "after") as read, under_way(service.resync(Part(), intact=False)):
        await read.reached()
        service.hold(Part(), 600)
        read.release()
    assert await states(ann) == []


@in_virtual_time
async def test_watchers_receive_once_that_a_state_is_stale_and_once_that_it_is_current(parts: NodeParts) -> None:
    service, ann, bob = await watching(parts), parts.session("ann"), await parts.online("bob")
    await watch(service, ann, "bob")
    await watch(service, bob, "bob")
    await service.mark_stale(Part())
    await service.mark_stale(Part())
    for client in (ann, bob):
        assert [(event["state"], event.get("stale")) for event in await client.events()] == [("online", True)]
    await service.resync(Part(), intact=True)
    await service.resync(Part(), intact=True)
    for client in (ann, bob):
        assert [(event["state"], event.get("stale")) for event in await client.events()] == [("online", None)]


@in_virtual_time
async def test_a_watch_during_a_restore_is_stale_and_completed_with_the_first_confirmed_change(
    parts: NodeParts,
) -> None:
    service, ann = await watching(parts), parts.session("ann")
    parts.engine.restoring = True
    (entry,) = await watch(service, ann, "bob")
    assert (entry["state"], entry["stale"]) == ("offline", True)
    parts.engine.restoring = False
    await parts.online("bob")
    assert [(event["state"], event.get("stale")) for event in await ann.events()] == [("online", None)]
    await pass_time(HOLD_S + 0.1)
    assert await states(ann) == []


@in_virtual_time
async def test_a_stale_answer_about_a_watched_user_is_followed_by_the_state(parts: NodeParts) -> None:
    """The mark came in a reply to `presence.get`, so the watch does not deliver a change of the state."""
    await parts.whole()
    ann = await parts.greeted("ann")
    await parts.online("bob")
    await ann.ask(type="watch", users=["bob", "zoe"])
    await ann.frames()
    parts.engine.restoring = True
    asked = await ann.ask(type="presence.get", users=["bob", "zoe", "eve"])
    assert [entry["stale"] for entry in asked["data"]["presence"]] == [True] * 3
    await ann.ask(type="presence.get", users=["bob"])
    parts.engine.restoring = False
    await pass_time(60)
    events = [(event["user"], event["state"], "stale" in event) for event in await ann.events("presence.changed")]
    assert sorted(events) == [("bob", "online", False), ("zoe", "offline", False)]


@in_virtual_time
async def test_a_last_seen_time_of_the_store_is_kept_when_the_engine_is_back(parts: NodeParts) -> None:
    service, ann = await watching(parts), parts.session("ann")
    at = parts.clock.now_ms() - 60_000
    await parts.store.put_last_seen({("default", "bob"): at})
    assert [entry["last_seen"] for entry in await watch(service, ann, "bob")] == [at]
    await service.mark_stale(Part())
    await service.resync(Part(), intact=True)
    events = await ann.events()
    assert [(event["last_seen"], event.get("stale", False)) for event in events] == [(at, True), (at, False)]
