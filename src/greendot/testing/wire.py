"""Wire-level client: it sends exactly the bytes of a test, well-formed or not."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import ssl
import struct
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import msgspec

TEXT, BINARY, CLOSE, PING, PONG = 0x1, 0x2, 0x8, 0x9, 0xA
PATIENCE_S = 10.0  # real seconds to wait for a frame before a test fails


class Closed(Exception):
    """Close by the server, with this code (1006 without a close frame)."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(f"closed {code} {reason}")
        self.code = code
        self.reason = reason


class WireClient:
    """Client on one socket. Frames are plain dicts; only the close handshake is automatic."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._numbers = 0
        self._unread: list[dict[str, Any]] = []
        self.head = ""  # head of the response to the upgrade
        self.welcome: dict[str, Any] = {}
        self.deaf_to: frozenset[str] = frozenset()  # types of events to ignore

    @classmethod
    async def connect(
        cls,
        port: int,
        path: str = "/v1/connect",
        headers: dict[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        source: str | None = None,
    ) -> Self:
        """Open a socket and upgrade it, without a hello. `source` is the local address to connect from."""
        sent = {"Host": f"127.0.0.1:{port}"} | (headers or {})
        more = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        local = None if source is None else (source, 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20, ssl=tls, local_addr=local)
        key = base64.b64encode(os.urandom(16)).decode()
        writer.write(
            f"GET {path} HTTP/1.1\r\nConnection: keep-alive, Upgrade\r\n"
            f"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
            f"User-Agent: wire\r\n{more}\r\n".encode()
        )
        try:
            async with asyncio.timeout(PATIENCE_S):
                head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 101"):
                raise ConnectionError(head.decode())
        except BaseException:
            writer.close()
            raise
        client = cls(reader, writer)
        client.head = head.decode()
        return client

    async def hello(self, token: str, **fields: Any) -> dict[str, Any]:
        """Send a hello and return the data of the welcome."""
        self.send(type="hello", token=token, **fields)
        self.welcome = (await self.receive("welcome"))["data"]
        return self.welcome

    # --- sending ---

    def send(self, **command: Any) -> None:
        self.send_frame(TEXT, msgspec.json.encode(command))

    def send_frame(
        self, opcode: int, payload: bytes = b"", *, fin: bool = True, rsv: int = 0, mask: bool = True
    ) -> None:
        """Send any frame, allowed or not."""
        self.send_bytes(make_frame(opcode, payload, fin=fin, rsv=rsv, mask=mask))

    def send_bytes(self, data: bytes) -> None:
        self._writer.write(data)

    async def drain(self) -> None:
        await self._writer.drain()

    async def request(self, **command: Any) -> dict[str, Any]:
        """Send a command and return the data of its reply. Raise AssertionError with the error frame if refused."""
        self._numbers += 1
        number = self._numbers
        self.send(**command, id=number)
        while True:
            for index, frame in enumerate(self._unread):
                if frame.get("id") == number and frame["type"] in ("reply", "error"):
                    del self._unread[index]
                    assert frame["type"] == "reply", frame
                    data: dict[str, Any] = frame["data"]
                    return data
            self._unread.append(await self._next())

    # --- receiving ---

    async def receive(self, kind: str | None = None) -> dict[str, Any]:
        """Return the next frame; with `kind`, it must be of that type."""
        frame = self._unread.pop(0) if self._unread else await self._next()
        assert kind is None or frame["type"] == kind, f"expected {kind}, got {frame}"
        return frame

    async def quiet(self) -> list[dict[str, Any]]:
        """Return all frames the server has sent until now: the acknowledgement of a heartbeat marks the end."""
        self.send(type="heartbeat")
        frames = []
        while (frame := await self.receive())["type"] != "heartbeat.ack":
            frames.append(frame)
        return frames

    async def closed(self) -> Closed:
        """Read until the server closes; return its close."""
        while True:
            try:
                await self._next()
            except Closed as closed:
                return closed

    async def read_raw(self, keep: Callable[[bytes], object]) -> None:
        """Pass bytes to `keep` as they arrive, until the socket closes: a cheap client for load tests."""
        while data := await self._reader.read(2**16):
            keep(data)

    async def _next(self) -> dict[str, Any]:
        while True:
            # Not `wait_for`: it may swallow a cancellation that comes with a frame, and the test would continue.
            async with asyncio.timeout(PATIENCE_S):
                opcode, payload = await self._frame()
            if opcode == TEXT:
                frame: dict[str, Any] = msgspec.json.decode(payload)
                if frame.get("type") not in self.deaf_to:
                    return frame
            if opcode == CLOSE:
                code = int.from_bytes(payload[:2], "big")
                self.send_frame(CLOSE, payload[:2])
                await self.end()
                raise Closed(code, payload[2:].decode())

    async def _frame(self) -> tuple[int, bytes]:
        try:
            first, second = await self._reader.readexactly(2)
            size = second & 0x7F
            if size == 126:
                (size,) = struct.unpack(">H", await self._reader.readexactly(2))
            elif size == 127:
                (size,) = struct.unpack(">Q", await self._reader.readexactly(8))
            return first & 0xF, await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            await self.end()
            raise Closed(1006, str(error)) from None

    # --- ending ---

    async def close(self, code: int = 1000) -> None:
        """Close the connection cleanly, as a client."""
        self.send_frame(CLOSE, code.to_bytes(2, "big"))
        await self.closed()

    async def reset(self) -> None:
        """Reset the TCP connection, in the middle of any write."""
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()
        await asyncio.sleep(0)

    async def end(self) -> None:
        """Close the socket without a close frame."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.end()


def make_frame(opcode: int, payload: bytes = b"", *, fin: bool = True, rsv: int = 0, mask: bool = True) -> bytes:
    """Return the bytes of one client frame."""
    size, bit = len(payload), 0x80 if mask else 0
    head = bytes([(0x80 if fin else 0) | rsv << 4 | opcode])
    if size < 126:
        head += bytes([bit | size])
    elif size < 65536:
        head += bytes([bit | 126]) + struct.pack(">H", size)
    else:
        head += bytes([bit | 127]) + struct.pack(">Q", size)
    if not mask:
        return head + payload
    key = os.urandom(4)
    # XOR of two large integers: byte by byte it would be most of a client's cost.
    masks = (key * (size // 4 + 1))[:size]
    return head + key + (int.from_bytes(payload) ^ int.from_bytes(masks)).to_bytes(size)
