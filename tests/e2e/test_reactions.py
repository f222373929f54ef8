"""Reactions to messages: a record on the stream, counted with the history, set or not however often it is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from backends import on_each_pair, serving_on
from e2e.processes import Answer, ask, until
from greendot.store.rooms import Draft
from greendot.testing import Served, WireClient, hold, serving
from greendot.testing.server import API_KEY
from receiver import LOOPBACK, SECRET, receiving


async def http(served: Served, method: str, path: str) -> Answer:
    return await ask(served.port, method, path, Authorization=f"Bearer {API_KEY}")


def place(seq: object = 1, reaction: str = "👍", user: str = "ann", room: str = "lobby") -> str:
    return f"/v1/rooms/{room}/messages/{seq}/reactions/{quote(reaction, safe='')}?user={user}"


async def lobby_with_message(served: Served, *users: str) -> list[WireClient]:
    """Make the lobby with a message, and return clients of these users, who have joined."""
    await served.lobby()
    await served.node.room_messages.append("default", "lobby", Draft("app", None, b'"hi"', "k1", served.clock.now_ms()))
    return [await served.joined(user) for user in users]


async def react(client: WireClient, reaction: str = "👍", ref: int = 1, **more: Any) -> dict[str, Any]:
    return await client.request(type="room.react", room="lobby", ref=ref, reaction=reaction, **more)


async def refused(client: WireClient, reaction: str = "👍", ref: int = 1) -> dict[str, Any]:
    """React, and return the error."""
    client.send(type="room.react", room="lobby", ref=ref, reaction=reaction, id="it")
    while (frame := await client.receive()).get("id") != "it":
        pass
    assert frame["type"] == "error", frame
    return frame


async def shown(client: WireClient, ref: int = 1) -> list[dict[str, Any]]:
    """Return the reactions to a message in the history."""
    (message,) = (await client.request(type="room.history", room="lobby", after=ref - 1, limit=1))["messages"]
    found: list[dict[str, Any]] = message.get("reactions", [])
    return found


@on_each_pair
async def test_a_reaction_is_an_event_and_is_counted_with_the_history(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        ann, bob = await lobby_with_message(served, "ann", "bob")
        reply = await react(ann)
        event = (await bob.receive("room.message"))["data"]
        assert (event["id"], event["seq"], event["user"]) == (reply["id"], 2, "ann")
        assert (event["ref"], event["op"], event["body"]) == (1, "react", {"reaction": "👍"})
        await react(bob)
        await react(bob, "🎉")
        assert await shown(ann) == [
            {"reaction": "👍", "count": 2, "mine": True},
            {"reaction": "🎉", "count": 1, "mine": False},
        ]
        joined = await ann.request(type="room.join", room="lobby", history=10)
        message, *changes = joined["messages"]
        assert [of["count"] for of in message["reactions"]] == [2, 1]
        assert message["reacted"] == joined["head"] == 4
        assert all("reactions" not in record for record in changes)
        assert await react(ann, on=False) != reply
        assert await shown(ann) == [
            {"reaction": "👍", "count": 1, "mine": False},
            {"reaction": "🎉", "count": 1, "mine": False},
        ]
        page = (await http(served, "GET", "/v1/rooms/lobby/messages?after=0&limit=1")).json()
        assert page["messages"][0]["reactions"] == [{"reaction": "👍", "count": 1}, {"reaction": "🎉", "count": 1}]
        assert served.node.rooms.reactions == {"react": 3, "unreact": 1}


@on_each_pair
async def test_what_is_set_already_writes_nothing(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        ann, bob = await lobby_with_message(served, "ann", "bob")
        first = await react(ann)
        assert await react(ann) == first
        assert await react(ann, key="other") == first
        removed = await react(ann, on=False, key="off")
        assert removed["seq"] == 3
        assert await react(ann, on=False, key="off") == removed
        assert (await react(ann, on=False))["seq"] == 1  # not set: the message itself
        events = [(await bob.receive("room.message"))["data"]["op"] for _ in range(2)]
        assert events == ["react", "unreact"]
        assert "room.message" not in {frame["type"] for frame in await bob.quiet()}


@on_each_pair
async def test_a_reaction_missed_while_away_is_there_after(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        ann, bob = await lobby_with_message(served, "ann", "bob")
        session = bob.welcome["session"]
        await bob.reset()
        await served.until_gone(1)
        await react(ann)
        back = await served.client("bob", resume={"session": session, "rooms": {"lobby": 1}})
        event = (await back.receive("room.message"))["data"]
        assert (event["seq"], event["op"], event["ref"]) == (2, "react", 1)
        again = await served.client("bob", device="other")
        reply = await again.request(type="room.join", room="lobby", after=0)
        assert [record["op"] for record in reply["messages"]] == [None, "react"]


@on_each_pair
async def test_counts_include_exactly_the_records_up_to_the_number_they_name(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    """Whatever comes while a page is read: a client that applies the records above `reacted` has the right count."""
    async with serving_on(pair, tmp_path, postgres) as served:
        ann, bob, cy = await lobby_with_message(served, "ann", "bob", "cy")
        await react(ann)
        await cy.receive("room.message")
        for command in ({"type": "room.history"}, {"type": "room.join", "history": 50}):
            for at in ("before", "after"):
                async with hold(served.node.store, "room_page", at=at) as held:  # type: ignore[arg-type]
                    cy.send(room="lobby", id="page", **command)
                    await held.reached()
                    written = await react(bob, on=at == "before")
                frames = [await cy.receive(), await cy.receive()]  # the page and the event, in any order
                (page,) = [frame["data"] for frame in frames if frame.get("id") == "page"]
                (event,) = [frame["data"] for frame in frames if frame["type"] == "room.message"]
                message = page["messages"][0]
                assert event["seq"] == written["seq"]
                later = 0 if event["seq"] <= message["reacted"] else 1 if event["op"] == "react" else -1
                count = message["reactions"][0]["count"] + later
                assert count == (2 if at == "before" else 1), (command, at)


@on_each_pair
async def test_a_deleted_message_has_no_reactions(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        (ann,) = await lobby_with_message(served, "ann")
        ref = (await ann.request(type="room.send", room="lobby", body=1))["seq"]
        await react(ann, ref=ref)
        await ann.request(type="room.delete", room="lobby", ref=ref)
        assert await shown(ann, ref) == []
        error = await refused(ann, ref=ref)
        assert (error["code"], error["message"]) == (
            "bad_field",
            f"field `ref`: there is no message {ref} in room 'lobby'",
        )


@on_each_pair
async def test_the_app_reacts_for_a_user(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        (ann,) = await lobby_with_message(served, "ann")
        first = await http(served, "PUT", place())
        assert (first.status, first.json()["seq"]) == (200, 2)
        assert (await http(served, "PUT", place())).json() == first.json()
        assert (await react(ann)) == first.json()
        assert await shown(ann) == [{"reaction": "👍", "count": 1, "mine": True}]
        assert (await http(served, "DELETE", place())).json()["seq"] == 3
        assert (await http(served, "DELETE", place())).json()["seq"] == 1
        assert await shown(ann) == []


@pytest.mark.parametrize(
    ("path", "status", "told"),
    [
        (place(9), 404, "there is no message 9 in room 'lobby'"),
        (place(room="nowhere"), 404, "there is no room 'nowhere'"),
        (place("x"), 400, "Expected `int`, got `str` - at `seq` of the path"),
        (place(2**59), 400, "Expected `int` <= 9007199254740992 - at `seq` of the path"),
        (place(reaction="x" * 33), 400, "Expected `str` of length <= 32 - at `reaction` of the path"),
        (place(reaction="\n"), 400, "at `reaction` of the path"),
        (place(reaction=" "), 400, "at `reaction` of the path"),
        (place(reaction="\u200b"), 400, "at `reaction` of the path"),  # a space of width zero
        (place(reaction="a\u202e"), 400, "at `reaction` of the path"),  # turns the text around it
        (place(user="not%20valid"), 400, "at `user`"),
        (place().partition("?")[0], 400, "missing required field `user`"),
        (place() + "&on=true", 400, "unknown query parameter `on`"),
    ],
)
async def test_a_wrong_request_is_refused(path: str, status: int, told: str) -> None:
    async with serving() as served:
        await lobby_with_message(served)
        for method in ("PUT", "DELETE"):
            answer = await http(served, method, path)
            assert (answer.status, told in answer.json()["detail"]) == (status, True), answer.json()
        room = await served.node.store.room("default", "lobby")
        assert room is not None
        assert room.head == 1


async def test_a_message_takes_twenty_different_reactions() -> None:
    async with serving() as served:
        (ann,) = await lobby_with_message(served, "ann")
        for number in range(20):
            await react(ann, f":{number}:")
        assert (await refused(ann, "more"))["code"] == "too_many"
        assert (await http(served, "PUT", place(reaction="more"))).status == 400
        assert len(await shown(ann)) == 20


async def test_webhooks_receive_reactions_like_messages() -> None:
    async with receiving() as app, serving(webhooks={"url": app.url, "secret": SECRET} | LOOPBACK) as served:
        (ann,) = await lobby_with_message(served, "ann")
        await react(ann)
        await react(ann)
        await until(lambda: len(app.of("room.message")) == 2)
        told = [event["data"] for event in app.of("room.message")]
        assert [(of["op"], of["ref"], of["body"]) for of in told] == [
            (None, None, "hi"),
            ("react", 1, {"reaction": "👍"}),
        ]


async def test_tenants_are_apart() -> None:
    async with serving() as served:
        (ann,) = await lobby_with_message(served, "ann")
        await served.node.store.put_room("acme", "lobby", open=True)
        other = await served.client("ann", claims={"tenant": "acme"})
        await other.request(type="room.join", room="lobby")
        assert (await refused(other))["code"] == "bad_field"
        assert await shown(ann) == []
