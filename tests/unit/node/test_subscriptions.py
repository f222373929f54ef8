"""Subscriptions: a topic is subscribed before it is read, and unsubscribed some time after its last listener left."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from greendot.engine.messages import Part, Topic
from greendot.errors import EngineUnavailable
from greendot.node import subscriptions as module
from greendot.node.channel import Channel
from greendot.node.subscriptions import UNHEARD_S, Subscriptions, TopicSubscription
from unit.node_parts import NodeParts, held, in_virtual_time, pass_time, settle, under_way


class Followed(TopicSubscription):
    """A topic that may be wanted without a listener."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        self.wanted = False

    @property
    def is_wanted(self) -> bool:
        return self.wanted or super().is_wanted


class Rooms(Subscriptions[Followed]):
    """Topics whose state is read with the engine's `read`, so that reads can fail and wait."""

    def __init__(self, parts: NodeParts) -> None:
        super().__init__(parts.engine, parts.context, Followed, self._state_read, self._note_dropped)
        self.engine = parts.engine
        self.dropped: list[str] = []

    async def _state_read(self, fresh: Sequence[Followed]) -> None:
        await self.engine.read("default", [followed.channel.topic.name for followed in fresh])

    def _note_dropped(self, followed: Followed) -> None:
        self.dropped.append(followed.channel.topic.name)

    def called(self) -> list[tuple[str, list[str]]]:
        """Return the calls of the bus and the reads so far, in order, with their topics."""
        found = []
        for name, args in self.engine.calls:
            names = [topic.name for topic in args[0]] if name.endswith("subscribe") else args[1]
            found.append((name, names))
        return found


def topic(name: str) -> Topic:
    return Topic("room", "default", name)


async def topics(rooms: Rooms) -> list[Topic]:
    return [topic async for some in rooms.topics() for topic in some]


@in_virtual_time
async def test_a_topic_is_subscribed_and_then_read_once(parts: NodeParts) -> None:
    rooms = Rooms(parts)
    await rooms.open([topic("a"), topic("b"), topic("a")])
    await rooms.open([topic("b")])
    assert rooms.called() == [("subscribe", ["a", "b"]), ("read", ["a", "b"])]
    assert rooms.follows([topic("a"), topic("b")])


@in_virtual_time
async def test_all_who_want_a_topic_wait_for_its_one_read(parts: NodeParts) -> None:
    rooms = Rooms(parts)
    async with held(parts.engine, "read") as read:
        first, second = (asyncio.ensure_future(rooms.open([topic("a")])) for _ in range(2))
        await read.reached()
        await settle()
        assert (first.done(), second.done()) == (False, False)
        assert not rooms.follows([topic("a")])
        assert (await topics(rooms), await rooms.within(Part())) == ([topic("a")], [])
    await asyncio.gather(first, second)
    assert parts.engine.count("read") == 1
    assert await topics(rooms) == [topic("a")]


@in_virtual_time
async def test_a_topic_without_listeners_is_unsubscribed_after_a_while(parts: NodeParts) -> None:
    rooms, client = Rooms(parts), parts.client()
    await rooms.open([topic("a"), topic("b")])
    followed = rooms.get(topic("a"))
    assert followed is not None
    rooms.attach(followed, client.connection)
    await pass_time(UNHEARD_S + 0.1)
    assert (rooms.dropped, parts.context.hub.find(topic("b"))) == (["b"], None)
    rooms.detach(topic("a"), client.connection)
    await pass_time(UNHEARD_S - 0.1)
    assert rooms.dropped == ["b"]
    await pass_time(0.2)
    assert rooms.dropped == ["b", "a"]
    assert rooms.called()[2:] == [("unsubscribe", ["b"]), ("unsubscribe", ["a"])]


