"""Last-seen times: written in batches, read only for users whom the engine does not know."""

from __future__ import annotations

from typing import Any

import pytest

from greendot.app.node import Node
from greendot.engine.messages import Part
from greendot.engine.port import Transition
from greendot.presence import last_seen
from greendot.presence.last_seen import AWAY_S, CACHED_S, EVERY_S, WAIT_S, LastSeenReader
from greendot.presence.last_seen_model import TURNS
from greendot.presence.model import ManualStatus
from unit.node_parts import TENANT, Client, Frame, NodeParts, entries_of, held, in_virtual_time, pass_time, under_way

BOB, EVE = (TENANT, "bob"), (TENANT, "eve")


async def started(parts: NodeParts, **sections: Any) -> Node:
    node = await parts.whole(**sections)
    node.last_seen.start()
    return node


async def leave(parts: NodeParts, client: Client, silent_ms: int = 0) -> None:
    session = client.session
    await parts.engine.linger(*session.key, session.ref, 0, silent_ms)
    parts.registry.remove(session)


async def stay(client: Client, periods: int) -> None:
    """Let periods pass in which the client is received."""
    for _ in range(periods):
        client.connection.on_received()
        await pass_time(EVERY_S)


async def stored(parts: NodeParts, *keys: tuple[str, str]) -> list[int | None]:
    parts.store.calls.clear()
    found = await parts.store.last_seen(keys)
    parts.store.calls.clear()
    return [found.get(key) for key in keys]


async def entry(node: Node, client: Client, user: str) -> Frame:
    return entries_of(await node.watching.read(client.session, [user]))[0]


async def watched(node: Node, client: Client, user: str) -> Frame:
    return entries_of(await node.watching.watch(client.connection, client.session, [user]))[0]


# --- writing ---


@in_virtual_time
async def test_transitions_of_a_period_are_one_write_with_the_times_that_others_see(parts: NodeParts) -> None:
    await started(parts)
    bob, _ = await parts.online("bob"), await parts.online("eve")
    left = parts.clock.now_ms()
    await leave(parts, bob, silent_ms=700)
    assert parts.store.count("put_last_seen") == 0, "no transition writes by itself"
    await pass_time(EVERY_S)
    assert parts.store.count("put_last_seen") == 1
    assert await stored(parts, BOB, EVE) == [left - 700, left + round(EVERY_S * 1000)]


@in_virtual_time
async def test_a_user_who_comes_and_goes_is_one_row(parts: NodeParts) -> None:
    await started(parts)
    for _ in range(5):
        await leave(parts, await parts.online("bob"))
    await pass_time(EVERY_S)
    ((seen,),) = parts.store.made("put_last_seen")
    assert [*seen] == [BOB]


@in_virtual_time
async def test_a_period_without_users_writes_nothing(parts: NodeParts) -> None:
    node = await started(parts)
    node.turned(Transition("room", TENANT, "lobby", True))
    await pass_time(TURNS * EVERY_S)
    assert (parts.store.count("put_last_seen"), parts.engine.count("read")) == (0, 0)


@in_virtual_time
async def test_an_online_user_is_written_again_every_ten_minutes(parts: NodeParts) -> None:
    await started(parts)
    bob = await parts.online("bob")
    begin = parts.clock.now_ms()
    await stay(bob, 3 * TURNS)
    assert parts.store.count("put_last_seen") == 3
    (at,) = await stored(parts, BOB)
    assert at is not None
    assert at >= begin + 2 * TURNS * round(EVERY_S * 1000)


@in_virtual_time
async def test_an_invisible_user_was_last_seen_when_becoming_invisible(parts: NodeParts) -> None:
    node = await started(parts)
    bob = await parts.online("bob")
    await pass_time(EVERY_S + 5)
    hidden = parts.clock.now_ms()
    await parts.engine.set_status(*BOB, ManualStatus("invisible", rev=1))
    await stay(bob, 2 * TURNS)
    assert parts.registry.keys() == [BOB]
    assert await stored(parts, BOB) == [hidden]
    await leave(parts, bob)
    await node.last_seen.close()
    assert await stored(parts, BOB) == [hidden]


@in_virtual_time
async def test_a_user_who_comes_back_invisibly_after_a_restart_is_never_written(parts: NodeParts) -> None:
    node = await started(parts)
    await parts.store.put_last_seen({BOB: 5})
    bob = parts.session("bob")
    await parts.engine.touch(*BOB, bob.session.ref, "phone", False, None)
    await stay(bob, 2)  # the status is not read yet, so the user is not seen
    await parts.engine.set_status(*BOB, ManualStatus("invisible", rev=1))
    await stay(bob, TURNS)
    assert parts.registry.keys() == [BOB]
    await node.last_seen.close()
    assert await stored(parts, BOB) == [5]


@in_virtual_time
async def test_a_node_that_stops_writes_its_online_users_with_the_time_of_the_stop(parts: NodeParts) -> None:
    node = await started(parts)
    bob, _ = await parts.online("bob"), await parts.online("eve")
    await leave(parts, bob)
    left = parts.clock.now_ms()
    await pass_time(10)
    await node.last_seen.close()
    assert await stored(parts, BOB, EVE) == [left, parts.clock.now_ms()]


