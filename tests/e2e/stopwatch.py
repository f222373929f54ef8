"""Comparison of the response times for two requests, measured by a client in its own process.

As a program, it reads the requests as JSON from standard input and prints the times. It sends both requests alternately
in random order, so that other load on the machine affects both.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import socket
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

WARM_UP = 50
BLOCK = 50  # samples of each whose medians are compared: the machine's load changes more slowly
LOOKS = (1_000, 2_000, 4_000)  # numbers of samples of each after which the difference is checked
MOST = 0.05


class Told(NamedTuple):
    """Medians in microseconds, and the median difference between blocks."""

    one: float
    other: float
    difference: float
    samples: int


class _Socket:
    """Blocking socket that sends prepared bytes and reads one response."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._read = b""

    def took(self, request: bytes) -> float:
        began = time.perf_counter()
        self._socket.sendall(request)
        self.answer()
        return time.perf_counter() - began

    def send(self, request: bytes) -> None:
        self._socket.sendall(request)

    def take(self, size: int) -> bytes:
        while len(self._read) < size:
            self._more()
        taken, self._read = self._read[:size], self._read[size:]
        return taken

    def head(self) -> bytes:
        while b"\r\n\r\n" not in self._read:
            self._more()
        head, _, self._read = self._read.partition(b"\r\n\r\n")
        return head

    def _more(self) -> None:
        data = self._socket.recv(65536)
        if not data:
            raise ConnectionError("the server closed the connection")
        self._read += data

    def close(self) -> None:
        self._socket.close()

    def answer(self) -> bytes:
        raise NotImplementedError


class Wire(_Socket):
    """WebSocket after its hello."""

    def __init__(self, port: int, token: str) -> None:
        super().__init__(port)
        key = base64.b64encode(os.urandom(16)).decode()
        self.send(
            f"GET /v1/connect HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
        )
        assert b" 101 " in self.head()
        self.send(self.request({"type": "hello", "token": token}))
        assert b'"welcome"' in self._frame()

    @staticmethod
    def request(command: Any) -> bytes:
        payload = json.dumps({"id": 1, **command}).encode()
        size = bytes([0x80 | len(payload)]) if len(payload) < 126 else b"\xfe" + struct.pack(">H", len(payload))
        return b"\x81" + size + b"\0\0\0\0" + payload  # masked with zeros

    def answer(self) -> bytes:
        while True:
            frame = self._frame()
            if frame.startswith((b'{"type":"reply"', b'{"type":"error"')):
                return frame

    def _frame(self) -> bytes:
        size = self.take(2)[1]
        if size == 126:
            (size,) = struct.unpack(">H", self.take(2))
        elif size == 127:
            (size,) = struct.unpack(">Q", self.take(8))
        return self.take(size)


class Http(_Socket):
    """Keep-alive connection. A request is its method, path and body."""

    def __init__(self, port: int, key: str) -> None:
        super().__init__(port)
        self._head = f"Host: 127.0.0.1:{port}\r\nAuthorization: Bearer {key}\r\n"

    def request(self, asked: Any) -> bytes:
        method, path, body, *own = asked
        text = b"" if body is None else json.dumps(body).encode()
        head = self._head if not own else f"Host: h\r\nAuthorization: Bearer {own[0]}\r\n"
        return f"{method} {path} HTTP/1.1\r\n{head}Content-Length: {len(text)}\r\n\r\n".encode() + text

    def answer(self) -> bytes:
        lines = self.head().lower().split(b"\r\n")
        sizes = [int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length:")]
        return lines[0] + self.take(sizes[0] if sizes else 0)


def main() -> None:
    asked = json.load(sys.stdin)
    client = Wire(asked["port"], asked["token"]) if "token" in asked else Http(asked["port"], asked["key"])
    requests = [[client.request(command) for command in turn] for turn in asked["turns"]]
    times: list[list[float]] = [[], []]
    looks = asked["looks"]
    for number in range(-WARM_UP, looks[-1]):
        for which in random.sample((0, 1), 2):
            *before, timed = requests[which]
            for request in before:
                client.took(request)
            took = client.took(timed)
            if number >= 0:
                times[which].append(took)
        if number + 1 in looks:
            told = _told(*times)
            if told.difference < MOST:
                break
    print(json.dumps(told))


def _told(one: list[float], other: list[float]) -> Told:
    blocks = range(0, len(one), BLOCK)
    ratio = median(median(one[at : at + BLOCK]) / median(other[at : at + BLOCK]) for at in blocks)
    return Told(median(one) * 1e6, median(other) * 1e6, abs(ratio - 1), len(one))


async def compared(
    port: int, one: Any, other: Any, token: str = "", key: str = "", looks: Sequence[int] = LOOKS
) -> Told:
    """Compare the response times of two requests, by WebSocket with a token or by HTTP with a key.

    Each is a command or request, or a list of them of which the last is timed. If the medians differ too much after
    1,000 samples of each, more samples are taken. A real difference persists; noise of the machine does not.
    """
    turns = [turn if isinstance(turn, list) and isinstance(turn[0], list | dict) else [turn] for turn in (one, other)]
    asked = {"port": port, "turns": turns, "looks": looks} | ({"token": token} if token else {"key": key})
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, Path(__file__)), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        said, _ = await process.communicate(json.dumps(asked).encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0
    return Told(*json.loads(said))


if __name__ == "__main__":
    main()