@in_virtual_time
async def test_a_listener_that_returns_in_time_keeps_the_topic(parts: NodeParts) -> None:
    rooms, client = Rooms(parts), parts.client()
    await rooms.open([topic("a")])
    followed = rooms.get(topic("a"))
    assert followed is not None
    rooms.attach(followed, client.connection)
    rooms.detach(topic("a"), client.connection)
    await pass_time(UNHEARD_S / 2)
    rooms.attach(followed, client.connection)
    await pass_time(3 * UNHEARD_S)
    assert rooms.get(topic("a")) is followed


@in_virtual_time
async def test_a_topic_that_is_wanted_without_a_listener_stays_until_it_is_not(parts: NodeParts) -> None:
    rooms = Rooms(parts)
    await rooms.open([topic("a")])
    followed = rooms.get(topic("a"))
    assert followed is not None
    followed.wanted = True
    rooms.keep(followed)
    await pass_time(2 * UNHEARD_S)
    assert rooms.get(topic("a")) is followed
    followed.wanted = False
    rooms.detach(topic("a"), parts.client().connection)
    await pass_time(UNHEARD_S + 0.1)
    assert rooms.get(topic("a")) is None


@in_virtual_time
async def test_a_topic_that_is_being_given_up_is_subscribed_anew_only_after_it(parts: NodeParts) -> None:
    rooms = Rooms(parts)
    await rooms.open([topic("a")])
    async with held(parts.engine, "unsubscribe") as leaving:
        await pass_time(UNHEARD_S + 0.1)
        await leaving.reached()
        opening = asyncio.ensure_future(rooms.open([topic("a")]))
        await settle()
        assert parts.engine.count("subscribe") == 1
    await opening
    assert [name for name, _ in rooms.called()] == ["subscribe", "read", "unsubscribe", "subscribe", "read"]
    assert topic("a") in parts.engine._topics


@in_virtual_time
async def test_a_failed_read_reaches_all_who_wait_and_the_next_one_tries_again(parts: NodeParts) -> None:
    rooms = Rooms(parts)
    parts.engine.away = {"read"}
    async with held(parts.engine, "read") as read:
        tries = [asyncio.ensure_future(rooms.open([topic("a")])) for _ in range(2)]
        await read.reached()
    for each in tries:
        with pytest.raises(EngineUnavailable):
            await each
    await settle()
    assert (rooms.dropped, rooms.get(topic("a")), topic("a") in parts.engine._topics) == (["a"], None, False)
    parts.engine.away = set()
    await rooms.open([topic("a")])
    assert rooms.follows([topic("a")])


@in_virtual_time
async def test_topics_given_up_together_are_unsubscribed_in_bounded_calls(
    parts: NodeParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_LEAVING", 3)
    rooms = Rooms(parts)
    await rooms.open([topic(name) for name in "abcde"])
    await pass_time(UNHEARD_S + 0.1)
    assert [names for name, names in rooms.called() if name == "unsubscribe"] == [["a", "b", "c"], ["d", "e"]]


@in_virtual_time
async def test_a_topic_that_was_given_up_while_another_was_read_is_opened_again(parts: NodeParts) -> None:
    rooms = Rooms(parts)
    await rooms.open([topic("a")])
    async with held(parts.engine, "read") as read, under_way(rooms.open([topic("a"), topic("b")])) as opening:
        await pass_time(UNHEARD_S + 0.1)
        assert (rooms.get(topic("a")), opening.done()) == (None, False)
        read.release()
    assert rooms.follows([topic("a"), topic("b")])


@in_virtual_time
async def test_a_failed_unsubscription_lets_those_go_on_who_wait_for_it(parts: NodeParts) -> None:
    rooms = Rooms(parts)
    await rooms.open([topic("a")])
    parts.engine.away = {"unsubscribe"}
    async with held(parts.engine, "unsubscribe") as leaving:
        await pass_time(UNHEARD_S + 0.1)
        await leaving.reached()
        opening = asyncio.ensure_future(rooms.open([topic("a")]))
        await settle()
    await opening
    assert rooms.follows([topic("a")])
    assert len(parts.failed()) == 1
