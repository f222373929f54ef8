"""The socket of somebody who looks at the dashboard.

Nothing that is sent here must arrive: an onlooker who does not keep up gets the next sample, not all of them.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Protocol

from picows import WSTransport

from greendot.limits.frame_limit_model import CommandLimit
from greendot.protocol.codec import close_frame, pong_frame, text_frame
from greendot.protocol.codes import Close
from greendot.transport.websocket import Framing

MOST_WAITING = 512 * 1024  # bytes that the kernel has not taken
LINGER_S = 2.0  # for a peer that goes on sending to read the close frame
RATE, BURST = 20, 100  # frames a second, and at once: a page sends a few when somebody clicks


class Audience(Protocol):
    """Who is told of onlookers."""

    def opened(self, onlooker: Onlooker) -> None: ...
    def said(self, onlooker: Onlooker, text: str) -> None: ...
    def gone(self, onlooker: Onlooker) -> None: ...


class Onlooker(Framing):
    """One of them."""

    __slots__ = ("_audience", "_limit")

    def __init__(self, audience: Audience) -> None:
        super().__init__()
        self._audience = audience
        self._limit = CommandLimit(RATE, BURST, monotonic())

    def on_ws_connected(self, transport: WSTransport) -> None:
        self.attach(transport)
        self._audience.opened(self)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self.closing = self.deaf = True
        self.detach()
        self._audience.gone(self)

    def on_text(self, text: str) -> None:
        if self.on_counted():
            self._audience.said(self, text)

    def on_counted(self) -> bool:
        if self._limit.admit(monotonic()):
            self.deaf = True
            self.close(Close.OVERLOADED, "too many frames: come back later")
            return False
        return True

    def on_ping(self, payload: bytes) -> None:
        if not self.is_behind:
            self.socket.write(pong_frame(payload))

    def on_client_close(self, code: int) -> None:
        self.socket.write(close_frame(code or Close.NORMAL))
        self.socket.close()

    @property
    def is_behind(self) -> bool:
        """Whether so much waits for it that more would only be late."""
        return self.socket.get_write_buffer_size() > MOST_WAITING

    def send(self, payload: bytes) -> None:
        """A JSON object in a frame of its own; dropped where the peer does not read."""
        if not self.closing and not self.is_behind:
            self.socket.write(text_frame(payload))

    def close(self, code: int, reason: str = "", last: bytes | None = None) -> None:
        if not self.closing:
            sends_on = self.deaf  # after a violation or a flood
            self.closing = self.deaf = True
            if last is not None:
                self.socket.write(last)
            self.socket.write(close_frame(code, reason))
            if sends_on:
                self.linger()
                asyncio.get_running_loop().call_later(LINGER_S, self.abort)
            else:
                self.socket.close()

    def abort(self) -> None:
        """End at once: the peer does not read."""
        self.closing = self.deaf = True
        self.socket.abort()
