"""Fake app that answers webhooks about visibility and before publishing, correctly or not as the test sets it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from greendot.protocol.webhooks import check_signature

SECRET = "the secret of questions, for tests only"
NEARBY = {"allow_private": ("127.0.0.0/8",)}  # setting of [webhooks]: allow the fake app's loopback address


class App:
    """Visibility webhook that allows the pairs of viewer and target in `allowed`.

    `override` replaces the answer: a status, a whole response as bytes, or None for no response.
    """

    def __init__(self, *allowed: tuple[str, str]) -> None:
        self.allowed = {*allowed}
        self.questions: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.bodies: list[bytes] = []
        self.override: int | bytes | None = 200
        self.port = 0

    @property
    def settings(self) -> dict[str, Any]:
        return {"policy": "ask", "ask_url": f"http://127.0.0.1:{self.port}/ask", "ask_secret": SECRET}

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Return all pairs of viewer and target that the server asked for."""
        found = [question for body in self.questions for question in body["questions"]]
        return [(question["viewer"], target) for question in found for target in question["targets"]]

    def verify(self, now_s: float) -> None:
        """Check the signature of each request at the given time."""
        for headers, body in zip(self.headers, self.bodies, strict=True):
            check_signature(body, headers["greendot-signature"], SECRET, now_s)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await self._answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        body = await reader.readexactly(int(headers["content-length"]))
        asked = msgspec.json.decode(body)
        self.questions.append(asked)
        self.headers.append(headers)
        self.bodies.append(body)
        if self.override is None:
            await asyncio.sleep(3600)
        answers = [
            {"viewer": q["viewer"], "visible": [t for t in q["targets"] if (q["viewer"], t) in self.allowed]}
            for q in asked.get("questions", ())
        ]
        text = self.override if isinstance(self.override, bytes) else msgspec.json.encode({"answers": answers})
        status = self.override if isinstance(self.override, int) else 200
        writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(text)) + text)
        await writer.drain()


@asynccontextmanager
async def asked(*allowed: tuple[str, str]) -> AsyncIterator[App]:
    app = App(*allowed)
    tasks: set[asyncio.Task[None]] = set()
    server = await asyncio.start_server(
        lambda r, w: tasks.add(asyncio.get_running_loop().create_task(app.serve(r, w))), "127.0.0.1", 0
    )
    app.port = server.sockets[0].getsockname()[1]
    try:
        yield app
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
