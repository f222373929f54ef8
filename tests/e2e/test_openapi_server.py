"""Requests that the OpenAPI document allows and many that it does not: all responses match the document."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest

from e2e.processes import API_KEY, Process, ask, exchange, running
from greendot.app import http
from greendot.app.http import document
from greendot.http import asyncapi
from greendot.testing import serving
from postgres_server import fresh_schema

# Examples per operation, in addition to those at the bounds of each field. `make fuzz` uses more.
EXAMPLES = int(os.environ.get("OPENAPI_EXAMPLES", "3"))
DOCUMENTS = {"/openapi.json": document(), "/asyncapi.json": asyncapi.document()}
ALL, AT_RANDOM = "coverage,fuzzing,stateful", "fuzzing,stateful"
# Operations with rules that no schema has: different ids, future times, exclusive parts of a query, formats of a
# provider's token or a time zone. They may refuse a request that matches the document. Other operations must not.
PARTLY_SAID = (
    "PUT /v1/rooms/{room}",
    "PUT /v1/users/{user}/contacts/{other}",
    "DELETE /v1/users/{user}/contacts/{other}",
    "PUT /v1/users/{user}/status",
    "PUT /v1/users/{user}/info",
    "POST /v1/notifications",
    "POST /v1/tokens/revoke",
    "GET /v1/rooms/{room}/messages",
    "GET /v1/users/{user}/inbox",
    "PUT /v1/users/{user}/devices/{device}",
    "PUT /v1/users/{user}/push",
    "GET /v1/rooms/{room}/receipts",
    "GET /v1/audit",
    "PUT /v1/rooms/{room}/mutes/{user}",
    "PUT /v1/rooms/{room}/bans/{user}",
    "PUT /v1/mutes/{user}",
    "PUT /v1/bans/{user}",
    "GET /v1/connect",  # not a WebSocket request
)


async def test_the_documents_are_served_without_a_key(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        answers = {path: await ask(server.port, "GET", path) for path in (*DOCUMENTS, "/docs")}
    page = answers.pop("/docs")
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    for path, answer in answers.items():
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert answer.json() == DOCUMENTS[path]


async def test_an_operator_may_keep_the_documents_to_themselves(tmp_path: Path) -> None:
    async with running(tmp_path, GREENDOT_API_DOCS="false") as server:
        for path in (*DOCUMENTS, "/docs", "/docs/app.js"):
            request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
            assert (await exchange(server.port, request.encode())).status == 404, path
        assert (await ask(server.port, "GET", "/livez")).status == 200


async def schemathesis(server: Process, folder: Path, ids: Mapping[str, str], phases: str = ALL) -> None:
    """Test all operations. Fail with the request of a response that does not match the document."""
    settings = [f'parameters."path.{name}" = "{value}"' for name, value in ids.items()]
    for name in PARTLY_SAID:
        settings += ["[[operations]]", f'include-name = "{name}"', "checks.positive_data_acceptance.enabled = false"]
    (folder / "openapi.json").write_bytes(msgspec.json.encode(document()))
    (folder / "schemathesis.toml").write_text("\n".join(settings))
    process = await asyncio.create_subprocess_exec(
        *(
            Path(sys.executable).with_name("st"),
            "--no-color",
            "run",
            "openapi.json",
            "--url",
            f"http://127.0.0.1:{server.port}",
        ),
        *("--header", f"Authorization: Bearer {API_KEY}", "--max-examples", str(EXAMPLES)),
        *("--exclude-path", "/v1/events"),  # a stream without an end
        *("--phases", phases, "--suppress-health-check", "all", "--generation-database", "none"),
        stdout=PIPE,
        stderr=STDOUT,
        cwd=folder,
        env=os.environ | {"HYPOTHESIS_STORAGE_DIRECTORY": str(folder)},
    )
    try:
        said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    assert process.returncode == 0, said.decode()
    assert f"Tested: {sum(map(len, document()['paths'].values())) - 1}" in said.decode()  # without the stream


async def peopled(server: Process, stack: AsyncExitStack) -> dict[str, str]:
    """Create a room with members and messages, an inbox, and connected users who type."""
    for method, path, body in [
        ("PUT", "/v1/rooms/lobby", {"open": True}),
        ("PUT", "/v1/rooms/lobby/members/alice", {"role": "admin"}),
        ("POST", "/v1/rooms/lobby/messages", {"user": "alice", "body": {"text": "hello"}}),
        ("POST", "/v1/notifications", {"user": "alice", "kind": "hello", "body": None}),
    ]:
        assert (await server.ask(method, path, body)).status in (200, 201)
    for user in ("alice", "bob"):
        client = await stack.enter_async_context(await server.client(user))
        await client.request(type="room.join", room="lobby")
        client.send(type="typing.start", room="lobby")
    return {"room": "lobby", "user": "alice", "other": "bob"}


async def ends_without_a_word(server: Process) -> None:
    """Stop the server and check that its log has no error."""
    server.signal(signal.SIGTERM)
    ended = await server.ended()
    assert ended.code == 0
    assert "Traceback" not in ended.out + ended.err
    assert "error" not in ended.err.lower()


@pytest.mark.timeout(400)
async def test_a_server_responds_to_unknown_ids_as_its_openapi_document_states(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        await schemathesis(server, tmp_path, {})
        await ends_without_a_word(server)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_a_server_responds_about_existing_users_as_its_openapi_document_states(
    tmp_path: Path, store: str, postgres: str
) -> None:
    async with AsyncExitStack() as stack:
        place = ("--store", await stack.enter_async_context(fresh_schema(postgres))) if store == "postgres" else ()
        server = await stack.enter_async_context(running(tmp_path, *place, GREENDOT_STORE_MIGRATE="true"))
        # Requests refused at the bounds of a field never reach the store, so one store is enough for them.
        await schemathesis(server, tmp_path, await peopled(server, stack), AT_RANDOM if place else ALL)
        await ends_without_a_word(server)


async def test_a_document_is_built_once_and_not_by_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Building takes a tenth of a second. Any client may request the document, and all others would wait."""
    threads: list[int] = []

    def built() -> dict[str, object]:
        threads.append(threading.get_ident())
        return document()

    monkeypatch.setattr(http, "document", built)
    http._text.cache_clear()
    async with serving() as served:
        answers = await asyncio.gather(*(ask(served.port, "GET", "/openapi.json") for _ in range(3)))
    assert [answer.json() for answer in answers] == [DOCUMENTS["/openapi.json"]] * 3
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()
