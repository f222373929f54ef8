"""Read receipts: who sees how far others have read, and that hidden readers are nowhere. On each engine and store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from backends import on_each_pair, serving_on
from e2e.processes import Answer, ask
from greendot.engine.messages import Receipt
from greendot.store.rooms import Draft
from greendot.testing import Served, WireClient, hold, serving
from greendot.testing.server import API_KEY

HALL = "hall"
RECEIPTS = ("room.receipt", "room.receipt_count")


async def open_hall(served: Served, *, receipts: bool = True, messages: int = 9, tenant: str = "default") -> None:
    """Make the open room `hall` with receipts and some messages."""
    store = served.node.store
    await store.put_room(tenant, HALL, open=True, receipts=receipts)
    for number in range(messages):
        await store.append(tenant, HALL, Draft("system", None, b'"hi"', f"k{number}", served.clock.now_ms()))


@asynccontextmanager
async def hall_on(pair: str, folder: Path, postgres: str, **sections: Any) -> AsyncIterator[Served]:
    async with serving_on(pair, folder, postgres, **sections) as served:
        await open_hall(served)
        yield served


async def come(served: Served, *users: str) -> list[WireClient]:
    return [await served.joined(user, HALL) for user in users]


async def read(served: Served, client: WireClient, seq: int) -> None:
    """Read up to a message, and let the server announce it."""
    await client.request(type="room.read", room=HALL, seq=seq)
    await served.settle()


async def next_second(served: Served) -> None:
    await served.advance(1.1)


async def received(client: WireClient) -> list[tuple[Any, ...]]:
    """Return the receipts that the client has got: user and number, or number and count."""
    frames = [frame for frame in await client.quiet() if frame["type"] in RECEIPTS]
    assert all(frame["data"].pop("room") == HALL for frame in frames)
    return [tuple(frame["data"].values()) for frame in frames]


async def received_before(served: Served, client: WireClient, other: WireClient, seq: int) -> list[tuple[Any, ...]]:
    """Return what the client got until now: the receipt of another reader marks the end on the bus, too."""
    await next_second(served)
    await other.request(type="room.read", room=HALL, seq=seq)
    frames: list[dict[str, Any]] = []
    while not frames or frames[-1]["data"] != {"room": HALL, "user": "zoe", "seq": seq}:
        frame = await client.receive()
        frames += [frame] if frame["type"] in RECEIPTS else []
    return [(frame["data"].get("user"), frame["data"]["seq"]) for frame in frames[:-1]]


async def seen(client: WireClient) -> dict[str, int]:
    reply = await client.request(type="room.receipts", room=HALL)
    assert (reply["count"], reply["next"]) == (len(reply["receipts"]), None)
    return {entry["user"]: entry["seq"] for entry in reply["receipts"]}


async def refusal(client: WireClient, **fields: Any) -> str:
    client.send(type="room.receipts", id="r", **{"room": HALL} | fields)
    while (frame := await client.receive()).get("id") != "r":
        pass
    assert frame["type"] == "error", frame
    return str(frame["code"])


async def asked(served: Served, method: str, path: str, body: Any = None) -> Answer:
    return await ask(served.port, method, path, body, Authorization=f"Bearer {API_KEY}")


async def of_app(served: Served, query: str = "", room: str = HALL) -> Any:
    answer = await asked(served, "GET", f"/v1/rooms/{room}/receipts{query}")
    return answer.json() if answer.status == 200 else (answer.status, answer.json().get("code"))


@on_each_pair
async def test_everybody_in_the_room_gets_the_receipt_and_whoever_comes_later_finds_it(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with hall_on(pair, tmp_path, postgres) as served:
        ann, bob, laptop = await come(served, "ann", "bob", "ann")
        await read(served, ann, 5)
        assert (await bob.receive("room.receipt"))["data"] == {"room": HALL, "user": "ann", "seq": 5}
        for client in (ann, laptop):
            assert ("ann", 5) in await received(client), "also the reader's own devices"
        (eve,) = await come(served, "eve")  # was away
        await read(served, eve, 7)
        assert await seen(eve) == await seen(ann) == {"ann": 5, "eve": 7}
        page = await bob.request(type="room.receipts", room=HALL, limit=1)
        assert (page["receipts"], page["count"], page["next"]) == ([{"user": "ann", "seq": 5}], 2, "ann")
        page = await bob.request(type="room.receipts", room=HALL, limit=1, after="ann")
        assert (page["receipts"], page["next"]) == ([{"user": "eve", "seq": 7}], None)
        assert await bob.request(type="room.receipts", room=HALL, seq=6) == {"count": 1, "seq": 6}
        assert await of_app(served) == {
            "receipts": [{"user": "ann", "seq": 5}, {"user": "eve", "seq": 7}],
            "next": None,
        }
        assert await of_app(served, "?limit=1") == {"receipts": [{"user": "ann", "seq": 5}], "next": "ann"}
        assert await of_app(served, "?seq=5") == {"seq": 5, "count": 2}


@on_each_pair
async def test_who_is_invisible_leaves_no_trace_now_or_later(pair: str, tmp_path: Path, postgres: str) -> None:
    async with hall_on(pair, tmp_path, postgres) as served:
        ann, laptop, bob, zoe = await come(served, "ann", "ann", "bob", "zoe")
        await ann.request(type="status.set", status="invisible")
        await laptop.quiet()
        await read(served, ann, 5)
        assert await received_before(served, bob, zoe, 1) == []
        assert (await seen(bob), await seen(ann)) == ({"zoe": 1}, {"ann": 5, "zoe": 1})
        own = [frame["data"] for frame in await laptop.quiet() if frame["type"] == "room.receipt"]
        assert own[0] == {"room": HALL, "user": "ann", "seq": 5}, "a reader's own devices see their own"
        assert await of_app(served) == {"receipts": [{"user": "zoe", "seq": 1}], "next": None}
        await ann.request(type="status.set", status="auto")
        await read(served, ann, 5)  # as clients do when the room is opened again
        assert await received_before(served, bob, zoe, 2) == []
        assert await seen(bob) == {"zoe": 2}
        await read(served, ann, 6)
        assert await received_before(served, bob, zoe, 3) == [("ann", 6)]
        assert await seen(bob) == {"ann": 6, "zoe": 3}


@on_each_pair
async def test_an_invisible_user_looks_like_one_who_is_away(pair: str, tmp_path: Path, postgres: str) -> None:
    """A receipt from before that disappeared would show that the user is invisible, not offline."""
    async with hall_on(pair, tmp_path, postgres) as served:
        ann, bob, zoe = await come(served, "ann", "bob", "zoe")
        await read(served, ann, 3)
        assert await received_before(served, bob, zoe, 1) == [("ann", 3)]
        await ann.request(type="status.set", status="invisible")
        await read(served, ann, 5)
        assert await received_before(served, bob, zoe, 2) == []
        assert await seen(bob) == {"ann": 3, "zoe": 2}


@on_each_pair
async def test_who_hides_the_last_seen_time_leaves_no_trace(pair: str, tmp_path: Path, postgres: str) -> None:
    async with hall_on(pair, tmp_path, postgres) as served:
        ann, bob, zoe = await come(served, "ann", "bob", "zoe")
        await ann.request(type="privacy.set", last_seen="hidden")
        await read(served, ann, 5)
        assert await received_before(served, bob, zoe, 1) == []
        assert (await seen(bob), await seen(ann)) == ({"zoe": 1}, {"ann": 5, "zoe": 1})
        assert await of_app(served, "?seq=1") == {"seq": 1, "count": 1}
        await ann.request(type="privacy.set", last_seen="shown")
        assert await seen(bob) == {"zoe": 1}


@on_each_pair
async def test_who_hides_from_a_user_shows_that_user_nothing_and_later_nothing_of_before(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with hall_on(pair, tmp_path, postgres) as served:
        ann, bob, eve, zoe = await come(served, "ann", "bob", "eve", "zoe")
        await ann.request(type="privacy.set", hide_from=["bob"])
        await read(served, ann, 5)
        assert (await eve.receive("room.receipt"))["data"] == {"room": HALL, "user": "ann", "seq": 5}
        assert await received_before(served, bob, zoe, 1) == []
        assert (await seen(bob), await seen(eve)) == ({"zoe": 1}, {"ann": 5, "zoe": 1})
        assert await bob.request(type="room.receipts", room=HALL, seq=1) == {"count": 1, "seq": 1}
        await ann.request(type="privacy.set", hide_from=[])
        assert await seen(bob) == {"zoe": 1}, "read while hidden"
        await read(served, ann, 6)
        assert await received_before(served, bob, zoe, 2) == [("ann", 6)]
        assert await seen(bob) == {"ann": 6, "zoe": 2}


@on_each_pair
@pytest.mark.parametrize("most", [100, 2])
async def test_where_users_see_contacts_only_receipts_follow(
    pair: str, most: int, tmp_path: Path, postgres: str
) -> None:
    sections = {"visibility": {"policy": "contacts"}, "rooms": {"receipts_members": most}}
    async with hall_on(pair, tmp_path, postgres, **sections) as served:
        store = served.node.store
        for user, other in (("ann", "bob"), ("bob", "ann"), ("eve", "ann")):
            await store.put_contact("default", user, other, served.clock.now_ms(), most=9)
        ann, bob, eve = await come(served, "ann", "bob", "eve")
        await read(served, ann, 5)
        if most == 100:
            assert (await bob.receive("room.receipt"))["data"] == {"room": HALL, "user": "ann", "seq": 5}
            assert (await seen(bob), await seen(eve)) == ({"ann": 5}, {})
        else:
            assert await refusal(bob) == "too_many"
        counts = [await client.request(type="room.receipts", room=HALL, seq=1) for client in (ann, bob, eve)]
        assert [reply["count"] for reply in counts] == [1, 1, 0]
        await next_second(served)
        assert await received(eve) == []
        if most == 2:
            assert await received(bob) == [], "a count would show eve's reads to others"


@on_each_pair
@pytest.mark.parametrize("at", ["put_marker", "readers"])
@pytest.mark.parametrize("hiding", [{"type": "status.set", "status": "invisible"}, {"last_seen": "hidden"}])
async def test_who_hides_between_the_write_and_the_announcement_is_not_announced(
    pair: str, at: str, hiding: dict[str, str], tmp_path: Path, postgres: str
) -> None:
    async with hall_on(pair, tmp_path, postgres) as served:
        ann, laptop, bob, zoe = await come(served, "ann", "ann", "bob", "zoe")
        async with hold(served.node.store, at, at="after") as held:
            ann.send(type="room.read", room=HALL, seq=5)
            await held.reached()  # read openly, and not announced yet
            await laptop.request(**{"type": "privacy.set"} | hiding)
        await served.settle()
        assert await received_before(served, bob, zoe, 1) == []
        assert await seen(bob) == ({"ann": 5, "zoe": 1} if "status" in hiding else {"zoe": 1})


@on_each_pair
async def test_who_hides_while_a_receipt_waits_for_its_second_is_not_announced(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with hall_on(pair, tmp_path, postgres) as served:
        ann, bob, zoe = await come(served, "ann", "bob", "zoe")
        await read(served, ann, 3)
        await read(served, ann, 4)  # waits for the next second
        await ann.request(type="status.set", status="invisible")
        assert await received_before(served, bob, zoe, 1) == [("ann", 3)]


@on_each_pair
async def test_a_list_that_is_read_while_a_user_hides_leaves_the_user_out(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with hall_on(pair, tmp_path, postgres) as served:
        ann, bob, eve = await come(served, "ann", "bob", "eve")
        for hiding, user in (({"hide_from": ["bob"]}, ann), ({"last_seen": "hidden"}, eve)):
            await read(served, user, 5)
            async with hold(served.node.store, "receipts", at="after") as held:
                bob.send(type="room.receipts", room=HALL, id="r")
                await held.reached()
                await user.request(type="privacy.set", **hiding)
            while (frame := await bob.receive()).get("id") != "r":
                pass
            assert (frame["data"]["receipts"], frame["data"]["count"]) == ([], 0)


@on_each_pair
async def test_a_user_has_at_most_one_receipt_per_room_and_second(pair: str, tmp_path: Path, postgres: str) -> None:
    async with hall_on(pair, tmp_path, postgres) as served:
        ann, bob, zoe = await come(served, "ann", "bob", "zoe")
        publish, published = served.node.engine.publish, list[Receipt]()

        def counting(topic: Any, message: Any) -> None:
            published.extend([message] if isinstance(message, Receipt) else [])
            publish(topic, message)

        served.node.engine.publish = counting  # type: ignore[method-assign]
        for seq in range(1, 9):
            await read(served, ann, seq)
            await read(served, ann, seq)  # again: nothing moves
        assert published == [Receipt("ann", 1)]
        await next_second(served)
        assert published == [Receipt("ann", 1), Receipt("ann", 8)]
        assert await received_before(served, bob, zoe, 1) == [("ann", 1), ("ann", 8)]
        await next_second(served)
        assert served.timers == 0 or len(published) == 3, "no timer is left over"
        metrics = served.node.metrics
        assert (metrics.room_receipts_total, metrics.coalesced["room.receipt"]) == (3, 6)


@on_each_pair
async def test_a_large_room_gets_counts_that_leave_out_who_hides_from_anybody(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with hall_on(pair, tmp_path, postgres, rooms={"receipts_members": 2}) as served:
        ann, bob, eve, shy = await come(served, "ann", "bob", "eve", "shy")
        await shy.request(type="privacy.set", hide_from=["someone"])
        for client in (shy, ann, eve):
            await read(served, client, 4)
        await next_second(served)
        counts: list[dict[str, Any]] = []
        while not counts or counts[-1]["count"] < 2:
            counts.append((await bob.receive("room.receipt_count"))["data"])
        assert counts[-1] == {"room": HALL, "seq": 4, "count": 2}
        assert len(counts) <= 2, "at most one count a second"
        for client in (ann, bob, shy):
            assert await client.request(type="room.receipts", room=HALL, seq=4) == {"count": 2, "seq": 4}
            assert await refusal(client) == "too_many"
        assert len((await of_app(served))["receipts"]) == 3, "the app gets pages of a room of any size"
        await read(served, shy, 6)
        await next_second(served)
        await read(served, ann, 7)
        frame = await bob.receive("room.receipt_count")
        assert frame["data"] == {"room": HALL, "seq": 7, "count": 1}, "not even the time of a hidden read is shown"


@on_each_pair
async def test_members_who_are_away_make_a_room_large_too(pair: str, tmp_path: Path, postgres: str) -> None:
    async with hall_on(pair, tmp_path, postgres, rooms={"receipts_members": 2}) as served:
        ann, bob = await come(served, "ann", "bob")
        await read(served, ann, 1)
        assert (await bob.receive("room.receipt"))["data"]["user"] == "ann"
        for user in ("m1", "m2", "m3"):
            await served.node.store.put_member("default", HALL, user)
        assert await refusal(bob) == "too_many"
        await next_second(served)
        await read(served, ann, 2)
        assert (await bob.receive("room.receipt_count"))["data"] == {"room": HALL, "seq": 2, "count": 1}


async def test_a_room_without_receipts_has_none_and_what_was_read_there_stays_private() -> None:
    async with serving() as served:
        await open_hall(served, receipts=False)
        ann, bob = await come(served, "ann", "bob")
        await read(served, ann, 5)
        assert await received(bob) == []
        assert [await refusal(bob), await refusal(bob, seq=1)] == ["forbidden", "forbidden"]
        assert [await of_app(served), await of_app(served, "?seq=1")] == [(404, None)] * 2
        assert await of_app(served, room="nowhere") == (404, "no_such_room")
        answer = await asked(served, "PUT", f"/v1/rooms/{HALL}", {"receipts": True})
        assert (answer.status, answer.json()["receipts"]) == (200, True)
        assert (await asked(served, "GET", f"/v1/rooms/{HALL}")).json()["receipts"] is True
        assert await seen(bob) == {}
        await read(served, ann, 6)
        assert await seen(bob) == {"ann": 6}


async def test_two_bounds_are_refused() -> None:
    async with serving() as served:
        await open_hall(served)
        (ann,) = await come(served, "ann")
        assert await refusal(ann, seq=1, after="a") == "bad_field"
        assert (await asked(served, "GET", f"/v1/rooms/{HALL}/receipts?seq=1&after=a")).status == 400


async def test_receipts_of_another_tenant_are_not_there() -> None:
    async with serving(tenants={"other": {}}) as served:
        await open_hall(served)
        await open_hall(served, tenant="other")
        ann, bob = await come(served, "ann", "bob")
        foreign = await served.client("ann", claims={"tenant": "other"})
        await foreign.request(type="room.join", room=HALL)
        await read(served, foreign, 5)
        assert (await received(bob), await seen(bob), await seen(ann)) == ([], {}, {})
        assert (await foreign.request(type="room.receipts", room=HALL))["receipts"] == [{"user": "ann", "seq": 5}]


async def test_an_erased_reader_is_in_no_list_and_no_count() -> None:
    async with serving() as served:
        await open_hall(served)
        ann, bob = await come(served, "ann", "bob")
        await read(served, ann, 5)
        place = None
        while (step := await served.node.store.erase_user("default", "ann", place, limit=100)).next is not None:
            place = step.next
        assert (await seen(bob), await of_app(served, "?seq=1")) == ({}, {"seq": 1, "count": 0})
