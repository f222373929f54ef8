"""centrifuge-js, unmodified, against the server: what its users do works, together with native clients."""

from __future__ import annotations

import pytest

from centrifuge_clients.javascript import CallFailed, javascript
from centrifuge_clients.parts import ON, RawClient, address, subscription_token
from greendot.testing.server import serving


async def test_two_clients_see_each_other_and_their_publications() -> None:
    async with serving(centrifuge=ON) as served, javascript() as js:
        url = address(served)
        # One frame has the commands connect and subscribe.
        await js.call("connect", url=url, token=served.token("ann", info={"age": 4}), options={"channels": ["news:42"]})
        connected = await js.event("connected")
        assert connected["client"].startswith(served.node.incarnation)
        first = await js.event("subscribed", channel="news:42")
        assert first["streamPosition"]["offset"] == 0
        await js.call("subscribe", channel="chat", options={"joinLeave": True})
        await js.event("subscribed", channel="chat")
        await js.call("connect", client="b", url=url, token=served.token("bob"), options={"channels": ["news:42"]})
        await js.event("subscribed", "b", channel="news:42")
        await js.call("publish", client="b", channel="news:42", data={"text": "line\nbreak ü"})
        for client in "ab":
            seen = await js.event("publication", client, channel="news:42")
            assert (seen["data"], seen["offset"]) == ({"text": "line\nbreak ü"}, 1)
            assert seen["info"] == {"user": "bob", "client": "bob"}
        there = (await js.call("presence", channel="news:42"))["clients"]
        assert there.keys() == {"ann", "bob"}
        assert there["ann"]["connInfo"] == {"age": 4}
        assert await js.call("presenceStats", channel="news:42") == {"numClients": 2, "numUsers": 2}


async def test_joins_and_leaves_are_told_to_those_who_ask() -> None:
    async with serving(centrifuge=ON) as served, javascript() as js:
        url = address(served)
        for client, asks in (("a", True), ("c", False)):
            await js.call("connect", client=client, url=url, token=served.token(f"u{client}"))
            await js.call("subscribe", client=client, channel="chat", options={"joinLeave": asks})
            await js.event("subscribed", client, channel="chat")
        await js.call("connect", client="b", url=url, token=served.token("bob"), options={"channels": ["chat"]})
        await js.event("subscribed", "b", channel="chat")
        while (await js.event("join", channel="chat"))["info"]["user"] != "bob":
            pass
        await js.call("unsubscribe", client="b", channel="chat")
        assert (await js.event("leave", channel="chat"))["info"] == {"user": "bob", "client": "bob"}
        await js.call("publish", channel="chat", data=1)
        await js.event("publication", "c", channel="chat")
        assert not [said for said in js.events if said["client"] == "c" and said["event"] in ("join", "leave")]


async def test_history_is_read_forwards_backwards_and_from_a_position() -> None:
    async with serving(centrifuge=ON) as served, javascript() as js:
        await js.call("connect", url=address(served), token=served.token("ann"), options={"channels": ["chat"]})
        await js.event("subscribed", channel="chat")
        for number in range(1, 6):
            await js.call("publish", channel="chat", data=number)

        async def read(**options: object) -> list[int]:
            found = await js.call("history", channel="chat", options=options)
            assert found["offset"] == 5
            return [one["data"] for one in found["publications"]]

        assert await read(limit=0) == []
        assert await read(limit=-1) == [1, 2, 3, 4, 5]
        assert await read(limit=2, reverse=True) == [5, 4]
        epoch = (await js.call("history", channel="chat", options={"limit": 0}))["epoch"]
        assert await read(limit=2, since={"offset": 2, "epoch": epoch}) == [3, 4]
        assert await read(limit=2, since={"offset": 3, "epoch": epoch}, reverse=True) == [2, 1]
        with pytest.raises(CallFailed) as failed:
            await read(limit=2, since={"offset": 2, "epoch": "another"})
        assert failed.value.code == 112


async def test_native_and_centrifuge_clients_share_a_room_and_its_order() -> None:
    async with serving(centrifuge=ON) as served, javascript() as js:
        await served.lobby()
        native = await served.joined("bob", comings=True)
        await js.call("connect", url=address(served), token=served.token("ann"))
        await js.call("subscribe", channel="lobby", options={"joinLeave": True})
        await js.event("subscribed", channel="lobby")
        while (entered := await native.receive("room.entered"))["data"]["user"] != "ann":
            assert entered["data"]["user"] == "bob"
        for number in range(3):
            await js.call("publish", channel="lobby", data={"js": number})
            await native.request(type="room.send", room="lobby", body={"native": number})
        there = [(await js.event("publication", channel="lobby")) for _ in range(6)]
        here = [(await native.receive("room.message"))["data"] for _ in range(6)]
        assert [(one["offset"], one["data"]) for one in there] == [(one["seq"], one["body"]) for one in here]
        assert [one["info"]["user"] for one in there] == ["ann", "bob"] * 3
        native.send(type="bye")
        assert (await js.event("leave", channel="lobby"))["info"]["user"] == "bob"


