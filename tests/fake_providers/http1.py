"""Small HTTP/1.1 server for tests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from fake_providers.requests import Answer, Asked

if TYPE_CHECKING:
    from fake_providers.server import Played

DRIP_S = 0.05


class Http1(asyncio.Protocol):
    """One connection. Requests follow one another, each with a content-length."""

    def __init__(self, played: Played) -> None:
        self._played = played
        self._buffer = b""
        self._drip: asyncio.TimerHandle | None = None
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._played.connections.add(self)
        self._played.connected += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self._played.connections.discard(self)
        if self._drip is not None:
            self._drip.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (asked := self._request()) is not None:
            self._perform(self._played.does(asked))

    def cut(self) -> None:
        self.transport.abort()

    def _request(self) -> Asked | None:
        head, end, rest = self._buffer.partition(b"\r\n\r\n")
        if not end:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        size = int(headers.get("content-length", "0"))
        if len(rest) < size:
            return None
        self._buffer = rest[size:]
        return Asked(first.split()[1], headers, rest[:size])

    def _perform(self, does: Answer | str) -> None:
        match does:
            case "hang":
                return
            case "reset" | "lost" | "goaway":
                self.cut()
            case "slow":
                self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{")
                self._again()
            case Answer():
                self._answer(does)

    def _answer(self, answer: Answer) -> None:
        lines = [f"{name}: {value}" for name, value in (answer.headers or {}).items()]
        head = "\r\n".join((f"HTTP/1.1 {answer.status} X", *lines, f"content-length: {len(answer.body)}"))
        self.transport.write(f"{head}\r\n\r\n".encode() + answer.body)

    def _again(self) -> None:
        self.transport.write(b" ")
        self._drip = asyncio.get_running_loop().call_later(DRIP_S, self._again)
