"""`cent`, unmodified, against the server API: what backends of Centrifugo users do works."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import cent
import httpx2
import pytest

from backends import on_each_pair, serving_on
from centrifuge_clients.parts import ON, RawClient
from greendot.auth.model import hash_of, text_of
from greendot.errors import StoreUnavailable
from greendot.ids import new_key_id, new_key_secret
from greendot.store.api_keys import ApiKey, Secret
from greendot.testing.server import API_KEY, Served, serving

# Wrong input of the server API: method, body, expected error code.
WRONG: list[tuple[str, Any, int]] = [
    ("publish", b"{", 107),
    ("publish", {"channel": 5, "data": 1}, 107),
    ("publish", {"data": 1}, 107),
    ("publish", {"channel": "chat"}, 107),
    ("publish", {"channel": "", "data": 1}, 107),
    ("publish", {"channel": "x" * 200, "data": 1}, 107),
    ("publish", {"channel": "chat", "data": "x" * 70_000}, 106),
    ("publish", {"channel": "chat", "data": [[[[1]]]] * 3, "b64data": 7}, 107),
    ("publish", {"channel": "chat", "b64data": "!"}, 107),
    ("broadcast", {"channels": ["a"] * 1_001, "data": 1}, 107),
    ("history", {"channel": "chat", "since": {"offset": -1}}, 107),
    ("history_remove", {"channel": "chat"}, 108),
    ("refresh", {"user": "ann"}, 108),
    ("batch", {"commands": [{}] * 1_001}, 107),
]


@asynccontextmanager
async def backend(served: Served, key: str = API_KEY) -> AsyncIterator[cent.AsyncClient]:
    client = cent.AsyncClient(f"http://127.0.0.1:{served.port}/api", key)
    try:
        yield client
    finally:
        await client.close()


async def post(served: Served, method: str, body: Any, headers: dict[str, str]) -> httpx2.Response:
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{served.port}") as http:
        if isinstance(body, bytes):
            return await http.post(f"/api/{method}", content=body, headers=headers)
        return await http.post(f"/api/{method}", json=body, headers=headers)


@on_each_pair
async def test_what_the_app_publishes_reaches_both_kinds_of_clients(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres, centrifuge=ON) as served, backend(served) as app:
        client = await RawClient.subscribed(served, "ann", "chat")
        native = await served.joined("bob", "chat")
        first = await app.publish(cent.PublishRequest(channel="chat", data={"text": "hi"}, idempotency_key="a b"))
        again = await app.publish(cent.PublishRequest(channel="chat", data={"text": "hi"}, idempotency_key="a b"))
        assert (first.offset, again.offset, first.epoch) == (1, 1, again.epoch)
        assert (await client.push())["pub"] == {"data": {"text": "hi"}, "offset": 1}
        message = (await native.receive("room.message"))["data"]
        assert (message["seq"], message["user"], message["body"]) == (1, "system", {"text": "hi"})
        await app.publish(cent.PublishRequest(channel="chat", data=2, skip_history=True))
        assert (await client.push())["pub"] == {"data": 2}
        assert (await app.history(cent.HistoryRequest(channel="chat", limit=10))).offset == 1


async def test_a_broadcast_and_a_batch_answer_for_each_part() -> None:
    async with serving(centrifuge={"enabled": True, "namespaces": {"a": {}}}) as served, backend(served) as app:
        found = await app.broadcast(cent.BroadcastRequest(channels=["a:1", "b:1", "a:2"], data={"x": 1}))
        assert [reply.error and reply.error.code for reply in found.responses] == [None, 102, None]
        for parallel in (False, True):
            batch = await app.batch(
                cent.BatchRequest(
                    requests=[
                        cent.PublishRequest(channel="a:1", data={}),
                        cent.PresenceStatsRequest(channel="a:1"),
                        cent.HistoryRequest(channel="a:1", limit=1),
                    ],
                    parallel=parallel,
                )
            )
            published, stats, history = batch.replies
            assert (published.offset, stats.num_clients, history.publications[0].offset) == (2 + parallel, 0, 1)


async def test_presence_and_channels_are_those_of_the_rooms() -> None:
    async with serving(centrifuge=ON) as served, backend(served) as app:
        await served.lobby()
        await served.joined("bob")
        for _ in range(2):
            await RawClient.subscribed(served, "ann", "lobby")
        await RawClient.subscribed(served, "ann", "news:1")
        await app.publish(cent.PublishRequest(channel="news:2", data={}))
        await served.settle()
        present = await app.presence(cent.PresenceRequest(channel="lobby"))
        assert {key: (one.client, one.user) for key, one in present.presence.items()} == {
            "ann": ("ann", "ann"),
            "bob": ("bob", "bob"),
        }
        stats = await app.presence_stats(cent.PresenceStatsRequest(channel="lobby"))
        assert (stats.num_clients, stats.num_users) == (2, 2)
        assert (await app.channels(cent.ChannelsRequest())).channels.keys() == {"lobby", "news:1"}
        found = (await app.channels(cent.ChannelsRequest(pattern="news:*"))).channels
        assert {name: one.num_clients for name, one in found.items()} == {"news:1": 1}
        [node] = (await app.info(cent.InfoRequest())).nodes
        assert (node.uid, node.num_clients, node.num_users) == (served.node.incarnation, 4, 2)


@on_each_pair
async def test_history_is_read_in_pages(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres, centrifuge=ON) as served, backend(served) as app:
        for number in range(5):
            await app.publish(cent.PublishRequest(channel="chat", data=number))

        async def read(**asked: Any) -> list[Any]:
            return [one.data for one in (await app.history(cent.HistoryRequest(channel="chat", **asked))).publications]

        assert await read() == []
        assert await read(limit=2) == [0, 1]
        assert await read(limit=2, reverse=True) == [4, 3]
        assert await read(limit=9, since=cent.StreamPosition(offset=3, epoch="")) == [3, 4]
        assert (await app.history(cent.HistoryRequest(channel="unused", limit=1))).offset == 0


@on_each_pair
async def test_the_app_subscribes_and_unsubscribes_a_user(pair: str, tmp_path: Path, postgres: str) -> None:
    rules = {"enabled": True, "namespaces": {"default": {"subscribe": False}}}
    async with serving_on(pair, tmp_path, postgres, centrifuge=rules) as served, backend(served) as app:
        one, two = await RawClient.connected(served, "ann"), await RawClient.connected(served, "ann")
        await app.subscribe(cent.SubscribeRequest(user="ann", channel="chat"))
        for client in (one, two):
            push = await client.push()
            assert (push["channel"], push["subscribe"]["recoverable"]) == ("chat", True)
        await app.publish(cent.PublishRequest(channel="chat", data=1))
        assert (await one.push())["pub"]["data"] == 1
        sessions = [session.id for session in served.node.registry.sessions_of("default", "ann")]
        await app.unsubscribe(cent.UnsubscribeRequest(user="ann", channel="chat", client=sessions[0]))
        assert (await one.push())["unsubscribe"]["code"] == 2000
        await app.unsubscribe(cent.UnsubscribeRequest(user="ann", channel="chat"))
        assert [list(await two.push()) for _ in range(2)] == [["channel", "pub"], ["channel", "unsubscribe"]]
        assert (await two.ask(publish={"channel": "chat", "data": 1}))["error"]["code"] == 103


@on_each_pair
async def test_the_app_disconnects_a_user_but_not_the_clients_it_keeps(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres, centrifuge=ON) as served, backend(served) as app:
        one, two = await RawClient.connected(served, "ann"), await RawClient.connected(served, "ann")
        ids = [session.id for session in served.node.registry.sessions_of("default", "ann")]
        await app.disconnect(cent.DisconnectRequest(user="ann", whitelist=[ids[1]]))
        assert (await one.wire.closed()).code == 3503
        custom = cent.Disconnect(code=4900, reason="custom")
        await app.disconnect(cent.DisconnectRequest(user="ann", disconnect=custom))
        closed = await two.wire.closed()
        assert (closed.code, closed.reason) == (4900, "custom")
        three = await RawClient.connected(served, "ann")
        await app.refresh(cent.RefreshRequest(user="ann", expired=True))
        assert (await three.wire.closed()).code == 3005


@pytest.mark.parametrize(("given", "sent"), [(4000, 4010), (4005, 4015), (4501, 4511), (4505, 4515), (4100, 4100)])
async def test_a_close_code_of_the_app_is_never_one_of_the_server(given: int, sent: int) -> None:
    async with serving(centrifuge=ON) as served, backend(served) as app:
        client, native = await RawClient.connected(served, "ann"), await served.client("ann")
        await app.disconnect(
            cent.DisconnectRequest(user="ann", disconnect=cent.Disconnect(code=given, reason="custom"))
        )
        assert [(await one.closed()).code for one in (client.wire, native)] == [sent, sent]


async def test_a_broadcast_reports_the_channel_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(centrifuge=ON) as served, backend(served) as app:
        append = served.node.room_messages.append

        async def fail(tenant: str, room: str, draft: Any) -> Any:
            if room == "b":
                raise StoreUnavailable("away")
            return await append(tenant, room, draft)

        monkeypatch.setattr(served.node.room_messages, "append", fail)
        sent = await app.broadcast(cent.BroadcastRequest(channels=["a", "b", "c"], data=1))
        assert [None if one.error is None else one.error.code for one in sent.responses] == [None, 100, None]


async def test_a_key_is_needed_and_its_scopes_count() -> None:
    async with serving(centrifuge=ON) as served:
        async with backend(served, "wrong") as app:
            with pytest.raises(cent.CentUnauthorizedError):
                await app.info(cent.InfoRequest())
        assert (await post(served, "info", {}, {})).status_code == 401
        id, secret, now = new_key_id(), new_key_secret(), served.clock.now_ms()
        reader = ApiKey("default", "reader", frozenset({"rooms:read"}), now)
        await served.node.store.create_key(reader, Secret(id, hash_of(secret), now))
        async with backend(served, text_of(id, secret)) as app:
            await app.presence_stats(cent.PresenceStatsRequest(channel="chat"))
            with pytest.raises(cent.CentApiResponseError) as refused:
                await app.publish(cent.PublishRequest(channel="chat", data=1))
        assert refused.value.code == 103


async def test_a_tenant_without_the_protocol_has_no_server_api() -> None:
    async with serving(tenants={"acme": {"centrifuge": ON}}) as served, backend(served) as app:
        with pytest.raises(cent.CentApiResponseError) as refused:
            await app.publish(cent.PublishRequest(channel="chat", data=1))
        assert refused.value.code == 108


async def test_wrong_requests_are_refused_with_a_reason() -> None:
    async with serving(centrifuge=ON) as served:
        for method, body, code in WRONG:
            answer = await post(served, method, body, {"X-API-Key": API_KEY})
            assert answer.status_code == 200
            assert answer.json()["error"]["code"] == code, (method, answer.text)
        assert (await post(served, "unknown", {}, {"X-API-Key": API_KEY})).status_code == 404


async def test_a_server_without_the_protocol_has_no_such_paths() -> None:
    async with serving() as served:
        assert (await post(served, "info", {}, {"X-API-Key": API_KEY})).status_code == 404
        with pytest.raises(ConnectionError, match="404"):
            await RawClient.opened(served)
