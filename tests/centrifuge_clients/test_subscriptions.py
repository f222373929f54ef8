"""Subscriptions of Centrifuge clients: their tokens, their ends, and races with the node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from backends import on_each_pair, serving_on
from centrifuge_clients.parts import ON, RawClient, subscription_token
from greendot.auth.model import Revocation
from greendot.engine.messages import Part, RoomOrder
from greendot.errors import EngineUnavailable, StoreUnavailable, Unstorable
from greendot.limits.overload_model import Level
from greendot.node.stream import RECOVER
from greendot.store.audit import AuditNote
from greendot.store.rooms import Draft
from greendot.testing.hold import hold
from greendot.testing.server import Served, serving
from greendot.testing.wire import Closed

TOKENS = {"enabled": True, "namespaces": {"default": {"subscribe": False}}}


async def subscribe_with(served: Served, client: RawClient, **claims: Any) -> dict[str, Any]:
    token = subscription_token(served, "ann", "s", **claims)
    return await client.ask(subscribe={"channel": "s", "token": token})


async def revoke(served: Served, kind: Any, value: str) -> None:
    now = served.clock.now_ms()
    await served.node.revocation_service.revoke(Revocation("default", kind, value, now + 3_600_000, now))


# --- tokens ---


async def test_a_revoked_subscription_token_opens_nothing() -> None:
    async with serving(centrifuge=TOKENS) as served:
        old = subscription_token(served, "ann", "s")
        served.clock.advance(1)
        await revoke(served, "user", "ann")
        await revoke(served, "jti", "gone")
        served.clock.advance(1)
        client = await RawClient.connected(served, "ann")
        assert (await client.ask(subscribe={"channel": "s", "token": old}))["error"]["code"] == 103
        assert (await subscribe_with(served, client, jti="gone"))["error"]["code"] == 103
        assert (await subscribe_with(served, client, iat=None, ttl_s=60))["error"]["code"] == 103
        assert "subscribe" in await subscribe_with(served, client)


async def test_a_subscription_token_needs_a_time() -> None:
    async with serving(centrifuge=TOKENS) as served:
        client = await RawClient.connected(served, "ann")
        assert (await subscribe_with(served, client, iat=None))["error"]["code"] == 103
        longest_s = served.node.revocation_service.longest_ms / 1000
        old = served.clock.now_ms() / 1000 - longest_s - 1
        assert (await subscribe_with(served, client, iat=old))["error"]["code"] == 109
        assert (await subscribe_with(served, client, ttl_s=longest_s + 60))["error"]["code"] == 103
        assert "subscribe" in await subscribe_with(served, client, ttl_s=60)


@on_each_pair
async def test_a_revocation_of_its_token_ends_a_subscription(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres, centrifuge=TOKENS) as served:
        client = await RawClient.connected(served, "ann")
        await subscribe_with(served, client, jti="t1")
        await revoke(served, "jti", "other")
        assert "publish" in await client.ask(publish={"channel": "s", "data": 1})
        assert "pub" in await client.push()  # comes over the bus, with Redis after the reply
        await revoke(served, "jti", "t1")
        assert (await client.push())["unsubscribe"]["code"] == 2000
        for command in ({"publish": {"channel": "s", "data": 1}}, {"history": {"channel": "s"}}):
            assert (await client.ask(**command))["error"]["code"] == 103


async def test_a_token_that_is_revoked_during_the_join_opens_nothing() -> None:
    async with serving(centrifuge=TOKENS) as served:
        client = await RawClient.connected(served, "ann")
        async with hold(served.node.store, "put_room", at="after") as held:
            token = subscription_token(served, "ann", "s", jti="t1")
            client.send(msgspec.json.encode({"id": 9, "subscribe": {"channel": "s", "token": token}}))
            await held.reached()
            await revoke(served, "jti", "t1")
        assert (await client.wire.receive())["error"]["code"] == 103
        (connection,) = served.node.registry.connections_of("default", "ann")
        assert not connection.rooms


async def test_a_subscription_token_opens_no_session() -> None:
    async with serving(centrifuge=ON) as served:
        token = subscription_token(served, "ann", "s", ttl_s=60)
        client = await RawClient.opened(served)
        client.send(msgspec.json.encode({"id": 1, "connect": {"token": token}}))
        assert (await client.wire.closed()).code == 3500
        native = await served.socket()
        native.send(type="hello", token=token)
        assert (await native.closed()).code == 4500


async def test_times_beyond_the_range_of_a_client_are_shortened() -> None:
    async with serving(centrifuge=TOKENS, auth={"secret": "x" * 32, "longest_token_s": 10**10}) as served:
        client = await RawClient.opened(served)
        reply = await client.ask(connect={"token": served.node.tokens.make("ann", served.clock.now_ms(), 5e9)})
        assert reply["connect"]["ttl"] == 2**31 - 1


# --- removals and ends ---


@on_each_pair
async def test_a_grant_from_before_a_removal_does_not_count_again(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres, centrifuge=TOKENS) as served:
        client = await RawClient.connected(served, "ann")
        await subscribe_with(served, client, ttl_s=30)
        served.node.rooms.removal.remove("default", "s", "ann", "removed")
        assert (await client.push())["unsubscribe"]["code"] == 2000
        for command in ({"history": {"channel": "s"}}, {"subscribe": {"channel": "s"}}):
            assert (await client.ask(**command))["error"]["code"] == 103
        assert "subscribe" in await subscribe_with(served, client, ttl_s=30)


async def test_a_join_that_ends_after_the_socket_leaves_nothing() -> None:
    async with serving(centrifuge=TOKENS) as served:
        client = await RawClient.connected(served, "ann")
        (connection,) = served.node.registry.connections_of("default", "ann")
        async with hold(served.node.store, "put_room", at="after") as held:
            token = subscription_token(served, "ann", "s", ttl_s=60)
            client.send(msgspec.json.encode({"id": 9, "subscribe": {"channel": "s", "token": token}}))
            await held.reached()
            connection.close(1000, "test")
            with pytest.raises(Closed):
                await client.wire.receive()
        await served.advance(0.1)
        assert connection.subscriptions == {}  # type: ignore[attr-defined]
        assert connection.granted_rooms == ()


async def test_a_client_that_missed_too_many_publications_connects_again() -> None:
    async with serving(centrifuge=ON) as served:
        client = await RawClient.subscribed(served, "ann", "chat")
        for number in range(RECOVER + 5):  # written by a node whose messages are lost
            await served.node.store.append("default", "chat", Draft("bob", None, b"1", f"k{number}", 1))
        await served.node.rooms.delivery.compare(Part())
        closed = await client.wire.closed()
        assert closed.code == 3010
        again = await RawClient.connected(served, "ann")
        asked = {"channel": "chat", "recover": True, "offset": 0}
        assert (await again.ask(subscribe=asked))["subscribe"]["offset"] == RECOVER + 5


# --- unavailable services ---


@pytest.mark.parametrize("error", [StoreUnavailable("away"), EngineUnavailable("away"), Unstorable("odd")])
@pytest.mark.parametrize("method", ["subscribe", "history"])
async def test_an_unavailable_service_is_an_error_of_the_command(
    error: Exception, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(centrifuge=ON) as served:
        client = await RawClient.connected(served, "ann")

        async def fail(*args: Any, **kwargs: Any) -> None:
            raise error

        with monkeypatch.context() as patch:
            for name in ("put_room", "heads", "room", "room_page"):
                patch.setattr(served.node.store, name, fail)
            failed = (await client.ask(**{method: {"channel": "new"}}))["error"]
        if isinstance(error, Unstorable):
            assert failed["code"] == 107
        else:
            assert (failed["code"], failed["temporary"]) == (100, True)
        assert "subscribe" in await client.ask(subscribe={"channel": "new"})


# --- server-side subscriptions ---


async def test_publications_during_the_connect_follow_its_reply() -> None:
    async with serving(centrifuge=ON) as served:
        bob = await RawClient.subscribed(served, "bob", "a")
        client = await RawClient.opened(served)
        async with hold(served.node.store, "put_room", when=lambda tenant, room, **more: room == "b") as held:
            token = served.token("ann", channels=["a", "b"])
            client.send(msgspec.json.encode({"id": 1, "connect": {"token": token}}))
            await held.reached()
            await bob.ask(publish={"channel": "a", "data": 5})
        frames = [await client.wire.receive() for _ in range(2)]
        assert frames[0]["connect"]["subs"].keys() == {"a", "b"}
        assert frames[1]["push"]["pub"]["data"] == 5


@on_each_pair
async def test_server_side_subscriptions_are_recovered(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres, centrifuge=ON) as served:
        bob = await RawClient.subscribed(served, "bob", "a")
        token = served.token("ann", channels=["a"])
        client = await RawClient.opened(served)
        first = (await client.ask(connect={"token": token}))["connect"]["subs"]["a"]
        await client.wire.end()
        await bob.ask(publish={"channel": "a", "data": 5})
        again = await RawClient.opened(served)
        known = {"recover": True, "epoch": first["epoch"], "offset": first.get("offset", 0)}
        reply = await again.ask(connect={"token": token, "subs": {"a": known}})
        found = reply["connect"]["subs"]["a"]
        assert (found["recovered"], [one["data"] for one in found["publications"]]) == (True, [5])


async def test_a_temporary_refusal_of_a_server_side_subscription_closes_the_connection() -> None:
    async with serving(centrifuge=ON) as served:
        client = await RawClient.opened(served)
        async with hold(served.node.store, "put_room", when=lambda tenant, room, **more: room == "a") as held:
            client.send(msgspec.json.encode({"id": 1, "connect": {"token": served.token("ann", channels=["a", "b"])}}))
            await held.reached()
            served.node.dispatcher.loaded(Level.REFUSING)
        assert (await client.wire.closed()).code == 3013


async def test_a_new_token_without_a_channel_ends_its_subscription() -> None:
    async with serving(centrifuge=TOKENS) as served:
        client = await RawClient.connected(served, "ann", channels=["a", "b"])
        await client.ask(refresh={"token": served.token("ann", channels=["b"])})
        pushes = [push["push"] for push in client.pushes]
        assert [(push["channel"], push["unsubscribe"]["code"]) for push in pushes] == [("a", 2000)]
        assert (await client.ask(publish={"channel": "a", "data": 1}))["error"]["code"] == 103
        assert "publish" in await client.ask(publish={"channel": "b", "data": 1})


# --- races with a refresh and with the app ---


async def test_a_grant_that_ends_during_a_refresh_is_not_kept() -> None:
    async with serving(centrifuge=TOKENS) as served:
        client = await RawClient.connected(served, "ann")
        await subscribe_with(served, client, jti="t1")
        async with hold(served.node.watching, "keep_granted", at="after") as held:
            client.send(msgspec.json.encode({"id": 9, "refresh": {"token": served.token("ann")}}))
            await held.reached()
            await revoke(served, "jti", "t1")
        assert (await client.push())["unsubscribe"]["code"] == 2000
        assert (await client.wire.receive())["id"] == 9
        (session,) = served.node.registry.sessions_of("default", "ann")
        assert session.grants.rooms == ()
        assert (await client.ask(history={"channel": "s"}))["error"]["code"] == 103


@on_each_pair
async def test_an_order_to_unsubscribe_ends_a_join_that_is_under_way(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres, centrifuge=TOKENS) as served:
        keeper, client = await RawClient.connected(served, "bob"), await RawClient.connected(served, "ann")
        await keeper.ask(
            subscribe={"channel": "s", "token": subscription_token(served, "bob", "s")}
        )  # the room is local
        (connection,) = served.node.registry.connections_of("default", "ann")
        session = connection.session
        assert session is not None
        async with hold(served.node.rooms.membership, "admit", at="after") as held:
            client.send(
                msgspec.json.encode(
                    {"id": 9, "subscribe": {"channel": "s", "token": subscription_token(served, "ann", "s")}}
                )
            )
            await held.reached()
            order = RoomOrder("default", "ann", "s", session.id, False)
            for listener in served.node.connections.order_listeners:
                listener(connection, order)
        assert (await client.wire.receive())["error"]["code"] in (102, 103)
        assert not connection.rooms


# --- limits ---


async def test_a_refresh_of_a_token_is_not_refused_for_the_commands_of_others() -> None:
    async with serving(centrifuge=ON, limits={"user_commands_per_s": 1, "burst_s": 1}) as served:
        client = await RawClient.connected(served, "ann")
        while "error" not in await client.ask(subscribe={"channel": "chat"}):
            await client.ask(unsubscribe={"channel": "chat"})
        assert "refresh" in await client.ask(refresh={"token": served.token("ann")})


async def test_an_overloaded_node_reads_no_history() -> None:
    async with serving(centrifuge=ON) as served:
        client = await RawClient.subscribed(served, "ann", "chat")
        served.node.dispatcher.loaded(Level.REFUSING)
        error = (await client.ask(history={"channel": "chat", "limit": 5}))["error"]
        assert (error["code"], error["temporary"]) == (100, True)


async def test_a_page_of_occupants_is_not_larger_than_that_of_a_native_client() -> None:
    async with serving(centrifuge=ON) as served:
        client, native = await RawClient.subscribed(served, "ann", "chat"), await served.client("bob")
        asked: list[int] = []
        present = served.node.rooms.present

        async def noted(topic: Any, reader: Any, after: Any, limit: int) -> Any:
            asked.append(limit)
            return await present(topic, reader, after, limit)

        served.node.rooms.present = noted  # type: ignore[method-assign]
        assert "presence" in await client.ask(presence={"channel": "chat"})
        await native.request(type="room.present", room="chat", limit=asked[0])
        assert asked[0] == 300


# --- deleted rooms ---


@pytest.mark.parametrize("section", [ON, TOKENS])
async def test_a_room_deleted_a_moment_ago_is_made_again_before_its_deletion_is_announced(
    section: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(centrifuge=section) as served:
        client = await RawClient.connected(served, "ann")
        asked = {"channel": "s", "token": subscription_token(served, "ann", "s")}
        first = (await client.ask(subscribe=asked))["subscribe"]
        await client.ask(publish={"channel": "s", "data": 1})
        await client.push()
        await client.ask(unsubscribe={"channel": "s"})
        updates, late = served.node.rooms.member_updates, list[tuple[Any, Any]]()
        with monkeypatch.context() as patched:
            patched.setattr(updates, "announced", lambda *announced: late.append(announced))
            note = AuditNote("default", served.clock.now_ms(), "test", "room.deleted", "s")
            await served.node.moderation.delete("default", "s", note)
            refused = (await client.ask(subscribe=asked))["error"]  # the name is not free yet
            assert (refused["code"], refused["temporary"]) == (102, True)
            while not (await served.node.store.purge_rooms(served.clock.now_ms(), 1_000)).is_over:
                pass
            recovering = asked | {"recover": True, "offset": 0, "epoch": first["epoch"]}
            again = (await client.ask(subscribe=recovering))["subscribe"]
        assert len(late) == 1
        assert again["epoch"] != first["epoch"]
        assert (again["was_recovering"], again.get("recovered", False), "publications" in again) == (True, False, False)
        updates.announced(*late[0])
        await served.settle()
        await client.ask(publish={"channel": "s", "data": 2})
        assert (await client.push())["pub"] == {"data": 2, "offset": 1, "info": {"user": "ann", "client": "ann"}}
