"""RFC 6455 as far as picows leaves it to us, and the seam by which a socket is handed over to picows.

picows checks masks, opcodes, control frames, close codes and the size of a frame. This module adds reserved bits, the
order of fragments, the size of a whole message and UTF-8, and turns frames into whole text messages. It also decides
when a close frame is sent and how the connection ends: picows would do so by itself (docs/adr/0037).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

from picows import WSFrame, WSListener, WSMsgType, WSTransport, WSUpgradeRequest, WSUpgradeResponse
from picows.common import WSUpgradeResponseWithListener
from picows.picows import WSProtocol  # type: ignore[attr-defined]  # not public: the seam test notices if it moves

from greendot.protocol.codec import MAX_FRAME
from greendot.protocol.codes import Close
from greendot.telemetry import log_events
from greendot.telemetry.log import log
from greendot.transport.websocket_handshake import PATH, SUBPROTOCOL

MOST_BYTES = 256 * 1024  # then reading stops: a flood costs nothing more
_SINK = memoryview(bytearray(64 * 1024))  # shared: nobody looks at it


class ClosingSocket(asyncio.BufferedProtocol):
    """Protocol of a socket whose last bytes were written. It ends when the peer ends its side."""

    __slots__ = ("_left", "_protocol", "_socket")

    def __init__(self, socket: asyncio.Transport, protocol: asyncio.BaseProtocol) -> None:
        self._socket = socket
        self._protocol = protocol  # told when the connection is lost
        self._left = MOST_BYTES

    def get_buffer(self, sizehint: int) -> memoryview:
        return _SINK

    def buffer_updated(self, nbytes: int) -> None:
        self._left -= nbytes
        if self._left <= 0 and not self._socket.is_closing():
            self._socket.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)


READ = 4096  # bytes read at a time: picows hands over every frame of a read, and the shortest has 6 bytes
IGNORED = 64  # frames a peer may send after a close frame before they are not looked at any more
# Reasons not to read from a socket.
BACKLOG, FLOOD, VIOLATION = 1, 2, 4

_TEXT, _CONTINUATION, _BINARY = WSMsgType.TEXT, WSMsgType.CONTINUATION, WSMsgType.BINARY
_PING, _CLOSE = WSMsgType.PING, WSMsgType.CLOSE
_INTERNAL = 1011  # how picows closes after an exception in a callback
_OF_CLOSE = "Received CLOSE"  # how picows begins what it says about a close frame


def _may_be_sent(code: int) -> bool:
    """Whether a close frame may carry this code, of those that picows lets pass."""
    return code not in (0, 1006) and code < 5000


class Framing(WSListener):
    """One WebSocket that reports whole messages. Subclasses say what to do with them."""

    __slots__ = ("_fragments", "_ignored", "_paused", "closing", "deaf", "socket", "transport")

    transport: WSTransport
    socket: asyncio.Transport  # below it
    closing: bool  # a close frame was sent or received: nothing more is sent
    deaf: bool  # no frame is looked at any more: of a connection that is closing, or about to be closed
    _fragments: bytearray | None  # of a message that is not complete
    _ignored: int  # frames since a close frame
    _paused: int  # reasons not to read

    def __init__(self) -> None:
        self.closing = self.deaf = False
        self._fragments = None
        self._ignored = self._paused = 0

    def on_text(self, text: str) -> None:
        """Receive a whole text message."""

    def on_counted(self) -> bool:
        """Count a control frame or a fragment; False if the peer sends too many."""
        return True

    def on_ping(self, payload: bytes) -> None:
        """Answer a ping with a pong of the same payload."""

    def on_received(self) -> None:
        """Note that the peer has sent a frame, of any kind."""

    def on_client_close(self, code: int) -> None:
        """Receive the peer's close frame; `code` is 0 where it named none."""

    def on_eof(self) -> None:
        """Note that the peer has ended its side without a close frame; the socket is closed once its output is out."""

    def on_violation(self, code: int, reason: str) -> None:
        """Close the connection, because the peer broke the protocol."""
        self.close(code, reason)

    def close(self, code: int, reason: str = "", last: bytes | None = None) -> None:
        """Send `last` and a close frame, and end the connection."""

    # --- frames ---

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        kind = frame.msg_type
        if self.deaf:
            self._ignore(kind)
            return
        self.on_received()
        if frame.rsv1 or frame.rsv2 or frame.rsv3:
            self._fail(Close.PROTOCOL_VIOLATION, "reserved bits are set but no extension was agreed")
        elif kind == _TEXT and frame.fin and self._fragments is None:
            try:
                text = frame.get_payload_as_utf8_text()
            except UnicodeDecodeError:
                self._fail(Close.BAD_UTF8, "text frames must be UTF-8")
                return
            self.on_text(text)
        elif kind in (_TEXT, _CONTINUATION):
            self._fragment(kind == _TEXT, frame)
        elif kind == _CLOSE:
            self._closed(frame.get_payload_as_bytes())
        elif kind == _BINARY:
            self._fail(Close.BINARY, "binary frames are not accepted")
        elif self.on_counted() and kind == _PING:
            self.on_ping(frame.get_payload_as_bytes())

    def _fragment(self, first: bool, frame: WSFrame) -> None:
        if first == (self._fragments is not None):
            self._fail(Close.PROTOCOL_VIOLATION, "fragments of a message are out of order")
            return
        if self._fragments is None:
            self._fragments = bytearray()
        self._fragments += frame.get_payload_as_bytes()
        if len(self._fragments) > MAX_FRAME:
            self._fail(Close.TOO_BIG, "a message must not exceed 64 KiB")
        elif not frame.fin:
            self.on_counted()  # the last one counts as the message
        else:
            whole, self._fragments = self._fragments, None
            try:
                text = whole.decode()
            except UnicodeDecodeError:
                self._fail(Close.BAD_UTF8, "text frames must be UTF-8")
                return
            self.on_text(text)

    def _closed(self, payload: bytes) -> None:
        code = int.from_bytes(payload[:2], "big")
        if payload and not _may_be_sent(code):
            self._fail(Close.PROTOCOL_VIOLATION, "a close frame never carries this code")
            self._end_after_close()
            return
        self.closing = self.deaf = True
        self.on_client_close(code)

    def _ignore(self, kind: WSMsgType) -> None:
        if not self.closing:  # about to be: reading is paused, and this is the rest of what was read before
            return
        if kind == _CLOSE:
            self.socket.close()
            return
        self._ignored += 1
        if self._ignored == IGNORED:
            self.linger()

    # --- violations ---

    def refuse(self, code: int, reason: str) -> None:
        """Close after the frame that picows has parsed already and hands over next; called by picows in between."""
        if code == _INTERNAL:
            self.deaf = True
            self.close(code, reason)
            return
        self.pause_reading(VIOLATION)  # the parser is in no state to go on
        asyncio.get_running_loop().call_soon(self._fail_parsed, code, reason)

    def _fail_parsed(self, code: int, reason: str) -> None:
        if not self.deaf:
            self._fail(code, reason)
            if reason.startswith(_OF_CLOSE):
                self._end_after_close()

    def _end_after_close(self) -> None:
        """End TCP at once: the peer has sent a close frame, and has ours unless messages wait to be handled first."""
        if self.closing:
            self.socket.close()

    def _fail(self, code: int, reason: str) -> None:
        self.deaf = True
        self.pause_reading(VIOLATION)
        self.on_violation(code, reason)

    # --- the socket ---

    def attach(self, transport: WSTransport) -> None:
        """Take over the socket from the handshake."""
        self.transport = transport
        outlet: Any = transport.underlying_transport  # ours: an Outlet
        self.socket = outlet.socket
        outlet.listener = self
        forget_handshake(transport)

    def detach(self) -> None:
        """Let go of the socket, which is closed."""
        outlet: Any = self.transport.underlying_transport
        outlet.listener = None  # or the two would keep each other

    def pause_reading(self, reason: int = BACKLOG) -> None:
        if not self._paused and not self.socket.is_closing():
            self.socket.pause_reading()
        self._paused |= reason

    def resume_reading(self, reason: int = BACKLOG) -> None:
        """Read on, unless there is another reason not to; also while closing, to receive the peer's close frame."""
        if self._paused & reason:
            self._paused &= ~reason
            if not self._paused and not self.socket.is_closing():
                self.socket.resume_reading()

    def linger(self) -> None:
        """End our side and read no more frames: unread bytes would make the kernel reset the connection, and the peer
        lose the close frame. The caller limits how long this takes."""
        socket = self.socket
        if socket.is_closing():
            return
        if not socket.can_write_eof():  # TLS ends with a message of its own, and would decrypt a flood to get there
            if self._ignored < IGNORED:
                socket.close()
            else:
                self.pause_reading(VIOLATION)
            return
        socket.write_eof()
        socket.set_protocol(ClosingSocket(socket, socket.get_protocol()))
        if self._paused:
            self._paused = 0
            socket.resume_reading()


