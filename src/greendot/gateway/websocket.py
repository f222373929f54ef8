"""RFC 6455 as far as picows leaves it to us, and the seam by which a socket is handed over to picows.

picows checks masks, opcodes, control frames, close codes and the size of a frame. This module adds reserved bits, the
order of fragments, the size of a whole message and UTF-8, and turns frames into whole text messages.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from picows import WSFrame, WSListener, WSMsgType, WSTransport, WSUpgradeRequest, WSUpgradeResponse
from picows.common import WSUpgradeResponseWithListener
from picows.picows import WSProtocol  # type: ignore[attr-defined]  # not public: the seam test notices if it moves

from greendot.gateway.upgrade import PATH, SUBPROTOCOL
from greendot.logs import events
from greendot.logs.telling import tell
from greendot.protocol.codec import MAX_FRAME
from greendot.protocol.codes import Close

_TEXT, _CONTINUATION, _BINARY = WSMsgType.TEXT, WSMsgType.CONTINUATION, WSMsgType.BINARY
_PING, _CLOSE = WSMsgType.PING, WSMsgType.CLOSE
_NEVER_SENT = (0, 1006)  # close codes that picows lets pass


class Framing(WSListener):
    """One WebSocket that reports whole messages. Subclasses say what to do with them."""

    __slots__ = ("_fragments", "closing", "transport")

    transport: WSTransport
    closing: bool  # a close frame was sent or received: nothing that arrives from now on is looked at
    _fragments: bytearray | None  # of a message that is not complete

    def on_text(self, text: str) -> None:
        """A whole text message."""

    def on_ping(self, payload: bytes) -> None:
        """A ping, to be answered with a pong of the same payload."""

    def on_heard(self) -> None:
        """Any frame at all: the peer lives."""

    def on_client_close(self, code: int) -> None:
        """The peer sent a close frame; `code` is 0 where it named none."""

    def close(self, code: int, reason: str = "", last: bytes | None = None) -> None:
        """Send `last` and a close frame, and end the connection."""

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        kind = frame.msg_type
        if self.closing or transport.is_close_frame_sent:  # picows closes by itself for what it checks
            if kind == _CLOSE:
                transport.disconnect()
            return
        self.on_heard()
        if frame.rsv1 or frame.rsv2 or frame.rsv3:
            self.close(Close.PROTOCOL_VIOLATION, "reserved bits are set but no extension was agreed")
        elif kind == _TEXT and frame.fin and self._fragments is None:
            try:
                text = frame.get_payload_as_utf8_text()
            except UnicodeDecodeError:
                self.close(Close.BAD_UTF8, "text frames must be UTF-8")
                return
            self.on_text(text)
        elif kind in (_TEXT, _CONTINUATION):
            self._fragment(kind == _TEXT, frame)
        elif kind == _PING:
            self.on_ping(frame.get_payload_as_bytes())
        elif kind == _CLOSE:
            payload = frame.get_payload_as_bytes()
            code = int.from_bytes(payload[:2], "big")
            if payload and code in _NEVER_SENT:
                self.close(Close.PROTOCOL_VIOLATION, "a close frame never carries this code")
                return
            self.closing = True
            self.on_client_close(code)
        elif kind == _BINARY:
            self.close(Close.BINARY, "binary frames are not accepted")

    def _fragment(self, first: bool, frame: WSFrame) -> None:
        if first == (self._fragments is not None):
            self.close(Close.PROTOCOL_VIOLATION, "fragments of a message are out of order")
            return
        if self._fragments is None:
            self._fragments = bytearray()
        self._fragments += frame.get_payload_as_bytes()
        if len(self._fragments) > MAX_FRAME:
            self.close(Close.TOO_BIG, "a message must not exceed 64 KiB")
        elif frame.fin:
            whole, self._fragments = self._fragments, None
            try:
                text = whole.decode()
            except UnicodeDecodeError:
                self.close(Close.BAD_UTF8, "text frames must be UTF-8")
                return
            self.on_text(text)


class _Silent:
    """A logger for picows. It makes one of its own per connection otherwise, and logs each as it comes and goes.

    Only what is our own fault, an exception in a callback, is passed on.
    """

    def isEnabledFor(self, level: int) -> bool:
        return False

    def _nothing(self, *args: object, **kwargs: object) -> None:
        pass

    debug = info = warning = error = log = _nothing

    def exception(self, *args: object, **kwargs: object) -> None:
        tell(events.WORK_FAILED, sys.exc_info()[1], work="a callback of a socket")


_SILENT = _Silent()
# One answer serves every upgrade: picows only sets the accept key in it before it is sent.
_UPGRADED = WSUpgradeResponse.create_101_response()
_UPGRADED_BY_NAME = WSUpgradeResponse.create_101_response({"Sec-WebSocket-Protocol": SUBPROTOCOL.decode()})
_PLAIN_WORD = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
_NO_AUTO_PING = (False, 0, 0, 1)


class UpgradedProtocol(WSProtocol):  # type: ignore[misc]
    """picows' protocol for a socket whose HTTP request has been read already."""

    __slots__ = ("_depart", "_household")

    def __init__(
        self,
        make_listener: Any,
        depart: Callable[[Any], None] = lambda household: None,
        household: object = None,
        *,
        by_name: bool = False,
        path: bytes = PATH,
    ) -> None:
        """For the address `path` alone. `depart` is called with `household` when the socket is closed, whether it
        became a WebSocket or not."""
        self._depart = depart
        self._household = household

        def route(request: WSUpgradeRequest) -> WSUpgradeResponseWithListener:
            if request.path.partition(b"?")[0] != path:
                body = b"WebSockets connect to " + path
                return WSUpgradeResponseWithListener(
                    WSUpgradeResponse.create_error_response(HTTPStatus.NOT_FOUND, body, _PLAIN_WORD), None
                )
            answer = _UPGRADED_BY_NAME if by_name else _UPGRADED
            return WSUpgradeResponseWithListener(answer, make_listener(request))

        # host, path, client side, factory, logger, close on exception, handshake timeout, auto ping (4), auto pong,
        # largest frame, extra headers, read buffer: small, because there is one per idle connection.
        super().__init__(None, None, False, route, _SILENT, True, None, *_NO_AUTO_PING, False, MAX_FRAME, None, 2048)

    data_received = None  # or the transport would keep that of the protocol before, and the protocol with it

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._depart(self._household)

    def feed(self, data: bytes) -> None:
        """Hand over the request that was read."""
        while data:
            buffer = self.get_buffer(-1)
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            self.buffer_updated(size)
            data = data[size:]


def forget_handshake(transport: WSTransport) -> None:
    """Let go of the request, which picows would keep as long as the connection."""
    request = transport.request
    request.method, request.path, request.version = b"GET", PATH, b"HTTP/1.1"
    request.headers = _UPGRADED.headers
