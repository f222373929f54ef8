"""Proxy between one client and the server. Scripts cut, stall and delay its connections, and change frames."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from behaviour_driver.frames import Frame, close_frame, read_frame, text_frame

SMALL = 16_384  # bytes of receive buffers, so that a stalled client is noticed after few bytes
LOST = (OSError, asyncio.IncompleteReadError)

Side = Literal["client", "server"]


@dataclass
class Rule:
    """Rule for frames of one type. `left` is the number of further frames; None: all."""

    kind: Literal["drop", "change", "repeat"]
    sender: Side
    type: str
    left: int | None
    put: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Sent:
    """Frame that the client sent, with the time and the number of its connection."""

    frame: dict[str, Any]
    at: float
    connection: int


class Proxy:
    """Proxy of one client, listening on its own port. `report` is called with each frame and connection."""

    def __init__(self, target: Callable[[], int], report: Callable[[str], object]) -> None:
        self.port = 0
        self.session = ""  # of the last welcome
        self.attempts: list[float] = []  # times at which the client opened a connection
        self.sent: list[Sent] = []
        self.rules: list[Rule] = []
        self.delay_s = 0.0
        self.refusals: list[tuple[int, int | None]] = []  # status and Retry-After of the next upgrades
        self.is_down = False
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._target = target
        self._report = report
        self._server: asyncio.Server | None = None
        self._lanes: set[_Lane] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._server is not None:
            await self._server.wait_closed()

    # Steps of scripts

    def cut(self) -> None:
        """Reset all connections, without a close frame to either side."""
        for lane in tuple(self._lanes):
            lane.abort()

    def down(self) -> None:
        """Cut, and reset every further connection until `up`."""
        self.is_down = True
        self.cut()

    def up(self) -> None:
        self.is_down = False

    def stall(self) -> None:
        """Stop to read from the server until `resume`: the client gets nothing, and the server's buffers fill."""
        self._flowing.clear()

    def resume(self) -> None:
        self._flowing.set()

    def inject(self, frame: dict[str, Any]) -> None:
        """Send a frame to the client as if it came from the server."""
        for lane in self._lanes:
            lane.client.write(text_frame(frame, masked=False))

    def close(self, code: int, reason: str) -> None:
        """Close the client's connections as a server does. The server itself sees a lost connection."""
        for lane in tuple(self._lanes):
            lane.close(code, reason)

    # Connections

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.attempts.append(time.monotonic())
        self._report(f"connection {len(self.attempts)}")
        try:
            await self._serve(reader, writer)
        except (*LOST, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_down:
            return
        head = await reader.readuntil(b"\r\n\r\n")
        if self.refusals:
            status, after = self.refusals.pop(0)
            self._report(f"refused the upgrade with {status}")
            hint = "" if after is None else f"Retry-After: {after}\r\n"
            writer.write(f"HTTP/1.1 {status} Refused\r\n{hint}Content-Length: 0\r\nConnection: close\r\n\r\n".encode())
            await writer.drain()
            writer.close()
            await writer.wait_closed()
            return
        far_reader, far = await self._dial()
        try:
            far.write(_without_extensions(head))
            writer.write(await far_reader.readuntil(b"\r\n\r\n"))
            lane = _Lane(self, len(self.attempts), writer, far)
            self._lanes.add(lane)
            try:
                await lane.run(reader, far_reader)
            finally:
                self._lanes.discard(lane)
        finally:
            far.transport.abort()

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        sock = socket.socket()
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self._target()))
            return await asyncio.open_connection(sock=sock, limit=SMALL)
        except BaseException:
            sock.close()
            raise

    # Frames

    async def flowing(self) -> None:
        await self._flowing.wait()

    def passed(self, sender: Side, frame: Frame, connection: int) -> list[bytes]:
        """Record a frame and apply the rules. Return the bytes to forward."""
        value = frame.json()
        if value is None:
            return [frame.raw]
        kind = str(value.get("type"))
        self._report(f"{sender} sent {str(value)[:300]}")
        if sender == "client":
            self.sent.append(Sent(value, time.monotonic(), connection))
        elif kind == "welcome":
            self.session = value["data"]["session"]
        rule = next(
            (rule for rule in self.rules if (rule.sender, rule.type) == (sender, kind) and rule.left != 0), None
        )
        if rule is None:
            return [frame.raw]
        if rule.left is not None:
            rule.left -= 1
        self._report(f"{rule.kind}: {kind}")
        match rule.kind:
            case "drop":
                return []
            case "repeat":
                return [frame.raw, frame.raw]
            case "change":
                _merge(value, rule.put)
                return [text_frame(value, masked=sender == "client")]


class _Lane:
    """One connection of the client and its connection to the server."""

    def __init__(self, proxy: Proxy, number: int, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._number = number
        self.client = client
        self._server = server
        self._closing = False

    async def run(self, near: asyncio.StreamReader, far: asyncio.StreamReader) -> None:
        pumps = [
            asyncio.create_task(self._pump("client", near, self._server)),
            asyncio.create_task(self._pump("server", far, self.client)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            if self._closing:  # the client closes after it has read the close frame
                await asyncio.wait(pumps[:1], timeout=5)
            with suppress(OSError):
                self.client.close()  # sends what is still buffered
                await self.client.wait_closed()
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.wait(pumps)

    def abort(self) -> None:
        for writer in (self.client, self._server):
            sock = writer.get_extra_info("socket")
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    def close(self, code: int, reason: str) -> None:
        self._closing = True
        self.client.write(close_frame(code, reason))
        self._server.transport.abort()

    async def _pump(self, sender: Side, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(*LOST):
            while True:
                if sender == "server":
                    await self._proxy.flowing()
                frame = await read_frame(reader)
                if self._proxy.delay_s:
                    await asyncio.sleep(self._proxy.delay_s)
                if self._closing:
                    continue  # to the server: it is gone; from the server: the client must not read it
                for data in self._proxy.passed(sender, frame, self._number):
                    writer.write(data)
                await writer.drain()


def _merge(value: dict[str, Any], put: dict[str, Any]) -> None:
    for name, new in put.items():
        if isinstance(new, dict) and isinstance(value.get(name), dict):
            _merge(value[name], new)
        else:
            value[name] = new


def _without_extensions(head: bytes) -> bytes:
    """Return the upgrade request without compression, so that the proxy can read the frames."""
    lines = head.split(b"\r\n")
    return b"\r\n".join(line for line in lines if not line.lower().startswith(b"sec-websocket-extensions:"))
