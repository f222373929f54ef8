"""Protocol of an upgraded socket: RFC 6455 rules that picows does not implement.

picows (`frame_parser`) checks masks, opcodes, control frames, close codes and the size of a frame. This module adds
reserved bits, the order of fragments, the size of a whole message and UTF-8, and turns frames into whole text messages.
It also decides when a close frame is sent and how the connection ends, instead of picows (docs/adr/0037).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from picows import WSFrame, WSMsgType

from greendot.protocol.codec import MAX_FRAME
from greendot.protocol.codes import Close
from greendot.transport.frame_parser import FrameParser, FrameParsers

MOST_BYTES = 256 * 1024  # bytes discarded from a closing socket; then reading stops, so that a flood costs no more time
_SINK = memoryview(bytearray(64 * 1024))  # shared: its content is never read


class ClosingSocket(asyncio.BufferedProtocol):
    """Protocol of a socket whose last bytes were written. The socket ends when the peer ends its side."""

    __slots__ = ("_left", "_protocol", "_socket")

    def __init__(self, socket: asyncio.Transport, protocol: asyncio.BaseProtocol) -> None:
        self._socket = socket
        self._protocol = protocol  # receives connection_lost
        self._left = MOST_BYTES

    def get_buffer(self, sizehint: int) -> memoryview:
        return _SINK

    def buffer_updated(self, nbytes: int) -> None:
        self._left -= nbytes
        if self._left <= 0 and not self._socket.is_closing():
            self._socket.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)


READ = 4096  # bytes per read: picows hands over every frame of a read, and the shortest has 6 bytes
IGNORED = 64  # frames a peer may send after a close frame before frames are no longer parsed
# Reasons to pause reading from a socket.
BACKLOG, FLOOD, VIOLATION = 1, 2, 4

_TEXT, _CONTINUATION, _BINARY = WSMsgType.TEXT, WSMsgType.CONTINUATION, WSMsgType.BINARY
_PING, _CLOSE = WSMsgType.PING, WSMsgType.CLOSE
_INTERNAL = 1011  # close code of picows after an exception in a callback
_OF_CLOSE = "Received CLOSE"  # start of each reason that picows gives about a close frame


def _may_be_sent(code: int) -> bool:
    """Return whether a close frame may carry this code. picows checks the other codes."""
    return code not in (0, 1006) and code < 5000


class Framing(asyncio.BufferedProtocol):
    """WebSocket that reports whole messages. Subclasses handle them."""

    __slots__ = (
        "_depart",
        "_fragments",
        "_group",
        "_ignored",
        "_parser",
        "_parsers",
        "_paused",
        "closing",
        "deaf",
        "socket",
    )

    socket: asyncio.Transport
    closing: bool  # a close frame was sent or received: nothing more is sent
    deaf: bool  # frames are ignored: the connection is closing, or is about to be closed
    _fragments: bytearray | None  # of an incomplete message
    _ignored: int  # frames received since a close frame
    _paused: int  # reasons to pause reading, as bits
    _parsers: FrameParsers
    _parser: FrameParser | None  # of an incomplete frame, or after a close frame or a violation
    _depart: Callable[[Any], None]
    _group: object

    data_received = None  # else the transport keeps the bound method of the previous protocol, and that protocol

    def __init__(self) -> None:
        self.closing = self.deaf = False
        self._fragments = self._parser = None
        self._ignored = self._paused = 0

    def open(
        self,
        socket: asyncio.Transport,
        parsers: FrameParsers,
        response: bytes,
        depart: Callable[[Any], None] = lambda group: None,
        group: object = None,
    ) -> None:
        """Take over the socket of a valid handshake and write the 101 response.

        `depart` is called with `group` when the socket is closed.
        """
        self.socket = socket
        self._parsers = parsers
        self._depart, self._group = depart, group
        socket.set_protocol(self)  # before the first write: from here on the WebSocket handles the flow control
        socket.write(response)
        self.on_connected()

    def on_connected(self) -> None:
        """Record that the WebSocket is open."""

    def on_disconnected(self) -> None:
        """Record that the socket is closed."""

    def on_text(self, text: str) -> None:
        """Receive a whole text message."""

    def on_counted(self) -> bool:
        """Count a control frame or a fragment; return False if the peer sends too many."""
        return True

    def on_ping(self, payload: bytes) -> None:
        """Answer a ping with a pong of the same payload."""

    def on_received(self) -> None:
        """Record that the peer has sent a frame, of any kind."""

    def on_client_close(self, code: int) -> None:
        """Receive the peer's close frame; `code` is 0 if the frame has none."""

    def on_eof(self) -> None:
        """Record that the peer ended its side without a close frame. The socket closes when its output is written."""

    def on_violation(self, code: int, reason: str) -> None:
        """Close the connection, because the peer broke the protocol."""
        self.close(code, reason)

    def close(self, code: int, reason: str = "", last: bytes | None = None) -> None:
        """Send `last` and a close frame, and end the connection."""

    # --- from the transport ---

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for a read. Its size is limited, because picows doubles a buffer that a read has filled."""
        # The transport reads and calls `buffer_updated` at once, so other sockets do not use the same buffer meanwhile.
        buffer: memoryview = (self._parser or self._parsers.spare()).get_buffer(-1)
        return buffer if len(buffer) <= READ else buffer[:READ]

    def buffer_updated(self, nbytes: int) -> None:
        parser = self._parser or self._parsers.take()
        if parser.parse(self, nbytes):
            self._parser = None
            self._parsers.give_back(parser)
        else:
            self._parser = parser

    def feed(self, data: bytes) -> None:
        """Handle bytes that were read together with the handshake."""
        while data:
            buffer = self.get_buffer(-1)
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            self.buffer_updated(size)
            data = data[size:]

    def eof_received(self) -> bool:
        self.on_eof()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._parser = None
        try:
            self.on_disconnected()
        finally:
            self._depart(self._group)

    # --- frames ---

    def on_frame(self, frame: WSFrame) -> None:
        kind = frame.msg_type
        if self.deaf:
            self._ignore(kind)
            return
        self.on_received()
        if frame.rsv1 or frame.rsv2 or frame.rsv3:
            self._fail(Close.PROTOCOL_VIOLATION, "reserved bits are set without a negotiated extension")
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
            self._fail(Close.BINARY, "binary frames are not accepted; send text frames")
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
            self.on_counted()  # the last fragment is counted together with the message
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
            self._fail(Close.PROTOCOL_VIOLATION, "this close code is not allowed in a close frame")
            self._end_after_close()
            return
        self.closing = self.deaf = True
        self.on_client_close(code)

    def _ignore(self, kind: WSMsgType) -> None:
        if not self.closing:  # the connection is about to close; this frame came with an earlier read
            return
        if kind == _CLOSE:
            self.socket.close()
            return
        self._ignored += 1
        if self._ignored == IGNORED:
            self.linger()

    # --- violations ---

    def refuse(self, code: int, reason: str) -> None:
        """Close the connection for a violation that picows found.

        picows calls this before it hands over a frame that it has already parsed, so the close comes after that frame.
        """
        if code == _INTERNAL:
            self.deaf = True
            self.close(code, reason)
            return
        self.pause_reading(VIOLATION)  # the parser cannot continue after the violation
        asyncio.get_running_loop().call_soon(self._fail_parsed, code, reason)

    def _fail_parsed(self, code: int, reason: str) -> None:
        if not self.deaf:
            self._fail(code, reason)
            if reason.startswith(_OF_CLOSE):
                self._end_after_close()

    def _end_after_close(self) -> None:
        """End TCP at once after the peer's close frame.

        The peer has this side's close frame, unless messages wait to be handled first.
        """
        if self.closing:
            self.socket.close()

    def _fail(self, code: int, reason: str) -> None:
        self.deaf = True
        self.pause_reading(VIOLATION)
        self.on_violation(code, reason)

    # --- the socket ---

    def pause_reading(self, reason: int = BACKLOG) -> None:
        if not self._paused and not self.socket.is_closing():
            self.socket.pause_reading()
        self._paused |= reason

    def resume_reading(self, reason: int = BACKLOG) -> None:
        """Resume reading, unless another reason remains. Works while closing too, to receive the peer's close frame."""
        if self._paused & reason:
            self._paused &= ~reason
            if not self._paused and not self.socket.is_closing():
                self.socket.resume_reading()

    def linger(self) -> None:
        """End this side and discard further input. The caller closes the socket after a time.

        Unread bytes would make the kernel reset the connection, and the peer would lose the close frame.
        """
        socket = self.socket
        if socket.is_closing():
            return
        if not socket.can_write_eof():  # TLS ends with a message of its own, and would decrypt a flood before it
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
