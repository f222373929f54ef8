"""After a data loss of Redis, users who are not restored yet are `stale` and not simply offline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cluster.inside import Inside, inside, passing
from cluster.nodes import Listener, eventually, redis_url
from greendot.engine.messages import Part
from greendot.engine.redis.keys import PARTITIONS
from greendot.engine.redis.partitions import PIECE
from greendot.rooms import session_rooms
from greendot.testing import hold
from redis_servers import RedisProcess

ROOMS = "/v1/rooms/den"
PIECES = PARTITIONS // PIECE


@asynccontextmanager
async def nodes(redis: RedisProcess, count: int = 2, grace_s: float = 30.0) -> AsyncIterator[list[Inside]]:
    # Long leases: none ends on a slow machine, after which a node would not be waited for.
    periods = {"lease_s": 60.0, "renew_s": 0.5}
    async with inside(*[redis_url(redis.port)] * count, presence={"grace_s": grace_s}, node=periods) as made:
        for node in made:  # each node has its own store
            assert (await node.ask("PUT", ROOMS, {"open": True})).status < 300
        yield made


def shown(entry: dict[str, Any]) -> tuple[str, bool]:
    return entry["state"], entry.get("stale", False)


async def over_http(node: Inside, user: str) -> set[tuple[str, bool]]:
    """Return the user's state by all HTTP routes."""
    alone = (await node.ask("GET", f"/v1/users/{user}/presence")).json()
    return {shown((await node.query(user))[user]), shown(alone)}


async def is_settled(node: Inside, user: str) -> bool:
    return not shown((await node.query(user))[user])[1]


async def test_the_first_reader_after_a_flush_receives_the_state_as_unknown(redis: RedisProcess) -> None:
    async with nodes(redis) as (first, second):
        ann, reader = await first.join("ann"), await second.join("reader")
        await ann.request(type="room.join", room="den")
        async with hold(first.node.engine, "restore") as restoring:
            redis.command("FLUSHALL")
            # No node has noticed: the response itself must mark the lost records.
            assert await over_http(second, "ann") == {("offline", True)}
            asked = await reader.request(type="presence.get", users=["ann"])
            watched = await reader.watch("ann")
            assert shown(asked["presence"][0]) == shown(watched["ann"]) == ("offline", True)
            assert await over_http(first, "ann") == {("online", True)}, "the user's own node must show the session"
            assert (await second.ask("GET", "/v1/presence/online")).json()["stale"] is True
            present = (await second.ask("GET", f"{ROOMS}/present")).json()
            assert present == {"users": [], "count": 0, "stale": True, "profiles": {}}
            await restoring.reached()
            # The other node has restored its session, the reader's.
            await passing(lambda: second.node.recovery.restored == 1)
            assert await over_http(second, "ann") == {("offline", True)}, (
                "the state must be stale until each live node has restored"
            )
        await reader.hears("presence.changed", user="ann", state="online")
        await eventually(lambda: is_settled(second, "ann"), "ann is restored")
        await passing(lambda: not second.node.engine.losses.restoring())
        assert await over_http(second, "ann") == {("online", False)}
        assert reader.states("ann") == ["online"], "the reader saw more than the online state"
        assert (await second.ask("GET", f"{ROOMS}/present")).json()["users"] == ["ann"]
        assert "stale" not in (await second.ask("GET", "/v1/presence/online")).json()


async def test_watchers_see_no_change_and_commands_answer_what_the_session_shows(redis: RedisProcess) -> None:
    async with nodes(redis) as (first, second):
        ann, watcher = await first.join("ann"), await second.join("watcher")
        await watcher.watch("ann")
        async with hold(first.node.engine, "restore") as restoring:
            redis.command("FLUSHALL")
            assert await over_http(second, "ann") == {("online", True)}, "HTTP must show the state that watchers have"
            mine = await ann.request(type="status.set", status="invisible")
            assert shown(mine["presence"]) == ("online", True)
            assert first.node.statuses.is_invisible(("default", "ann")), "the rooms of the node must not show the user"
            await restoring.reached()
        await watcher.sees("ann", "offline")
        await eventually(lambda: is_settled(second, "ann"), "ann is restored")
        assert await over_http(second, "ann") == {("offline", False)}


async def test_a_socket_that_is_lost_just_after_the_records_keeps_its_session(redis: RedisProcess) -> None:
    async with nodes(redis) as (first, second):
        ann, watcher = await first.join("ann"), await second.join("watcher")
        await watcher.watch("ann")
        session = ann.client.welcome["session"]
        held = first.node.registry.sessions[session]
        async with hold(first.node.recovery, "_recover"), hold(second.node.recovery, "_recover"):
            redis.command("FLUSHALL")
            await ann.end()
            await passing(lambda: held.leave_timer is not None or session not in first.node.registry.sessions)
        assert (await first.join("ann", resume={"session": session})).client.welcome["resumed"]
        await eventually(lambda: is_settled(second, "ann"), "ann is restored")
        assert watcher.states("ann") == []


