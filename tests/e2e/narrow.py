"""Clients with small socket buffers that can stop reading."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
from typing import Any, Self

from greendot.node.session import Connection
from greendot.testing import Served, WireClient


class Peer(WireClient):
    """Client with small socket buffers that can stop reading, read any frame and write byte by byte."""

    @classmethod
    async def connect(cls, port: int, path: str = "/v1/connect", host: str = "127.0.0.1") -> Self:
        pipe = socket.socket()
        pipe.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        pipe.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pipe.setblocking(False)
        await asyncio.get_running_loop().sock_connect(pipe, ("127.0.0.1", port))
        client = cls(*await asyncio.open_connection(sock=pipe))
        await client.trickle(upgrade(path, Host=host))
        head = await asyncio.wait_for(client._reader.readuntil(b"\r\n\r\n"), 10)
        assert head.startswith(b"HTTP/1.1 101"), head
        return client

    async def trickle(self, data: bytes) -> None:
        """Write one byte at a time, each in its own packet."""
        for byte in data:
            self.send_bytes(bytes([byte]))
            await asyncio.sleep(0)

    async def frame(self) -> tuple[int, bytes]:
        """Return the next frame of any type."""
        return await asyncio.wait_for(self._frame(), 10)

    def half_close(self) -> None:
        """Close the sending side of the connection; the server can still send."""
        self._writer.write_eof()

    def stop_reading(self) -> None:
        self._writer.transport.pause_reading()

    def go_on_reading(self) -> None:
        self._writer.transport.resume_reading()


def upgrade(path: str = "/v1/connect", method: str = "GET", **changes: str | None) -> bytes:
    """Return the bytes of a handshake. A header given as None is left out."""
    headers: dict[str, str | None] = {
        "Host": "127.0.0.1",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
    }
    headers |= {name.replace("_", "-"): value for name, value in changes.items()}
    lines = [f"{name}: {value}" for name, value in headers.items() if value is not None]
    return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode()


async def peer(served: Served, user: str, room: str | None = None, **claims: Any) -> Peer:
    client = await Peer.connect(served.port)
    served._clients.append(client)
    await client.hello(served.token(user, **claims))
    if room is not None:
        await client.request(type="room.join", room=room)
    return client


def connection_of(served: Served, user: str) -> Connection:
    (connection,) = served.node.registry.connections_of("default", user)
    return connection
