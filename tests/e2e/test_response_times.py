"""Response times reveal nothing: hidden things are answered as fast as missing ones.

The server does the same calls for both (`steps`). One request of each type is also timed: wall time in a client
process, 1,000 samples of each in turn (`stopwatch`). `make hostile` times all of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import product
from typing import Any, NamedTuple

import pytest

from e2e.steps import compared_by_steps, counting
from e2e.stopwatch import LOOKS, MOST, compared
from e2e.test_api_keys import make
from greendot.auth.model import text_of
from greendot.ids import new_key_id, new_key_secret
from greendot.store.inbox import Notice
from greendot.store.rooms import Draft
from greendot.testing import Served, WireClient, serving
from hostile.probe import LONG

TIMED = {  # in `make test`: one of each type
    "tenant-presence.get",
    "busy-room-room.history",
    "GET /v1/rooms/{room}",
}

IN_A_ROOM: dict[str, dict[str, Any]] = {
    "room.join": {},
    "room.history": {},
    "room.present": {},
    "room.read": {"seq": 1},
    "room.receipts": {},
    "room.send": {"body": 1},
    "room.edit": {"ref": 1, "body": 2},
    "typing.start": {},
    "signal.send": {"kind": "k"},
}
ROUTES = [
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
]


@asynccontextmanager
async def inhabited(**sections: Any) -> AsyncIterator[tuple[Served, WireClient]]:
    """Run a tenant with an online user who hides from Bob, and two rooms without Bob, one of them empty."""
    async with serving(limits={"enabled": False}, **sections) as served:
        resident = await served.client("resident")
        await resident.request(type="privacy.set", hide_from=["bob"])
        for room in ("busy-room", "lone-room"):
            await served.node.store.put_room("default", room)
            await served.node.room_messages.put_member("default", room, "resident", "member")
            await served.node.room_messages.append("default", room, Draft("resident", None, b'"x"', "k", 1))
        await resident.request(type="room.join", room="busy-room")
        await served.node.store.notify([Notice("default", "resident", "k", b"1", "k1", served.clock.now_ms())])
        yield served, resident


class Asked(NamedTuple):
    """Two requests and the token or key for them."""

    one: Any
    other: Any
    token: str = ""
    key: str = ""


Question = Callable[[Served, WireClient], Awaitable[Asked]]
QUESTIONS: dict[str, tuple[Question, dict[str, Any]]] = {}  # with the settings of the server


def question(name: str, **settings: Any) -> Callable[[Question], None]:
    def kept(ask: Question) -> None:
        QUESTIONS[name] = ask, settings

    return kept


def about_users(kind: str, policy: str, claims: dict[str, Any] | None = None, name: str = "") -> None:
    @question(name or f"{policy}-{kind}", visibility={"policy": policy})
    async def ask(served: Served, resident: WireClient) -> Asked:
        one, other = ({"type": kind, "users": [user]} for user in ("resident", "nobodyis"))
        return Asked(one, other, token=served.token("eve" if claims else "bob", **(claims or {})))


def about_rooms(kind: str, room: str) -> None:
    @question(f"{room}-{kind}")
    async def ask(served: Served, resident: WireClient) -> Asked:
        one, other = ({"type": kind, "room": name} | IN_A_ROOM[kind] for name in (room, "lost-room"))
        return Asked(one, other, token=served.token("bob"))


def of_another_tenant(method: str, path: str, body: Any) -> None:
    @question(f"{method} {path}")
    async def ask(served: Served, resident: WireClient) -> Asked:
        session = resident.welcome["session"]
        there = {"{user}": "resident", "{room}": "busy-room", "{session}": session}
        nowhere = {"{user}": "nobodyis", "{room}": "lost-room", "{session}": session[:-2] + "zz"}

        def asked(names: dict[str, str]) -> list[Any]:
            filled = path
            for part, name in names.items():
                filled = filled.replace(part, name)
            return [method, filled, body and {"users": [names["{user}"]]}]

        return Asked(asked(there), asked(nowhere), key=await make(served, "admin"))


for kind in ("presence.get", "watch"):
    for policy in ("tenant", "shared_rooms", "contacts"):
        about_users(kind, policy)
    about_users(kind, "tenant", {"watch": ["team-*"]}, f"narrow token-{kind}")
    about_users(kind, "tenant", {"tenant": "rival"}, f"other tenant-{kind}")
for room, kind in product(("busy-room", "lone-room"), IN_A_ROOM):
    about_rooms(kind, room)
for method, path, body in ROUTES:
    of_another_tenant(method, path, body)


@question("watch of somebody not watched before")
async def watch_again(served: Served, resident: WireClient) -> Asked:
    one, other = (
        [{"type": kind, "users": [user]} for kind in ("unwatch", "watch")] for user in ("resident", "nobodyis")
    )
    return Asked(one, other, token=served.token("bob"))


@pytest.mark.parametrize("name", QUESTIONS)
async def test_what_one_may_not_know_of_is_as_much_work_as_what_is_not_there(name: str) -> None:
    ask, settings = QUESTIONS[name]
    with counting() as steps:
        async with inhabited(**settings) as (served, resident):
            told = await compared_by_steps(served, steps, *await ask(served, resident))
    assert told.is_even, told


@pytest.mark.alone
@pytest.mark.parametrize("name", QUESTIONS if LONG else TIMED)
async def test_and_takes_as_long(name: str) -> None:
    ask, settings = QUESTIONS[name]
    async with inhabited(**settings) as (served, resident):
        told = await compared(served.port, *await ask(served, resident))
    assert told.difference < MOST, told


@pytest.mark.alone
async def test_a_wrong_secret_of_a_key_there_is_takes_as_long_as_of_one_there_is_not() -> None:
    async with inhabited() as (served, _):
        id = (await make(served, "admin")).split("_")[1]
        one, other = (["GET", "/v1/rooms", None, text_of(of, new_key_secret())] for of in (id, new_key_id()))
        told = await compared(served.port, one, other, key="none")
        assert told.difference < MOST, told


@pytest.mark.alone
async def test_a_stopwatch_finds_a_difference_where_there_is_one() -> None:
    async with inhabited() as (served, _):
        one, other = ({"type": "presence.get", "users": users} for users in (["u1"], [f"u{n}" for n in range(40)]))
        assert (await compared(served.port, one, other, served.token("bob"), looks=LOOKS[:1])).difference > MOST


async def test_so_do_steps() -> None:
    with counting() as steps:
        async with inhabited() as (served, _):
            one, other = ({"type": "presence.get", "users": [f"u{n}" for n in range(count)]} for count in (1, 3))
            assert not (await compared_by_steps(served, steps, one, other, served.token("bob"))).is_even
            one, other = ({"type": "room.history", "room": room} for room in ("busy-room", "lost-room"))
            told = await compared_by_steps(served, steps, one, other, served.token("resident"))
            assert any(name.startswith("store/") for name in told.apart), (
                "reads of an existing and a missing room must differ"
            )