async def test_what_was_published_while_the_network_was_lost_is_recovered() -> None:
    async with serving(centrifuge=ON) as served, javascript() as js:
        await js.call("connect", url=address(served), token=served.token("ann"), options={"channels": ["chat"]})
        await js.event("subscribed", channel="chat")
        await js.call("publish", channel="chat", data=1)
        await js.event("publication", channel="chat")
        other = await RawClient.subscribed(served, "bob", "chat")
        await js.call("cut")
        await js.event("subscribing", channel="chat")
        for number in (2, 3):
            await other.ask(publish={"channel": "chat", "data": number})
        again = await js.event("subscribed", channel="chat")
        assert (again["wasRecovering"], again["recovered"]) == (True, True)
        seen = [await js.event("publication", channel="chat") for _ in range(2)]
        assert [(one["data"], one["offset"]) for one in seen] == [(2, 2), (3, 3)]


async def test_an_expired_token_is_replaced_and_an_invalid_one_ends_the_client() -> None:
    async with serving(centrifuge=ON) as served, javascript() as js:
        url, old = address(served), served.token("ann", ttl_s=5)
        served.clock.advance(6)
        await js.call("connect", url=url, token=old, refreshed=served.token("ann"))
        assert (await js.event("error"))["code"] == 109
        await js.event("getToken")
        await js.event("connected")
        await js.call("connect", client="b", url=url, token=served.token("bob")[:-3] + "abc")
        ended = await js.event("disconnected", "b")
        assert ended["code"] == 3500


async def test_a_token_is_refreshed_before_it_ends() -> None:
    async with serving(centrifuge=ON) as served, javascript() as js:
        fresh = served.token("ann", ttl_s=3600)
        await js.call("connect", url=address(served), token=served.token("ann", ttl_s=1), refreshed=fresh)
        await js.event("connected")
        await js.event("getToken")
        # The refresh has no event of its own. After it, the connection outlives the first token.
        await js.call("subscribe", channel="chat")
        await js.event("subscribed", channel="chat")
        await served.settle()
        [session] = served.node.registry.sessions_of("default", "ann")
        assert session.grants.expires_at > served.clock.now_ms() + 3_000_000


async def test_channels_that_need_a_token_are_open_to_its_holder_only() -> None:
    rules = {"enabled": True, "namespaces": {"secret": {"subscribe": False}, "default": {}}}
    async with serving(centrifuge=rules) as served, javascript() as js:
        await js.call("connect", url=address(served), token=served.token("ann"))
        for channel in ("secret:1", "$private"):
            await js.call("subscribe", channel=channel)
            assert (await js.event("unsubscribed", channel=channel))["code"] == 103
        wrong = {"secret:2": ("ann", "secret:3"), "secret:4": ("bob", "secret:4")}
        for channel, (user, named) in wrong.items():
            await js.call("subscribe", channel=channel, options={"token": subscription_token(served, user, named)})
            assert (await js.event("unsubscribed", channel=channel))["code"] == 103
        for channel in ("secret:5", "$5"):
            token = subscription_token(served, "ann", channel)
            await js.call("subscribe", channel=channel, options={"token": token})
            await js.event("subscribed", channel=channel)
        stranger = await RawClient.connected(served, "bob")
        assert (await stranger.ask(subscribe={"channel": "secret:5"}))["error"]["code"] == 103
        assert (await stranger.ask(history={"channel": "secret:5", "limit": 1}))["error"]["code"] == 103
        assert (await stranger.ask(presence={"channel": "secret:5"}))["error"]["code"] == 103
        assert (await stranger.ask(publish={"channel": "secret:5", "data": 1}))["error"]["code"] == 103


async def test_calls_that_have_no_native_meaning_say_so() -> None:
    async with serving(centrifuge=ON) as served, javascript() as js:
        await js.call("connect", url=address(served), token=served.token("ann"))
        await js.event("connected")
        with pytest.raises(CallFailed, match="no RPC") as failed:
            await js.call("rpc", method="sum")
        assert failed.value.code == 108
