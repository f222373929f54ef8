"""Protocol of an upgraded socket: turns frames into whole text messages (RFC 6455).

`frame_model` finds the frames and checks each of them. This module checks their order and the size of a whole message.
It also decides when a close frame is sent and how the connection ends (docs/adr/0037).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

from greendot.protocol.codec import MAX_FRAME
from greendot.protocol.codes import Close
from greendot.telemetry import log_events
from greendot.telemetry.log import log
from greendot.transport.frame_model import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    TEXT,
    WHOLE_TEXT,
    BadFrame,
    TextFragments,
    close_code,
    next_frame,
    text_of,
)
from greendot.transport.plain_socket import PlainSocket, SocketProtocol
from greendot.transport.tls import release

MOST_BYTES = 256 * 1024  # bytes discarded from a closing socket; then reading stops, so that a flood costs no more time
_SINK = memoryview(bytearray(64 * 1024))  # shared: its content is never read


class ClosingSocket(SocketProtocol):
    """Protocol of a socket whose last bytes were written. The socket ends when the peer ends its side."""

    __slots__ = ("_left", "_protocol", "_socket")

    def __init__(self, socket: asyncio.Transport, protocol: asyncio.BaseProtocol) -> None:
        self._socket = socket
        self._protocol = protocol  # receives connection_lost
        self._left = MOST_BYTES

    def get_buffer(self, sizehint: int) -> memoryview:
        return _SINK

    def feed(self, data: bytes) -> None:
        self.buffer_updated(len(data))

    def buffer_updated(self, nbytes: int) -> None:
        self._left -= nbytes
        if self._left <= 0 and not self._socket.is_closing():
            self._socket.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)


READ = 4096  # bytes per read: all frames of a read are handled in one turn, and the shortest has 6 bytes
IGNORED = 64  # frames a peer may send after a close frame before frames are no longer parsed
# Reasons to pause reading from a socket.
BACKLOG, FLOOD, VIOLATION = 1, 2, 4
_INTERNAL = 1011  # close code after an exception in a callback


def write_now(socket: asyncio.Transport, fd: int, data: bytes) -> None:
    """Write to a descriptor directly, which takes less time than the transport.

    The transport writes what the kernel does not take. It writes all if output waits, or without a descriptor. The
    descriptor of a closing transport may already belong to another socket.
    """
    if isinstance(socket, PlainSocket):
        socket.write(data)  # directly, too
        return
    if fd >= 0 and not socket.is_closing() and not socket.get_write_buffer_size():
        try:
            data = data[os.write(fd, data) :]
        except OSError:  # the kernel takes nothing now, or the socket is broken, which the transport finds out
            pass
    if data:
        socket.write(data)


class Framing(SocketProtocol):
    """WebSocket that reports whole messages. Subclasses handle them."""

    __slots__ = (
        "_buffer",
        "_depart",
        "_fragments",
        "_group",
        "_ignored",
        "_paused",
        "_rest",
        "closing",
        "deaf",
        "fd",
        "socket",
    )

    read_size = READ

    socket: asyncio.Transport
    fd: int  # descriptor of a plain socket; -1 for TLS, and when closing
    closing: bool  # a close frame was sent or received: nothing more is sent
    deaf: bool  # frames are ignored: the connection is closing, or is about to be closed
    _fragments: TextFragments | None  # of an incomplete message
    _ignored: int  # frames received since a close frame
    _paused: int  # reasons to pause reading, as bits
    _buffer: memoryview  # for one read; shared by all sockets, because the data is copied at once
    _rest: bytes  # received bytes of an incomplete frame
    _depart: Callable[[Any], None]
    _group: object

    data_received = None  # else the transport keeps the bound method of the previous protocol, and that protocol

    def __init__(self) -> None:
        self.closing = self.deaf = False
        self.fd = -1
        self._fragments = None
        self._rest = b""
        self._ignored = self._paused = 0

    @property
    def is_known(self) -> bool:
        """Return whether the client has a session."""
        return False

    def open(
        self,
        socket: asyncio.Transport,
        fd: int,
        buffer: memoryview,
        response: bytes,
        depart: Callable[[Any], None] = lambda group: None,
        group: object = None,
    ) -> None:
        """Take over the socket of a valid handshake and write the 101 response.

        Reads use `buffer`, which other sockets may use too. `depart` is called with `group` when the socket is closed.
        """
        self.socket, self.fd = socket, fd
        self._buffer = buffer
        self._depart, self._group = depart, group
        socket.set_protocol(self)  # before the first write: from here on the WebSocket handles the flow control
        write_now(socket, fd, response)
        self.on_connected()

    def on_connected(self) -> None:
        """Record that the WebSocket is open."""

    def on_disconnected(self) -> None:
        """Record that the socket is closed."""

    def on_text(self, text: str) -> None:
        """Receive a whole text message."""

    def on_binary(self, payload: bytes) -> None:
        """Receive a whole binary message. Raise BadFrame if the protocol has none."""
        raise BadFrame(Close.BINARY, "binary frames are not accepted; send text frames")

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
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.feed(bytes(self._buffer[:nbytes]))

    def feed(self, data: bytes) -> None:
        """Handle all frames in the received bytes."""
        if self._rest:
            data = self._rest + data
        at, size = 0, len(data)
        try:
            while at < size and (frame := next_frame(data, at)) is not None:
                first, payload, at = frame
                self._on_frame(first, payload)
        except BadFrame as bad:
            self._rest = b""
            self._fail(bad)
        except Exception as error:  # a fault of this server
            log(log_events.WORK_FAILED, error, work="socket callback")
            self._rest = b""
            self.deaf = True
            self.close(_INTERNAL)
        else:
            self._rest = data[at:]

    def eof_received(self) -> bool:
        self.on_eof()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._rest = b""
        try:
            self.on_disconnected()
        finally:
            self._depart(self._group)
            if not isinstance(self.socket, PlainSocket):
                release(self.socket)

    # --- frames ---

    def _on_frame(self, first: int, payload: bytes) -> None:
        """Handle one frame. Raise BadFrame if it is a violation."""
        if self.deaf:
            self._ignore(first & 0x0F)
            return
        self.on_received()
        if first == WHOLE_TEXT and self._fragments is None:  # nearly always
            self.on_text(text_of(payload))
            return
        kind = first & 0x0F
        if kind in (TEXT, CONTINUATION):
            self._fragment(first, payload)
        elif kind == CLOSE:
            code = close_code(payload)
            self.deaf = True
            self.on_client_close(code)  # may still send answers, and a close frame behind them
            self.closing = True
        elif kind == BINARY:
            if first < 0x80 or self._fragments is not None:
                raise BadFrame(Close.BINARY, "binary messages must not be fragmented")
            self.on_binary(payload)
        elif self.on_counted() and kind == PING:
            self.on_ping(payload)

    def _fragment(self, first: int, payload: bytes) -> None:
        if (first & 0x0F == TEXT) == (self._fragments is not None):
            raise BadFrame(Close.PROTOCOL_VIOLATION, "fragments of a message are out of order")
        if self._fragments is None:
            self._fragments = TextFragments()
        if len(self._fragments) + len(payload) > MAX_FRAME:
            raise BadFrame(Close.TOO_BIG, "a message must not exceed 64 KiB")
        if first < 0x80:
            self._fragments.add(payload)
            self.on_counted()  # the last fragment is counted together with the message
        else:
            whole, self._fragments = self._fragments, None
            whole += payload
            self.on_text(text_of(whole))

    def _ignore(self, kind: int) -> None:
        if not self.closing:  # the connection is about to close; this frame came with an earlier read
            return
        if kind == CLOSE:
            self.socket.close()
            return
        self._ignored += 1
        if self._ignored == IGNORED:
            self.linger()

    def _fail(self, bad: BadFrame) -> None:
        """Close the connection for a violation. Messages before it may wait, and are handled first."""
        self.pause_reading(VIOLATION)  # where the next frame begins is not known
        if self.deaf:
            return
        self.deaf = True
        self.on_violation(bad.code, bad.reason)
        if bad.of_close and self.closing:
            self.socket.close()  # the client has this side's close frame, and sends no other

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
