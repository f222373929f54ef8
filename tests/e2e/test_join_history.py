"""Joins that return the newest messages: the events continue after them, without a gap or a duplicate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backends import on_each_pair, serving_on
from greendot.rooms.delivery import COMPARE_S
from greendot.store.rooms import Draft
from greendot.testing import Served, WireClient, hold, serving


async def say(served: Served, *texts: str, published: bool = True) -> None:
    """Write messages of the app. Without `published` they are only in the store, as if the bus had lost them."""
    for text in texts:
        draft = Draft("app", None, f'"{text}"'.encode(), text, served.clock.now_ms())
        if published:
            await served.node.room_messages.append("default", "lobby", draft)
        else:
            await served.node.store.append("default", "lobby", draft)


def numbers(messages: list[dict[str, Any]]) -> list[int]:
    return [message["seq"] for message in messages]


async def heard(client: WireClient) -> list[int]:
    """Return the numbers of the messages that came as events."""
    return [frame["data"]["seq"] for frame in await client.quiet() if frame["type"] == "room.message"]


@on_each_pair
async def test_the_newest_page_is_in_the_reply_and_the_next_message_is_an_event(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        await served.lobby()
        await say(served, *"abcde")
        ann = await served.client("ann")
        reply = await ann.request(type="room.join", room="lobby", history=3)
        assert (numbers(reply["messages"]), reply["head"]) == ([3, 4, 5], 5)
        assert (reply["recovered"], reply["truncated"]) == (False, False)
        assert reply["messages"][0]["body"] == "c"
        await say(served, "f")
        assert (await ann.receive("room.message"))["data"]["seq"] == 6
        again = await ann.request(type="room.join", room="lobby", history=100)
        assert (numbers(again["messages"]), again["head"]) == ([1, 2, 3, 4, 5, 6], 6)
        nothing = await ann.request(type="room.join", room="lobby", history=0)
        assert (nothing["messages"], nothing["head"]) == ([], 6)
        assert await heard(ann) == []


@on_each_pair
@pytest.mark.parametrize("at", ["before", "after"])
async def test_a_message_sent_while_the_page_is_read_comes_once(
    pair: str, at: Any, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        await served.lobby()
        bob = await served.joined("bob")  # the room is local, and its cursor moves
        await say(served, *"abcd")
        ann = await served.client("ann")
        async with hold(served.node.store, "room_page", at=at) as held:
            ann.send(type="room.join", room="lobby", history=3, id="j")
            await held.reached()
            await say(served, "e", "f")
            while (await bob.receive("room.message"))["data"]["seq"] < 6:
                pass  # the node has delivered all of them
        reply = (await ann.receive("reply"))["data"]
        assert (numbers(reply["messages"]), reply["head"]) == ([4, 5, 6], 6)
        await say(served, "g")
        assert (await ann.receive("room.message"))["data"]["seq"] == 7
        assert await heard(ann) == []


@on_each_pair
async def test_a_message_that_this_node_has_not_delivered_yet_comes_as_an_event(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        await served.lobby()
        bob = await served.joined("bob")
        await say(served, "a", "b")
        while (await bob.receive("room.message"))["data"]["seq"] < 2:
            pass
        await say(served, "c", published=False)
        ann = await served.client("ann")
        reply = await ann.request(type="room.join", room="lobby", history=2)
        # The page of the store has 2 and 3. The node is at 2.
        assert (numbers(reply["messages"]), reply["head"]) == ([2], 2)
        (of_ann, of_bob) = await served.advance(COMPARE_S, [ann, bob])
        for frames in (of_ann, of_bob):
            assert [frame["data"]["seq"] for frame in frames if frame["type"] == "room.message"] == [3]


@on_each_pair
async def test_a_page_read_while_the_room_is_closed_is_not_sent(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        await served.lobby()
        await say(served, "a")
        ann = await served.client("ann")
        async with hold(served.node.store, "room_page") as held:
            ann.send(type="room.join", room="lobby", history=3, id="j")
            await held.reached()
            await served.node.room_messages.put_room("default", "lobby", open=False, bus=None)
            await say(served, "for members")
        assert (await ann.receive("error"))["code"] == "not_a_member"


async def test_bodies_of_a_page_are_limited_and_the_newest_stay() -> None:
    async with serving() as served:
        await served.lobby()
        for number in range(30):
            draft = Draft("app", None, b'"' + b"x" * 60_000 + b'"', f"k{number}", served.clock.now_ms())
            await served.node.room_messages.append("default", "lobby", draft)
        ann = await served.client("ann")
        reply = await ann.request(type="room.join", room="lobby", history=30)
        assert numbers(reply["messages"]) == [*range(14, 31)]


async def test_a_client_that_returns_recovers_by_number() -> None:
    async with serving() as served:
        await served.lobby()
        await say(served, "a", "b")
        ann = await served.client("ann")
        await ann.request(type="room.join", room="lobby", history=50)
        session = ann.welcome["session"]
        await ann.reset()
        await served.until_gone()
        await say(served, "c")
        back = await served.client("ann", resume={"session": session, "rooms": {"lobby": 2}})
        assert (await back.receive("room.message"))["data"]["seq"] == 3
