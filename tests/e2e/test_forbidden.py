"""Each command from clients without the right to it: the right error, no write, no event."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from backends import on_each_pair, serving_on
from e2e import processes
from greendot.auth.model import hash_of, text_of
from greendot.http.scopes import NEEDED
from greendot.ids import new_key_id, new_key_secret
from greendot.protocol.commands import COMMANDS
from greendot.store.api_keys import ApiKey, Secret
from greendot.store.inbox import Notice
from greendot.store.rooms import Draft
from greendot.testing import Closed, Served, WireClient, serving
from greendot.testing.server import API_KEY, COMINGS

NOT, NO, OK = "not_a_member", "forbidden", None

# Senders: a user without membership; a reader, a member and an admin of the room; a user of the same name in another
# tenant; a member whose token allows no sending and no targets; a former member who had joined.
WHO = ("stranger", "reader", "member", "admin", "foreigner", "silenced", "removed")
Table = dict[str, tuple[dict[str, Any], tuple[str | None, ...]]]
IN_A_ROOM: Table = {
    "room.join": ({"after": 0}, (NOT, OK, OK, OK, NOT, OK, NOT)),
    "room.history": ({}, (NOT, OK, OK, OK, NOT, OK, NOT)),
    "room.present": ({}, (NOT, OK, OK, OK, NOT, OK, NOT)),
    "room.read": ({"seq": 1}, (NOT, OK, OK, OK, NOT, OK, NOT)),
    "room.receipts": ({}, (NOT, OK, OK, OK, NOT, OK, NOT)),
    "room.send": ({"body": 1}, (NOT, NO, OK, OK, NOT, NO, NOT)),
    "room.edit": ({"ref": 1, "body": 1}, (NOT, NO, NO, OK, NOT, NO, NOT)),
    "room.delete": ({"ref": 1}, (NOT, NO, NO, OK, NOT, NO, NOT)),
    "room.react": ({"ref": 1, "reaction": "+"}, (NOT, NO, OK, OK, NOT, NO, NOT)),
    "typing.start": ({}, (NOT, NO, OK, OK, NOT, NO, NOT)),
    "typing.stop": ({}, (NOT, NO, OK, OK, NOT, OK, NOT)),
    "signal.send": ({"kind": "k"}, (NOT, NO, OK, OK, NOT, NO, NOT)),
}
TO_OTHERS = {"watch", "presence.get", "signal.send"}
OF_ONESELF = {
    *("hello", "heartbeat", "activity", "bye", "token.refresh", "status.set", "privacy.set", "unwatch"),
    *("device.register", "device.remove", "device.key"),
    *("room.list", "room.leave", "inbox.list", "inbox.read", "inbox.seen", "inbox.archive", "inbox.ack"),
}


def test_every_command_is_looked_at() -> None:
    assert IN_A_ROOM.keys() | TO_OTHERS | OF_ONESELF == COMMANDS.keys()


@asynccontextmanager
async def den() -> AsyncIterator[tuple[Served, WireClient]]:
    """Yield a server with a closed room that has a message, and a member who receives all events of the room."""
    async with serving() as served:
        store = served.node.store
        await store.put_room("default", "den", receipts=True)
        roles = {"reader": "reader", "member": "member", "admin": "admin", "silenced": "member", "removed": "member"}
        for user, role in {**roles, "ear": "member", "author": "member"}.items():
            await store.put_member("default", "den", user, role)  # type: ignore[arg-type]
        await store.append("default", "den", Draft("author", None, b'"secret"', "k1", served.clock.now_ms()))
        ear = await served.joined("ear", "den")
        await ear.quiet()
        ear.deaf_to = COMINGS
        yield served, ear


async def come(served: Served, who: str) -> WireClient:
    claims = {"foreigner": {"tenant": "acme"}, "silenced": {"send": False, "watch": ["nobody"]}}
    user = "member" if who == "foreigner" else who
    client = await served.client(user, claims=claims.get(who))
    client.deaf_to = COMINGS
    if who == "removed":
        await client.request(type="room.join", room="den")
        assert (await ask(served, "DELETE", "/v1/rooms/den/members/removed")).status == 204
        assert [frame["type"] for frame in await client.quiet()] == ["room.changed"]
    return client


async def ask(served: Served, method: str, path: str, body: Any = None, key: str = API_KEY) -> processes.Answer:
    return await processes.ask(served.port, method, path, body, authorization=f"Bearer {key}")


async def answer(client: WireClient, **command: Any) -> dict[str, Any]:
    client.send(**command, id="asked")
    while True:
        frame = await client.receive()
        if frame.get("id") == "asked":
            return frame


async def world(served: Served, user: str) -> Any:
    """Return all state that a command could change."""
    store = served.node.store
    return (
        await store.room("default", "den"),
        await store.room("acme", "den"),
        await store.messages("default", "den", after=0, limit=10),
        await store.marker("default", "den", user),
        await served.node.engine.typers("default", "den"),
        await served.node.engine.present("default", "den"),
    )


@pytest.mark.parametrize("type", IN_A_ROOM)
@pytest.mark.parametrize("who", WHO)
async def test_in_a_room(type: str, who: str) -> None:
    fields, codes = IN_A_ROOM[type]
    expected = codes[WHO.index(who)]
    async with den() as (served, ear):
        client = await come(served, who)
        await served.settle()
        await ear.quiet()
        before = await world(served, who)
        frame = await answer(client, type=type, room="den", **fields)
        await served.settle()
        if expected is None:
            assert frame["type"] == "reply", frame
            return
        assert (frame["type"], frame.get("code")) == ("error", expected)
        assert "secret" not in str(frame)
        assert await world(served, who) == before
        assert await ear.quiet() == []


@pytest.mark.parametrize("who", ["stranger", "foreigner", "silenced"])
async def test_a_room_that_is_not_there_is_answered_like_one_that_is_closed(who: str) -> None:
    async with den() as (served, _):
        client = await come(served, who)
        for type, (fields, _codes) in IN_A_ROOM.items():
            there = await answer(client, type=type, room="den", **fields)
            absent = await answer(client, type=type, room="pit", **fields)
            if who == "silenced":
                assert absent["code"] in (NOT, NO)
            else:
                assert str(absent).replace("pit", "den") == str(there)
        assert await served.node.store.room("default", "pit") is None


@on_each_pair
async def test_only_a_token_that_grants_a_room_shows_that_the_room_does_not_exist(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        await served.node.store.put_room("default", "doc-closed")
        guest = await served.client("guest", claims={"rooms": ["doc-*"]})
        stranger = await served.client("stranger", claims={"rooms": ["other-*"]})
        reads = {type: IN_A_ROOM[type][0] for type in ("room.history", "room.present", "room.read")}
        for type, fields in reads.items():
            there = await answer(guest, type=type, room="doc-closed", **fields)
            absent = await answer(guest, type=type, room="doc-1", **fields)
            assert (there["type"], absent.get("code"), absent.get("retry")) == ("reply", "no_such_room", False)
            assert "'doc-1'" in absent["message"]
            closed = await answer(stranger, type=type, room="doc-closed", **fields)
            missing = await answer(stranger, type=type, room="doc-1", **fields)
            assert closed["code"] == NOT
            assert str(closed).replace("doc-closed", "doc-1") == str(missing)
        assert await served.node.store.room("default", "doc-1") is None
        assert (await answer(guest, type="room.join", room="doc-1"))["type"] == "reply"
        for type, fields in reads.items():
            assert (await answer(guest, type=type, room="doc-1", **fields))["type"] == "reply"


@pytest.mark.parametrize(("who", "code"), [("stranger", OK), ("foreigner", OK), ("silenced", NO)])
async def test_a_signal_to_a_user_stays_in_the_tenant_and_within_the_token(who: str, code: str | None) -> None:
    async with den() as (served, ear):
        client = await come(served, who)
        frame = await answer(client, type="signal.send", user="ear", kind="k")
        assert frame.get("code") == code
        await served.settle()
        assert [told["type"] for told in await ear.quiet()] == (["signal"] if who == "stranger" else [])


@pytest.mark.parametrize("type", ["watch", "presence.get"])
@pytest.mark.parametrize("who", ["foreigner", "silenced"])
async def test_who_is_not_to_be_seen_is_offline_and_stays_so(type: str, who: str) -> None:
    async with den() as (served, ear):
        client = await come(served, who)
        frame = await answer(client, type=type, users=["ear", "nobody-at-all"])
        seen, absent = frame["data"]["presence"]
        assert {**seen, "user": ""} == {**absent, "user": ""}
        assert seen["state"] == "offline"
        await ear.request(type="status.set", status="busy")
        await served.settle()
        assert await client.quiet() == []


@pytest.mark.parametrize("who", ["stranger", "foreigner", "removed"])
async def test_commands_for_own_data_reveal_no_data_of_other_users(who: str) -> None:
    async with den() as (served, _):
        await served.node.store.notify([Notice("default", "ear", "k", b'"secret"', "k1", served.clock.now_ms())])
        client = await come(served, who)
        assert (await client.request(type="room.list"))["rooms"] == []
        assert (await client.request(type="inbox.list"))["notifications"] == []
        for type in ("inbox.read", "inbox.archive"):
            await client.request(type=type, through=100)
        assert (await served.node.store.inbox("default", "ear")).unread == 1


async def test_a_resume_is_authorised_again_room_by_room() -> None:
    async with den() as (served, ear):
        await served.lobby()
        away = await served.joined("member", "den")
        await away.request(type="room.join", room="lobby")
        session = away.welcome["session"]
        await away.end()
        await served.until_gone(1)
        assert (await ask(served, "DELETE", "/v1/rooms/den/members/member")).status == 204
        await ear.request(type="room.send", room="den", body="secret")
        back = await served.client("member", resume={"session": session, "rooms": {"den": 0, "lobby": 0}})
        assert (back.welcome["resumed"], [*back.welcome["rooms"]]) == (True, ["lobby"])
        await ear.request(type="room.send", room="den", body="secret")
        await served.settle()
        assert "secret" not in str(await back.quiet())


@pytest.mark.parametrize("type", [*IN_A_ROOM, "watch", "status.set", "room.list", "inbox.list", "token.refresh"])
async def test_commands_of_a_revoked_user_have_no_effect(type: str) -> None:
    async with den() as (served, ear):
        client = await come(served, "admin")
        served.clock.advance(1)
        before = await world(served, "admin")
        assert (await ask(served, "POST", "/v1/tokens/revoke", {"user": "admin"})).json()["closed"] == 1
        fields = {"users": ["ear"], "status": "busy", "token": served.token("admin")}
        client.send(type=type, room="den", **fields | IN_A_ROOM.get(type, ({}, ()))[0], id=1)
        with pytest.raises(Closed) as closed:
            await client.receive()
        assert closed.value.code == 4501
        await served.settle()
        assert await world(served, "admin") == before
        assert await ear.quiet() == []


# --- HTTP ---

PATHS = {"{user}": "ear", "{other}": "member", "{room}": "den", "{seq}": "1", "{reaction}": "x?user=ear"}
BODIES: dict[str, Any] = {
    "POST /v1/presence/query": {"users": ["ear"]},
    "POST /v1/tokens/revoke": {"user": "ear"},
    "PUT /v1/users/{user}/status": {"status": "busy"},
    "PUT /v1/rooms/{room}": {"open": True},
    "POST /v1/rooms/{room}/messages": {"user": "ear", "body": 1},
    "POST /v1/notifications": {"user": "ear", "kind": "k"},
    "POST /v1/signals": {"user": "ear", "kind": "k"},
}


@pytest.mark.parametrize("route", NEEDED)
async def test_with_another_tenants_key_no_route_shows_or_changes_anything(route: str) -> None:
    async with den() as (served, ear):
        store, id, secret = served.node.store, new_key_id(), new_key_secret()
        now = served.clock.now_ms()
        await store.create_key(ApiKey("acme", "all", ("admin",), now), Secret(id, hash_of(secret), now))
        method, _, path = route.partition(" ")
        for part, name in {**PATHS, "{session}": ear.welcome["session"]}.items():
            path = path.replace(part, name)
        served.clock.advance(1)
        before = await world(served, "ear"), await store.rooms_of("default", "ear"), await store.inbox("default", "ear")
        found = await ask(served, method, path, BODIES.get(route), text_of(id, secret))
        await served.settle()
        assert found.status < 500
        shown = found.body if "{session}" not in route else found.body.replace(ear.welcome["session"].encode(), b"")
        for told in (b"secret", ear.welcome["session"].encode(), b"author", b'"online"'):
            assert told not in shown
        after = await world(served, "ear"), await store.rooms_of("default", "ear"), await store.inbox("default", "ear")
        # A room, status or inbox of the same name in the other tenant is a different one.
        assert [*after[0][:1], *after[0][2:], *after[1:]] == [*before[0][:1], *before[0][2:], *before[1:]]
        assert await ear.quiet() == []
        await ear.request(type="room.send", room="den", body="still here")
