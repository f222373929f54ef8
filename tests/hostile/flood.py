"""A client that sends as fast as its sockets take bytes, in a process of its own.

Run as a program: it reads a `Flood` as JSON from its standard input and prints an `Outcome` for each connection.
`flood` starts it beside a server. Bytes are made once, before the first is sent: the generator is never the slow part.
"""

from __future__ import annotations

import asyncio
import base64
import os
import selectors
import socket
import sys
import time
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Literal

import msgspec

from greendot.testing.wire import CLOSE, PING, PONG, TEXT, make_frame

CONTINUATION = 0x0
PIECE = 256 * 1024  # bytes offered to a socket at a time
KEPT = 64 * 1024  # bytes kept of what a connection received last
OPENING_S = 10.0  # for the server to answer an opening


class Step(msgspec.Struct):
    """Bytes to send before the flood, and a part of the answer to wait for."""

    send: bytes
    answer: bytes


class Flood(msgspec.Struct):
    """Bytes to send, and for how long."""

    port: int
    openings: list[list[Step]]  # one for each connection
    repeated: bytes  # sent again and again once every opening is answered
    seconds: float
    reads: bool = True  # False: nothing is read while the flood lasts
    returns: bool = False  # True: a connection that is ended is followed by another
    piece: int = PIECE  # bytes offered to a socket at a time
    grace_s: float = 0.5  # after it, to read what the server says last


class Outcome(msgspec.Struct):
    """The end of one connection."""

    sent: int = 0  # bytes of the flood
    received: bytes = b""  # since the flood began: the last of it
    ended: Literal["open", "closed", "reset"] = "open"
    after_s: float = 0.0  # since the flood began

    @property
    def close_code(self) -> int | None:
        """Return the code of the close frame at the end; None without one."""
        for size in range(2, 126):
            frame = self.received[-2 - size :]
            if frame[:2] == bytes([0x80 | CLOSE, size]):
                return int.from_bytes(frame[2:4], "big")
        return None


# --- openings ---


def upgrade() -> Step:
    """Ask for a WebSocket."""
    key = base64.b64encode(os.urandom(16)).decode()
    request = (
        f"GET /v1/connect HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
    )
    return Step(request.encode(), b"HTTP/1.1 101 ")


def hello(token: str) -> Step:
    """Authenticate."""
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
    process = await asyncio.create_subprocess_exec(sys.executable, Path(__file__), stdin=PIPE, stdout=PIPE)
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
) -> list[Outcome]:
    """Send one kind of FRAMES: from connections without a token, or from one for each token."""
    openings = [[upgrade()] for _ in range(strangers)] + [[upgrade(), hello(token)] for token in tokens or ()]
    if kind == "empty fragments":
        openings = [[*opening, _FIRST_FRAGMENT] for opening in openings]
    return await flood(Flood(port, openings, FRAMES[kind], seconds, returns=returns))


# --- the program ---


class _Sender:
    """One connection."""

    def __init__(self, asked: Flood, opening: list[Step]) -> None:
        self.outcome = Outcome()
        self._piece = asked.piece
        self.socket = socket.create_connection(("127.0.0.1", asked.port), OPENING_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # pieces are packets
        self.refused = False  # the server takes no more; what it has sent may still be read
        for step in opening:
            self.socket.sendall(step.send)
            answer = b""
            while step.answer not in answer:
                more = self.socket.recv(65536)
                assert more, f"no {step.answer!r} in {answer!r}"
                answer += more
        self.socket.setblocking(False)

    def send(self, data: memoryview) -> None:
        """Offer more of the flood, from where the socket stopped taking it."""
        try:
            for _ in range(1 if self._piece == PIECE else 256):
                at = self.outcome.sent % (len(data) // 2)
                self.outcome.sent += self.socket.send(data[at : at + self._piece])
        except BlockingIOError:
            pass
        except ConnectionError:
            self.refused = True

    def read(self) -> bool:
        """Read what is there; False at the end."""
        try:
            data = self.socket.recv(65536)
        except BlockingIOError:
            return True
        except ConnectionError:
            self.outcome.ended = "reset"
            return False
        if not data:
            self.outcome.ended = "closed"
            return False
        self.outcome.received = (self.outcome.received + data)[-KEPT:]
        return True


class _Generator:
    """All connections of a flood."""

    def __init__(self, asked: Flood) -> None:
        self._asked = asked
        self._selector = selectors.DefaultSelector()
        self._senders: list[_Sender] = []
        self._began = 0.0

    def run(self) -> list[Outcome]:
        asked = self._asked
        self._senders = [_Sender(asked, opening) for opening in asked.openings]
        once = asked.repeated * -(-PIECE // len(asked.repeated))
        data = memoryview(once + once)  # from anywhere in the first half there is a whole piece
        self._began = time.monotonic()
        for sender in self._senders:
            self._register(sender)
        self._turn(self._began + asked.seconds, data)
        for key in list(self._selector.get_map().values()):
            self._selector.modify(key.fileobj, selectors.EVENT_READ, key.data)
        asked.returns = False
        self._turn(time.monotonic() + asked.grace_s, data)
        return [sender.outcome for sender in self._senders]

    def _register(self, sender: _Sender) -> None:
        reading = selectors.EVENT_READ if self._asked.reads else 0
        self._selector.register(sender.socket, selectors.EVENT_WRITE | reading, sender)

    def _end(self, sender: _Sender) -> None:
        sender.outcome.after_s = time.monotonic() - self._began
        self._selector.unregister(sender.socket)
        sender.socket.close()
        if self._asked.returns:
            self._senders.append(_Sender(self._asked, self._asked.openings[0]))
            self._register(self._senders[-1])

    def _turn(self, until: float, data: memoryview) -> None:
        while self._selector.get_map() and (left_s := until - time.monotonic()) > 0:
            for key, events in self._selector.select(left_s):
                sender: _Sender = key.data
                if events & selectors.EVENT_READ and not sender.read():
                    self._end(sender)
                elif events & selectors.EVENT_WRITE:
                    sender.send(data)
                    if sender.refused:
                        self._selector.modify(sender.socket, selectors.EVENT_READ, sender)


if __name__ == "__main__":
    outcomes = _Generator(msgspec.json.decode(sys.stdin.buffer.read(), type=Flood)).run()
    sys.stdout.buffer.write(msgspec.json.encode(outcomes))
