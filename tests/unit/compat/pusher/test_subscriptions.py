"""Subscriptions of Pusher clients while rooms are created and closed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from greendot.errors import StoreUnavailable
from greendot.ids import Key
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
