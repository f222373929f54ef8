"""Hidden users are in no reply, event or count. Real sockets, virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from e2e.narrow import connection_of, peer
from greendot.engine.messages import Part
from greendot.testing import Served, WireClient, serving

Frame = dict[str, Any]
WRITTEN = {"room.message"}  # messages are not hidden


async def come(served: Served, user: str, room: str = "lobby", **hello: Any) -> WireClient:
    """Connect a client that joins the room and has read all events so far."""
    client = await served.joined(user, room, comings=True, **hello)
    await served.settle()
    await client.quiet()
    return client


async def hide(client: WireClient, *users: str) -> None:
    await client.request(type="privacy.set", hide_from=[*users])


def told(frames: list[Frame]) -> list[tuple[str, str]]:
    return [(frame["type"], frame["data"]["user"]) for frame in frames]


async def present(client: WireClient, room: str = "lobby") -> list[str]:
    reply = await client.request(type="room.present", room=room)
    assert reply["count"] == len(reply["users"])
    users: list[str] = reply["users"]
    return users


def naming(found: object, name: str) -> bool:
    """Return whether a string in the nested value equals the name."""
    match found:
        case str():
            return found.casefold() == name
        case dict():
            return any(naming(part, name) for part in (*found.keys(), *found.values()))
        case list():
            return any(naming(part, name) for part in found)
    return False


async def everything(ann: WireClient) -> WireClient:
    """Do everything as Ann that others could notice, and return her client."""
    await ann.request(type="room.join", room="lobby")
    ann.send(type="typing.start", room="lobby")
    await ann.request(type="status.set", status="busy", text="ann")
    await ann.request(type="status.set", status="invisible")
    await ann.request(type="status.set", status="auto")
    ann.send(type="typing.stop", room="lobby")
    await ann.request(type="room.leave", room="lobby")
    await ann.request(type="room.join", room="lobby")
    ann.send(type="typing.start", room="lobby")
    ann.send(type="activity")
    await ann.quiet()
    return ann


async def look(bob: WireClient) -> list[Frame]:
    """Send each request of Bob that could show Ann and return the replies."""
    asked = [
        {"type": "watch", "users": ["ann", "eve"]},
        {"type": "presence.get", "users": ["ann", "eve"]},
        {"type": "room.present", "room": "lobby"},
        {"type": "room.join", "room": "lobby"},
        {"type": "room.list"},
        {"type": "inbox.list"},
    ]
    return [await bob.request(**command) for command in asked]


POLICIES: list[dict[str, Any]] = [
    {"policy": "tenant"},
    {"policy": "shared_rooms"},
    {"policy": "contacts"},
    {"policy": "recent_contacts"},
    {"policy": "ask", "ask_url": "http://127.0.0.1:9/", "ask_secret": "x" * 32},  # nothing listens on this port
]


@pytest.mark.parametrize("visibility", POLICIES, ids=lambda visibility: visibility["policy"])
@pytest.mark.parametrize("large", [100, 2])
@pytest.mark.parametrize("polled", [(), ("default/ann",)])
async def test_nothing_that_is_sent_names_or_counts_the_hidden(
    visibility: dict[str, Any], large: int, polled: tuple[str, ...]
) -> None:
    async with serving(visibility=visibility, typing={"large_room": large}, presence={"polled": polled}) as served:
        await served.lobby()
        ann = await served.client("ann")
        await hide(ann, "bob")
        bob, carl = [await come(served, user) for user in ("bob", "carl")]
        await bob.quiet()
        frames: list[Frame] = []
        for _ in range(2):
            replies = await look(bob)
            watched, asked, there, joined, rooms, inbox = replies
            for reply in (watched, asked):
                unknown = [entry for entry in reply["presence"] if entry["user"] == "ann"]
                (stranger,) = (await bob.request(type="presence.get", users=["nobody"]))["presence"]
                assert unknown == [stranger | {"user": "ann"}]
            assert not any(naming(reply, "ann") for reply in (there, joined, rooms, inbox))
            # The reply is as without Ann: Bob, and Carl if the policy shows him.
            assert there["count"] == joined["present"] == len(there["users"])
            assert {*there["users"]} <= {"bob", "carl"}
            assert joined["typing_count"] == 0
            await everything(ann)
            await served.settle()
            frames += await bob.quiet()
            frames += (await served.advance(10, alive=[bob, ann, carl]))[0]
        ann.send(type="bye")
        await ann.closed()
        await served.settle()
        frames += await bob.quiet()
        assert [frame for frame in frames if naming(frame, "ann")] == []
        assert frames == [], "a repeated count shows that a hidden user came or went"


async def test_a_viewer_who_is_not_excluded_receives_every_event_that_an_excluded_one_does_not() -> None:
    async with serving() as served:
        await served.lobby()
        bob, carl = [await come(served, user) for user in ("bob", "carl")]
        await bob.quiet()
        ann = await served.client("ann")
        await hide(ann, "bob")
        await carl.request(type="watch", users=["ann"])
        await everything(ann)
        await served.settle()
        heard = {frame["type"] for frame in await carl.quiet()}
        assert heard == {"room.entered", "room.left", "typing.started", "typing.stopped", "presence.changed"}
        assert await present(carl) == ["ann", "bob", "carl"]
        assert await present(bob) == ["bob", "carl"]
        assert await present(ann) == ["ann", "bob", "carl"]
        served.clock.advance(3)
        ann.send(type="typing.start", room="lobby")
        await ann.quiet()
        reply = await carl.request(type="room.join", room="lobby")
        assert (reply["present"], reply["typing_count"], [typer["user"] for typer in reply["typing"]]) == (
            3,
            1,
            ["ann"],
        )


async def test_what_the_hidden_write_is_read_by_all_but_their_signals_are_not() -> None:
    async with serving() as served:
        await served.lobby()
        ann, bob = [await come(served, user) for user in ("ann", "bob")]
        await hide(ann, "bob")
        await bob.quiet()
        await ann.request(type="room.send", room="lobby", body="hi")
        ann.send(type="signal.send", room="lobby", kind="wave")
        await ann.quiet()
        assert {frame["type"] for frame in await bob.quiet()} == WRITTEN


async def test_who_hides_in_a_room_leaves_it_for_some_and_comes_back() -> None:
    async with serving() as served:
        await served.lobby()
        bob, carl, ann = [await come(served, user) for user in ("bob", "carl", "ann")]
        ann.send(type="typing.start", room="lobby")
        await ann.quiet()
        for client in (bob, carl):
            await client.quiet()
        await hide(ann, "bob")
        assert told(await bob.quiet()) == [("room.left", "ann"), ("typing.stopped", "ann")]
        assert await carl.quiet() == await ann.quiet() == []
        assert await present(bob) == ["bob", "carl"]
        await served.advance(3)
        await hide(ann)
        entered, started = await bob.quiet()
        assert told([entered, started]) == [("room.entered", "ann"), ("typing.started", "ann")]
        assert started["data"]["expires_in_ms"] == 2_000
        assert await present(bob) == ["ann", "bob", "carl"]
        assert await carl.quiet() == []


async def test_in_a_room_only_contacts_are_seen_where_that_is_the_policy() -> None:
    async with serving(visibility={"policy": "contacts"}) as served:
        await served.lobby()
        visibility_updates = served.node.visibility_updates
        for user, other in (("ann", "bob"), ("bob", "ann"), ("ann", "carl")):
            await visibility_updates.put_contact(("default", user), other, 1)
        ann, bob, carl = [await come(served, user) for user in ("ann", "bob", "carl")]
        assert told(await ann.quiet()) == [("room.entered", "bob")]
        assert await carl.quiet() == []
        assert [await present(client) for client in (ann, bob, carl)] == [["ann", "bob"], ["ann", "bob"], ["carl"]]
        bob.send(type="typing.start", room="lobby")
        await bob.quiet()
        assert told(await ann.quiet()) == [("typing.started", "bob")]
        assert await carl.quiet() == []
        await visibility_updates.put_contact(("default", "carl"), "ann", 1)
        assert told(await ann.quiet()) == [("room.entered", "carl")]
        assert told(await carl.quiet()) == [("room.entered", "ann")]
        await visibility_updates.remove_contact(("default", "ann"), "bob")
        assert told(await ann.quiet()) == [("room.left", "bob"), ("typing.stopped", "bob")]
        assert told(await bob.quiet()) == [("room.left", "ann")]
        await carl.request(type="room.leave", room="lobby")
        assert told(await ann.quiet()) == [("room.left", "carl")]
        assert await bob.quiet() == []


async def test_users_in_the_same_room_share_it() -> None:
    async with serving(visibility={"policy": "shared_rooms"}) as served:
        await served.lobby()
        bob, _ = await come(served, "bob"), await come(served, "ann")
        assert told(await bob.quiet()) == [("room.entered", "ann")]
        assert await present(bob) == ["ann", "bob"]


async def test_in_a_large_room_each_client_receives_the_count_of_users_it_sees() -> None:
    async with serving(typing={"large_room": 3}) as served:
        await served.lobby()
        users = {user: await come(served, user) for user in ("bob", "carl", "dan", "eve")}
        ann = await served.client("ann")
        await hide(ann, "bob")
        await served.advance(2)
        for client in users.values():
            await client.quiet()
        await ann.request(type="room.join", room="lobby")
        ann.send(type="typing.start", room="lobby")
        users["dan"].send(type="typing.start", room="lobby")
        await served.settle()
        frames = dict(zip(users, await served.advance(1.5, alive=users.values()), strict=True))
        last = {
            user: {frame["type"]: frame["data"]["count"] for frame in of}
            for user, of in frames.items()
            if user != "dan"
        }
        assert last["carl"] == last["eve"] == {"room.count": 5, "typing.count": 2}
        assert last["bob"] == {"typing.count": 1}
        await served.advance(2)
        for client in users.values():
            await client.quiet()
        await hide(ann)
        frames = dict(zip(users, await served.advance(2, alive=users.values()), strict=True))
        assert [frame["data"]["count"] for frame in frames["bob"] if frame["type"] == "room.count"] == [5]


async def test_a_hidden_celebrity_stays_hidden_when_changes_are_sent_in_slices() -> None:
    async with serving(presence={"celebrity_watchers": 3}) as served:
        ann = await served.client("ann")
        watchers = [await served.client(f"fan{number}") for number in range(8)]
        for watcher in watchers:
            await watcher.request(type="watch", users=["ann"])
        await ann.request(type="status.set", status="busy")
        await hide(ann, "fan0", "fan7")
        first = [await watcher.quiet() for watcher in watchers]
        frames = [one + more for one, more in zip(first, await served.advance(30, alive=watchers), strict=True)]
        states = [[frame["data"]["state"] for frame in of] for of in frames]
        assert states[0][-1] == states[7][-1] == "offline"
        assert all(of == ["busy"] for of in states[1:7])
        await ann.request(type="status.set", status="auto")
        frames = await served.advance(30, alive=watchers)
        assert frames[0] == frames[7] == []
        assert all(of[-1]["data"]["state"] == "online" for of in frames[1:7])


async def test_a_polled_celebrity_who_hides_looks_like_one_who_left_then() -> None:
    async with serving(presence={"polled": ("default/ann",)}) as served:
        ann, bob = await served.client("ann"), await served.client("bob")
        await bob.request(type="watch", users=["ann"])
        await hide(ann, "bob")
        assert await bob.quiet() == []
        (entry,) = (await bob.request(type="presence.get", users=["ann"]))["presence"]
        assert (entry["state"], entry["mode"], entry["recently_active"]) == ("offline", "poll", True)
        await served.advance(301, alive=[ann, bob])
        ann.send(type="activity")
        (entry,) = (await bob.request(type="presence.get", users=["ann"]))["presence"]
        assert (entry["state"], entry["mode"], entry["recently_active"]) == ("offline", "poll", False)


async def test_what_waits_for_a_slow_reader_is_taken_back() -> None:
    async with serving() as served:
        await served.lobby()
        bob, ann = await peer(served, "bob"), await served.client("ann")
        await bob.request(type="watch", users=["ann"])
        await bob.request(type="room.join", room="lobby")
        bob.stop_reading()
        connection = connection_of(served, "bob")
        carl = await served.client("carl")
        while not connection.behind:
            carl.send(type="signal.send", user="bob", kind="fill", body="x" * 30_000)
            await carl.quiet()
        await ann.request(type="status.set", status="busy", text="a secret")
        await ann.request(type="room.join", room="lobby")
        ann.send(type="typing.start", room="lobby")
        await ann.quiet()
        await served.settle()
        await hide(ann, "bob")
        bob.go_on_reading()
        frames = [frame for frame in await bob.quiet() if naming(frame, "ann")]
        assert not naming(frames, "a secret")
        assert [(frame["type"], frame["data"].get("state")) for frame in frames] == [
            ("presence.changed", "offline"),
            ("room.left", None),
            ("typing.stopped", None),
        ]


async def test_stale_states_of_a_hidden_user_look_like_those_of_an_unknown_user() -> None:
    async with serving() as served:
        ann, bob = await served.client("ann"), await served.client("bob")
        await hide(ann, "bob")
        await bob.request(type="watch", users=["ann", "nobody"])
        await served.node.watching.mark_stale(Part())
        await served.settle()
        frames = await bob.quiet()
        one, other = [frame["data"] for frame in frames]
        assert one | {"user": ""} == other | {"user": ""}
        assert {frame["data"]["user"] for frame in frames} == {"ann", "nobody"}
        await served.node.watching.resync(Part(), intact=True)
        await served.settle()
        again = await bob.quiet()
        assert {frame["data"]["user"] for frame in again} == {"ann", "nobody"}
        assert not any("stale" in frame["data"] for frame in again)


async def test_watchers_receive_no_change_after_the_user_hides_from_them() -> None:
    async with serving() as served:
        ann = await served.client("ann")
        bobs = [await served.client("bob", device=f"d{number}") for number in range(20)]
        for number, bob in enumerate(bobs):
            bob.send(type="watch", users=["ann"], id="w")
            if number == 10:
                ann.send(type="privacy.set", hide_from=["bob"], id="p")
            await asyncio.sleep(0)
        while (await ann.receive())["type"] != "reply":
            pass
        for bob in bobs:
            (entry,) = (await bob.request(type="presence.get", users=["ann"]))["presence"]
            assert entry["state"] == "offline"
            await bob.quiet()
        await ann.request(type="status.set", status="busy")
        assert [await bob.quiet() for bob in bobs] == [[]] * 20


async def test_a_client_that_joins_does_not_see_a_hidden_user_typing() -> None:
    async with serving() as served:
        await served.lobby()
        ann, carl = await come(served, "ann"), await come(served, "carl")
        await hide(ann, "bob")
        for typer in (ann, carl):
            typer.send(type="typing.start", room="lobby")
            await typer.quiet()
        await served.settle()
        bob, eve = await served.client("bob"), await served.client("eve")
        for client, typers in ((bob, ["carl"]), (eve, ["ann", "carl"])):
            reply = await client.request(type="room.join", room="lobby")
            assert [typer["user"] for typer in reply["typing"]] == typers
            assert reply["typing_count"] == len(typers)
