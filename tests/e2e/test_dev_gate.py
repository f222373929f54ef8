"""Development server on an address that other machines reach: a warning, and a token for the demo and its tokens."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from e2e.processes import Process, ask, exchange, running, serves_a_fresh_client
from greendot.testing.wire import WireClient

OWN = {"GREENDOT_AUTH_SECRET": "", "GREENDOT_API_KEY": ""}  # the server creates both
GATE = "a-gate-token-that-is-long-enough-to-keep"


def gate_of(server: Process) -> str:
    found = re.search(r"Open  http://127\.0\.0\.1:\d+/\?gate=([\w-]{32,})  in two", server.announced)
    assert found, server.announced
    return found[1]


@pytest.mark.parametrize("by", ["flag", "setting"])
async def test_on_all_addresses_the_demo_and_its_tokens_require_the_printed_token(tmp_path: Path, by: str) -> None:
    flags, settings = (["--host", "0.0.0.0"], {}) if by == "flag" else ([], {"GREENDOT_SERVER_DEV_HOST": "0.0.0.0"})
    async with running(tmp_path, "--dev", *flags, **OWN, **settings) as server:
        gate = gate_of(server)
        for method, path in (
            ("GET", "/"),
            ("GET", "/app.js"),
            ("GET", "/playground"),
            ("GET", "/playground/app.js"),
            ("GET", "/dev/token?user=alice"),
            ("GET", "/dev/periods"),
            ("POST", "/dev/notify"),
            ("POST", "/dev/cut"),
        ):
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Cookie": "greendot_gate=wrong"}):
                answer = await ask(server.port, method, path, **headers)
                assert (answer.status, "gate token" in answer.json()["detail"]) == (401, True), path
        for way in (
            {"path": f"/dev/token?user=alice&gate={gate}"},
            {"path": "/dev/token?user=alice", "Authorization": f"Bearer {gate}"},
            {"path": "/dev/token?user=alice", "Cookie": f"greendot_gate={gate}"},
        ):
            answer = await ask(server.port, "GET", **way)
            assert answer.status == 200
        await serves_a_fresh_client(server.port, answer.json()["token"])
        server.signal(signal.SIGTERM)
        ended = await server.ended()
    assert "WARNING: this development server listens on 0.0.0.0" in ended.err


async def test_a_browser_that_opens_the_address_with_the_token_keeps_it_as_a_cookie(tmp_path: Path) -> None:
    async with running(tmp_path, "--dev", "--host", "0.0.0.0", **OWN, GREENDOT_SERVER_DEV_GATE=GATE) as server:
        assert gate_of(server) == GATE
        entered = await ask(server.port, "GET", f"/?gate={GATE}&name=Ann+B")
        assert (entered.status, entered.headers["location"]) == (303, "/?name=ann+b")  # `ask` makes headers lower case
        cookie = entered.headers["set-cookie"]
        assert "httponly" in cookie
        assert "samesite=lax" in cookie
        page = await ask(server.port, "GET", "/", Cookie=cookie.partition(";")[0])
        assert page.status == 200
        assert page.headers["content-type"].startswith("text/html")
        assert (await ask(server.port, "GET", "/?gate=wrong")).status == 401
        playground = await ask(server.port, "GET", f"/playground?gate={GATE}&user=ann")
        assert (playground.status, playground.headers["location"]) == (303, "/playground?user=ann")


async def test_what_a_server_in_production_serves_needs_no_gate(tmp_path: Path) -> None:
    async with running(tmp_path, "--dev", "--host", "0.0.0.0", **OWN) as server:
        for path in ("/livez", "/readyz", "/greendot.js", "/docs", "/admin"):
            assert (await ask(server.port, "GET", path)).status == 200, path
        key = next(tmp_path.rglob("api-key")).read_text().strip()  # noqa: ASYNC240
        assert (await ask(server.port, "GET", "/v1/rooms", Authorization=f"Bearer {gate_of(server)}")).status == 401
        assert (await ask(server.port, "GET", "/v1/rooms", Authorization=f"Bearer {key}")).status == 200


async def test_each_start_has_another_token_and_loopback_needs_none(tmp_path: Path) -> None:
    gates = set()
    for _ in range(2):
        async with running(tmp_path, "--dev", "--host", "0.0.0.0", **OWN) as server:
            gates.add(gate_of(server))
    assert len(gates) == 2
    async with running(tmp_path, "--dev", **OWN) as server:
        assert "gate" not in server.announced
        assert (await ask(server.port, "GET", "/dev/token?user=alice")).status == 200


async def test_another_host_name_is_answered_with_a_gate_only(tmp_path: Path) -> None:
    for flags, status in ((["--host", "0.0.0.0"], 401), ([], 403)):
        async with running(tmp_path, "--dev", *flags, **OWN) as server:
            request = b"GET /dev/token?user=alice HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
            assert (await exchange(server.port, request)).status == status


async def test_on_all_addresses_the_key_of_the_pusher_app_is_generated(tmp_path: Path) -> None:
    async with running(tmp_path, "--dev", "--host", "0.0.0.0", **OWN) as server:
        generated = next(tmp_path.rglob("pusher-key")).read_text().strip()  # noqa: ASYNC240
        assert len(generated) >= 32
        stranger = await WireClient.connect(server.port, "/app/greendot-dev?protocol=7")
        assert (await stranger.closed()).code == 4001
        client = await WireClient.connect(server.port, f"/app/{generated}?protocol=7")
        assert (await client.receive())["event"] == "pusher:connection_established"
        await client.end()
        server.signal(signal.SIGTERM)
        assert f"Pusher:  app id 1, key {generated}, secret" in (await server.ended()).out
    async with running(tmp_path, "--dev", **OWN) as server:
        client = await WireClient.connect(server.port, "/app/greendot-dev?protocol=7")
        assert (await client.receive())["event"] == "pusher:connection_established"
        await client.end()
