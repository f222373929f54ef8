"""Numbers of subscribers: clients of invisible users are counted for the app only."""

from __future__ import annotations

from pathlib import Path

from backends import on_each_pair, serving_on
from greendot.testing import Served
from unit.compat.pusher.test_http import BASE, get
from unit.compat.pusher.wire import APP, PusherClient, connected


async def count(served: Served, client: PusherClient) -> int:
    """Return the next number that a client gets."""
    await served.advance(0.6)
    number: int = (await client.receive("pusher_internal:subscription_count"))["data"]["subscription_count"]
    return number


async def signed_in(served: Served, user: str) -> PusherClient:
    client = await connected(served)
    client.sign_in(user)
    await client.receive("pusher:signin_success")
    return client


@on_each_pair
async def test_the_number_of_subscribers_does_not_show_an_invisible_user(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres, pusher=APP | {"subscription_count": True}) as served:
        ann = await connected(served)
        await ann.subscribe("private-talk")
        assert await count(served, ann) == 1
        bob = await signed_in(served, "bob")
        await bob.subscribe("private-talk")
        assert await count(served, ann) == 2

        native = await served.client("bob")
        await native.request(type="status.set", status="invisible")
        assert await count(served, ann) == 1
        other = await signed_in(served, "bob")
        await other.subscribe("private-talk")
        await served.advance(0.6)
        other.send("pusher:unsubscribe", {"channel": "private-talk"})
        await other.quiet()
        await served.advance(0.6)
        answer = (await get(served, f"{BASE}/channels/private-talk", info="subscription_count")).json()
        assert answer == {"occupied": True, "subscription_count": 2}  # the app knows

        # The next number is another one: the same number again would show when the user came and left.
        early = await connected(served)
        await early.subscribe("private-talk")
        assert await count(served, ann) == 2
        early.sign_in("bob")  # as if the client had left
        await early.receive("pusher_internal:subscription_count")
        await early.receive("pusher:signin_success")
        assert await count(served, ann) == 1

        await native.request(type="status.set", status="auto")
        assert await count(served, ann) == 3
