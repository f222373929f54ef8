"""FastAPI integration: settings, token route, SDK client in threads and webhook route, with a real server."""

from __future__ import annotations

import asyncio
import inspect
import re
import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import httpx2
import jwt
import pytest
import redis

from docs.test_guides import blocks
from e2e.processes import running
from e2e.test_outbox import metric
from examples.deliveries import EVENTS, WEBHOOK_SECRET, delivery, signed
from examples.frameworks import needs
from greendot import Server
from greendot.errors import ConfigError
from greendot.integrations.webhooks import DATA, MOST_BYTES, SeenIds
from greendot.protocol.webhooks import TYPES
from greendot.testing import Served, serving
from greendot.testing.server import API_KEY, SECRET
from redis_servers import redis_server

needs("fastapi", "uvicorn")
import uvicorn  # noqa: E402
from fastapi import Depends, FastAPI, Header, HTTPException  # noqa: E402

from greendot.integrations import fastapi as integration  # noqa: E402
from greendot.integrations.fastapi import Greendot, Settings, ThreadedServer  # noqa: E402

SETTINGS = Settings("http://127.0.0.1:1", API_KEY, SECRET, (WEBHOOK_SECRET, "the previous secret of the webhook"))
ENVIRONMENT = {
    "GREENDOT_URL": "https://rt.example.com",
    "GREENDOT_API_KEY": API_KEY,
    "GREENDOT_AUTH_SECRET": SECRET,
    "GREENDOT_WEBHOOKS_SECRET": WEBHOOK_SECRET,
    "GREENDOT_WEBHOOKS_SECRET_BEFORE": "old",
}


def current_user(x_user: Annotated[str | None, Header()] = None) -> str | None:
    """Return the user of the app. An expired sign-in is refused by the dependency itself."""
    if x_user == "expired":
        raise HTTPException(401, "your sign-in has expired")
    return x_user


