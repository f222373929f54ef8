"""The socket of somebody who looks at the dashboard.

Nothing that is sent here must arrive: an onlooker who does not keep up gets the next sample, not all of them.
"""

from __future__ import annotations

from typing import Protocol

from picows import WSTransport

from greendot.gateway.websocket import Framing, forget_handshake
from greendot.protocol.codec import pong_frame, text_frame
from greendot.protocol.codes import Close

MOST_WAITING = 512 * 1024  # bytes that the kernel has not taken


class Audience(Protocol):
    """Who is told of onlookers."""

    def opened(self, onlooker: Onlooker) -> None: ...
    def said(self, onlooker: Onlooker, text: str) -> None: ...
    def gone(self, onlooker: Onlooker) -> None: ...


class Onlooker(Framing):
    """One of them."""

    __slots__ = ("_audience",)

    def __init__(self, audience: Audience) -> None:
        self.closing = False
        self._fragments = None
        self._audience = audience

    def on_ws_connected(self, transport: WSTransport) -> None:
        self.transport = transport
        forget_handshake(transport)
        self._audience.opened(self)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self.closing = True
        self._audience.gone(self)

    def on_text(self, text: str) -> None:
        self._audience.said(self, text)

    def on_ping(self, payload: bytes) -> None:
        if not self.is_behind:
            self.transport.underlying_transport.write(pong_frame(payload))

    def on_client_close(self, code: int) -> None:
        self.transport.send_close(code or Close.NORMAL)  # type: ignore[arg-type]
        self.transport.disconnect()

    @property
    def is_behind(self) -> bool:
        """Whether so much waits for it that more would only be late."""
        return self.transport.underlying_transport.get_write_buffer_size() > MOST_WAITING

    def send(self, payload: bytes) -> None:
        """A JSON object in a frame of its own; dropped where the peer does not read."""
        if not self.closing and not self.is_behind:
            self.transport.underlying_transport.write(text_frame(payload))

    def close(self, code: int, reason: str = "", last: bytes | None = None) -> None:
        if not self.closing:
            self.closing = True
            if last is not None:
                self.transport.underlying_transport.write(last)
            self.transport.send_close(code, reason)  # type: ignore[arg-type]
            self.transport.disconnect()

    def abort(self) -> None:
        """End at once: the peer does not read."""
        self.closing = True
        self.transport.disconnect(False)
