"""Subscriptions of Pusher clients while rooms are created and closed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from greendot.compat.pusher.subscriptions import MOST_WITHOUT_USER
from greendot.errors import StoreUnavailable
from greendot.ids import Key
from greendot.limits.overload_model import Level
from greendot.testing.server import Served, serving

from .wire import APP, PusherClient, connected


def before_opening(served: Served, call: Callable[[], Awaitable[Any]]) -> None:
    """Call this once when the node next opens a room, after the first look at the room."""
    store = served.node.store
    heads, is_done = store.heads, False

    async def late(keys: Sequence[Key]) -> Any:
        nonlocal is_done
        if not is_done:
            is_done = True
            await call()
        return await heads(keys)

    store.heads = late  # type: ignore[method-assign]


async def events(client: PusherClient) -> list[str]:
    return [frame["event"] for frame in await client.quiet()]


@pytest.mark.parametrize("user", [None, "ann"])
@pytest.mark.parametrize("is_there", [True, False])
async def test_a_room_that_is_closed_while_a_client_subscribes_is_refused(user: str | None, is_there: bool) -> None:
    async with serving(pusher=APP) as served:
        client = await connected(served)
        if user is not None:
            client.sign_in(user)
            await client.receive("pusher:signin_success")
        if is_there:
            await served.node.store.put_room("default", "plan", open=True)
        before_opening(served, lambda: served.node.room_messages.put_room("default", "plan", False, None))
        client.send("pusher:subscribe", {"channel": "plan"})
        assert (await client.receive("pusher:subscription_error"))["data"]["status"] == 403


async def test_a_user_joins_a_room_that_is_created_during_the_subscription() -> None:
    async with serving(pusher=APP) as served:
        client = await connected(served)
        client.sign_in("ann")
        await client.receive("pusher:signin_success")
        before_opening(served, lambda: served.node.store.put_room("default", "private-plan", open=False))
        await client.subscribe("private-plan")
        (connection,) = served.node.registry.connections_of("default", "ann")
        assert connection.rooms == {"private-plan"}


async def test_a_client_does_not_listen_to_a_room_that_the_store_cannot_confirm() -> None:
    async with serving(pusher=APP) as served:
        first, second = await connected(served), await connected(served)
        await first.subscribe("plan")
        store, heads = served.node.store, served.node.store.heads

        async def broken(keys: Sequence[Key]) -> Any:
            raise StoreUnavailable("the store is away")

        store.heads = broken  # type: ignore[method-assign]
        await served.node.room_messages.put_room("default", "plan", False, None)
        await served.settle()
        second.send("pusher:subscribe", {"channel": "plan"})
        assert (await second.receive("pusher:subscription_error"))["data"]["status"] in (403, 503)
        store.heads = heads  # type: ignore[method-assign]


async def test_a_subscription_that_fails_leaves_no_right_to_join() -> None:
    async with serving(pusher=APP | {"presence_members": 1}) as served:
        ann, bob = await connected(served), await connected(served)
        await ann.subscribe("presence-lobby", "ann")
        bob.ask("presence-lobby", "bob")
        assert await events(bob) == ["pusher:subscription_error"]
        (session,) = served.node.registry.sessions_of("default", "bob")
        assert session.grants.rooms == ()
        assert not session.unstored


async def test_an_overloaded_node_or_a_limit_refuses_channels_of_clients_without_a_user() -> None:
    rates = {"tenant_commands_per_s": 3}
    async with serving(pusher=APP, limits=rates) as served:
        client = await connected(served)
        served.node.dispatcher.loaded(Level.REFUSING)
        client.ask("news")
        assert (await client.receive("pusher:subscription_error"))["data"]["status"] == 503
        served.node.dispatcher.loaded(Level.NORMAL)
        statuses = set()
        for number in range(20):
            client.ask(f"news-{number}")
            frame = await client.receive()
            statuses.add(frame["data"].get("status"))
        assert statuses == {None, 429}


async def test_a_client_without_a_user_has_fewer_channels() -> None:
    async with serving(pusher=APP, limits={"enabled": False}) as served:
        client = await connected(served)
        for number in range(MOST_WITHOUT_USER):
            await client.subscribe(f"news-{number}")
        client.ask("one-more")
        assert (await client.receive("pusher:subscription_error"))["data"]["type"] == "LimitReached"
        client.sign_in("ann")
        await client.receive("pusher:signin_success")
        await client.subscribe("one-more")


async def test_a_cache_that_cannot_be_read_is_no_error_of_the_subscription() -> None:
    async with serving(pusher=APP) as served:
        client = await connected(served)

        async def broken(*_: Any, **__: Any) -> Any:
            raise StoreUnavailable("the store is away")

        served.node.store.room_page = broken  # type: ignore[method-assign]
        await client.subscribe("cache-news")
        assert await events(client) == []


async def test_nobody_signs_in_as_the_app() -> None:
    async with serving(pusher=APP) as served:
        client = await connected(served)
        client.ask("presence-lobby", "system")
        assert (await client.receive("pusher:subscription_error"))["data"]["status"] == 400


async def test_a_client_without_a_user_sends_no_client_events_to_a_stored_room() -> None:
    async with serving(pusher=APP) as served:
        await served.node.store.put_room("default", "private-plan", open=False)
        ann, bob = await connected(served), await connected(served)
        for client in (ann, bob):
            await client.subscribe("private-plan")
            await client.subscribe("private-other")
        ann.send("client-wave", {}, channel="private-plan")
        assert "sign in first" in (await ann.receive("pusher:error"))["data"]["message"]
        ann.send("client-wave", {}, channel="private-other")
        assert (await bob.receive("client-wave"))["channel"] == "private-other"


async def test_client_events_without_a_user_count_for_the_room() -> None:
    app = APP | {"client_events_per_s": 1_000}
    async with serving(pusher=app, limits={"room_signals_per_s": 2}) as served:
        ann, bob = await connected(served), await connected(served)
        for client in (ann, bob):
            await client.subscribe("private-other")
        for _ in range(20):
            ann.send("client-wave", {}, channel="private-other")
        refused = [frame for frame in await ann.quiet() if frame["event"] == "pusher:error"]
        assert refused[0]["data"]["code"] == 4301


async def test_a_repeated_sign_in_does_not_repeat_who_is_online() -> None:
    async with serving(pusher=APP) as served:
        await served.client("nat")
        ann = await connected(served)
        for _ in range(2):
            ann.sign_in("ann", watchlist=["nat"])
        shown = [name for name in await events(ann) if "watchlist" in name]
        assert len(shown) == 1


@pytest.mark.parametrize(("policy", "hidden"), [("tenant", []), ("tenant", ["bob"]), ("contacts", [])])
async def test_a_client_without_a_user_does_not_see_users_who_hide(policy: str, hidden: list[str]) -> None:
    async with serving(pusher=APP, visibility={"policy": policy}) as served:
        await served.node.store.put_room("default", "private-plan", open=False)
        anybody = await connected(served)
        await anybody.subscribe("private-plan")
        nat = await served.client("nat", claims={"rooms": ["private-plan"]})
        await nat.request(type="room.join", room="private-plan")
        if hidden:
            await nat.request(type="privacy.set", hide_from=hidden)
        await nat.request(type="typing.start", room="private-plan")
        await nat.request(type="signal.send", room="private-plan", kind="wave")
        await served.settle()
        is_shown = policy == "tenant" and not hidden
        assert await events(anybody) == (["client-typing", "client-wave"] if is_shown else [])
