"""Rooms with thousands of occupants: nodes know only their number, and read pages of the engine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from backends import on_each_pair, serving_on
from greendot.engine.messages import Topic
from greendot.presence.model import SessionEpoch
from greendot.rooms import occupancy
from greendot.rooms.local_room import LocalRoom
from greendot.testing import Served, WireClient, hold

T, HALL = "default", Topic("room", "default", "hall")
CROWD = [f"u{number:04}" for number in range(2_500)]


async def enter(served: Served, users: list[str]) -> None:
    """Let users enter the hall, as sessions of this node without a socket."""
    node = served.node.incarnation
    work = (served.node.engine.enter(T, "hall", user, SessionEpoch(f"{node}-{user}", node, 1)) for user in users)
    await asyncio.gather(*work)
    await heard(served)


async def leave(served: Served, users: list[str]) -> None:
    node = served.node.incarnation
    work = (served.node.engine.exit(T, "hall", user, SessionEpoch(f"{node}-{user}", node, 1)) for user in users)
    await asyncio.gather(*work)
    await heard(served)


async def heard(served: Served) -> None:
    """Wait until the node has received all messages about the room, and its work is done."""
    await received(served)
    await served.settle()


async def received(served: Served) -> None:
    drained = getattr(served.node.engine, "bus", None)
    if drained is not None:
        await drained.drained()
        for server in served.node.engine.servers.all.values():  # type: ignore[attr-defined]
            await server.call("PING")
            await server.pushes.call("PING")
    await asyncio.sleep(0)


async def counts(served: Served, client: WireClient) -> list[int]:
    """Return the counts that the client got, after the next ones are due."""
    frames = (await served.advance(1.1, [client]))[0]
    return [frame["data"]["count"] for frame in frames if frame["type"] == "room.count"]


def hall(served: Served) -> LocalRoom:
    local = served.node.rooms.local(HALL)
    assert local is not None
    return local


async def open_hall(served: Served, users: list[str]) -> None:
    await served.node.store.put_room(T, "hall", open=True)
    await enter(served, users)


async def page(client: WireClient, **which: Any) -> tuple[list[str], int]:
    reply = await client.request(type="room.present", room="hall", **which)
    return reply["users"], reply["count"]


@on_each_pair
async def test_a_join_of_a_large_room_reads_the_number_only(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        await open_hall(served, CROWD)
        async with hold(served.node.engine, "present") as reading:
            ann = await served.client("ann")
            assert (await ann.request(type="room.join", room="hall"))["present"] == len(CROWD) + 1
            await heard(served)
            phone = await served.client("ann", device="phone")
            assert (await phone.request(type="room.join", room="hall"))["present"] == len(CROWD) + 1
            assert hall(served).present.is_counted
            assert reading.calls == 0


@on_each_pair
async def test_listeners_get_the_number_once_a_second_as_it_changes(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        await open_hall(served, CROWD)
        ann = await served.joined("ann", "hall", comings=True)
        await heard(served)
        await counts(served, ann)
        await enter(served, ["x1", "x2", "x3"])
        assert (await counts(served, ann))[-1] == len(CROWD) + 4
        await leave(served, ["x1", "u0000"])
        assert (await counts(served, ann))[-1] == len(CROWD) + 2
        assert await counts(served, ann) == []


@on_each_pair
async def test_pages_of_a_large_room_are_in_order_and_complete(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        await open_hall(served, CROWD)
        ann = await served.joined("ann", "hall")
        zoe = await served.client("zoe")  # has not joined
        await heard(served)
        everybody = sorted([*CROWD, "ann"])
        for client in (ann, zoe):
            found, after = list[str](), None
            while len(users := (await page(client, after=after, limit=300))[0]) == 300:
                found += users
                after = users[-1]
            assert found + users == everybody
        assert await page(ann, after="u1000", limit=2) == (["u1001", "u1002"], len(everybody))


@on_each_pair
async def test_an_invisible_listener_is_an_occupant_for_own_devices_only(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        await open_hall(served, CROWD)
        ann, bob = await served.client("ann"), await served.joined("bob", "hall")
        await ann.request(type="status.set", status="invisible")
        assert (await ann.request(type="room.join", room="hall"))["present"] == len(CROWD) + 2
        await heard(served)
        assert await page(ann, limit=2) == (["ann", "bob"], len(CROWD) + 2)
        assert await page(bob, limit=2) == (["bob", "u0000"], len(CROWD) + 1)


@on_each_pair
async def test_a_room_becomes_counted_and_has_a_copy_again(
    pair: str, tmp_path: Path, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(occupancy, "MOST_COPIED", 200)
    async with serving_on(pair, tmp_path, postgres) as served:
        await open_hall(served, CROWD[:150])
        ann = await served.joined("ann", "hall", comings=True)
        await heard(served)
        assert not hall(served).present.is_counted
        await enter(served, CROWD[150:450])
        assert hall(served).present.is_counted
        assert (await counts(served, ann))[-1] == 451
        await leave(served, CROWD[:400])
        assert (await counts(served, ann))[-1] == 51
        assert not hall(served).present.is_counted
        assert (await page(ann, limit=100))[0] == sorted([*CROWD[400:450], "ann"])
        await leave(served, ["u0400"])
        frames = [frame for frame in await ann.quiet() if frame["type"] == "room.left"]
        assert [frame["data"]["user"] for frame in frames] == ["u0400"], "a small room gets names"


@on_each_pair
async def test_a_room_up_to_the_limit_of_the_settings_is_not_counted(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres, typing={"large_room": len(CROWD) + 1}) as served:
        await open_hall(served, CROWD)
        ann = await served.joined("ann", "hall", comings=True)
        await heard(served)
        assert not hall(served).present.is_counted
        await leave(served, ["u0000"])
        frames = [frame for frame in await ann.quiet() if frame["type"] == "room.left"]
        assert [frame["data"]["user"] for frame in frames] == ["u0000"]


@on_each_pair
async def test_the_number_leaves_out_a_user_who_hides_also_if_the_user_hides_later(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        await open_hall(served, CROWD)
        ann, bob = await served.joined("ann", "hall", comings=True), await served.joined("bob", "hall", comings=True)
        await heard(served)
        await counts(served, ann)
        assert hall(served).present.is_counted
        async with hold(served.node.engine, "present") as reading:
            await bob.request(type="privacy.set", hide_from=["ann", "zoe"])
            assert (await counts(served, ann))[-1] == len(CROWD) + 1
            assert (await counts(served, bob))[-1:] in ([], [len(CROWD) + 2])
            assert await page(ann, limit=2) == (["ann", "u0000"], len(CROWD) + 1)
            assert await page(bob, limit=2) == (["ann", "bob"], len(CROWD) + 2)
            zoe = await served.client("zoe")
            assert await page(zoe, limit=2) == (["ann", "u0000"], len(CROWD) + 1)
            assert (await zoe.request(type="room.join", room="hall"))["present"] == len(CROWD) + 2
            await heard(served)
            await bob.request(type="room.leave", room="hall")
            await heard(served)
            assert (await counts(served, ann))[-1:] in ([], [len(CROWD) + 2])  # the crowd, ann and zoe
            assert await page(ann, limit=1) == (["ann"], len(CROWD) + 2)
            assert (await bob.request(type="room.join", room="hall"))["present"] == len(CROWD) + 3
            await heard(served)
            assert await page(ann, limit=2) == (["ann", "u0000"], len(CROWD) + 2)
            await bob.request(type="privacy.set", hide_from=[])
            assert (await counts(served, ann))[-1] == len(CROWD) + 3
            assert await page(ann, limit=2) == (["ann", "bob"], len(CROWD) + 3)
            assert hall(served).present.is_counted
            assert reading.calls == 0


@on_each_pair
async def test_a_page_that_is_read_while_a_user_hides_does_not_show_the_user(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        await open_hall(served, CROWD)
        bob, zoe = await served.joined("bob", "hall"), await served.client("zoe")
        await heard(served)
        async with hold(served.node.engine, "present_page", at="after") as held:
            zoe.send(type="room.present", room="hall", limit=2, id=7)
            await held.reached()  # the page contains bob, and zoe does not have it yet
            await bob.request(type="privacy.set", hide_from=["zoe"])
        reply = (await zoe.receive("reply"))["data"]
        assert (reply["users"], reply["count"]) == (["u0000", "u0001"], len(CROWD))


@on_each_pair
async def test_a_hider_who_enters_while_a_page_is_read_is_not_shown(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        await open_hall(served, CROWD)
        bob, zoe = await served.client("bob"), await served.client("zoe")
        await bob.request(type="privacy.set", hide_from=["zoe"])
        async with hold(served.node.engine, "sessions_in_room", at="after") as held:
            zoe.send(type="room.present", room="hall", limit=2, id=7)
            await held.reached()  # bob is not in the room yet
            node = served.node.incarnation
            await served.node.engine.enter(T, "hall", "bob", SessionEpoch(f"{node}-bob", node, 1))
        reply = (await zoe.receive("reply"))["data"]
        assert (reply["users"], reply["count"]) == (["u0000", "u0001"], len(CROWD))


@on_each_pair
async def test_a_user_who_hides_while_the_room_is_read_is_left_out(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        await open_hall(served, [*CROWD, "eve", "bob"])
        bob, eve = await served.client("bob"), await served.client("eve")
        await eve.request(type="privacy.set", hide_from=["ann"])
        ann = await served.client("ann")
        async with hold(served.node.engine, "sessions_in_room", at="after") as held:
            ann.send(type="room.join", room="hall", id=7)
            await held.reached()  # the hiders in the room are read: eve only
            await bob.request(type="privacy.set", hide_from=["ann"])
        assert (await ann.receive("reply"))["data"]["present"] == len(CROWD) + 1
        await heard(served)
        assert hall(served).present.is_counted
        assert {*hall(served).present.users} == {"bob", "eve"}


@on_each_pair
async def test_a_user_who_leaves_while_looked_for_is_not_kept_as_a_hider(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        await open_hall(served, [*CROWD, "bob"])
        bob, ann = await served.client("bob"), await served.joined("ann", "hall", comings=True)
        await heard(served)
        await counts(served, ann)
        async with hold(served.node.engine, "sessions_in_room", at="after") as held:
            bob.send(type="privacy.set", hide_from=["ann"], id=7)
            await held.reached()  # bob is found in the room
            node = served.node.incarnation
            await served.node.engine.exit(T, "hall", "bob", SessionEpoch(f"{node}-bob", node, 1))
            await received(served)
        await bob.receive("reply")
        await heard(served)
        assert [*hall(served).present.users] == []
        assert (await ann.request(type="room.present", room="hall", limit=1))["count"] == len(CROWD) + 1
        await enter(served, ["x1"])
        assert (await counts(served, ann))[-1] == len(CROWD) + 2


@on_each_pair
async def test_a_number_does_not_shrink_while_lost_occupants_are_restored(
    pair: str, tmp_path: Path, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        await open_hall(served, CROWD)
        ann = await served.joined("ann", "hall", comings=True)
        await heard(served)
        await counts(served, ann)
        with monkeypatch.context() as restoring:
            restoring.setattr(served.node.engine, "is_restoring", lambda tenant, room: True)
            await leave(served, CROWD[100:])
            await hall(served).present.read()
            assert hall(served).present.is_counted
            assert len(hall(served).present.users) == len(CROWD) + 1
        await hall(served).present.read()
        assert not hall(served).present.is_counted
        assert (await page(ann, limit=1))[1] == 101


@on_each_pair
async def test_where_users_see_contacts_only_the_number_is_that_of_visible_occupants(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres, visibility={"policy": "contacts"}) as served:
        for one, other in (("ann", "u0007"), ("u0007", "ann")):
            await served.node.store.put_contact(T, one, other, 1, most=10)
        await open_hall(served, CROWD[:1_200])
        ann = await served.joined("ann", "hall", comings=True)
        await heard(served)
        assert not hall(served).present.is_counted
        assert await page(ann) == (["ann", "u0007"], 2)
