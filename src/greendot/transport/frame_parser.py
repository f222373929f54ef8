"""Parser of WebSocket frames: picows without a socket.

A parser takes 4 KiB. Most reads contain whole frames only, so one parser serves all sockets of a node. A socket has a
parser of its own only while a frame is incomplete, and after a close frame or a violation.
"""

from __future__ import annotations

import sys
from typing import Any, Protocol

from picows import WSFrame, WSListener, WSTransport, WSUpgradeRequest
from picows.picows import WSProtocol  # type: ignore[attr-defined]  # not public: the seam test notices if it moves

from greendot.protocol.codec import MAX_FRAME
from greendot.telemetry import log_events
from greendot.telemetry.log import log

_HANDSHAKE = (  # picows parses no frames before a handshake
    b"GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
_NO_AUTO_PING = (False, 0, 0, 1)


class FrameReader(Protocol):
    """Socket whose bytes are parsed."""

    def on_frame(self, frame: WSFrame) -> None: ...
    def refuse(self, code: int, reason: str) -> None:
        """Handle a violation that picows found. It is reported before the last frame in front of it."""
        ...


class _Frames(WSListener):
    """Listener of one parser."""

    __slots__ = ("last", "reader")

    def __init__(self) -> None:
        self.reader: FrameReader | None = None  # set while a read is parsed
        self.last: WSFrame | None = None  # last frame of the read

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        self.last = frame
        self.reader.on_frame(frame)  # type: ignore[union-attr]


class _NoSocket:
    """Socket as picows sees it. picows sets options, and reads others only to log them."""

    def fileno(self) -> int:
        return -1  # never used: see `_NoTransport.get_write_buffer_size`

    def setsockopt(self, *option: int) -> None:
        pass

    def getsockopt(self, *option: int) -> int:
        return 0


_NO_SOCKET = _NoSocket()


class _NoTransport:
    """Transport as picows sees it.

    After the handshake picows writes only close frames, and then closes the transport. Such a write is reported to the
    reader instead, because other output may be waiting and a frame before the violation is not delivered yet.
    """

    __slots__ = ("_frames",)

    def __init__(self, frames: _Frames) -> None:
        self._frames = frames

    def get_extra_info(self, name: str) -> Any:
        return _NO_SOCKET if name == "socket" else None

    def get_write_buffer_size(self) -> int:
        return 1  # otherwise picows writes to the descriptor directly

    def write(self, data: bytes) -> None:
        if (reader := self._frames.reader) is not None:
            payload = data[2:] if data[1] < 126 else data[4:]
            reader.refuse(int.from_bytes(payload[:2], "big"), payload[2:].decode())

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass


class _Silent:
    """Logger for picows that passes on only exceptions in callbacks, which are faults of this server."""

    def isEnabledFor(self, level: int) -> bool:
        return False

    def _nothing(self, *args: object, **kwargs: object) -> None:
        pass

    debug = info = warning = error = log = _nothing

    def exception(self, *args: object, **kwargs: object) -> None:
        log(log_events.WORK_FAILED, sys.exc_info()[1], work="socket callback")


_SILENT = _Silent()


class FrameParser(WSProtocol):  # type: ignore[misc]
    """picows protocol that parses bytes of any socket. A read is put into `get_buffer`, then `parse` is called."""

    __slots__ = ("_frames",)

    def __init__(self) -> None:
        frames = self._frames = _Frames()

        def route(request: WSUpgradeRequest) -> WSListener:
            return frames

        # host, path, client side, factory, logger, close on exception, handshake timeout, auto ping (4), auto pong,
        # largest frame, extra headers, read buffer
        super().__init__(None, None, False, route, _SILENT, True, None, *_NO_AUTO_PING, False, MAX_FRAME, None, 2048)
        self.connection_made(_NoTransport(frames))
        self.get_buffer(-1)[: len(_HANDSHAKE)] = _HANDSHAKE
        self.buffer_updated(len(_HANDSHAKE))

    def parse(self, reader: FrameReader, nbytes: int) -> bool:
        """Pass the frames of a read to `reader`.

        Return whether another reader may use this parser next. This is so if the read ended with a whole frame, and no
        close frame or violation has changed the state of the parser.
        """
        frames = self._frames
        frames.reader = reader
        self.buffer_updated(nbytes)
        last, frames.last, frames.reader = frames.last, None, None
        return last is not None and not last.tail_size and self.transport.close_handshake is None


class FrameParsers:
    """Parsers of a node: one for all sockets, besides those that sockets keep."""

    __slots__ = ("_spare",)

    def __init__(self) -> None:
        self._spare: FrameParser | None = None

    def spare(self) -> FrameParser:
        """Return the parser for the next read of a socket without its own parser."""
        if self._spare is None:
            self._spare = FrameParser()
        return self._spare

    def take(self) -> FrameParser:
        """Return the parser that `spare` returns, for one reader only."""
        taken, self._spare = self.spare(), None
        return taken

    def give_back(self, parser: FrameParser) -> None:
        self._spare = parser