class PicowsTransport:
    """The transport as picows sees it. Once the WebSocket is open, picows only writes to close it by itself: that is
    reported to the listener instead, because other output may be waiting and a frame before the bad one is undelivered.
    """

    __slots__ = ("listener", "socket")

    def __init__(self, socket: asyncio.Transport) -> None:
        self.socket = socket
        self.listener: Framing | None = None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.socket.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        return 1  # or picows writes to the descriptor without asking us

    def write(self, data: bytes) -> None:
        if self.listener is None:
            self.socket.write(data)
        else:
            payload = data[2:] if data[1] < 126 else data[4:]
            self.listener.refuse(int.from_bytes(payload[:2], "big"), payload[2:].decode())

    def close(self) -> None:
        if self.listener is None:
            self.socket.close()

    def abort(self) -> None:
        if self.listener is None:
            self.socket.abort()


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
        log(log_events.WORK_FAILED, sys.exc_info()[1], work="a callback of a socket")


_SILENT = _Silent()
# One answer serves every upgrade: picows only sets the accept key in it before it is sent.
_UPGRADED = WSUpgradeResponse.create_101_response()
_UPGRADED_BY_NAME = WSUpgradeResponse.create_101_response({"Sec-WebSocket-Protocol": SUBPROTOCOL.decode()})
_NO_AUTO_PING = (False, 0, 0, 1)
_get_buffer: Callable[[Any, int], memoryview] = WSProtocol.get_buffer


