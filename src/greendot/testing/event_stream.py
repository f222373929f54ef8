"""Client of an event stream, with the interface of the wire-level client."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from typing import Any, Self

import msgspec

from greendot.testing.wire import CLOSE, PATIENCE_S, TEXT, Closed, WireClient


class EventStreamClient(WireClient):
    """Client that reads an event stream and sends each command in a request of its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(reader, writer)
        self.stream = ""
        self.seq = 0
        self.port = 0  # of the server that gets the requests; may be another node
        self.statuses: list[int] = []  # of the requests
        self._host = ""
        self._tls: ssl.SSLContext | None = None
        self._events: deque[tuple[str, bytes]] = deque()
        self._posting: asyncio.Task[None] | None = None
        self._unsent: deque[bytes] = deque()

    @classmethod
    async def connect(
        cls,
        port: int,
        path: str = "/v1/events",
        headers: dict[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        source: str | None = None,
        receive_bytes: int | None = None,
    ) -> Self:
        """Open a stream and read its first event. Raise ConnectionError with the head of the response if refused.

        `receive_bytes` is the size of the kernel's receive buffer. The request is HTTP/1.0, so that proxies do not send
        the body in chunks.
        """
        sent = {"Host": f"127.0.0.1:{port}", "Accept": "text/event-stream"} | (headers or {})
        lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        local = None if source is None else (source, 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**21, ssl=tls, local_addr=local)
        if receive_bytes is not None:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        writer.write(f"GET {path} HTTP/1.0\r\n{lines}\r\n".encode())
        client = cls(reader, writer)
        client.port, client._host, client._tls = port, sent["Host"], tls
        try:
            async with asyncio.timeout(PATIENCE_S):
                head = await reader.readuntil(b"\r\n\r\n")
                client.head = head.decode()
                if b" 200 " not in head.partition(b"\r\n")[0]:
                    raise ConnectionError(client.head)
                kind, data = await client.event()
        except BaseException:
            writer.close()
            raise
        assert kind == "stream", kind
        client.stream = msgspec.json.decode(data)["stream"]
        return client

    async def event(self) -> tuple[str, bytes]:
        """Return the type and the data of the next event."""
        kind, data = "message", b""
        while True:
            line = (await self._reader.readuntil(b"\n")).rstrip(b"\r\n")
            if not line and data:
                return kind, data
            name, _, value = line.partition(b": ")
            if name == b"event":
                kind = value.decode()
            elif name == b"data":
                data = value

    async def post(self, body: Any, stream: str | None = None, **headers: str) -> int:
        """Send a request to the stream and return its status."""
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self._tls)
        try:
            writer.write(
                f"POST /v1/events/{self.stream if stream is None else stream} HTTP/1.1\r\nHost: {self._host}\r\n"
                f"Content-Type: text/plain\r\nContent-Length: {len(data)}\r\nConnection: close\r\n{lines}\r\n".encode()
                + data
            )
            async with asyncio.timeout(PATIENCE_S):
                return int((await reader.readline()).split()[1])
        finally:
            writer.close()

    def send_frame(
        self, opcode: int, payload: bytes = b"", *, fin: bool = True, rsv: int = 0, mask: bool = True
    ) -> None:
        """Send a command, or close the stream. Requests follow each other."""
        self.seq += 1
        close = int.from_bytes(payload[:2], "big") if opcode == CLOSE else None
        commands = [] if opcode == CLOSE else [msgspec.Raw(payload)]
        self._unsent.append(msgspec.json.encode({"seq": self.seq, "commands": commands, "close": close}))
        if self._posting is None:
            self._posting = asyncio.ensure_future(self._post_all())

    async def _post_all(self) -> None:
        try:
            while self._unsent:
                self.statuses.append(await self.post(self._unsent.popleft()))
        except OSError:
            self.statuses.append(0)
        finally:
            self._posting = None

    async def _frame(self) -> tuple[int, bytes]:
        try:
            kind, data = await self.event()
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            await self.end()
            raise Closed(1006, str(error)) from None
        if kind != "close":
            return TEXT, data
        close = msgspec.json.decode(data)
        await self.end()
        raise Closed(close["code"], close["reason"])

    def stop_reading(self) -> None:
        self._writer.transport.pause_reading()  # type: ignore[attr-defined]

    def go_on_reading(self) -> None:
        self._writer.transport.resume_reading()  # type: ignore[attr-defined]

    async def end(self) -> None:
        """Close the stream's socket, without a request that announces it."""
        if self._posting is not None:
            await asyncio.wait([self._posting], timeout=PATIENCE_S)
        if self._tls is not None:
            self._writer.transport.abort()  # a proxy that still sends does not answer the end of TLS
        await super().end()
