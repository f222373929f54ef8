"""Fake app that receives webhooks and responds as the test sets it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec

from greendot.client import verify_webhook

SECRET = "the secret of a webhook, for tests only"
LOOPBACK = {"allow_private": ("127.0.0.0/8",), "batch_wait_ms": 10}
Verdict = int | bytes | str | None  # status, whole response, or another behaviour: hang, drop, drip, flood


class Received(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def events(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = msgspec.json.decode(self.body)["events"]
        return found


class Receiver:
    """Webhook receiver that responds as `behave` decides for the events of each request.

    `taken` has the requests that were answered with 2xx.
    """

    def __init__(self, behave: Callable[[list[dict[str, Any]]], Verdict]) -> None:
        self.behave = behave
        self.requests: list[Received] = []
        self.taken: list[Received] = []
        self.connections = 0
        self.port = 0
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def events(self) -> list[dict[str, Any]]:
        """Return all events of the taken requests, in order."""
        return [event for request in self.taken for event in request.events]

    def of(self, *types: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] in types]

    def verify(self, secret: str = SECRET) -> None:
        """Check the signature of each request."""
        for request in self.requests:
            verify_webhook(request.body, request.headers["greendot-signature"], secret, tolerance_s=10**9)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            while await self._serve_one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        # Lower-casing the values is safe: signatures are lower case, and nothing else here depends on case.
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        request = Received(head[0].split()[1], headers, body)
        self.requests.append(request)
        verdict = self.behave(request.events)
        if isinstance(verdict, int):
            if 200 <= verdict < 300:
                self.taken.append(request)
            writer.write(b"HTTP/1.1 %d X\r\nContent-Length: 2\r\n\r\nok" % verdict)
        elif isinstance(verdict, bytes):
            writer.write(verdict)
        elif verdict == "drip":
            writer.write(b"HTTP/1.1 200 OK\r\n")
            while True:
                writer.write(b"X-Drip: drop\r\n")
                await writer.drain()
                await asyncio.sleep(0.02)
        elif verdict == "flood":
            self.taken.append(request)
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            while True:
                writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
                await writer.drain()
        elif verdict == "hang":
            await asyncio.sleep(3600)
        else:
            return False
        await writer.drain()
        return True

    def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


@asynccontextmanager
async def receiving(
    behave: Callable[[list[dict[str, Any]]], Verdict] = lambda events: 200, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Receiver]:
    receiver = Receiver(behave)
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(receiver.serve(reader, writer))
        tasks.add(task)

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        receiver.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def by_type(events: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the data of the events, grouped by type."""
    found: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        found.setdefault(event["type"], []).append(event["data"])
    return found