@asynccontextmanager
async def browsing(greendot: Greendot, *dependencies: Any, **options: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """Run an app with the routes of the integration, and yield a client for it."""
    app = FastAPI()
    app.include_router(greendot.router(*dependencies, **options), prefix="/greendot")
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://app") as client:
        yield client


async def post(client: httpx2.AsyncClient, body: bytes, header: str | None) -> httpx2.Response:
    headers = {} if header is None else {"Greendot-Signature": header}
    return await client.post("/greendot/webhook", content=body, headers=headers)


# --- settings ---


def test_settings_come_from_the_environment_and_hide_their_secrets() -> None:
    found = Settings.from_environment(ENVIRONMENT)
    assert found == Settings("https://rt.example.com", API_KEY, SECRET, (WEBHOOK_SECRET, "old"))
    assert not any(secret in repr(found) for secret in (API_KEY, SECRET, WEBHOOK_SECRET))


def test_all_mistakes_are_reported_at_once_without_values(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GREENDOT_AUTH_SECRET", "secret-word")
    with pytest.raises(ConfigError) as raised:
        Greendot()
    assert raised.value.mistakes == (
        "GREENDOT_URL is not set: set it to the address of the Greendot server, such as http://127.0.0.1:8000",
        "GREENDOT_AUTH_SECRET has fewer than 32 characters: set it to auth.secret of the Greendot server",
    )
    with pytest.raises(ConfigError, match="url is not an address") as raised:
        Greendot(Settings("http://ann:secret-word@rt.example.com"))
    assert "secret-word" not in str(raised.value)
    with pytest.raises(ConfigError, match="token_ttl_s is 0"):
        Greendot(Settings("http://127.0.0.1:1", token_ttl_s=0))


def test_what_needs_a_secret_names_the_variable_that_is_missing() -> None:
    greendot = Greendot(Settings("http://127.0.0.1:1"))
    with pytest.raises(ConfigError, match="set secret of Settings, or GREENDOT_AUTH_SECRET"):
        greendot.router(current_user)
    with pytest.raises(ConfigError, match="set webhook_secrets of Settings, or GREENDOT_WEBHOOKS_SECRET"):
        greendot.on("room.message")
    assert greendot.router().routes == []
    with pytest.raises(ValueError, match=r"there are no events of type 'room\.messages'"):
        Greendot(SETTINGS).on("room.messages")  # type: ignore[call-overload]


# --- tokens ---


async def test_the_signed_in_user_gets_a_token_with_the_claims_of_the_app() -> None:
    options = {
        "user_id": lambda user: f"user-{user}",
        "claims": lambda user: {"name": user.title(), "rooms": ["lobby"]},
    }
    async with browsing(Greendot(SETTINGS), current_user, **options) as client:
        answer = await client.post("/greendot/token", headers={"X-User": "ann"})
        made = jwt.decode(answer.json()["token"], SECRET, algorithms=["HS256"])
        assert (made["sub"], made["name"], made["rooms"]) == ("user-ann", "Ann", ["lobby"])
        assert made["exp"] - made["iat"] == pytest.approx(3600, abs=2)
        assert answer.headers["Cache-Control"] == "no-store"
        refused = await client.post("/greendot/token", headers={"X-User": "not an id"})
        assert (refused.status_code, "id" in refused.json()["detail"]) == (400, True)


async def test_without_a_user_the_answer_is_401() -> None:
    async with browsing(Greendot(SETTINGS), current_user) as client:
        answer = await client.post("/greendot/token")
        assert (answer.status_code, answer.json()) == (401, {"detail": "no user is signed in; sign in first"})
        answer = await client.post("/greendot/token", headers={"X-User": "expired"})
        assert (answer.status_code, answer.json()) == (401, {"detail": "your sign-in has expired"})
        assert (await client.get("/greendot/token")).status_code == 405


# --- SDK client ---


@asynccontextmanager
async def with_server() -> AsyncIterator[tuple[Served, Greendot]]:
    async with serving() as served:
        greendot = Greendot(Settings(f"http://127.0.0.1:{served.port}", API_KEY, SECRET))
        try:
            yield served, greendot
        finally:
            greendot.server.close()


async def test_coroutines_call_the_server_in_threads() -> None:
    async with with_server() as (served, greendot):
        app = FastAPI()
        alice = await served.client("alice")

        @app.post("/news")
        async def news(server: ThreadedServer = Depends(greendot.client)) -> list[str]:  # noqa: B008
            await server.put_room("club")
            for user in ("alice", "bob"):
                await server.add_member("club", user)
            await server.notify("alice", "news", {"n": 1}, key="n1")
            assert server.token("alice").count(".") == 2
            return [member.user async for member in server.every_member("club")]

        # The server runs in this event loop: a blocked loop would never answer.
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://app") as client:
            assert (await client.post("/news")).json() == ["alice", "bob"]
        assert (await alice.receive("notification.created"))["data"]["body"] == {"n": 1}


async def test_at_most_twenty_calls_wait_at_once_and_the_rest_of_the_threads_stay_free() -> None:
    class Slow(Server):
        def ping(self) -> None:
            with lock:
                waiting.append(threading.current_thread().name)
            assert go.wait(30)

    lock, go, waiting = threading.Lock(), threading.Event(), list[str]()
    server = ThreadedServer(Slow("http://127.0.0.1:1"))
    calls = [asyncio.create_task(server.ping()) for _ in range(integration.MOST_THREADS + 5)]
    try:
        async with asyncio.timeout(30):
            while len(waiting) < integration.MOST_THREADS:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            assert await asyncio.to_thread(lambda: len(waiting)) == integration.MOST_THREADS
    finally:
        go.set()
        await asyncio.gather(*calls)
    assert len(waiting) == integration.MOST_THREADS + 5


def test_every_method_is_for_await_or_for_async_for_except_two() -> None:
    server = ThreadedServer(Server("http://127.0.0.1:1", secret=SECRET))
    iterated, awaited, direct = set(), set(), set()
    for name, method in inspect.getmembers(Server, inspect.isfunction):
        if name.startswith("_"):
            continue
        wrapped = getattr(getattr(server, name), "func", None)
        of = {ThreadedServer._iterate: iterated, ThreadedServer._run: awaited}
        of.get(getattr(wrapped, "__func__", None), direct).add(name)  # type: ignore[arg-type]
        assert ("Iterator" in str(method.__annotations__["return"])) == (name in iterated), name
    assert direct == {"token", "verify_webhook"}
    # For type checkers each method is declared, in the same way.
    declared = dict(re.findall(r"^        (\w+) = (_\w+)\(Server\.\1\)$", inspect.getsource(ThreadedServer), re.M))
    ways = [*dict.fromkeys(iterated, "_iterated").items(), *dict.fromkeys(awaited, "_awaited").items()]
    assert declared == dict(ways) | dict.fromkeys(direct, "_direct")
    assert {"every_room", "every_member", "every_message", "everybody_online", "mutes"} <= iterated
    assert {"notify", "inbox", "presence"} <= awaited


async def test_an_error_of_the_server_is_raised_in_the_coroutine() -> None:
    from greendot.sdk import NotFound

    async with with_server() as (_, greendot):
        server = await greendot.client()
        with pytest.raises(NotFound):
            await server.add_member("nowhere", "alice")
        with pytest.raises(AttributeError):
            _ = server.no_such_method


# --- webhooks ---


async def test_each_type_of_event_has_handlers_with_typed_data() -> None:
    greendot = Greendot(SETTINGS)
    events: list[tuple[str, str, bool]] = []
    main = threading.get_ident()

    @greendot.on("*")
    async def take(event: integration.Event[Any]) -> None:
        events.append((event.type, type(event.data).__name__, threading.get_ident() == main))

    @greendot.on("room.message")
    def take_in_thread(event: integration.Event[integration.Message]) -> None:
        assert event.data.body == {"text": "hello"}
        events.append(("thread", event.data.user, threading.get_ident() == main))

    assert DATA.keys() == EVENTS.keys() == {*TYPES}
    async with browsing(greendot) as client:
        answer = await post(client, *signed(delivery(*EVENTS.items(), ("mood.changed", {}))))
    assert answer.status_code == 204
    assert ("thread", "ann", False) in events
    assert [event for event in events if event[0] != "thread"] == [
        *((type_, kind.__name__, True) for type_, kind in DATA.items()),
        ("mood.changed", "dict", True),
    ]


async def test_a_delivery_needs_a_recent_signature_by_one_of_the_secrets() -> None:
    greendot, events = Greendot(SETTINGS), []
    greendot.on("*")(events.append)
    body = delivery(("user.online", {"user": "ann"}))
    refused = [
        (None, "no Greendot-Signature header"),
        ("t=1,v1=00", "does not match"),
        (signed(body, secret="a secret of a stranger")[1], "does not match"),
        (signed(body, at=time.time() - 301)[1], "too old or from the future"),
        (signed(body, at=time.time() + 310)[1], "too old or from the future"),
    ]
    async with browsing(greendot) as client:
        for header, words in refused:
            answer = await post(client, body, header)
            assert (answer.status_code, words in answer.json()["detail"]) == (400, True), answer.json()
        assert events == []
        previous = signed(body, secret=SETTINGS.webhook_secrets[1])
        assert (await post(client, *previous)).status_code == 204
        assert (await post(client, *previous)).status_code == 409
    assert len(events) == 1


async def test_processes_with_a_shared_store_know_the_webhooks_of_each_other(tmp_path: Path) -> None:
    """Two processes of an app, and the store of the guide on a real Redis."""
    page = Path(__file__).parents[2] / "docs" / "guides" / "fastapi.md"
    (program,) = (text for _, text in blocks(page, "python") if "class SharedReplays" in text)
    names: dict[str, Any] = {}
    exec(program, names)
    events = list[str]()
    sent = delivery(("user.online", {"user": "ann"}), id_="first")
    again = delivery(("user.online", {"user": "ann"}), id_="second")
    with redis_server("valkey", tmp_path) as port:
        url = f"redis://127.0.0.1:{port}"
        for number, (body, status) in enumerate([(sent, 204), (sent, 409), (again, 204)]):
            greendot = Greendot(SETTINGS, replays=names["SharedReplays"](url))
            greendot.on("user.online")(lambda event, number=number: events.append(f"{number} {event.data.user}"))
            async with browsing(greendot) as client:
                assert (await post(client, *signed(body))).status_code == status
    assert events == ["0 ann"]
    # The store is away: Greendot will send the events again.
    async with browsing(Greendot(SETTINGS, replays=names["SharedReplays"](url))) as client:
        with pytest.raises(redis.ConnectionError):
            await post(client, *signed(delivery(("user.online", {"user": "bob"}), id_="third")))
    assert events == ["0 ann"]


async def test_a_large_body_is_refused_before_it_is_read() -> None:
    async def endless() -> AsyncIterator[bytes]:
        for sent in range(1000):
            assert sent < 40, "the body was read to its end"
            yield b"x" * (MOST_BYTES // 32)

    async with browsing(Greendot(SETTINGS)) as client:
        answer = await client.post("/greendot/webhook", content=endless())
        assert (answer.status_code, answer.json()) == (413, {"detail": f"the body has more than {MOST_BYTES} bytes"})
        fitting = delivery(("ping", {"filler": "x" * (MOST_BYTES - 200)}))
        assert (await post(client, *signed(fitting))).status_code == 204


async def test_events_whose_handler_failed_are_taken_again_and_the_others_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    greendot, users = Greendot(SETTINGS), []

    @greendot.on("user.online")
    async def take(event: integration.Event[integration.UserChange]) -> None:
        users.append(event.data.user)
        if event.data.user == "broken":
            raise RuntimeError("the handler of the test fails")

    events = [("user.online", {"user": user}) for user in ("ann", "broken", "bob")]
    async with browsing(greendot) as client:
        for number in range(2):
            assert (await post(client, *signed(delivery(*events, id_=f"d{number}")))).status_code == 500
    assert users == ["ann", "broken", "bob", "broken"]
    assert "the handler of user.online failed" in caplog.text
    assert "the handler of the test fails" in caplog.text


@asynccontextmanager
async def listening(app: FastAPI) -> AsyncIterator[str]:
    """Run an app with uvicorn in a thread, and yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        running_app = asyncio.create_task(asyncio.to_thread(server.run, [listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await running_app


async def test_a_server_sends_an_event_again_after_a_handler_failed(tmp_path: Path) -> None:
    """The second attempt is no replay: each attempt of the server has an id of its own."""
    greendot = Greendot(Settings("http://127.0.0.1:1", webhook_secrets=(WEBHOOK_SECRET,)))
    received = list[tuple[str, Any]]()

    @greendot.on("room.message")
    async def take(event: integration.Event[integration.Message]) -> None:
        received.append((event.id, event.data.body))
        if len(received) == 1:
            raise RuntimeError("the handler of the test fails once")

    app = FastAPI()
    app.include_router(greendot.router(), prefix="/greendot")
    async with listening(app) as address:
        hook = {
            "GREENDOT_WEBHOOKS_URL": f"{address}/greendot/webhook",
            "GREENDOT_WEBHOOKS_SECRET": WEBHOOK_SECRET,
            "GREENDOT_WEBHOOKS_ALLOW_PRIVATE": "127.0.0.0/8",
        }
        async with running(tmp_path, **hook) as process:
            await process.ask("PUT", "/v1/rooms/club", {})
            await process.ask("POST", "/v1/rooms/club/messages", {"user": "shop", "body": {"text": "hello"}})
            async with asyncio.timeout(30):
                while not await metric(process, "webhooks_events_total"):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            assert await metric(process, "webhooks_failures_total") == 1
    assert len(received) == 2
    assert received[0] == received[1]
    assert received[0][1] == {"text": "hello"}


def test_ids_are_forgotten_after_their_time_and_beyond_the_limit() -> None:
    now = 0.0
    seen = SeenIds(most=2, now=lambda: now)
    assert [seen.add(id_, 10) for id_ in ("a", "a", "b")] == [True, False, True]
    now = 11.0
    assert ("a" in seen, seen.add("b", 10)) == (False, True)
    assert [seen.add(id_, 10) for id_ in ("c", "d")] == [True, True]
    assert ["b" in seen, "c" in seen, "d" in seen] == [False, True, True]


async def test_connections_are_closed_with_the_app() -> None:
    async with with_server() as (_, greendot):
        app = FastAPI()
        app.include_router(greendot.router(current_user))
        async with app.router.lifespan_context(app):
            await (await greendot.client()).put_room("club")
            assert greendot.server._http._clients
        assert not greendot.server._http._clients
