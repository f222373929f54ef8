"""RPC of Centrifuge clients: the app answers, refuses, disconnects, or does not answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from asked import NEARBY, SECRET, App, asked
from centrifuge_clients.javascript import CallFailed, javascript
from centrifuge_clients.parts import ON, RawClient, address
from e2e.processes import until
from greendot.testing import Served, serving

PRICE = {"result": {"data": {"price": 4.5, "text": "line\nbreak ü"}}}


def answer(value: Any) -> bytes:
    """Return an answer of the app, with line breaks between its parts: these may not reach a client."""
    return json.dumps(value, indent=2).encode()


@asynccontextmanager
async def proxied(**settings: Any) -> AsyncIterator[tuple[Served, App]]:
    async with asked() as app:
        rpc = {"rpc_url": f"http://127.0.0.1:{app.port}/rpc", "rpc_secret": SECRET}
        async with serving(webhooks=NEARBY, centrifuge=ON | rpc | settings) as served:
            app.override = answer(PRICE)
            yield served, app


@pytest.mark.parametrize("protobuf", [False, True])
async def test_a_call_is_answered_by_the_app(protobuf: bool) -> None:
    async with proxied() as (served, app), javascript() as js:
        token = served.token("ann")
        await js.call("connect", url=address(served), token=token, protobuf=protobuf)
        session = (await js.event("connected"))["client"]
        data = {"bytes": '{"of": ["tea"]}'} if protobuf else {"data": {"of": ["tea"]}}
        result = (await js.call("rpc", method="price", **data))["data"]
        assert (json.loads(result) if protobuf else result) == PRICE["result"]["data"]
        assert app.questions == [
            {
                "tenant": "default",
                "client": session,
                "user": "ann",
                "method": "price",
                "data": {"of": ["tea"]},
                "transport": "websocket",
                "protocol": "json",
                "encoding": "json",
            }
        ]
        app.verify(served.clock.now_ms() / 1000)
        app.override = answer({"error": {"code": 1001, "message": "sold out"}})
        with pytest.raises(CallFailed, match="sold out") as failed:
            await js.call("rpc", method="buy")
        assert failed.value.code == 1001
        app.override = answer({"disconnect": {"code": 4500, "reason": "go away" + "ü" * 100}})
        with pytest.raises(CallFailed):
            await js.call("rpc", method="buy")
        ended = await js.event("disconnected")
        assert (ended["code"], ended["reason"]) == (4510, "go away" + "ü" * 58)  # at most 123 bytes


@pytest.mark.parametrize(
    "wrong",
    [
        500,
        b"",
        b"[]",
        b"\xff",
        answer({}),
        answer({"result": None}),
        answer(PRICE | {"error": {"code": 1, "message": "x"}}),
        answer({"error": {"code": 0, "message": "x"}}),
        answer({"error": {"code": 1, "message": "x" * 501}}),
        answer({"disconnect": {"code": 3000, "reason": "x"}}),
        answer({"result": {"data": "x" * 70_000}}),
        b'{"result":{"data":' + b"[" * 65 + b"]" * 65 + b"}}",
        b'{"result":{"data":1e999}}',
        b'{"result":{"data":"\xff"}}',
        b'{"error":{"code":1,"message":"\\ud800"}}',
    ],
)
async def test_without_a_valid_answer_the_client_gets_a_temporary_error(wrong: int | bytes) -> None:
    async with proxied() as (served, app):
        ann = await RawClient.connected(served, "ann")
        app.override = wrong
        for _ in range(4):  # a method that fails does not stop other calls
            assert (await ann.ask(rpc={"method": "x"}))["error"] == {
                "code": 100,
                "message": "the app does not answer this call now; try again later",
                "temporary": True,
            }
        app.override = answer({"result": {}})
        assert (await ann.ask(rpc={"method": "x"}))["rpc"] == {"data": None}


async def test_a_call_that_takes_too_long_ends_and_others_do_not_wait_for_it() -> None:
    async with proxied(rpc_timeout_s=0.3) as (served, app):
        ann, bob = await RawClient.connected(served, "ann"), await RawClient.connected(served, "bob")
        app.override = None
        ann.send('{"id":50,"rpc":{"method":"slow"}}\n{"id":51,"presence_stats":{"channel":"chat"}}')
        await until(lambda: bool(app.questions))
        assert "subscribe" in await bob.ask(subscribe={"channel": "chat"})
        first, second = await ann.wire.receive(), await ann.wire.receive()  # commands keep their order
        assert (first["id"], first["error"]["code"], second["id"]) == (50, 100, 51)


async def test_a_client_that_leaves_during_a_call_costs_nothing_more() -> None:
    async with proxied(rpc_timeout_s=0.3) as (served, app):
        app.override = None
        ann = await RawClient.connected(served, "ann")
        ann.send('{"id":50,"rpc":{"method":"slow"}}')
        await until(lambda: bool(app.questions))
        await ann.wire.end()
        await served.until_gone()
        app.override = answer(PRICE)
        bob = await RawClient.connected(served, "bob")
        assert "rpc" in await bob.ask(rpc={"method": "price"})


async def test_calls_count_against_the_limits_of_the_user() -> None:
    async with asked() as app:
        rpc = {"rpc_url": f"http://127.0.0.1:{app.port}/rpc", "rpc_secret": SECRET}
        limits = {"commands_per_s": 5, "commands_burst": 5}
        async with serving(webhooks=NEARBY, centrifuge=ON | rpc, limits=limits) as served:
            app.override = answer(PRICE)
            ann = await RawClient.connected(served, "ann")
            answers = [await ann.ask(rpc={"method": "price"}) for _ in range(10)]
            assert {reply["error"]["code"] for reply in answers if "error" in reply} == {111}
            assert 1 <= len(app.questions) <= 5


@pytest.mark.parametrize(
    ("asked_for", "code"),
    [
        ('{"method":5}', 107),
        ('{"method":"' + "x" * 201 + '"}', 107),
        ('{"method":"x","data":1e999}', 107),
        ('{"method":"x","data":' + "[" * 65 + "]" * 65 + "}", 107),
    ],
)
async def test_a_hostile_call_does_not_reach_the_app(asked_for: str, code: int) -> None:
    async with proxied() as (served, app):
        ann = await RawClient.connected(served, "ann")
        ann.send('{"id":7,"rpc":' + asked_for + "}")
        reply = await ann.wire.receive()
        assert (reply["id"], reply["error"]["code"]) == (7, code)
        assert app.questions == []
        assert "rpc" in await ann.ask(rpc={"method": "price", "data": {"ü": "\U0001f600"}})
        assert app.questions[0]["data"] == {"ü": "\U0001f600"}