@pytest.mark.parametrize("part", ["engine", "store"])
@in_virtual_time
async def test_users_wait_while_engine_or_store_are_away(parts: NodeParts, part: str) -> None:
    await started(parts)
    await leave(parts, await parts.online("bob"))
    left = parts.clock.now_ms()
    (parts.engine.away if part == "engine" else parts.store.away).update(("read", "put_last_seen"))
    await pass_time(2 * EVERY_S)
    parts.engine.away.clear()
    parts.store.away.clear()
    assert await stored(parts, BOB) == [None]
    await pass_time(EVERY_S)
    assert await stored(parts, BOB) == [left]


@in_virtual_time
async def test_a_stop_waits_for_a_store_that_hangs_only_some_seconds(parts: NodeParts) -> None:
    node = await started(parts)
    await parts.online("bob")
    async with held(parts.store, "put_last_seen"):
        begin = parts.clock.now_ms()
        await node.last_seen.close()
        assert parts.clock.now_ms() - begin == last_seen.STOP_S * 1000


@in_virtual_time
async def test_a_slow_write_is_not_overtaken_and_its_users_are_not_lost(parts: NodeParts) -> None:
    node = await started(parts)
    await leave(parts, await parts.online("bob"))
    left = parts.clock.now_ms()
    async with held(parts.store, "put_last_seen") as writing:
        await pass_time(3 * EVERY_S)
        assert writing.calls == 1
        await node.tasks.cancel()  # as at the end of a node
    await node.last_seen.close()
    assert await stored(parts, BOB) == [left]


@in_virtual_time
async def test_users_who_wait_are_bounded_and_written_some_at_a_time(
    parts: NodeParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_seen, "MOST", 5)
    monkeypatch.setattr(last_seen, "AT_ONCE", 2)
    await started(parts)
    for number in range(9):
        await leave(parts, await parts.online(f"u{number}"))
    await pass_time(EVERY_S)
    assert [len(seen) for (seen,) in parts.store.made("put_last_seen")] == [2, 2, 1]


@in_virtual_time
async def test_users_of_several_tenants_share_a_write(parts: NodeParts) -> None:
    await started(parts)
    for tenant in ("t1", "t2", "t1"):
        await leave(parts, await parts.online("bob", tenant=tenant))
    await pass_time(EVERY_S)
    ((seen,),) = parts.store.made("put_last_seen")
    assert {*seen} == {("t1", "bob"), ("t2", "bob")}


# --- reading ---


@in_virtual_time
async def test_the_store_answers_for_a_user_whom_the_engine_lost(parts: NodeParts) -> None:
    node, ann = await started(parts), parts.session("ann")
    await leave(parts, await parts.online("bob"))
    left = parts.clock.now_ms()
    await pass_time(EVERY_S)
    parts.engine.lose()
    for found in (await entry(node, ann, "bob"), await watched(node, ann, "bob")):
        assert (found["state"], found["last_seen"], found["since"], found["version"]) == ("offline", left, None, 0)
    assert await ann.frames() == [], "no event follows"


@in_virtual_time
async def test_the_store_is_not_asked_about_users_whom_the_engine_knows(parts: NodeParts) -> None:
    node, ann = await started(parts), parts.session("ann")
    await leave(parts, await parts.online("bob"))
    await parts.online("eve")
    for user in ("bob", "eve"):
        await entry(node, ann, user)
        await watched(node, ann, user)
    assert parts.store.count("last_seen") == 0


@in_virtual_time
async def test_many_unknown_users_are_one_read_of_the_store_and_not_read_again_for_some_seconds(
    parts: NodeParts,
) -> None:
    node, ann = await started(parts), parts.session("ann")
    users = [f"u{number}" for number in range(150)]
    await node.watching.read(ann.session, users)
    assert [len(keys) for (keys,) in parts.store.made("last_seen")] == [150]
    await node.watching.read(ann.session, users)
    assert parts.store.count("last_seen") == 1
    await pass_time(CACHED_S)
    await node.watching.read(ann.session, users)
    assert parts.store.count("last_seen") == 2


@in_virtual_time
async def test_the_cache_of_unknown_users_is_bounded(parts: NodeParts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_seen, "MOST_CACHED", 2)
    node, ann = await started(parts), parts.session("ann")
    for user in ("u1", "u2", "u3", "u3", "u2", "u1"):
        await entry(node, ann, user)
    assert [keys[0][1] for (keys,) in parts.store.made("last_seen")] == ["u1", "u2", "u3", "u1"]


@in_virtual_time
async def test_expired_entries_of_the_cache_are_dropped(parts: NodeParts) -> None:
    node = await started(parts)
    reader = LastSeenReader(parts.engine, parts.store, node._context, 1_000)
    await reader.read([BOB, EVE])
    assert reader.cached([BOB, EVE]) == {BOB: None, EVE: None}
    await pass_time(CACHED_S)
    assert reader.cached([BOB, EVE]) == {}
    await reader.read([EVE])
    assert len(reader) == 1


