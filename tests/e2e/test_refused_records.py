"""Refused commands leave no trace: the right error, and no row of the database changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from e2e.processes import ask
from greendot.store.inbox import Notice
from greendot.testing import Served, WireClient, serving
from greendot.testing.server import API_KEY

LARGE = "x" * 64 * 1024
KEY = {"Authorization": f"Bearer {API_KEY}"}


async def database(served: Served) -> list[str]:
    """Return the contents of the database."""
    thread = served.node.store._thread  # type: ignore[attr-defined]
    lines: list[str] = await thread.do(lambda db: [*db.iterdump()])
    return lines


@asynccontextmanager
async def furnished() -> AsyncIterator[Served]:
    """Run a server with the closed room den (members Ann and the reader Rob, one message) and the former open room
    shed.
    """
    async with serving() as served:
        node = served.node
        await node.room_messages.put_room("default", "den", False, None)
        await node.room_messages.put_member("default", "den", "ann", "member")
        await node.room_messages.put_member("default", "den", "rob", "reader")
        await node.room_messages.put_room("default", "shed", True, None)
        for room in ("den", "shed"):
            await (await served.joined("ann", room)).request(type="room.send", room=room, body="hello")
        await node.room_messages.put_room("default", "shed", False, None)
        now = served.clock.now_ms()
        await node.inbox_service.notify(
            [Notice("default", user, "note", b"1", f"k-{user}", now) for user in ("ann", "eve")]
        )
        await served.settle()
        await served.advance(1)
        before = await database(served)
        yield served
        await served.settle()
        assert await database(served) == before


async def refused(client: WireClient, **command: Any) -> str:
    client.send(**command, id="it")
    while (frame := await client.receive()).get("id") != "it":
        pass
    assert frame["type"] == "error", frame
    code: str = frame["code"]
    return code


COMMANDS: list[dict[str, Any]] = [
    {"type": "room.join"},
    {"type": "room.join", "after": 0},
    {"type": "room.send", "body": 1},
    {"type": "room.send", "body": 1, "key": "k1"},
    {"type": "room.edit", "ref": 1, "body": 2},
    {"type": "room.delete", "ref": 1},
    {"type": "room.react", "ref": 1, "reaction": "+"},
    {"type": "room.react", "ref": 1, "reaction": "+", "on": False},
    {"type": "room.join", "history": 10},
    {"type": "room.read", "seq": 1},
    {"type": "room.history"},
    {"type": "room.present"},
    {"type": "typing.start"},
    {"type": "signal.send", "kind": "wave"},
]


@pytest.mark.parametrize("room", ["den", "shed", "nowhere"])
async def test_a_stranger_is_no_member_of_a_closed_room_or_of_one_that_is_not_there(room: str) -> None:
    async with furnished() as served:
        eve = await served.client("eve")
        for command in COMMANDS:
            assert await refused(eve, room=room, **command) == "not_a_member", command
        ann = await served.joined("ann", "den")
        assert [frame["type"] for frame in await ann.quiet()] == []


async def test_a_reader_reads_and_a_token_that_may_not_send_does_not() -> None:
    async with furnished() as served:
        rob = await served.joined("rob", "den")
        mute = await served.client("ann", claims={"send": False})
        await mute.request(type="room.join", room="den")
        for client in (rob, mute):
            for command in ({"type": "room.send", "body": 1}, {"type": "room.edit", "ref": 1, "body": 2}):
                assert await refused(client, room="den", **command) == "forbidden"
            assert await refused(client, room="den", type="room.delete", ref=1) == "forbidden"
            assert await refused(client, room="den", type="room.react", ref=1, reaction="+") == "forbidden"


async def test_cursors_beyond_the_head_or_with_contradictory_fields_change_nothing() -> None:
    async with furnished() as served:
        ann = await served.client("ann")
        reply = await ann.request(type="room.join", room="den", after=2**53)
        assert (reply["head"], reply["messages"], reply["recovered"], reply["truncated"]) == (1, [], False, True)
        assert (await ann.request(type="room.history", room="den", after=2**53))["messages"] == []
        assert (await ann.request(type="inbox.list", after=2**53))["notifications"] == []
        assert await refused(ann, type="room.history", room="den", after=0, before=2) == "bad_field"
        assert await refused(ann, type="room.edit", room="den", ref=2**53, body=1) == "bad_field"
        assert await refused(ann, type="room.join", room="den", after=-1) == "bad_field"
        ahead = {"rooms": {"den": 7, "shed": 1, "nowhere": 3}, "inbox": 9}
        returned = await served.client("ann", resume=ahead)
        assert returned.welcome["rooms"] == {"den": {"head": 1, "recovered": False, "truncated": True}}
        assert (await returned.receive("resync"))["data"] == {"scope": "inbox"}


async def test_ids_and_numbers_of_another_users_inbox_are_passed_over() -> None:
    async with furnished() as served:
        eve, mallory = await served.client("eve"), await served.client("mallory")
        (entry,) = (await eve.request(type="inbox.list"))["notifications"]
        for mark in ("seen", "read", "archive", "ack"):
            for given in ({"ids": [entry["id"], "1-nobodys", "nonsense"]}, {"through": 2**53}):
                assert await mallory.request(type=f"inbox.{mark}", **given) == {"unread": 0, "unseen": 0}
        assert [frame["type"] for frame in await eve.quiet()] == []


@pytest.mark.parametrize("command", [{"type": "room.send", "key": "k"}, {"type": "room.edit", "ref": 1}])
async def test_a_body_over_the_limit_ends_the_connection(command: dict[str, Any]) -> None:
    async with furnished() as served:
        ann = await served.joined("ann", "den")
        ann.send(room="den", body=LARGE, **command)
        assert (await ann.closed()).code == 1009


POSTS: list[tuple[str, Any, int]] = [
    ("/v1/rooms/den/messages", {"user": "app", "body": LARGE}, 413),
    ("/v1/rooms/den/messages", {"user": "app"}, 400),
    ("/v1/rooms/den/messages", {"user": "no such id!", "body": 1}, 400),
    ("/v1/rooms/den/messages", {"user": "app", "body": 1, "key": "a key with spaces"}, 400),
    ("/v1/rooms/nowhere/messages", {"user": "app", "body": 1}, 404),
    ("/v1/notifications", {"user": "eve", "kind": "note", "body": LARGE}, 413),
    ("/v1/notifications", {"user": "eve", "kind": "note"}, 400),
    ("/v1/notifications", {"notifications": []}, 400),
    ("/v1/notifications", {"notifications": [{"user": "eve", "kind": "note", "body": 1}] * 10_001}, 400),
    (
        "/v1/notifications",
        {"notifications": [{"user": "eve", "kind": "note", "body": 1}, {"user": "!", "kind": "note", "body": 1}]},
        400,
    ),
    (
        "/v1/notifications",
        {"notifications": [{"user": "eve", "kind": "note", "body": 1}, {"user": "eve", "kind": "n", "body": LARGE}]},
        413,
    ),
]


@pytest.mark.parametrize(("path", "body", "status"), POSTS)
async def test_a_request_that_is_refused_writes_nothing(path: str, body: Any, status: int) -> None:
    async with furnished() as served:
        answer = await ask(served.port, "POST", path, body, **KEY)
        assert answer.status == status, answer


@pytest.mark.parametrize(
    "change", [("PUT", "/v1/rooms/nowhere/members/eve"), ("DELETE", "/v1/rooms/nowhere/members/eve")]
)
async def test_members_of_a_room_that_is_not_there_are_404(change: tuple[str, str]) -> None:
    async with furnished() as served:
        assert (await ask(served.port, *change, {}, **KEY)).status == 404
