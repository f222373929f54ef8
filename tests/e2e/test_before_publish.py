"""Webhook before publishing: the app allows, changes or refuses messages of users, or does not answer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from asked import NEARBY, SECRET, App, asked
from backends import on_each_pair, serving_on
from e2e.processes import until
from e2e.test_moderated import ask, furnished, hear, say
from greendot.testing import Served, WireClient, serving

ALLOW, REFUSE = {"action": "allow"}, {"action": "refuse", "reason": "no links here"}


def answer(value: Any) -> bytes:
    return msgspec.json.encode(value)


def hook(app: App, **settings: Any) -> dict[str, Any]:
    return {"url": f"http://127.0.0.1:{app.port}/check", "secret": SECRET} | settings


@asynccontextmanager
async def checked(**settings: Any) -> AsyncIterator[tuple[Served, App]]:
    async with asked() as app, serving(webhooks=NEARBY, before_publish=hook(app, **settings)) as served:
        app.override = answer(ALLOW)
        yield served, app


async def outcome(client: WireClient, **command: Any) -> tuple[str, Any]:
    """Return the code and message of a refusal, or "" and the number of the record."""
    client.send(**{"type": "room.send", "room": "den", "body": "x"} | command, id="o")
    while (frame := await client.receive()).get("id") != "o":
        pass
    return (frame["code"], frame["message"]) if frame["type"] == "error" else ("", frame["data"]["seq"])


async def bodies(served: Served) -> list[Any]:
    return [m["body"] for m in (await ask(served, "GET", "/v1/rooms/den/messages?after=0")).json()["messages"]]


@on_each_pair
async def test_the_app_allows_changes_and_refuses_messages_and_edits(pair: str, tmp_path: Path, postgres: str) -> None:
    async with (
        asked() as app,
        serving_on(pair, tmp_path, postgres, webhooks=NEARBY, before_publish=hook(app)) as served,
    ):
        ann, bob = await furnished(served, "ann", "bob")
        app.override = answer(ALLOW)
        assert await outcome(ann, body={"text": "hi"}, key="k1") == ("", 1)
        app.override = answer({"action": "change", "body": "***"})
        assert await outcome(ann, body="rude") == ("", 2)
        assert await outcome(ann, type="room.edit", ref=1, body="rude, too") == ("", 3)
        app.override = answer(REFUSE)
        assert await outcome(ann, body="http://x") == ("rejected", "no links here")
        assert await outcome(ann, type="room.edit", ref=1, body="http://x") == ("rejected", "no links here")
        app.override = answer({"action": "refuse"})
        assert await outcome(ann) == ("rejected", "the app refused the message")
        assert await bodies(served) == [{"text": "hi"}, "***", "***"]
        heard: list[Any] = []
        while len(heard) < 3:  # with Redis, they may come later than the reply to a heartbeat
            frame = await bob.receive()
            heard += [frame["data"]["body"]] if frame["type"] == "room.message" else []
        assert heard == [{"text": "hi"}, "***", "***"]
        assert [frame for frame in await bob.quiet() if frame["type"] == "room.message"] == []
        assert app.questions[0] == {
            "tenant": "default",
            "room": "den",
            "user": "ann",
            "op": "send",
            "body": {"text": "hi"},
            "name": "Ann",
            "key": "k1",
        }
        assert {name: app.questions[2][name] for name in ("op", "ref", "body")} == {
            "op": "edit",
            "ref": 1,
            "body": "rude, too",
        }
        app.verify(served.clock.now_ms() / 1000)
        count = len(app.questions)
        await ask(served, "POST", "/v1/rooms/den/messages", {"user": "ann", "body": "by the app"})
        await ask(served, "PATCH", "/v1/rooms/den/messages/1", {"body": "by the app"})
        assert await outcome(ann, type="room.react", ref=1, reaction="+") == ("", 6)
        assert await outcome(ann, type="room.delete", ref=2) == ("", 7)
        assert len(app.questions) == count, "neither the app's own changes nor deletions and reactions are checked"
        page = (await ask(served, "GET", "/metrics")).body.decode()
        for name, value in (("changed", 2), ("rejected", 3), ("failures", 0)):
            assert re.search(rf"before_publish_{name}_total{{.*}} {value}\.0", page), name


@pytest.mark.parametrize("on_failure", ["refuse", "allow"])
@pytest.mark.parametrize(
    "wrong",
    [
        500,
        404,
        b"",
        b"[]",
        b"\xff",
        b"{" * 10_000,
        answer({}),
        answer({"action": "maybe"}),
        answer({"action": "change"}),
        answer({"action": "change", "body": "x" * 70_000}),
        b'{"action":"change","body":' + b"[" * 65 + b"]" * 65 + b"}",
        b'{"action":"change","body":1e999}',
        b'{"action":"change","body":"\xff"}',
        answer({"action": "refuse", "reason": "x" * 501}),
        answer({"action": "refuse", "reason": 7}),
    ],
)
async def test_without_a_valid_answer_the_setting_decides(wrong: int | bytes, on_failure: str) -> None:
    async with checked(on_failure=on_failure) as (served, app):
        (ann,) = await furnished(served, "ann")
        app.override = wrong
        code, detail = await outcome(ann)
        assert (code, detail if code == "" else "") == (("", 1) if on_failure == "allow" else ("unavailable", ""))


@pytest.mark.parametrize("on_failure", ["refuse", "allow"])
async def test_an_app_that_hangs_costs_its_time_limit_and_is_left_alone_after_three_failures(on_failure: str) -> None:
    async with checked(on_failure=on_failure, timeout_s=0.5) as (served, app):
        ann, bob = await furnished(served, "ann", "bob")
        app.override = None
        expected = "" if on_failure == "allow" else "unavailable"
        for _ in range(5):
            assert (await outcome(ann))[0] == expected
        assert len(app.questions) == 3
        app.override = answer(ALLOW)
        await served.advance(5, [ann, bob])
        assert (await outcome(ann))[0] == ""
        assert len(app.questions) == 4
        assert re.search(
            r"before_publish_failures_total{.*} 5\.0", (await ask(served, "GET", "/metrics")).body.decode()
        )


async def test_messages_of_one_connection_keep_their_order_while_others_go_on() -> None:
    async with checked() as (served, _):
        ann, bob = await furnished(served, "ann", "bob")
        released = asyncio.Event()
        approve = served.node.room_messages._before_publish.approve

        async def held(question: Any) -> bytes:
            if question.user == "ann" and bytes(question.body) == b"0":
                await released.wait()
            return await approve(question)

        served.node.room_messages._before_publish.approve = held  # type: ignore[method-assign]
        for number in range(5):
            ann.send(type="room.send", room="den", body=number)
        assert await say(bob, "meanwhile") == 1
        released.set()
        while (await hear(ann, "room.message"))["data"]["seq"] < 6:
            pass
        assert await bodies(served) == ["meanwhile", 0, 1, 2, 3, 4]


async def test_a_repeat_gets_the_first_result_whatever_the_app_answers_now() -> None:
    async with checked() as (served, app):
        (ann,) = await furnished(served, "ann")
        app.override = answer({"action": "change", "body": "first"})
        assert await outcome(ann, key="k") == ("", 1)
        for later in (answer(REFUSE), answer({"action": "change", "body": "second"}), 500):
            app.override = later
            assert await outcome(ann, key="k") == ("", 1)
        assert (await bodies(served), len(app.questions)) == (["first"], 1)


async def test_a_repeat_under_way_on_another_connection_gets_the_first_result_if_the_app_refuses_it() -> None:
    async with checked() as (served, app):
        (ann,) = await furnished(served, "ann")
        phone = await served.joined("ann", "den")
        before, reached, released = served.node.room_messages._before_publish, asyncio.Event(), asyncio.Event()
        approve = before.approve

        async def held(question: Any) -> bytes:
            if not reached.is_set():
                reached.set()
                await released.wait()
                app.override = answer(REFUSE)
            return await approve(question)

        before.approve = held  # type: ignore[method-assign]
        first = asyncio.ensure_future(outcome(phone, key="k"))
        await reached.wait()
        assert await outcome(ann, key="k") == ("", 1)
        released.set()
        assert await first == ("", 1)


@pytest.mark.parametrize("path", ["rooms/den/mutes/ann", "mutes/ann", "rooms/den/bans/ann", "bans/ann"])
async def test_rights_that_end_while_the_app_is_asked_count(path: str) -> None:
    async with checked() as (served, _):
        ann, _ = await furnished(served, "ann", "bob")
        before, reached, released = served.node.room_messages._before_publish, asyncio.Event(), asyncio.Event()
        approve = before.approve

        async def held(question: Any) -> bytes:
            reached.set()
            await released.wait()
            return await approve(question)

        before.approve = held  # type: ignore[method-assign]
        ann.send(type="room.send", room="den", body="late", id="s")
        await reached.wait()
        assert (await ask(served, "PUT", f"/v1/{path}")).status == 200
        released.set()
        if path != "bans/ann":
            assert (await hear(ann, "error"))["code"] == ("muted" if "mutes" in path else "banned")
        await served.settle()
        assert await bodies(served) == []


async def test_each_tenant_has_its_own_app_or_none() -> None:
    async with asked() as app:
        tenants = {"quiet": {"before_publish": {"url": "", "secret": ""}}}
        async with serving(webhooks=NEARBY, before_publish=hook(app), tenants=tenants) as served:
            app.override = answer(REFUSE)
            await served.node.store.put_room("quiet", "den", open=True)
            await served.node.store.put_room("other", "den", open=True)
            for tenant, code in (("quiet", ""), ("other", "rejected")):
                client = await served.client("ann", claims={"tenant": tenant})
                await client.request(type="room.join", room="den")
                assert (await outcome(client))[0] == code
            assert [question["tenant"] for question in app.questions] == ["other"]


async def test_more_messages_than_may_wait_are_refused_also_if_the_setting_is_allow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("greendot.rooms.before_publish.MOST_WAITING", 1)
    async with checked(on_failure="allow", timeout_s=30) as (served, app):
        ann, bob = await furnished(served, "ann", "bob")
        app.override = None
        ann.send(type="room.send", room="den", body="waits")
        await until(lambda: len(app.questions) == 1)
        assert (await outcome(bob))[0] == "unavailable"
