"""The end of a socket whose peer may still be sending: its bytes are read and dropped, up to a limit."""

from __future__ import annotations

import asyncio

MOST_BYTES = 256 * 1024  # then reading stops: a flood costs nothing more
_SINK = memoryview(bytearray(64 * 1024))  # shared: nobody looks at it


class Lingering(asyncio.BufferedProtocol):
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
