"""Commands of Centrifuge clients, as frames: what each does, and what each refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import msgspec

from backends import on_each_pair, serving_on
from centrifuge_clients.parts import ON, RawClient, subscription_token
from greendot.auth.model import Revocation
from greendot.compat.centrifuge.connection import CentrifugeConnection
from greendot.store.audit import AuditNote
from greendot.testing.server import API_KEY, Served, serving
from greendot.testing.wire import TEXT


async def put(served: Served, path: str) -> None:
    """Send a PUT request of the app."""
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{served.port}") as http:
        answer = await http.put(path, json={}, headers={"Authorization": f"Bearer {API_KEY}"})
    assert answer.is_success, answer.text


# --- connecting ---


async def test_a_connect_is_answered_with_the_session_and_the_times() -> None:
    async with serving(centrifuge=ON) as served:
        client = await RawClient.opened(served)
        result = (await client.ask(connect={"token": served.token("ann", ttl_s=60), "name": "js"}))["connect"]
        [session] = served.node.registry.sessions_of("default", "ann")
        assert (result["client"], result["node"]) == (session.id, served.node.incarnation)
        assert (result["expires"], result["ttl"], result["ping"], result["pong"]) == (True, 60, 25, True)
        assert session.device == "js"


async def test_the_channels_of_a_token_are_subscribed_with_the_connect() -> None:
    async with serving(centrifuge={"enabled": True, "namespaces": {"s": {"subscribe": False}}}) as served:
        client = await RawClient.opened(served)
        token = served.token("ann", channels=["s:1", "unknown:2"])
        result = (await client.ask(connect={"token": token}))["connect"]
        assert result["subs"].keys() == {"s:1"}
        other = await RawClient.connected(served, "bob")
        assert (await other.ask(subscribe={"channel": "s:1"}))["error"]["code"] == 103
        await client.ask(publish={"channel": "s:1", "data": 5})
        assert (await client.push())["pub"]["data"] == 5


async def test_a_connection_lives_while_it_answers_pings() -> None:
    async with serving(centrifuge=ON) as served:
        client = await RawClient.connected(served, "ann")
        for _ in range(4):
            await served.advance(25)
            assert await client.wire.receive() == {}
            client.send("{}")
            assert "presence" in await client.ask(presence={"channel": "chat"})


async def test_a_client_that_does_not_answer_a_ping_is_closed() -> None:
    async with serving(centrifuge=ON) as served:
        client = await RawClient.connected(served, "ann")
        await served.advance(34)
        assert await client.wire.receive() == {}
        await served.advance(2)
        closed = await client.wire.closed()
        assert (closed.code, closed.reason) == (3012, "no pong")


async def test_a_socket_without_a_connect_is_closed() -> None:
    async with serving(centrifuge=ON) as served:
        client = await RawClient.opened(served)
        client.send("{}")
        await served.advance(10.5)
        assert (await client.wire.closed()).code == 3502


async def test_a_socket_whose_connect_takes_long_and_fails_is_closed() -> None:
    async with serving(centrifuge=ON) as served:
        client = await RawClient.opened(served)
        (connection,) = [one for one in served.node.hello.strangers if isinstance(one, CentrifugeConnection)]
        connection.is_connecting = True  # its token is being verified
        await served.advance(10.5)
        connection.is_connecting = False  # the token has expired, and no other comes
        await served.advance(10.5)
        assert (await client.wire.closed()).code == 3502


async def test_tenants_have_channels_of_their_own() -> None:
    sections: dict[str, Any] = {"centrifuge": ON, "tenants": {"acme": {"centrifuge": ON}, "other": {}}}
    async with serving(**sections) as served:
        ours, theirs = await RawClient.connected(served, "ann"), await RawClient.connected(served, "ann", tenant="acme")
        for client in (ours, theirs):
            await client.ask(subscribe={"channel": "chat"})
        await ours.ask(publish={"channel": "chat", "data": 1})
        assert (await ours.ask(presence_stats={"channel": "chat"}))["presence_stats"]["num_users"] == 1
        assert (await theirs.ask(history={"channel": "chat", "limit": 5}))["history"]["publications"] == []
        without = await RawClient.opened(served)
        without.send(msgspec.json.encode({"id": 1, "connect": {"token": served.token("ann", tenant="other")}}))
        assert (await without.wire.closed()).code == 3500


async def test_a_revoked_user_is_disconnected_and_does_not_return() -> None:
    async with serving(centrifuge=ON) as served:
        client, token = await RawClient.connected(served, "ann"), served.token("ann")
        served.clock.advance(1)
        now = served.clock.now_ms()
        await served.node.revocation_service.revoke(Revocation("default", "user", "ann", now + 3_600_000, now))
        assert (await client.wire.closed()).code == 3503
        again = await RawClient.opened(served)
        again.send(msgspec.json.encode({"id": 1, "connect": {"token": token}}))
        assert (await again.wire.closed()).code == 3500


async def test_a_stopping_server_sends_its_clients_away() -> None:
    async with serving(centrifuge=ON) as served:
        client = await RawClient.connected(served, "ann")
        await served.node.drain(0.1)
        closed = await client.wire.closed()
        assert closed.code == 3001
        assert closed.reason


# --- channels ---


async def test_commands_of_one_frame_are_answered_in_order() -> None:
    async with serving(centrifuge=ON) as served:
        client = await RawClient.opened(served)
        lines = [
            {"id": 1, "connect": {"token": served.token("ann")}},
            {"id": 2, "subscribe": {"channel": "chat"}},
            {"id": 3, "publish": {"channel": "chat", "data": "x"}},
            {"id": 4, "history": {"channel": "chat", "limit": 1}},
        ]
        client.send(b"\n".join(map(msgspec.json.encode, lines)))
        frames = [await client.wire.receive() for _ in range(5)]
        assert [frame["id"] for frame in frames if "id" in frame] == [1, 2, 3, 4]
        [push] = [frame["push"] for frame in frames if "push" in frame]
        assert push["pub"]["offset"] == 1


async def test_a_channel_is_subscribed_once_and_again_after_it_was_left() -> None:
    async with serving(centrifuge=ON) as served:
        client = await RawClient.subscribed(served, "ann", "chat")
        assert (await client.ask(subscribe={"channel": "chat"}))["error"]["code"] == 105
        assert (await client.ask(unsubscribe={"channel": "chat"}))["unsubscribe"] == {}
        assert "subscribe" in await client.ask(subscribe={"channel": "chat"})


async def test_a_channel_of_a_closed_room_is_for_its_members() -> None:
    async with serving(centrifuge=ON) as served:
        await served.node.room_messages.put_room("default", "board", False, None)
        client = await RawClient.connected(served, "ann")
        assert (await client.ask(subscribe={"channel": "board"}))["error"]["code"] == 103
        await served.node.room_messages.put_member("default", "board", "ann", "reader")
        assert "subscribe" in await client.ask(subscribe={"channel": "board"})
        assert (await client.ask(publish={"channel": "board", "data": 1}))["error"]["code"] == 103
        room = await served.node.store.room("default", "board")
        assert room is not None
        await served.node.room_messages.remove_member("default", room, "ann")
        push = await client.push()
        assert (push["channel"], push["unsubscribe"]["code"]) == ("board", 2000)
        assert (await client.ask(subscribe={"channel": "board"}))["error"]["code"] == 103


async def test_a_channel_for_named_users_is_for_them_only() -> None:
    async with serving(centrifuge=ON) as served:
        ann, eve = await RawClient.connected(served, "ann"), await RawClient.connected(served, "eve")
        assert "subscribe" in await ann.ask(subscribe={"channel": "dialog#ann,bob"})
        assert (await eve.ask(subscribe={"channel": "dialog#ann,bob"}))["error"]["code"] == 103
        assert (await eve.ask(history={"channel": "dialog#ann,bob", "limit": 1}))["error"]["code"] == 103


async def test_a_subscription_ends_with_its_token_unless_it_is_refreshed() -> None:
    async with serving(centrifuge={"enabled": True, "namespaces": {"default": {"subscribe": False}}}) as served:
        client = await RawClient.connected(served, "ann")
        for channel in ("one", "two"):
            token = subscription_token(served, "ann", channel, ttl_s=20)
            result = (await client.ask(subscribe={"channel": channel, "token": token}))["subscribe"]
            assert (result["expires"], result["ttl"]) == (True, 20)
        late = subscription_token(served, "ann", "two", ttl_s=3600)
        assert (await client.ask(sub_refresh={"channel": "two", "token": late}))["sub_refresh"]["ttl"] == 3600
        await client.ask(refresh={"token": served.token("ann")})  # keeps what subscription tokens grant
        for _ in range(6):
            await served.advance(9)
            await client.ask(publish={"channel": "two", "data": 1})
        pushes = [push["push"] for push in client.pushes if push and "unsubscribe" in push["push"]]
        assert [(push["channel"], push["unsubscribe"]["code"]) for push in pushes] == [("one", 2501)]
        assert (await client.ask(publish={"channel": "one", "data": 1}))["error"]["code"] == 103


async def test_an_expired_subscription_token_is_told_apart() -> None:
    async with serving(centrifuge=ON) as served:
        client, token = await RawClient.connected(served, "ann"), subscription_token(served, "ann", "$1", ttl_s=5)
        served.clock.advance(6)
        assert (await client.ask(subscribe={"channel": "$1", "token": token}))["error"]["code"] == 109


async def test_a_namespace_decides_what_clients_may_do() -> None:
    namespaces = {"read": {"publish": False, "presence": False, "join_leave": False}, "fast": {"history": False}}
    async with serving(centrifuge={"enabled": True, "namespaces": namespaces}) as served:
        client = await RawClient.subscribed(served, "ann", "read:1", join_leave=True)
        assert (await client.ask(publish={"channel": "read:1", "data": 1}))["error"]["code"] == 103
        assert (await client.ask(presence={"channel": "read:1"}))["error"]["code"] == 108
        assert (await client.ask(presence_stats={"channel": "read:1"}))["error"]["code"] == 108
        await RawClient.subscribed(served, "bob", "read:1")
        assert (await client.ask(subscribe={"channel": "other:1"}))["error"]["code"] == 102
        assert client.pushes == []


async def test_a_channel_without_a_history_carries_signals() -> None:
    async with serving(centrifuge={"enabled": True, "namespaces": {"fast": {"history": False}}}) as served:
        ann, bob = [await RawClient.subscribed(served, user, "fast:1") for user in ("ann", "bob")]
        await ann.ask(publish={"channel": "fast:1", "data": {"x": 1}})
        for client in (ann, bob):
            push = await client.push()
            assert push == {"channel": "fast:1", "pub": {"data": {"x": 1}, "info": {"user": "ann", "client": "ann"}}}
        assert (await ann.ask(history={"channel": "fast:1", "limit": 1}))["error"]["code"] == 108
        room = await served.node.store.room("default", "fast=3A1")
        assert room is not None
        assert room.head == 0


@on_each_pair
async def test_a_muted_user_cannot_publish_and_a_banned_one_cannot_subscribe(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres, centrifuge=ON) as served:
        client = await RawClient.subscribed(served, "ann", "chat")
        await put(served, "/v1/rooms/chat/mutes/ann")
        assert (await client.ask(publish={"channel": "chat", "data": 1}))["error"]["code"] == 103
        await put(served, "/v1/rooms/chat/bans/ann")
        assert (await client.push())["unsubscribe"]["code"] == 2000
        assert (await client.ask(subscribe={"channel": "chat"}))["error"]["code"] == 103


@on_each_pair
async def test_edits_and_deletions_are_publications_with_tags(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres, centrifuge=ON) as served:
        await served.lobby()
        native, client = await served.joined("bob"), await RawClient.subscribed(served, "ann", "lobby")
        await native.request(type="room.send", room="lobby", body={"text": "a"})
        await native.request(type="room.edit", room="lobby", ref=1, body={"text": "b"})
        await native.request(type="room.delete", room="lobby", ref=1)
        pubs = [(await client.push())["pub"] for _ in range(3)]
        assert [(pub["offset"], pub["data"], pub.get("tags")) for pub in pubs] == [
            (1, {"text": "a"}, None),
            (2, {"text": "b"}, {"op": "edit", "ref": "1"}),
            (3, None, {"op": "delete", "ref": "1"}),
        ]


async def test_json_of_native_clients_never_breaks_a_frame_in_two() -> None:
    async with serving(centrifuge=ON) as served:
        await served.lobby()
        native, client = await served.joined("bob"), await RawClient.subscribed(served, "ann", "lobby")
        native.send_frame(TEXT, b'{"type":"room.send","room":"lobby","body":{\n\t"text" :\r\n "a\\nb"\n}}')
        opcode, payload = await client.wire._frame()
        assert opcode == TEXT
        assert b"\n" not in payload
        assert msgspec.json.decode(payload)["push"]["pub"]["data"] == {"text": "a\nb"}


# --- recovery ---


@on_each_pair
async def test_a_room_that_was_deleted_and_made_again_is_not_recovered(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres, centrifuge=ON) as served:
        client = await RawClient.connected(served, "ann")
        first = (await client.ask(subscribe={"channel": "chat"}))["subscribe"]
        await client.ask(publish={"channel": "chat", "data": 1})
        await client.ask(unsubscribe={"channel": "chat"})
        note = AuditNote("default", served.clock.now_ms(), "test", "room.deleted", "chat")
        await served.node.moderation.delete("default", "chat", note)
        while not (await served.node.store.purge_rooms(served.clock.now_ms(), 1_000)).is_over:
            pass
        asked = {"channel": "chat", "recover": True, "offset": 0, "epoch": first["epoch"]}
        again = (await client.ask(subscribe=asked))["subscribe"]
        assert again["epoch"] != first["epoch"]
        assert (again["was_recovering"], again.get("recovered", False)) == (True, False)
        assert "publications" not in again


async def test_a_client_far_behind_is_told_that_nothing_was_recovered() -> None:
    async with serving(centrifuge=ON, limits={"enabled": False}) as served:
        client = await RawClient.connected(served, "ann")
        first = (await client.ask(subscribe={"channel": "chat"}))["subscribe"]
        for number in range(301):
            await client.ask(publish={"channel": "chat", "data": number})
        await client.ask(unsubscribe={"channel": "chat"})
        asked = {"channel": "chat", "recover": True, "offset": 0, "epoch": first["epoch"]}
        again = (await client.ask(subscribe=asked))["subscribe"]
        assert (again["offset"], again.get("recovered", False)) == (301, False)
