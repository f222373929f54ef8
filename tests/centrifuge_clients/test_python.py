"""centrifuge-python, unmodified, against the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from centrifuge import (
    CentrifugeError,
    Client,
    ClientEventHandler,
    ReplyError,
    Subscription,
    SubscriptionEventHandler,
)

from centrifuge_clients.parts import ON, RawClient, address, subscription_token
from greendot.testing.server import Served, serving


class Events:
    """Events of a client and its subscriptions, in order of arrival."""

    def __init__(self) -> None:
        self._queues: dict[str, asyncio.Queue[Any]] = {}

    def put(self, name: str, context: Any) -> None:
        self._queues.setdefault(name, asyncio.Queue()).put_nowait(context)

    async def next(self, name: str) -> Any:
        async with asyncio.timeout(20):
            return await self._queues.setdefault(name, asyncio.Queue()).get()


def handler(kind: type[Any], events: Events, prefix: str = "") -> Any:
    """Return a handler of all events of `kind`, which collects them."""

    def collects(name: str) -> Any:
        async def on_event(self: Any, context: Any) -> None:
            events.put(prefix + name.removeprefix("on_"), context)

        return on_event

    methods = {name: collects(name) for name in vars(kind) if name.startswith("on_")}
    return type("Collector", (kind,), methods)()


@asynccontextmanager
async def client(served: Served, events: Events, user: str, **options: Any) -> AsyncIterator[Client]:
    options.setdefault("token", served.token(user))
    made = Client(address(served), events=handler(ClientEventHandler, events), min_reconnect_delay=0.01, **options)
    await made.connect()
    try:
        yield made
    finally:
        await made.disconnect()


async def subscribed(made: Client, events: Events, channel: str, **options: Any) -> Subscription:
    subscription = made.new_subscription(
        channel, events=handler(SubscriptionEventHandler, events, f"{channel} "), **options
    )
    await subscription.subscribe()
    return subscription


async def test_a_client_subscribes_publishes_and_reads() -> None:
    async with serving(centrifuge=ON) as served:
        events = Events()
        async with client(served, events, "ann") as ann:
            await ann.ready(10)
            chat = await subscribed(ann, events, "chat:1", join_leave=True)
            await events.next("chat:1 subscribed")
            bob = await RawClient.subscribed(served, "bob", "chat:1")
            joined = await events.next("chat:1 join")
            while joined.info.user != "bob":
                joined = await events.next("chat:1 join")
            await chat.publish({"text": "hi"})
            seen = await events.next("chat:1 publication")
            assert (seen.pub.data, seen.pub.offset, seen.pub.info.user) == ({"text": "hi"}, 1, "ann")
            assert (await bob.push())["pub"]["data"] == {"text": "hi"}
            assert (await chat.presence()).clients.keys() == {"ann", "bob"}
            assert (await chat.presence_stats()).num_users == 2
            history = await chat.history(limit=10)
            assert [(one.offset, one.data) for one in history.publications] == [(1, {"text": "hi"})]
            with pytest.raises((ReplyError, CentrifugeError), match="no RPC"):
                await ann.rpc("sum", {})


async def test_missed_publications_are_recovered() -> None:
    async with serving(centrifuge=ON) as served:
        events = Events()
        async with client(served, events, "ann") as ann:
            chat = await subscribed(ann, events, "chat")
            await events.next("chat subscribed")
            await chat.publish(1)
            await events.next("chat publication")
            other = await RawClient.subscribed(served, "bob", "chat")
            await events.next("connecting")
            [session] = served.node.registry.sessions_of("default", "ann")
            served.node.cut(session.id)
            await events.next("connecting")
            await other.ask(publish={"channel": "chat", "data": 2})
            again = await events.next("chat subscribed")
            assert (again.was_recovering, again.recovered) == (True, True)
            missed = await events.next("chat publication")
            assert (missed.pub.data, missed.pub.offset) == (2, 2)


async def test_tokens_are_fetched_when_they_are_needed() -> None:
    async with serving(centrifuge={"enabled": True, "namespaces": {"default": {"subscribe": False}}}) as served:
        events = Events()
        old = served.token("ann", ttl_s=5)
        served.clock.advance(6)

        async def get_token() -> str:
            return served.token("ann")

        async def get_subscription_token(channel: str) -> str:
            return subscription_token(served, "ann", channel, ttl_s=60)

        async with client(served, events, "ann", token=old, get_token=get_token) as ann:
            await events.next("connected")
            await subscribed(ann, events, "chat", get_token=get_subscription_token)
            await events.next("chat subscribed")


async def test_an_invalid_token_ends_the_client() -> None:
    async with serving(centrifuge=ON) as served:
        events = Events()
        async with client(served, events, "ann", token="not.a.token"):
            assert (await events.next("disconnected")).code == 3500
