"""`greendot nodes`, `presence`, `sessions` and `typing` with --url: the same answers from a server on every engine."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from click.testing import CliRunner, Result

from backends import on_each_pair, serving_on
from greendot.cli import cli
from greendot.errors import GreendotError
from greendot.testing import Served
from greendot.testing.server import API_KEY


async def command(url: str | None, *arguments: str, key: str = API_KEY, **environment: str) -> Result:
    """Run the command in a thread: the server runs in this one."""
    given = {"GREENDOT_API_KEY": key, "GREENDOT_SERVER_DATA_DIR": "/dev/null/greendot"} | environment
    place = () if url is None else ("--url", url)
    return await asyncio.to_thread(CliRunner(env=given).invoke, cli, [*arguments, *place])


async def said(url: str | None, *arguments: str, **environment: str) -> str:
    result = await command(url, *arguments, **environment)
    assert (result.exit_code, result.stderr) == (0, ""), (result.output, result.exception)
    return result.stdout


async def refused(url: str, *arguments: str, key: str = API_KEY) -> str:
    result = await command(url, *arguments, key=key)
    assert isinstance(result.exception, GreendotError), result.output
    return str(result.exception)


def rows(text: str) -> list[dict[str, str]]:
    head, *lines = [re.split(r"  +", line) for line in text.splitlines()]
    return [dict(zip(head, line, strict=True)) for line in lines]


def address(served: Served) -> str:
    return f"http://127.0.0.1:{served.port}"


@on_each_pair
async def test_a_server_on_any_engine_answers_the_commands(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        await served.lobby()
        alice = await served.joined("alice", "lobby", device="phone", client={"name": "web", "version": "1"})
        await alice.request(type="status.set", status="busy", text="in a meeting")
        alice.send(type="typing.start", room="lobby")
        await served.settle()
        url, session = address(served), alice.welcome["session"]

        (node,) = rows(await said(url, "nodes"))
        assert (node["NODE"], node["STATE"], node["LOAD"]) == (served.node.incarnation, "live", "normal")
        assert json.loads(await said(url, "nodes", "--json"))["asked"] == served.node.incarnation

        busy, nobody = rows(await said(url, "presence", "alice", "nobody"))
        assert (busy["USER"], busy["STATE"], busy["DEVICES"], busy["STATUS TEXT"]) == (
            "alice",
            "busy",
            "phone",
            "in a meeting",
        )
        assert nobody["STATE"] == "offline"
        entries = json.loads(await said(url, "presence", "alice", "--json"))["presence"]
        assert [(entry["user"], entry["state"]) for entry in entries] == [("alice", "busy")]

        (row,) = rows(await said(url, "sessions", "alice"))
        assert row == {
            "SESSION": session,
            "DEVICE": "phone",
            "NODE": served.node.incarnation,
            "STATE": "online",
            "ENDS IN": "–",
        }
        found = json.loads(await said(url, "sessions", "alice", "--json"))
        assert (found["incomplete"], found["sessions"][0]["client"]["name"]) == ([], "web")
        assert await said(url, "sessions", "nobody") == "nobody has no sessions.\n"

        (typist,) = rows(await said(url, "typing", "lobby"))
        assert (typist["USER"], typist["NAME"]) == ("alice", "Alice")
        assert "there is no room 'nowhere'" in await refused(url, "typing", "nowhere")


async def test_the_server_on_this_machine_is_asked_without_an_option_if_it_has_the_engine_in_memory(
    tmp_path: Path, postgres: str
) -> None:
    async with serving_on("memory+sqlite", tmp_path, postgres) as served:
        (node,) = rows(await said(None, "nodes", GREENDOT_SERVER_PORT=str(served.port)))
        assert node["NODE"] == served.node.incarnation


async def test_the_refusal_of_a_server_is_one_line(tmp_path: Path, postgres: str) -> None:
    async with serving_on("memory+sqlite", tmp_path, postgres) as served:
        told = await refused(address(served), "nodes", key="another key")
        assert told.startswith(f"the server at {address(served)} refused the request: ")
        assert "\n" not in told


# --- servers that are not Greendot, or not here ---


@asynccontextmanager
async def stranger(status: int, body: bytes, **headers: str) -> AsyncIterator[tuple[str, list[Any]]]:
    """Run an HTTP server with one answer to every request; yield its address and the headers it has received."""
    received: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            received.append(self.headers)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("body", [b"{}", b'{"nodes": [{"node": 1}]}', b'{"nodes": null}'])
async def test_an_answer_that_cannot_be_read_is_one_line(body: bytes) -> None:
    async with stranger(200, body) as (url, _):
        told = await refused(url, "nodes")
        assert told.startswith(f"cannot read the answer of {url} (")
        assert "\n" not in told


async def test_the_key_does_not_follow_a_redirect() -> None:
    async with (
        stranger(200, b'{"nodes": []}') as (other, received),
        stranger(302, b"", Location=f"{other}/x") as (url, _),
    ):
        assert "302" in await refused(url, "nodes")
        assert received == []