@in_virtual_time
async def test_a_user_who_comes_online_during_the_read_of_the_store_is_online_in_the_reply(parts: NodeParts) -> None:
    node, ann = await started(parts), parts.session("ann")
    await parts.store.put_last_seen({BOB: parts.clock.now_ms() - 9})
    async with (
        held(parts.store, "last_seen", "after") as reading,
        under_way(entry(node, ann, "bob")) as got,
        under_way(watched(node, ann, "bob")) as reply,
    ):
        await reading.reached()
        await parts.online("bob")
        reading.release()
    for found in (await got, await reply):
        assert (found["state"], found["last_seen"]) == ("online", None)
        assert found["version"] > 0


@in_virtual_time
async def test_a_store_that_hangs_delays_presence_by_a_second_once(parts: NodeParts) -> None:
    node, ann = await started(parts), parts.session("ann")
    at = parts.clock.now_ms()
    await parts.store.put_last_seen({BOB: at})
    await entry(node, ann, "ann")  # reads the facts of visibility
    async with held(parts.store, "last_seen") as reading:
        async with under_way(entry(node, ann, "bob")) as first:
            await pass_time(WAIT_S - 0.1)
            assert not first.done()
            await pass_time(0.1)
            assert first.done()
        assert (await first)["last_seen"] is None
        begin = parts.clock.now_ms()
        assert (await entry(node, ann, "bob"))["last_seen"] is None
        assert (await watched(node, ann, "eve"))["last_seen"] is None
        assert (parts.clock.now_ms(), reading.calls) == (begin, 1), "the next reads do not wait"
    await pass_time(AWAY_S)
    assert (await entry(node, ann, "bob"))["last_seen"] == at


@in_virtual_time
async def test_a_store_that_fails_is_asked_again_after_some_seconds(parts: NodeParts) -> None:
    node, ann = await started(parts), parts.session("ann")
    await parts.store.put_last_seen({BOB: parts.clock.now_ms()})
    parts.store.away.add("last_seen")
    for _ in range(3):
        assert (await entry(node, ann, "bob"))["last_seen"] is None
    assert parts.store.count("last_seen") == 1
    parts.store.away.clear()
    await pass_time(AWAY_S)
    assert (await entry(node, ann, "bob"))["last_seen"] is not None


@in_virtual_time
async def test_a_watcher_learns_last_seen_of_a_user_who_left_while_the_engine_lost_its_data(parts: NodeParts) -> None:
    node, ann = await started(parts), parts.session("ann")
    bob = await parts.online("bob")
    before = await watched(node, ann, "bob")
    await pass_time(EVERY_S)
    (at,) = await stored(parts, BOB)
    parts.engine.lose()
    parts.registry.remove(bob.session)
    await node.watching.resync(Part(), intact=False)
    ((event),) = await ann.events("presence.changed")
    assert (event["state"], event["last_seen"]) == ("offline", at)
    assert event["version"] > before["version"]
    await node.watching.resync(Part(), intact=False)
    assert await ann.events() == []
    assert parts.store.count("last_seen") == 1, "the time that watchers see is not read again"


@in_virtual_time
async def test_a_hidden_last_seen_stays_hidden(parts: NodeParts) -> None:
    node, ann = await started(parts), parts.session("ann")
    await parts.store.put_last_seen({BOB: parts.clock.now_ms() - 9})
    await node.visibility_updates.set_privacy(BOB, "hidden", None)
    for found in (await entry(node, ann, "bob"), await watched(node, ann, "bob")):
        assert (found["last_seen"], found["since"], found["version"]) == (None, None, 0)


@in_virtual_time
async def test_an_invisible_user_looks_like_any_user_whom_the_engine_lost(parts: NodeParts) -> None:
    node, ann = await started(parts), parts.session("ann")
    at = parts.clock.now_ms() - 9
    await parts.store.put_last_seen({BOB: at, EVE: at})
    bob = parts.session("bob")
    await parts.engine.touch(*BOB, bob.session.ref, "phone", False, None)
    await parts.engine.set_status(*BOB, ManualStatus("invisible", rev=1))
    shown = [await entry(node, ann, user) for user in ("bob", "eve")]
    assert shown[0] | {"user": ""} == shown[1] | {"user": ""}
    assert shown[0]["last_seen"] == at


@in_virtual_time
async def test_a_time_beyond_the_retention_is_not_shown(parts: NodeParts) -> None:
    node, ann = await started(parts, presence={"last_seen_days": 2.0}), parts.session("ann")
    days = 86_400_000
    await parts.store.put_last_seen({BOB: parts.clock.now_ms() - 3 * days, EVE: parts.clock.now_ms() - days})
    assert (await entry(node, ann, "bob"))["last_seen"] is None
    assert (await entry(node, ann, "eve"))["last_seen"] is not None
