"""Rooms of channels: who creates them, who may read them, and how many there can be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backends import PAIRS, serving_on
from centrifuge_clients.parts import ON, RawClient, subscription_token
from e2e.processes import ask
from greendot.limits.overload_model import Level
from greendot.testing.server import API_KEY, Served, serving

NO_NAMESPACES = {"enabled": True}
DECLARED = {"enabled": True, "namespaces": {"news": {}}}


async def put_room(served: Served, room: str, body: dict[str, Any]) -> None:
    answer = await ask(served.port, "PUT", f"/v1/rooms/{room}", body, Authorization=f"Bearer {API_KEY}")
    assert answer.status < 300, answer.body


@pytest.mark.parametrize("pair", PAIRS)
async def test_with_namespaces_a_stranger_cannot_open_a_room_before_the_app_creates_it(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres, centrifuge=DECLARED) as served:
        mallory = await RawClient.connected(served, "mallory")
        for channel in ("dm-alice-bob", "private-x", "presence-x", "x#mallory"):
            error = (await mallory.ask(subscribe={"channel": channel}))["error"]
            assert error["code"] == 103
            assert "namespaces" in error["message"]
        assert await served.node.store.rooms("default", None, 100) == []
        await put_room(served, "dm-alice-bob", {})
        await served.node.room_messages.put_member("default", "dm-alice-bob", "alice", "member")
        for command in ("subscribe", "history", "presence"):
            assert (await mallory.ask(**{command: {"channel": "dm-alice-bob"}}))["error"]["code"] == 103
        alice = await RawClient.connected(served, "alice")
        assert "subscribe" in await alice.ask(subscribe={"channel": "dm-alice-bob"})


@pytest.mark.parametrize("pair", PAIRS)
async def test_without_namespaces_a_room_that_a_stranger_has_opened_is_closed_when_the_app_creates_it(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres, centrifuge=NO_NAMESPACES) as served:
        mallory = await RawClient.subscribed(served, "mallory", "dm-alice-bob")
        other = await RawClient.subscribed(served, "mallory", "board")
        await mallory.ask(publish={"channel": "dm-alice-bob", "data": "early"})
        assert "pub" in await mallory.push()
        await put_room(served, "dm-alice-bob", {})
        await put_room(served, "board", {"open": True})
        while "unsubscribe" not in await mallory.push():
            pass
        await served.node.room_messages.put_member("default", "dm-alice-bob", "alice", "member")
        for command in ("subscribe", "history", "presence"):
            assert (await mallory.ask(**{command: {"channel": "dm-alice-bob"}}))["error"]["code"] == 103
        alice = await RawClient.subscribed(served, "alice", "dm-alice-bob")
        assert "publish" in await alice.ask(publish={"channel": "dm-alice-bob", "data": "secret"})
        assert "publish" in await other.ask(publish={"channel": "board", "data": "open"})
        assert [push for push in mallory.pushes if "pub" in push.get("push", {})] == []


async def test_a_room_of_a_declared_namespace_stays_open_when_the_app_changes_it() -> None:
    async with serving(centrifuge=DECLARED) as served:
        ann = await RawClient.subscribed(served, "ann", "news:42")
        await put_room(served, "news=3A42", {"receipts": True})
        assert "publish" in await ann.ask(publish={"channel": "news:42", "data": 1})
        assert (await served.node.store.room("default", "news=3A42")).open


@pytest.mark.parametrize("pair", PAIRS)
async def test_names_of_private_pusher_channels_never_become_open_rooms(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres, centrifuge=ON) as served:
        client = await RawClient.connected(served, "ann")
        for channel in ("private-x", "presence-x"):
            assert (await client.ask(subscribe={"channel": channel}))["error"]["code"] == 103
            token = subscription_token(served, "ann", channel)
            assert "subscribe" in await client.ask(subscribe={"channel": channel, "token": token})
        assert [room.open for room in await served.node.store.rooms("default", None, 100)] == [False, False]


async def test_a_channel_without_a_namespace_is_the_room_that_the_app_has_created() -> None:
    async with serving(centrifuge=NO_NAMESPACES) as served:
        await put_room(served, "lobby", {"open": True})
        assert await RawClient.subscribed(served, "ann", "lobby")


@pytest.mark.parametrize("settings", [{"centrifuge": NO_NAMESPACES}, {"centrifuge": DECLARED, "server": {"dev": True}}])
async def test_without_namespaces_and_in_development_mode_no_channel_needs_creation(settings: dict[str, Any]) -> None:
    async with serving(**settings) as served:
        assert await RawClient.subscribed(served, "ann", "any")
        assert (await served.node.store.room("default", "any")).open


async def test_a_namespace_with_tokens_needs_one_for_named_users_too() -> None:
    async with serving(centrifuge={"enabled": True, "namespaces": {"s": {"subscribe": False}}}) as served:
        client = await RawClient.connected(served, "ann")
        assert (await client.ask(subscribe={"channel": "s:x#ann"}))["error"]["code"] == 103
        token = subscription_token(served, "ann", "s:x#ann")
        assert "subscribe" in await client.ask(subscribe={"channel": "s:x#ann", "token": token})


async def test_no_room_is_created_beyond_the_limits() -> None:
    async with serving(centrifuge=ON, limits={"rooms": 2}) as served:
        client = await RawClient.connected(served, "ann")
        codes = [
            (await client.ask(subscribe={"channel": f"c{number}"})).get("error", {}).get("code") for number in range(4)
        ]
        assert codes == [None, None, 106, 106]
        assert [room.room for room in await served.node.store.rooms("default", None, 100)] == ["c0", "c1"]


async def test_no_room_is_created_by_a_refused_command() -> None:
    async with serving(centrifuge=ON, limits={"user_commands_per_s": 1, "burst_s": 3}) as served:
        client, other = [await RawClient.connected(served, user) for user in ("ann", "bob")]
        answers = [await client.ask(subscribe={"channel": f"c{number}"}) for number in range(9)]
        done = sum("subscribe" in answer for answer in answers)
        assert answers[-1]["error"]["code"] == 111
        served.node.dispatcher.loaded(Level.REFUSING)
        assert (await other.ask(subscribe={"channel": "late"}))["error"]["code"] == 100
        assert len(await served.node.store.rooms("default", None, 100)) == done
