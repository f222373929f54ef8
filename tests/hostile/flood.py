"""Clients that send as fast as their sockets accept bytes, in their own process (`sender.py`).

All bytes are prepared before the first is sent, so that the generator is never the bottleneck.
"""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Literal

import msgspec

from greendot.testing.wire import CLOSE, PING, PONG, TEXT, make_frame

CONTINUATION = 0x0
PIECE = 256 * 1024  # bytes written to a socket at a time
SENDER = Path(__file__).with_name("sender.py")


class Step(msgspec.Struct):
    """Bytes to send before the flood, and a part of the response to wait for."""

    send: bytes
    answer: bytes


class Flood(msgspec.Struct):
    """Flood: its bytes, its duration and its conditions for an end."""

    port: int
    openings: list[list[Step]]  # one per connection
    repeated: bytes  # sent repeatedly after all openings are answered
    seconds: float
    reads: bool = True  # False: nothing is read during the flood
    returns: bool = False  # True: a closed connection is replaced by a new one
    piece: int = PIECE  # bytes written to a socket at a time
    ends: int = 0  # continue until this many connections were closed
    sends: int = 0  # continue until this many bytes were accepted
    hears: bytes = b""  # continue until each connection has received this
    grace_s: float = 0.5  # time after the flood to read the last responses
    answer: bytes = b""  # instead: continue until each connection has received this once per repetition


class Outcome(msgspec.Struct):
    """Result of one connection."""

    sent: int = 0  # bytes of the flood
    received: bytes = b""  # the last bytes since the flood began
    ended: Literal["open", "closed", "reset"] = "open"

    @property
    def close_code(self) -> int | None:
        """Return the code of the close frame at the end, or None."""
        for size in range(2, 126):
            frame = self.received[-2 - size :]
            if frame[:2] == bytes([0x80 | CLOSE, size]):
                return int.from_bytes(frame[2:4], "big")
        return None


# --- openings ---


def upgrade() -> Step:
    """Return the step that requests a WebSocket."""
    key = base64.b64encode(os.urandom(16)).decode()
    request = (
        f"GET /v1/connect HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
    )
    return Step(request.encode(), b"HTTP/1.1 101 ")


def hello(token: str) -> Step:
    """Return the step that sends hello."""
    return Step(make_frame(TEXT, msgspec.json.encode({"type": "hello", "token": token})), b'"type":"welcome"')


FRAMES = {
    "pongs": make_frame(PONG),
    "pings": make_frame(PING),
    "empty fragments": make_frame(CONTINUATION, fin=False),
}
_FIRST_FRAGMENT = Step(make_frame(TEXT, fin=False), b"")


# --- floods ---


async def flood(asked: Flood) -> list[Outcome]:
    """Send from another process and return the outcome of each connection."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-SE", SENDER, stdin=PIPE, stdout=PIPE)
    try:
        printed, _ = await process.communicate(msgspec.json.encode(asked))
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0
    return msgspec.json.decode(printed, type=list[Outcome])


async def flood_frames(
    port: int,
    kind: str,
    seconds: float,
    *,
    strangers: int = 0,
    tokens: list[str] | None = None,
    returns: bool = False,
    ends: int = 0,
) -> list[Outcome]:
    """Send one type of FRAMES, from connections without a token or from one per token."""
    openings = [[upgrade()] for _ in range(strangers)] + [[upgrade(), hello(token)] for token in tokens or ()]
    if kind == "empty fragments":
        openings = [[*opening, _FIRST_FRAGMENT] for opening in openings]
    return await flood(Flood(port, openings, FRAMES[kind], seconds, returns=returns, ends=ends))
