"""How long an answer takes tells nothing: what one may not know of is answered as fast as what is not there.

Wall time, at a client in a process of its own, of 1,000 samples of each, taken in turns (`stopwatch`). CPU time would
be steadier, and would not see one read of the store more: that only waits.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from e2e.stopwatch import MOST, Told, compared
from e2e.test_api_keys import make
from greendot.core.apikeys import text_of
from greendot.ids import new_key_id, new_key_secret
from greendot.store.base import Draft, Notice
from greendot.testing import Served, WireClient, serving

pytestmark = pytest.mark.alone

IN_A_ROOM: dict[str, dict[str, Any]] = {
    "room.join": {},
    "room.history": {},
    "room.present": {},
    "room.read": {"seq": 1},
    "room.send": {"body": 1},
    "room.edit": {"ref": 1, "body": 2},
    "typing.start": {},
    "signal.send": {"kind": "k"},
}


@asynccontextmanager
async def inhabited(**sections: Any) -> AsyncIterator[tuple[Served, WireClient]]:
    """A tenant with somebody who is there and hides from bob, and two rooms bob may not be in: one of them is empty."""
    async with serving(limits={"enabled": False}, **sections) as served:
        resident = await served.client("resident")
        await resident.request(type="privacy.set", hide_from=["bob"])
        for room in ("busy-room", "lone-room"):
            await served.node.store.put_room("default", room)
            await served.node.speaking.put_member("default", room, "resident", "member")
            await served.node.speaking.append("default", room, Draft("resident", None, b'"x"', "k", 1))
        await resident.request(type="room.join", room="busy-room")
        await served.node.store.notify([Notice("default", "resident", "k", b"1", "k1", served.clock.now_ms())])
        yield served, resident


def is_even(told: Told) -> None:
    assert told.difference < MOST, told


@pytest.mark.parametrize("policy", ["tenant", "shared_rooms", "contacts"])
@pytest.mark.parametrize("kind", ["presence.get", "watch"])
async def test_who_hides_is_answered_like_who_is_unknown(kind: str, policy: str) -> None:
    async with inhabited(visibility={"policy": policy}) as (served, _):
        one, other = ({"type": kind, "users": [user]} for user in ("resident", "nobodyis"))
        is_even(await compared(served.port, one, other, token=served.token("bob")))


async def test_so_is_who_was_not_watched_before() -> None:
    async with inhabited() as (served, _):
        one, other = (
            [{"type": kind, "users": [user]} for kind in ("unwatch", "watch")] for user in ("resident", "nobodyis")
        )
        is_even(await compared(served.port, one, other, token=served.token("bob")))


@pytest.mark.parametrize("kind", ["presence.get", "watch"])
@pytest.mark.parametrize("claims", [{"watch": ["team-*"]}, {"tenant": "rival"}], ids=["narrow token", "other tenant"])
async def test_whom_a_token_does_not_reach_is_answered_like_who_is_unknown(kind: str, claims: dict[str, Any]) -> None:
    async with inhabited() as (served, _):
        one, other = ({"type": kind, "users": [user]} for user in ("resident", "nobodyis"))
        is_even(await compared(served.port, one, other, token=served.token("eve", **claims)))


@pytest.mark.parametrize("room", ["busy-room", "lone-room"])
@pytest.mark.parametrize("kind", IN_A_ROOM)
async def test_a_closed_room_refuses_as_fast_as_one_that_is_not_there(kind: str, room: str) -> None:
    async with inhabited() as (served, _):
        one, other = ({"type": kind, "room": name} | IN_A_ROOM[kind] for name in (room, "lost-room"))
        is_even(await compared(served.port, one, other, token=served.token("bob")))


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/users/{user}/presence", None),
        ("GET", "/v1/users/{user}/sessions", None),
        ("GET", "/v1/users/{user}/inbox", None),
        ("POST", "/v1/presence/query", {"users": ["{user}"]}),
        ("GET", "/v1/rooms/{room}", None),
        ("GET", "/v1/rooms/{room}/members", None),
        ("GET", "/v1/rooms/{room}/messages", None),
        ("GET", "/v1/rooms/{room}/present", None),
        ("DELETE", "/v1/rooms/{room}/members/u", None),
        ("DELETE", "/v1/sessions/{session}", None),
    ],
)
async def test_what_is_another_tenants_is_answered_like_what_is_not_there(method: str, path: str, body: Any) -> None:
    async with inhabited() as (served, resident):
        session = resident.welcome["session"]
        there = {"{user}": "resident", "{room}": "busy-room", "{session}": session}
        nowhere = {"{user}": "nobodyis", "{room}": "lost-room", "{session}": session[:-2] + "zz"}

        def asked(names: dict[str, str]) -> list[Any]:
            filled = path
            for part, name in names.items():
                filled = filled.replace(part, name)
            return [method, filled, body and {"users": [names["{user}"]]}]

        is_even(await compared(served.port, asked(there), asked(nowhere), key=await make(served, "admin")))


async def test_a_wrong_secret_of_a_key_there_is_takes_as_long_as_of_one_there_is_not() -> None:
    async with inhabited() as (served, _):
        id = (await make(served, "admin")).split("_")[1]
        one, other = (["GET", "/v1/rooms", None, text_of(of, new_key_secret())] for of in (id, new_key_id()))
        is_even(await compared(served.port, one, other, key="none"))


async def test_a_stopwatch_finds_a_difference_where_there_is_one() -> None:
    async with inhabited() as (served, _):
        one, other = ({"type": "presence.get", "users": users} for users in (["u1"], [f"u{n}" for n in range(40)]))
        assert (await compared(served.port, one, other, token=served.token("bob"))).difference > MOST
