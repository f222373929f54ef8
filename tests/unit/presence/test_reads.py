"""Replies to `presence.get`: in order, without users whom the reader may not see when the reply is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from greendot.app.node import Node
from greendot.engine.messages import Part, Topic
from greendot.engine.results import Known
from greendot.errors import EngineUnavailable
from greendot.node.subscriptions import UNHEARD_S
from greendot.node.time_slices import TimeSlices
from greendot.presence.last_seen import CACHED_S
from greendot.presence.model import ManualStatus, Snapshot
from greendot.presence.reads import watchable
from greendot.protocol.events import Status
from unit.node_parts import Client, Frame, NodeParts, entries_of, held, in_virtual_time, pass_time, under_way

BOB = ("default", "bob")


async def read(node: Node, client: Client, *users: str) -> list[Frame]:
    return [*entries_of(await node.watching.read(client.session, [*users]))]


def looks_unknown(entry: Frame) -> bool:
    seen = {key: value for key, value in entry.items() if key not in ("user", "stale")}
    empty: dict[str, Any] = dict.fromkeys(("name", "since", "last_seen", "status_text"))
    return seen == empty | {"state": "offline", "version": 0, "mode": "live", "devices": []}


@in_virtual_time
async def test_states_are_read_in_one_call_in_the_requested_order_without_a_subscription(parts: NodeParts) -> None:
    node, ann = await parts.whole(), parts.session("ann")
    await parts.online("bob", name="Bob")
    found = await read(node, ann, "zoe", "bob")
    assert [(entry["user"], entry["name"], entry["state"]) for entry in found] == [
        ("zoe", None, "offline"),
        ("bob", "Bob", "online"),
    ]
    assert [args[1] for args in parts.engine.made("read")] == [["zoe", "bob"], ["zoe"]], "the store was read between"
    assert parts.engine.count("subscribe") == 0


@in_virtual_time
async def test_a_reply_about_many_users_keeps_their_order(parts: NodeParts) -> None:
    node, ann = await parts.whole(), parts.session("ann")
    await parts.online("bob")
    users = [f"u{number}" for number in range(450)]
    users[333] = "bob"
    found = await read(node, ann, *users)
    assert [entry["user"] for entry in found] == users
    assert [number for number, entry in enumerate(found) if entry["state"] == "online"] == [333]


@in_virtual_time
async def test_own_state_has_the_status_and_that_of_others_has_not(parts: NodeParts) -> None:
    node, ann, bob = await parts.whole(), parts.session("ann"), await parts.online("bob")
    await parts.engine.set_status(*BOB, ManualStatus("invisible", rev=1))
    (own,) = await read(node, bob, "bob")
    assert (own["state"], own["status"]) == ("online", "invisible")
    (other,) = await read(node, ann, "bob")
    assert (other["state"], "status" in other) == ("offline", False)


@in_virtual_time
async def test_a_user_whom_the_token_does_not_let_watch_looks_unknown_and_is_not_read(parts: NodeParts) -> None:
    node, ann = await parts.whole(), parts.session("ann", watch=("team-*",))
    await parts.online("bob")
    await parts.online("team-1")
    found = await read(node, ann, "bob", "team-1")
    assert (looks_unknown(found[0]), found[1]["state"]) == (True, "online")
    assert [names for _, names in parts.engine.made("read")] == [[".bob", "team-1"], [".bob"]]


@in_virtual_time
async def test_a_hidden_user_looks_unknown_and_takes_as_many_reads_as_any_user(parts: NodeParts) -> None:
    node, ann = await parts.whole(), parts.session("ann")
    await parts.online("bob")
    await node.visibility_updates.set_privacy(BOB, None, ["ann"])
    (entry,) = await read(node, ann, "bob")
    assert looks_unknown(entry)
    parts.engine.calls.clear()
    assert looks_unknown((await read(node, ann, "nobody"))[0])
    unknown = [(call, args) for call, args in parts.engine.calls if call == "read"]
    await pass_time(CACHED_S)
    parts.engine.calls.clear()
    (entry,) = await read(node, ann, "bob")
    assert looks_unknown(entry)
    assert [args[1] for args in parts.engine.made("read")] == [[".bob"]] * len(unknown)


@in_virtual_time
async def test_a_user_who_hides_while_the_reply_is_made_is_not_in_it(parts: NodeParts) -> None:
    node, ann = await parts.whole(), parts.session("ann")
    await parts.online("bob")
    async with held(parts.engine, "read", "after") as reading, under_way(read(node, ann, "bob", "zoe")) as reply:
        await reading.reached()
        await node.visibility_updates.set_privacy(BOB, None, ["ann"])
        reading.release()
    assert looks_unknown((await reply)[0])


@in_virtual_time
async def test_a_user_who_hides_after_its_entry_was_made_is_not_in_the_reply(parts: NodeParts) -> None:
    node, ann = await parts.whole(), parts.session("ann")
    await parts.online("bob")
    users = ["bob", *(f"u{number}" for number in range(200))]
    await read(node, ann, *users)  # the reader knows now that the store has no last-seen times
    async with held(parts.engine, "read", "after") as first, under_way(read(node, ann, *users)) as reply:
        await first.reached()
        async with held(parts.engine, "read") as second:
            first.release()
            await second.reached()  # the entries of the first group are complete
            await node.visibility_updates.set_privacy(BOB, None, ["ann"])
    assert looks_unknown((await reply)[0])


@in_virtual_time
async def test_last_seen_that_is_hidden_is_not_shown(parts: NodeParts) -> None:
    node, ann, bob = await parts.whole(), parts.session("ann"), await parts.online("bob", name="Bob")
    await parts.engine.linger(*BOB, bob.session.ref, 0, 0)
    (before,) = await read(node, ann, "bob")
    await node.visibility_updates.set_privacy(BOB, "hidden", None)
    (after,) = await read(node, ann, "bob")
    assert before["last_seen"] is not None
    assert (after["name"], after["last_seen"], after["version"]) == ("Bob", None, 0)


@in_virtual_time
async def test_a_polled_user_is_followed_for_a_while_and_read_once_for_all(parts: NodeParts) -> None:
    node, ann, eve = await parts.whole(presence={"polled": ["default/bob"]}), parts.session("ann"), parts.session("eve")
    bob = await parts.online("bob")
    for reader in (ann, eve):
        (entry,) = await read(node, reader, "bob")
        assert (entry["state"], entry["mode"], entry["recently_active"]) == ("online", "poll", True)
    assert parts.engine.count("read") == 1
    await parts.engine.touch(*BOB, bob.session.ref, "phone", True, None)
    (entry,) = await read(node, ann, "bob")
    assert (entry["state"], parts.engine.count("read")) == ("idle", 1)
    await pass_time(UNHEARD_S + 0.1)
    assert node.watching.watched(Topic("watch", *BOB)) is None


@in_virtual_time
async def test_a_stale_answer_is_replaced_by_what_watchers_here_see(parts: NodeParts) -> None:
    node, ann = await parts.whole(), parts.session("ann")
    await parts.online("bob", name="Bob")
    await node.watching.watch(ann.connection, ann.session, ["bob"])
    parts.engine.lose()
    parts.engine.restoring = True
    (entry,) = await read(node, ann, "bob")
    assert (entry["state"], entry["name"], entry["stale"]) == ("online", "Bob", True)
    await node.watching.mark_stale(Part())
    parts.registry.remove(parts.registry.sessions_of(*BOB)[0])
    (entry,) = await read(node, ann, "bob")
    assert (entry["state"], entry["stale"]) == ("offline", True)


@in_virtual_time
async def test_a_stale_answer_is_replaced_by_sessions_here(parts: NodeParts) -> None:
    node, ann = await parts.whole(), parts.session("ann")
    await parts.online("bob", name="Bob")
    node.statuses.learnt(BOB, ManualStatus())
    parts.engine.lose()
    parts.engine.restoring = True
    found = await read(node, ann, "bob", "zoe")
    assert [(entry["state"], entry["stale"]) for entry in found] == [("online", True), ("offline", True)]


@in_virtual_time
async def test_a_reply_is_not_older_than_a_change_that_was_sent_while_the_engine_was_read(parts: NodeParts) -> None:
    node, ann, bob = await parts.whole(), parts.session("ann"), await parts.online("bob")
    await node.watching.watch(ann.connection, ann.session, ["bob"])
    async with held(parts.engine, "read", "after") as reading, under_way(read(node, ann, "bob")) as reply:
        await reading.reached()
        await pass_time(1)  # for another version
        await parts.engine.touch(*BOB, bob.session.ref, "phone", True, None)
        (event,) = await ann.events("presence.changed")
        reading.release()
    (entry,) = await reply
    assert (entry["state"], entry["version"]) == ("idle", event["version"])


@pytest.mark.parametrize("status", ["auto", "invisible"])
@in_virtual_time
async def test_a_reply_is_not_older_than_what_watchers_saw_before_the_engine_lost_it(
    parts: NodeParts, status: Status
) -> None:
    node, ann, bob = await parts.whole(), parts.session("ann"), await parts.online("bob", name="Bob")
    await parts.engine.linger(*BOB, bob.session.ref, 0, 0)
    older = dict(parts.engine._seen)
    await pass_time(9)
    bob = await parts.online("bob", name="Bob")
    await node.watching.watch(ann.connection, ann.session, ["bob"])
    manual = ManualStatus(status, rev=1)
    if status == "invisible":
        await parts.engine.set_status(*BOB, manual)
    else:
        await parts.engine.linger(*BOB, bob.session.ref, 0, 0)
    (event,) = await ann.events("presence.changed")
    parts.engine.lose()
    parts.engine._seen.update(older)
    if status == "invisible":
        await parts.engine.restore(*BOB, bob.session.ref, Known("phone", False, "Bob", 0, manual))
    await node.watching.resync(Part(), intact=False)
    (entry,) = await read(node, ann, "bob")
    assert entry == event | {"devices": []}
    assert (entry["state"], await ann.events("presence.changed")) == ("offline", [])


@in_virtual_time
async def test_a_user_whom_the_engine_has_forgotten_looks_unknown_although_watchers_saw_the_user(
    parts: NodeParts,
) -> None:
    node, ann = await parts.whole(), parts.session("ann")
    await parts.online("bob")
    await node.watching.watch(ann.connection, ann.session, ["bob"])
    parts.engine.lose()
    (entry,) = await read(node, ann, "bob")
    assert looks_unknown(entry)


@in_virtual_time
async def test_a_hidden_user_is_as_stale_as_an_unknown_one(parts: NodeParts) -> None:
    node, ann = await parts.whole(), parts.session("ann")
    await parts.online("bob")
    await node.visibility_updates.set_privacy(BOB, None, ["ann"])
    parts.engine.restoring = True
    bob, zoe = await read(node, ann, "bob", "zoe")
    assert {**bob, "user": "zoe"} == zoe


@in_virtual_time
async def test_a_read_fails_while_the_engine_is_away(parts: NodeParts) -> None:
    node, ann = await parts.whole(), parts.session("ann")
    parts.engine.away = {"read"}
    with pytest.raises(EngineUnavailable):
        await read(node, ann, "bob")


@in_virtual_time
async def test_of_very_many_users_and_patterns_those_that_match_and_oneself_may_be_watched(parts: NodeParts) -> None:
    users = ["ann", *(f"u{number}" for number in range(500))]
    grants = parts.grants("ann", watch=tuple(f"u{number}" for number in range(100)))
    assert [*await watchable(TimeSlices(), grants, users)] == users[:101]
    assert [*await watchable(TimeSlices(), parts.grants("ann"), users)] == users


@in_virtual_time
async def test_a_reply_does_not_mark_a_state_as_stale_that_is_known_when_it_is_sent(parts: NodeParts) -> None:
    node = await parts.whole()
    ann = await parts.greeted("ann")
    await parts.greeted("bob")
    await ann.ask(type="watch", users=["bob"])
    await ann.frames()
    parts.engine.restoring = True
    node.watching.hold(Part(), 100)
    read_some = node.watching.snapshots.read

    async def read_slowly(tenant: str, users: Sequence[str]) -> list[Snapshot]:
        found = await read_some(tenant, users)
        await pass_time(0.05)
        return found

    node.watching.snapshots.read = read_slowly  # type: ignore[method-assign]
    ann.say(type="presence.get", users=["bob", *(f"u{number}" for number in range(2_000))], id=1)
    await pass_time(0.2)
    parts.engine.restoring = False
    await node.watching.resync(Part(), intact=False, release=True)
    await pass_time(60)
    marks = [
        entry.get("stale", False)
        for frame in await ann.frames()
        if "data" in frame
        for entry in frame["data"].get("presence", [frame["data"]])
        if entry.get("user") == "bob"
    ]
    assert marks[-1] is False