class UpgradedProtocol(WSProtocol):  # type: ignore[misc]
    """picows' protocol for a socket whose HTTP request has been read already."""

    __slots__ = ("_depart", "_group")

    def __init__(
        self,
        make_listener: Any,
        depart: Callable[[Any], None] = lambda group: None,
        group: object = None,
        *,
        by_name: bool = False,
    ) -> None:
        """`depart` is called with `group` when the socket is closed. `by_name` names our subprotocol in the 101."""
        self._depart = depart
        self._group = group

        def route(request: WSUpgradeRequest) -> WSUpgradeResponseWithListener:
            answer = _UPGRADED_BY_NAME if by_name else _UPGRADED
            return WSUpgradeResponseWithListener(answer, make_listener(request))

        # host, path, client side, factory, logger, close on exception, handshake timeout, auto ping (4), auto pong,
        # largest frame, extra headers, read buffer: small, because there is one per idle connection.
        super().__init__(None, None, False, route, _SILENT, True, None, *_NO_AUTO_PING, False, MAX_FRAME, None, 2048)

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(PicowsTransport(transport))

    def get_buffer(self, size_hint: int) -> memoryview:
        """Limit what is read at a time. picows doubles its buffer whenever a read has filled it, without end."""
        buffer = _get_buffer(self, size_hint)
        return buffer if len(buffer) <= READ else buffer[:READ]

    def eof_received(self) -> bool:
        if self.listener is not None:
            self.listener.on_eof()
        return False

    data_received = None  # or the transport would keep that of the protocol before, and the protocol with it

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._depart(self._group)

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