async def test_who_left_a_room_long_before_its_redis_is_restarted_from_a_snapshot_is_not_in_it_again(
    redis: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_rooms, "RECENT_S", -1.0)  # so that recent changes count as old
    async with nodes(redis) as (first, second):
        people = [await first.join(name) for name in ("ann", "bob")]
        for person in people:
            await person.request(type="room.join", room="den")
        await eventually(lambda: are_in_den(second, "ann", "bob"), "both users are in the room")
        redis.command("SAVE")
        for person in people:
            await person.request(type="room.leave", room="den")
        await eventually(lambda: are_in_den(second), "both users have left")
        redis.kill()
        await passing(lambda: first.node.engine.trouble is not None and second.node.engine.trouble is not None)
        redis.start()
        redis.ready()
        await passing(lambda: second.node.engine.trouble is None)
        assert (await second.ask("GET", f"{ROOMS}/present")).json()["stale"]
        await passing(lambda: not second.node.engine.is_restoring("default", "den"))
        assert await are_in_den(second)


async def are_in_den(node: Inside, *users: str) -> bool:
    found: list[str] = (await node.ask("GET", f"{ROOMS}/present")).json()["users"]
    return found == [*users]


@pytest.mark.parametrize("left", ["alone", "with its node"])
async def test_who_left_after_the_snapshot_of_a_restarted_redis_is_never_shown_as_online(
    tmp_path: Path, redis: RedisProcess, left: str
) -> None:
    async with nodes(redis, 3 if left == "with its node" else 2, grace_s=1.0) as (first, second, *gone):
        home = gone[0] if gone else first
        bob, watcher = await home.join("bob"), await second.join("watcher")
        await watcher.request(type="room.join", room="den")
        await bob.request(type="room.join", room="den")
        await watcher.hears("room.entered", user="bob")
        assert shown((await watcher.watch("bob"))["bob"]) == ("online", False)
        redis.command("SAVE")
        if gone:
            await gone[0].close()
        else:
            bob.send(type="bye")
        await watcher.sees("bob", "offline", within_s=20)
        await watcher.hears("room.left", user="bob")
        redis.kill()
        redis.start()
        redis.ready()
        seen: set[tuple[str, bool]] = set()

        async def is_over() -> bool:
            last = set()
            for node in (first, second):
                answer = await node.ask("GET", "/v1/users/bob/presence")
                last.add(shown(answer.json()) if answer.status == 200 else ("unavailable", True))
            seen.update(last)
            return not any(stale for _, stale in last)

        await eventually(is_over, "no state of bob is stale")
        assert ("online", False) not in seen
        assert await over_http(first, "bob") == await over_http(second, "bob") == {("offline", False)}
        assert watcher.states("bob") == ["offline"]
        assert len(watcher.of("room.entered")) == 1
        assert (await first.ask("GET", f"{ROOMS}/present")).json()["users"] == ["watcher"]


async def test_records_lost_again_are_not_restored_by_the_recovery_from_the_loss_before(redis: RedisProcess) -> None:
    async with nodes(redis) as (first, second):
        await first.join("ann")
        await second.join("bob")
        async with hold(second.node.engine, "restored") as others, hold(first.node.engine, "restored") as told:
            others.release()  # these calls are only counted
            redis.command("FLUSHALL")
            await passing(lambda: told.calls == PIECES)  # ann was restored and is lost again before the report
            await passing(lambda: others.calls == PIECES)  # else this node would notice both losses as one
            async with hold(first.node.engine, "restore") as restoring:
                redis.command("FLUSHALL")
                await restoring.reached()
                await passing(lambda: others.calls == 2 * PIECES)
                told.release()
                for node in (first, second, first, second):
                    await node.node.engine.tick()  # type: ignore[attr-defined]
                assert await over_http(second, "ann") == {("offline", True)}
                assert await over_http(first, "ann") == {("online", True)}
        await eventually(lambda: is_settled(second, "ann"), "ann is restored")
        assert await over_http(second, "ann") == {("online", False)}


async def test_no_user_leaves_a_room_that_is_checked_before_the_loss_is_known(redis: RedisProcess) -> None:
    async with nodes(redis) as (first, second):
        ann, bob = await first.join("ann"), await second.join("bob")
        await ann.request(type="room.join", room="den")
        await bob.request(type="room.join", room="den")
        async with hold(first.node.engine, "restore"):
            redis.command("FLUSHALL")
            await second.node.rooms.check_occupancy(Part())  # as after the death of a node
            found = await bob.request(type="room.present", room="den")
            assert (found["users"], found.get("stale")) == (["ann", "bob"], True)
        await eventually(lambda: is_settled(second, "ann"), "ann is restored")
        assert not [told for told in bob.told if told.type == "room.left"]


async def test_a_room_that_is_opened_until_all_is_restored_is_not_stale_for_ever(redis: RedisProcess) -> None:
    async with nodes(redis) as (first, second):
        ann, bob = await first.join("ann"), await second.join("bob")
        await ann.request(type="room.join", room="den")
        async with hold(second.node.engine, "present_page", at="after") as opening:
            async with hold(first.node.engine, "restore"):
                redis.command("FLUSHALL")
                assert await over_http(second, "ann") == {("offline", True)}
                joining = asyncio.ensure_future(bob.request(type="room.join", room="den"))
                await opening.reached()
            await eventually(lambda: is_settled(second, "ann"), "ann is restored")
        await joining
        await eventually(lambda: is_complete(bob), "the room is read again")


async def is_complete(client: Listener) -> bool:
    page = await client.request(type="room.present", room="den")
    return (page["users"], page["count"], "stale" in page) == (["ann", "bob"], 2, False)
